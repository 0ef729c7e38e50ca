"""Log of the calls of AI models that attempts make: priced, redacted, and with large texts in blobs."""

import hashlib
import logging
from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import count
from typing import Final, Literal

import attrs

from holdfast.hosts.text import printable
from holdfast.hosts.wiring.ai_settings import AiSettings
from holdfast.hosts.wiring.payloads import BlobOwner, Payloads
from holdfast.kernel.authoring.ai import AiCallOptions, call_output
from holdfast.kernel.commands import AiCallOutput
from holdfast.kernel.values import encode
from holdfast.ports.clock import Clock
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
    """See `AiLog`. Passes each recorded call to `report`. `step` differs for each attempt of a job's steps."""

    def __init__(
        self,
        settings: AiSettings,
        payloads: Payloads,
        place: BlobOwner,
        clock: Clock,
        report: Callable[[AiCallOutput], None],
        job: JobKey,
        step: str,
    ) -> None:
        self._settings = settings
        self._payloads = payloads
        self._place = place
        self._clock = clock
        self._report = report
        self._count = count(1)
        self._attempted = f"{job.text}/{place.epoch}{step}"

    @cached_property
    def _attempt(self) -> str:
        return hashlib.sha256(self._attempted.encode()).hexdigest()[:32]

    def monotonic(self) -> float:
        """See `AiLog.monotonic`."""
        return self._clock.monotonic()

    def record(self, topic: str, model: str, options: AiCallOptions, /) -> None:
        """See `AiLog.record`."""
        # The id sorts in the order of the calls, even those of the same instant.
        self._report(
            self.output(f"{next(self._count):08}{self._attempt}", call_output(topic, model, options), options)
        )

    def output(
        self, id: str, call: AiCallOutput, options: AiCallOptions, *, inline_max: int = TEXT_INLINE_MAX
    ) -> AiCallOutput:
        """Return a call under an id, priced and with its redacted texts. Stores those longer than `inline_max`."""
        return attrs.evolve(
            call,
            id=id,
            cost=self._cost(call),
            prompt=self._stored("prompt", options.get("prompt"), inline_max),
            response=self._stored("response", options.get("response"), inline_max),
            error=self._error(options.get("error")),
            metadata=self._metadata(options.get("metadata")),
        )

    def _cost(self, call: AiCallOutput) -> int | None:
        price = self._settings.prices.get(call.model)
        if call.cost is not None or price is None:
            return call.cost
        return price.of(call.input_tokens, call.output_tokens)

    def _stored(self, what: Literal["prompt", "response"], value: object, inline_max: int) -> Payload | None:
        redacted = self._redacted(what, value)
        if redacted is None:
            return None
        return self._payloads.put(encode(redacted, object), self._place, inline_max=inline_max)

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
