"""The connection to a server, for async code: sends requests, and repeats those that got no answer."""

import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, cast

import attrs
from anyio import sleep

from holdfast.hosts.http_client.answers import Fault, Tries, fault_of, lost
from holdfast.hosts.http_client.own_clients import OwnClients, current_loop
from holdfast.hosts.http_client.requests import ClientRequest, base_of
from holdfast.hosts.http_client.streams import STREAM_TYPE, Frame, FrameReader
from holdfast.ports.errors import HoldfastError, InvalidArgumentError, ServerAnswerError

if TYPE_CHECKING:
    import httpx

ANSWER_SECONDS: Final = 30.0
"""How long an answer may take, beside the wait of the request."""
STREAM_SECONDS: Final = 45.0
"""How long a stream may be silent. A server sends a comment every 15 seconds."""

_log = logging.getLogger("holdfast.client")


class Connection:
    """The connections to one server.

    Args:
        url: The URL of the server.
        key: An API key or a token, or a function that returns one; None to send none.
        patience: For how many seconds a request is repeated.
        http: A client of httpx to send with; one of its own if omitted.
    """

    def __init__(
        self,
        url: str,
        key: str | Callable[[], str] | None,
        patience: float,
        http: "httpx.AsyncClient | None",
    ) -> None:
        self._base = base_of(url, "Client")
        self._key = key
        self._patience = patience
        self._http = http
        self._own = OwnClients(_new_http, current_loop) if http is None else None

    async def close(self) -> None:
        """Close the connections, unless they are those of a client that was passed."""
        if self._own is not None and (http := self._own.take()) is not None:
            await http.aclose()

    async def send(self, request: ClientRequest) -> bytes:
        """Return the content of the answer to a request.

        Raises the error of the problem that it is answered with, or UnavailableError.
        """
        tries = Tries(request, self._patience, time.monotonic)
        while True:
            answer = await self._sent(request)
            if isinstance(answer, bytes):
                return answer
            await self._wait(request, tries, answer)

    async def stream(self, request: ClientRequest, last: str | None = None) -> AsyncIterator[Frame]:
        """Yield the events of a stream until it ends for good. A lost connection continues after the last event.

        Raises as `send`.
        """
        tries = Tries(request, self._patience, time.monotonic)
        while True:
            fault: Fault | None = None
            try:
                async with self._streaming(request, last) as lines:
                    reader = FrameReader()
                    async for line in lines:
                        frame = reader.take(line)
                        if frame is None:
                            continue
                        tries = Tries(request, self._patience, time.monotonic)
                        last = frame.id or last
                        yield frame
                        if frame.is_end:
                            return
            except _Faulty as faulty:
                fault = faulty.fault
                if fault is None:
                    return
            if fault is None:  # the server stops, or has closed the stream
                fault = lost(request, "the stream has ended", is_unsent=False)
            await self._wait(request, tries, fault)

    async def _wait(self, request: ClientRequest, tries: Tries, fault: Fault) -> None:
        pause = tries.pause_after(fault)
        _log.info("%s is repeated in %.1f s: %s", request.text, pause, fault.error)
        await sleep(pause)

    async def _sent(self, request: ClientRequest) -> bytes | Fault:
        import httpx

        try:
            response = await self._client().request(
                request.operation.method,
                self._base + request.path,
                content=request.body,
                headers=httpx.Headers({**request.headers, **self._credentials()}, encoding="utf-8"),
                timeout=ANSWER_SECONDS + request.wait,
                follow_redirects=False,
            )
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            return lost(request, f"{type(error).__name__}: {error}", is_unsent=True)
        except httpx.LocalProtocolError as error:  # a header that can't be sent: nor can it be later
            return attrs.evolve(lost(request, str(error), is_unsent=True), is_passing=False)
        except (httpx.TransportError, httpx.DecodingError) as error:
            return lost(request, f"{type(error).__name__}: {error}", is_unsent=False)
        fault = fault_of(request, response.status_code, response.headers, response.content)
        return response.content if fault is None else fault

    @asynccontextmanager
    async def _streaming(
        self, request: ClientRequest, last: str | None
    ) -> AsyncGenerator[AsyncIterator[str]]:
        """Provide the lines of a stream. Raises _Faulty."""
        import httpx

        headers = {**request.headers, **self._credentials(), "Accept": STREAM_TYPE}
        if last is not None:
            headers["Last-Event-ID"] = last
        try:
            async with self._client().stream(
                request.operation.method,
                self._base + request.path,
                headers=headers,
                timeout=STREAM_SECONDS,
                follow_redirects=False,
            ) as response:
                if response.status_code == 204:  # by the standard: do not connect again
                    raise _Faulty(None)
                if response.status_code != 200:
                    content = await response.aread()
                    fault = fault_of(request, response.status_code, response.headers, content)
                    raise _Faulty(fault or _no_stream(request, response.status_code))
                if not response.headers.get("content-type", "").startswith(STREAM_TYPE):
                    raise _Faulty(_no_stream(request, response.status_code))
                yield response.aiter_lines()
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise _Faulty(lost(request, f"{type(error).__name__}: {error}", is_unsent=True)) from None
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise _Faulty(lost(request, f"{type(error).__name__}: {error}", is_unsent=False)) from None

    def _client(self) -> "httpx.AsyncClient":
        return self._own.get() if self._own is not None else cast("httpx.AsyncClient", self._http)

    def _credentials(self) -> dict[str, str]:
        key = self._key() if callable(self._key) else self._key
        if key is not None and not (key.isascii() and key.isprintable()):
            raise InvalidArgumentError("key", "Client: the key has characters that no key or token has")
        return {} if key is None else {"Authorization": f"Bearer {key}"}


class _Faulty(Exception):  # noqa: N818  # it carries a fault, and reaches no caller
    """A stream that was not opened, or was lost. Without a fault: the stream has ended for good."""

    def __init__(self, fault: Fault | None) -> None:
        super().__init__()
        self.fault = fault


def _no_stream(request: ClientRequest, status: int) -> Fault:
    error: HoldfastError = ServerAnswerError(
        status, "", f"the answer to {request.text} is no stream of events"
    )
    return Fault(error=error)


def _new_http() -> "httpx.AsyncClient":
    try:
        import httpx
    except ModuleNotFoundError as error:
        if error.name != "httpx":
            raise
        raise ModuleNotFoundError(
            'the client of a server needs httpx: pip install "holdfast[client]"', name=error.name
        ) from None
    # Each wait has a connection of its own.
    return httpx.AsyncClient(limits=httpx.Limits(max_connections=None, max_keepalive_connections=20))
