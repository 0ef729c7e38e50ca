"""What is noted of each request: a line of the access log, and the metrics. Never a value of a query or a body."""

import logging
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

import attrs
from starlette.requests import Request
from starlette.types import Message, Send

from holdfast.hosts.http.answers import request_id_of
from holdfast.hosts.http.operations import Access, Hint, Operation
from holdfast.hosts.http.principals import Principal

if TYPE_CHECKING:
    from holdfast.hosts.metrics.metrics import Metrics

RATE_LIMITED: Final = "too_many_requests"
"""The code of requests beyond the limit of their principal."""
NO_OPERATION: Final = "none"
"""The name in logs and metrics for requests to paths or with methods that have no operation."""
CLIENT_LEFT: Final = 499
"""The status in logs and metrics of requests whose client left before an answer was sent."""

_log = logging.getLogger("holdfast.http.access")


@attrs.define(kw_only=True)
class RequestRecord:
    """A request that is being answered."""

    request: Request
    id: str
    """Its id, which the answer has as `X-Request-Id`."""
    operation: Operation | None = None
    principal: Principal | None = None
    status: int = CLIENT_LEFT
    refusal: str | None = None
    """The code of its problem, if it lacks credentials or a right, or there were too many."""
    has_waited: bool = False
    """Whether it was a stream or a wait, whose duration does not measure the server."""

    @property
    def name(self) -> str:
        """The name of its operation."""
        return NO_OPERATION if self.operation is None else self.operation.name

    @property
    def changes(self) -> bool:
        """Whether its operation changes something."""
        return self.operation is not None and self.operation.hint is not Hint.READS

    def noting(self, send: Send) -> Send:
        """Return a `send` that notes the status of the answer."""

        async def send_and_note(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.status = message["status"]
            await send(message)

        return send_and_note


class RequestObserver:
    """Logs requests when they have been answered, and counts them. `monotonic` returns the time in seconds."""

    def __init__(self, metrics: "Metrics | None", monotonic: Callable[[], float]) -> None:
        self._metrics = metrics
        self._monotonic = monotonic

    @contextmanager
    def observed(self, request: Request) -> Generator[RequestRecord]:
        """Provide the record of a request that is answered in the block."""
        record = RequestRecord(request=request, id=request_id_of(request.scope))
        began = self._monotonic()
        try:
            yield record
        finally:
            self._note(record, self._monotonic() - began)

    def open_read(self, kind: str, operation: Operation) -> AbstractContextManager[None]:
        """Count one of the `streams` or `waits` for as long as the block lasts."""
        if self._metrics is None:
            return nullcontext()
        return self._metrics.process.open_read(kind, operation.name)

    def _note(self, record: RequestRecord, seconds: float) -> None:
        if self._metrics is not None:
            if not record.has_waited:
                self._metrics.process.request_answered(record.name, record.status, seconds)
            if record.refusal == RATE_LIMITED:
                self._metrics.process.rate_limited()
            elif record.refusal is not None:
                self._metrics.process.refused(record.refusal)
        # Probes and scrapes come every few seconds for ever.
        is_probe = record.operation is not None and record.operation.is_probe
        _log.log(
            logging.DEBUG if is_probe else logging.INFO,
            "%s %s in %.1f ms",
            record.name,
            record.status,
            seconds * 1_000,
            extra={
                "operation": record.name,
                "status": record.status,
                "ms": round(seconds * 1_000, 1),
                "principal": None if record.principal is None else record.principal.id,
                "namespace": _namespace_of(record),
                "request_id": record.id,
            },
        )


def _namespace_of(record: RequestRecord) -> str | None:
    """Return the namespace of a request whose principal reaches it. What a stranger sends as one is not logged."""
    if record.principal is None or record.operation is None or record.operation.scope is Access.ANYONE:
        return None
    namespace: str | None = record.request.path_params.get("namespace")
    return namespace if namespace is not None and record.principal.reaches(namespace) else None
