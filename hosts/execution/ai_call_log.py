"""Log of the calls of AI models that attempts make: priced, redacted, and with large texts in blobs."""

import hashlib
import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cached_property
from itertools import count
from typing import Final, Literal

from holdfast.hosts.text import printable
from holdfast.hosts.wiring.ai_settings import AiSettings
from holdfast.hosts.wiring.payloads import BlobOwner, Payloads
from holdfast.kernel.authoring.ai import AiCallOptions, cost_units
from holdfast.kernel.commands import AiCallOutput
from holdfast.kernel.values import encode
from holdfast.ports.attempt_output import AiCallKind
from holdfast.ports.clock import Clock
from holdfast.ports.durations import length_of
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.records.job import JobKey
from holdfast.ports.records.values import Payload

TEXT_INLINE_MAX: Final = 4_096
"""How many characters of a prompt or a response are stored in the row, if there is a blob store."""
METADATA_MAX: Final = 16_384
"""How many characters of JSON text the metadata of a call may have."""
ERROR_MAX: Final = 2_000
"""How many characters of an error are stored."""

_log = logging.getLogger("holdfast.ai")


class AttemptAiLog:
    """See `AiLog`. Passes each recorded call to `report`."""

    def __init__(
        self,
        settings: AiSettings,
        payloads: Payloads,
        place: BlobOwner,
        clock: Clock,
        report: Callable[[AiCallOutput], None],
        job: JobKey,
    ) -> None:
        self._settings = settings
        self._payloads = payloads
        self._place = place
        self._clock = clock
        self._report = report
        self._count = count(1)
        self._job = job

    @cached_property
    def _attempt(self) -> str:
        return hashlib.sha256(f"{self._job.text}/{self._place.epoch}".encode()).hexdigest()[:32]

    def monotonic(self) -> float:
        """See `AiLog.monotonic`."""
        return self._clock.monotonic()

    def record(self, topic: str, model: str, options: AiCallOptions, /) -> None:
        """See `AiLog.record`."""
        duration = length_of(options.get("duration"))
        output = AiCallOutput(
            # Sorts in the order of the calls, even those of the same instant.
            id=f"{next(self._count):08}{self._attempt}",
            topic=topic,
            model=model,
            kind=_kind(options.get("kind", "text")),
            input_tokens=_integer("input_tokens", options.get("input_tokens", 0)),
            output_tokens=_integer("output_tokens", options.get("output_tokens", 0)),
            cost=self._cost(model, options),
            duration=None if duration is None else duration // timedelta(microseconds=1),
            batch=options.get("batch"),
            batch_index=options.get("batch_index"),
            prompt=self._stored("prompt", options.get("prompt")),
            response=self._stored("response", options.get("response")),
            error=self._error(options.get("error")),
            metadata=self._metadata(options.get("metadata")),
        )
        self._report(output)

    def _cost(self, model: str, options: AiCallOptions) -> int | None:
        cost = cost_units(options.get("cost"))
        price = self._settings.prices.get(model)
        if cost is not None or price is None:
            return cost
        return price.of(options.get("input_tokens", 0), options.get("output_tokens", 0))

    def _stored(self, what: Literal["prompt", "response"], value: object) -> Payload | None:
        redacted = self._redacted(what, value)
        if redacted is None:
            return None
        return self._payloads.put(encode(redacted, object), self._place, inline_max=TEXT_INLINE_MAX)

    def _error(self, error: str | None) -> str | None:
        if error is None:
            return None
        redacted = self._redacted("error", error)
        return printable(str(redacted if redacted is not None else "(not kept)"))[:ERROR_MAX]

    def _metadata(self, metadata: Mapping[str, object] | None) -> str | None:
        redacted = self._redacted("metadata", dict(metadata)) if metadata else None
        if redacted is None:
            return None
        text = encode(redacted, object)
        if len(text) > METADATA_MAX:
            raise InvalidCommandError(f"metadata have {len(text)} characters; {METADATA_MAX} are possible")
        return text

    def _redacted(self, what: Literal["prompt", "response", "error", "metadata"], value: object) -> object:
        """Return the redacted value. A value whose redaction failed is dropped; the call still counts."""
        redact = self._settings.redact
        if value is None or redact is None:
            return value
        try:
            return redact(what, value)
        except Exception as error:  # noqa: BLE001  # must not fail the body or lose the count; the value may be secret
            _log.error("redacting a %s failed (%s): it is not stored", what, type(error).__name__)
            return None


def _kind(kind: str) -> AiCallKind:
    try:
        return AiCallKind(kind)
    except ValueError:
        known = ", ".join(one.value for one in AiCallKind)
        raise InvalidCommandError(f"kind is {kind!r}; it is one of {known}") from None


def _integer(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidCommandError(f"{name} is {value!r}; it must be an integer")
    return value
