"""The services of a running attempt: outputs of earlier stages, its log, its blobs, and cancellation."""

import hashlib
import math
import threading
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import attrs

from holdfast.hosts.execution.ai_call_log import AttemptAiLog
from holdfast.hosts.execution.artifacts import AttemptArtifacts
from holdfast.hosts.execution.threads import result_in_thread
from holdfast.hosts.text import printable
from holdfast.hosts.wiring.ai_settings import AiSettings
from holdfast.hosts.wiring.input_loader import InputLoader
from holdfast.hosts.wiring.payloads import BlobOwner, Payloads
from holdfast.kernel.authoring.ai import AiLog
from holdfast.kernel.authoring.artifacts import StageArtifacts
from holdfast.kernel.authoring.stage_context import BlobRef, Level, StageBlobs, StageOutputs
from holdfast.kernel.commands import AiCallOutput, AnnotationOutput, AttemptOutput, PublishedEvent
from holdfast.kernel.commands.codec import to_data
from holdfast.kernel.commands.jobs import OutputKind
from holdfast.kernel.values import encode
from holdfast.ports.actors import Actor
from holdfast.ports.attempt_output import AnnotationScope
from holdfast.ports.clock import Clock, micros
from holdfast.ports.errors import BlobCorruptError, InvalidCommandError, InvalidEventError, NoBlobStoreError
from holdfast.ports.json import canonical
from holdfast.ports.persistence import Persistence
from holdfast.ports.queries.history import LastHeartbeat, OutputRows
from holdfast.ports.records.job import JobKey
from holdfast.ports.records.values import Payload
from holdfast.ports.references import Reference, is_map, leaves, located, references_from
from holdfast.ports.validation import DATA, TEXT, an, check

R = TypeVar("R")

BUFFERED_LINES_MAX: Final = 1_000
"""How many log lines are buffered between two heartbeats; older ones are dropped."""
LINES_MAX: Final = 20_000
"""How many log lines of an attempt are kept in all; later ones are dropped."""
LINE_MAX: Final = 4_000
"""How many characters of the message of a log line are kept, and of all its fields together."""
ANNOTATIONS_MAX: Final = 1_000
"""How many annotations an attempt may add between two heartbeats."""

EVENTS_MAX: Final = 1_000
"""How many events an attempt may publish."""
EVENTS_BYTES_MAX: Final = 1_048_576
"""How many bytes of JSON text, which is ASCII, the events of an attempt may have together."""


@attrs.frozen(kw_only=True)
class Origin:
    """The attempt that log lines, annotations and other output come from."""

    run: str
    stage: str
    item: int | None
    attempt: int
    actor: Actor


class AttemptRuntime:
    """The services behind the context of one attempt. Its methods are safe from any thread."""

    def __init__(
        self,
        *,
        origin: Origin,
        kept: str | None,
        job: JobKey,
        place: BlobOwner,
        persistence: Persistence,
        inputs: InputLoader,
        payloads: Payloads,
        clock: Clock,
        ai: AiSettings,
    ) -> None:
        self._origin = origin
        self._kept = kept
        self._job = job
        self._epoch = place.epoch
        self._persistence = persistence
        self._inputs = inputs
        self._clock = clock
        self._is_cancelled = False
        self.is_in_thread = False
        """Whether a thread runs the sync body of the attempt. It may do so after the attempt was abandoned."""
        self._lock = threading.Lock()
        self._log: list[AttemptOutput] = []
        self._dropped = 0
        self._lines = 0
        self._progress: AttemptOutput | None = None
        self._annotations: list[AttemptOutput] = []
        self._heartbeat: AttemptOutput | None = None
        self._last_heartbeat: tuple[str | None] | None = None
        self._published: list[PublishedEvent] = []
        self._published_bytes = 0
        self._ai_calls: list[AttemptOutput] = []
        self._payloads = payloads
        self._place = place
        self._ai_settings = ai
        self.received: tuple[int, ...] = ()
        """Row numbers of messages that a durable function has received and that are not recorded as received."""
        # Created on first use: few attempts need them.
        self._blobs: AttemptBlobs | None = None
        self._artifacts: AttemptArtifacts | None = None
        self._ai: AttemptAiLog | None = None

    @property
    def blobs(self) -> StageBlobs:
        """See `StageRuntime.blobs`."""
        with self._lock:
            self._blobs = self._blobs or AttemptBlobs(self._payloads, self._place)
            return self._blobs

    @property
    def artifacts(self) -> StageArtifacts:
        """See `StageRuntime.artifacts`."""
        with self._lock:
            if self._artifacts is None:
                self._artifacts = AttemptArtifacts(
                    self._origin.run, self._kept, self._place, self._persistence, self._payloads
                )
            return self._artifacts

    @property
    def ai(self) -> AiLog:
        """See `StageRuntime.ai`."""
        with self._lock:
            if self._ai is None:
                self._ai = AttemptAiLog(
                    self._ai_settings, self._payloads, self._place, self._clock, self._add_ai_call, self._job
                )
            return self._ai

    @property
    def cancelled(self) -> bool:
        """See `StageRuntime.cancelled`."""
        return self._is_cancelled

    def cancel(self) -> None:
        """Make `cancelled` true, so that the body can stop."""
        self._is_cancelled = True

    def outputs(self, stage: str, /) -> StageOutputs | None:
        """See `StageRuntime.outputs`. Reads the store."""
        rows = self._persistence.read(OutputRows(self._origin.run, stage))
        if not rows:
            return self._kept_outputs(stage)
        mapped = rows[0].item is not None
        in_order = sorted(rows, key=lambda row: row.item or 0)
        wanted: tuple[tuple[str, Reference], ...] = tuple((self._origin.run, row.number) for row in in_order)
        values = self._inputs.values(wanted)
        return StageOutputs(tuple(self._inputs.one(values[key]) for key in wanted), mapped=mapped)

    def _kept_outputs(self, stage: str) -> StageOutputs | None:
        """Return the outputs of a stage that this generation of the run does not run again."""
        reference = references_from(self._kept).get(stage)
        if reference is None:
            return None
        wanted = tuple(located(self._origin.run, leaf) for leaf in leaves(reference))
        values = self._inputs.values(wanted)
        texts = tuple(self._inputs.one((payload,)) for place in wanted for payload in values[place])
        return StageOutputs(texts, mapped=is_map(reference))

    async def in_thread(self, call: Callable[[], R], /) -> R:
        """See `StageRuntime.in_thread`."""
        return await result_in_thread(call)

    def progress(self, done: float, of: float, message: str, /) -> None:
        """See `StageRuntime.progress`. Only the last value between two heartbeats is stored."""
        output = self._output(
            "progress", {"done": done, "of": of, "message": printable(message), **self._where()}
        )
        with self._lock:
            self._progress = output

    def log(
        self, message: str, fields: dict[str, str | int | float | bool], /, level: Level = "info"
    ) -> None:
        """See `StageRuntime.log`."""
        line: dict[str, object] = {"message": printable(message[:LINE_MAX]), "fields": _kept(fields)}
        if level != "info":
            line["level"] = level
        output = self._output("log", {**line, **self._where()})
        with self._lock:
            self._lines += 1
            if self._lines <= LINES_MAX:
                self._keep((output,))
            elif self._lines == LINES_MAX + 1:
                self._keep(
                    (self._notice(f"this attempt has logged {LINES_MAX} lines: further lines are dropped"),)
                )

    def annotate(
        self,
        name: str,
        value: object,
        /,
        *,
        scope: AnnotationScope,
        actor: Actor | None,
        reason: str,
        key: str | None,
    ) -> None:
        """See `StageRuntime.annotate`."""
        annotation = AnnotationOutput(
            name=name,
            value=encode(value, object),
            scope=scope,
            actor=actor or self._origin.actor,
            reason=reason,
            key=key,
        )
        output = self._output("annotation", to_data(annotation))
        with self._lock:
            if len(self._annotations) >= ANNOTATIONS_MAX:
                raise InvalidCommandError(f"more than {ANNOTATIONS_MAX} annotations within two seconds")
            self._annotations.append(output)

    def heartbeat(self, details: str, /) -> None:
        """See `StageRuntime.heartbeat`. Only the last details between two writes to the store are kept."""
        output = AttemptOutput(kind="heartbeat", at=micros(self._clock.now()), data=details)
        with self._lock:
            self._heartbeat = output

    def last_heartbeat(self) -> str | None:
        """See `StageRuntime.last_heartbeat`. Reads the store once, except in the first epoch."""
        if self._last_heartbeat is None:
            known = self._epoch > 1
            query = LastHeartbeat(self._origin.run, self._job.number, self._epoch)
            note = self._persistence.read(query) if known else None
            self._last_heartbeat = (None if note is None else note.data,)
        return self._last_heartbeat[0]

    def publish(self, type: str, data: str, /) -> None:
        """See `StageRuntime.publish`."""
        with self._lock:
            self._published_bytes += len(data)
            if len(self._published) >= EVENTS_MAX or self._published_bytes > EVENTS_BYTES_MAX:
                raise InvalidEventError(
                    f"one attempt publishes at most {EVENTS_MAX:,} events, of {EVENTS_BYTES_MAX:,} bytes together"
                )
            self._published.append(PublishedEvent(type=type, payload=Payload(inline=data)))

    @property
    def published(self) -> tuple[PublishedEvent, ...]:
        """The events that the attempt has published."""
        with self._lock:
            return tuple(self._published)

    def take_outputs(self, *, at_end: bool = False) -> tuple[AttemptOutput, ...]:
        """Remove and return the buffered output; at the end of the attempt also its artifacts."""
        artifacts: tuple[AttemptOutput, ...] = ()
        if at_end and self._artifacts is not None:
            put = tuple(self._artifacts.put_so_far.values())
            artifacts = tuple(self._output("artifact", to_data(one)) for one in put)
        with self._lock:
            lines = list(self._log)
            if self._dropped:
                dropped = self._notice(
                    f"{self._dropped} lines before this one were dropped: too many at once"
                )
                lines.insert(0, attrs.evolve(dropped, at=lines[0].at if lines else dropped.at))
            last = (one for one in (self._progress, self._heartbeat) if one is not None)
            outputs = (*lines, *last, *self._annotations, *self._ai_calls, *artifacts)
            self._log.clear()
            self._dropped = 0
            self._progress = self._heartbeat = None
            self._annotations = []
            self._ai_calls = []
        return outputs

    def put_back(self, outputs: Sequence[AttemptOutput]) -> None:
        """Buffer output that `take_outputs` returned again, because it could not be stored."""
        with self._lock:
            later = tuple(self._log)
            self._log.clear()
            self._keep((*(one for one in outputs if one.kind == "log"), *later))
            self._progress = self._progress or next((one for one in outputs if one.kind == "progress"), None)
            self._annotations[:0] = (one for one in outputs if one.kind == "annotation")
            self._heartbeat = self._heartbeat or next(
                (one for one in outputs if one.kind == "heartbeat"), None
            )
            self._ai_calls[:0] = (one for one in outputs if one.kind == "ai_call")

    def _add_ai_call(self, call: AiCallOutput) -> None:
        output = self._output("ai_call", to_data(call))
        with self._lock:
            self._ai_calls.append(output)

    def _keep(self, lines: Sequence[AttemptOutput]) -> None:
        """Add log lines to the buffer; drop the oldest lines if there are too many."""
        self._log.extend(lines)
        if (too_many := len(self._log) - BUFFERED_LINES_MAX) > 0:
            del self._log[:too_many]
            self._dropped += too_many

    def _notice(self, message: str) -> AttemptOutput:
        return self._output("log", {"message": message, "fields": {}, "level": "warning", **self._where()})

    def _where(self) -> dict[str, object]:
        origin = self._origin
        item = {} if origin.item is None else {"item": origin.item}
        return {"stage": origin.stage, "attempt": origin.attempt, **item}

    def _output(self, kind: OutputKind, data: dict[str, object]) -> AttemptOutput:
        return AttemptOutput(kind=kind, at=micros(self._clock.now()), data=canonical(data))


class AttemptBlobs:
    """See `StageBlobs`. The blobs that a stage stores belong to its attempt."""

    def __init__(self, payloads: Payloads, place: BlobOwner) -> None:
        self._payloads = payloads
        self._place = place

    def put(self, name: str, data: bytes, /) -> BlobRef:
        """See `StageBlobs.put`."""
        check("put", TEXT, name=name)
        check("put", DATA, data=data)
        if self._payloads.blobs is None:
            raise NoBlobStoreError(name)
        sha256 = hashlib.sha256(data).hexdigest()
        key = self._place.key(sha256)
        self._payloads.blobs.put(key, data)
        return BlobRef(key=key, sha256=sha256, size=len(data))

    def get(self, ref: BlobRef, /) -> bytes:
        """See `StageBlobs.get`."""
        check("get", an("the BlobRef that put returned", BlobRef), ref=ref)
        if self._payloads.blobs is None:
            raise NoBlobStoreError(ref.key)
        if not ref.key.startswith(f"{self._place.namespace}/"):
            raise BlobCorruptError(ref.key)
        data = self._payloads.blobs.get(ref.key)
        if hashlib.sha256(data).hexdigest() != ref.sha256:
            raise BlobCorruptError(ref.key)
        return data


def _kept(fields: dict[str, str | int | float | bool]) -> dict[str, str | float]:
    """Return fields in a form that can be stored, cut to the length limit."""
    left = LINE_MAX
    kept: dict[str, str | float] = {}
    for name, value in fields.items():
        if len(name) >= left:
            break
        clean = _storable(value)
        kept[printable(name)] = clean[: left - len(name)] if isinstance(clean, str) else clean
        left -= len(name) + len(str(kept[printable(name)]))
    return kept


def _storable(value: str | float) -> str | float:
    if isinstance(value, str):
        return printable(value)
    return value if isinstance(value, int) or math.isfinite(value) else str(value)
