"""The services of a running attempt: outputs of earlier stages, its log, its blobs, and cancellation."""

import hashlib
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

import attrs
from typing_extensions import override

from holdfast.hosts.execution.ai_call_log import AttemptAiLog
from holdfast.hosts.execution.artifacts import AttemptArtifacts
from holdfast.hosts.execution.output_buffer import OutputBuffer
from holdfast.hosts.execution.threads import result_in_thread
from holdfast.hosts.text import printable
from holdfast.hosts.wiring.ai_settings import AiSettings
from holdfast.hosts.wiring.input_loader import InputLoader
from holdfast.hosts.wiring.payloads import BlobOwner, Payloads
from holdfast.kernel.authoring.artifacts import Artifacts
from holdfast.kernel.authoring.attempt_context import BlobRef, Blobs, Level
from holdfast.kernel.authoring.stage_context import StageOutputs
from holdfast.kernel.authoring.workflow_context import CALL_MAX, AiOutput, LogOutput, ProgressOutput
from holdfast.kernel.commands import (
    AiCallOutput,
    AnnotationOutput,
    AttemptOutput,
    EventAppend,
    PublishedEvent,
)
from holdfast.kernel.commands.codec import to_data
from holdfast.kernel.commands.jobs import OutputKind
from holdfast.kernel.functions.protocol import FunctionOutput
from holdfast.kernel.values.annotation_values import encode_annotation
from holdfast.ports.actors import Actor
from holdfast.ports.attempt_output import AnnotationScope
from holdfast.ports.clock import Clock, micros
from holdfast.ports.errors import BlobCorruptError, InvalidEventError, NoBlobStoreError
from holdfast.ports.json import canonical
from holdfast.ports.persistence import Persistence
from holdfast.ports.queries.history import LastHeartbeat, OutputRows
from holdfast.ports.records.job import JobKey
from holdfast.ports.records.values import Micros, Payload
from holdfast.ports.references import Reference, is_map, leaves, located, references_from
from holdfast.ports.structs import evolve
from holdfast.ports.validation import DATA, TEXT, an, check

R = TypeVar("R")

LINES_MAX: Final = 20_000
"""How many log lines of an attempt are kept in all; later ones are dropped."""
LINE_MAX: Final = 4_000
"""How many characters of the message of a log line are kept, and of all its fields together."""

_HASH: Final = 18
"""How many digits of a run's hash are in the id of what its function has reported: ids have 32 characters."""

EVENTS_MAX: Final = 1_000
"""How many events an attempt may publish."""
EVENTS_BYTES_MAX: Final = 1_048_576
"""How many bytes of JSON text, which is ASCII, the events of an attempt may have together."""


class HeartbeatSink(Protocol):
    """The receiver of the heartbeats of a step. It may be called from any thread."""

    def beat(self, details: str, /) -> None:
        """Record a heartbeat, with JSON text for the next attempt. Never blocks."""
        ...

    @property
    def last(self) -> str | None:
        """The details of the last heartbeat of earlier attempts, or None."""
        ...


@attrs.frozen(kw_only=True)
class Origin:
    """The body that log lines, annotations and other output come from."""

    run: str
    stage: str
    """The name of the stage, step or function."""
    item: int | None
    attempt: int
    actor: Actor
    call: str = ""
    """The call of a step; "" for other bodies."""


@attrs.frozen(kw_only=True)
class AttemptParts:
    """What the services of an attempt need."""

    kept: str | None
    job: JobKey
    place: BlobOwner
    persistence: Persistence
    inputs: InputLoader
    payloads: Payloads
    clock: Clock
    ai: AiSettings


class AttemptRuntime:
    """The services behind the context of one attempt. Its methods are safe from any thread."""

    def __init__(self, origin: Origin, parts: AttemptParts, buffer: OutputBuffer) -> None:
        self._origin = origin
        self._parts = parts
        self._buffer = buffer
        self._of_function: OutputBuffer | None = None
        """What a durable function itself reports. Its driver stores it with rows, so heartbeats leave it out."""
        self._is_cancelled = False
        self.is_in_thread = False
        """Whether a thread runs the sync body of the attempt. It may do so after the attempt was abandoned."""
        self._lock = threading.Lock()
        self._lines = 0
        self._last_heartbeat: tuple[str | None] | None = None
        self._published: list[PublishedEvent] = []
        self._published_bytes = 0
        self._step_artifacts: tuple[AttemptOutput, ...] = ()
        self.received: tuple[int, ...] = ()
        """Row numbers of messages that a durable function has received and that are not recorded as received."""
        # Created on first use: few attempts need them.
        self._blobs: AttemptBlobs | None = None
        self._artifacts: AttemptArtifacts | None = None
        self._ai: AttemptAiLog | None = None

    def of_step(self, name: str, call: str, attempt: int, heartbeats: HeartbeatSink | None) -> "StepRuntime":
        """Return the services of an attempt of a step that this attempt runs. Their output is stored with its own."""
        actor = attrs.evolve(self._origin.actor, kind="step", id=f"{self._origin.actor.id}/{name}")
        origin = Origin(run=self._origin.run, stage=name, item=None, attempt=attempt, actor=actor, call=call)
        return StepRuntime(origin, self._parts, self._buffer, self, heartbeats)

    @property
    def blobs(self) -> Blobs:
        """See `AttemptServices.blobs`."""
        with self._lock:
            self._blobs = self._blobs or AttemptBlobs(self._parts.payloads, self._parts.place)
            return self._blobs

    @property
    def artifacts(self) -> Artifacts:
        """See `AttemptServices.artifacts`."""
        with self._lock:
            if self._artifacts is None:
                parts = self._parts
                self._artifacts = AttemptArtifacts(
                    self._origin.run,
                    parts.kept,
                    parts.place,
                    self._origin.stage,
                    parts.persistence,
                    parts.payloads,
                )
            return self._artifacts

    @property
    def ai(self) -> AttemptAiLog:
        """See `AttemptServices.ai`."""
        with self._lock:
            if self._ai is None:
                parts, origin = self._parts, self._origin
                step = f"/{origin.call}/{origin.attempt}" if origin.call else ""
                self._ai = AttemptAiLog(
                    parts.ai, parts.payloads, parts.place, parts.clock, self._add_ai_call, parts.job, step
                )
            return self._ai

    @property
    def cancelled(self) -> bool:
        """See `AttemptServices.cancelled`."""
        return self._is_cancelled

    def cancel(self) -> None:
        """Make `cancelled` true, so that the body can stop."""
        self._is_cancelled = True

    def outputs(self, stage: str, /) -> StageOutputs | None:
        """See `StageRuntime.outputs`. Reads the store."""
        rows = self._parts.persistence.read(OutputRows(self._origin.run, stage))
        if not rows:
            return self._kept_outputs(stage)
        mapped = rows[0].item is not None
        in_order = sorted(rows, key=lambda row: row.item or 0)
        wanted: tuple[tuple[str, Reference], ...] = tuple((self._origin.run, row.number) for row in in_order)
        values = self._parts.inputs.values(wanted)
        return StageOutputs(tuple(self._parts.inputs.one(values[key]) for key in wanted), mapped=mapped)

    def _kept_outputs(self, stage: str) -> StageOutputs | None:
        """Return the outputs of a stage that this generation of the run does not run again."""
        reference = references_from(self._parts.kept).get(stage)
        if reference is None:
            return None
        wanted = tuple(located(self._origin.run, leaf) for leaf in leaves(reference))
        values = self._parts.inputs.values(wanted)
        texts = tuple(self._parts.inputs.one((payload,)) for place in wanted for payload in values[place])
        return StageOutputs(texts, mapped=is_map(reference))

    async def in_thread(self, call: Callable[[], R], /) -> R:
        """See `AttemptServices.in_thread`."""
        return await result_in_thread(call)

    def progress(self, done: float, of: float, message: str, /) -> None:
        """See `OutputTarget.progress`. Only the last value between two heartbeats is stored."""
        self._buffer.add(self._progress_output(done, of, message))

    def log(
        self, message: str, fields: Mapping[str, str | int | float | bool], /, level: Level = "info"
    ) -> None:
        """See `OutputTarget.log`."""
        with self._lock:
            line = self._line(message, fields, level)
        if line is not None:
            self._buffer.add(line)

    def annotate(
        self,
        name: str,
        value: object,
        /,
        *,
        scope: AnnotationScope | None,
        actor: Actor | None,
        reason: str,
        key: str | None,
    ) -> None:
        """See `OutputTarget.annotate`."""
        annotation = AnnotationOutput(
            name=name,
            value=encode_annotation(value),
            scope=scope or AnnotationScope.ATTEMPT,
            actor=actor or self._origin.actor,
            reason=reason,
            key=key,
        )
        self._buffer.add(self._output("annotation", to_data(annotation)))

    def heartbeat(self, details: str, /) -> None:
        """See `AttemptServices.heartbeat`. Only the last details between two writes to the store are kept."""
        self._buffer.add(AttemptOutput(kind="heartbeat", at=self._now(), data=details))

    def last_heartbeat(self) -> str | None:
        """See `AttemptServices.last_heartbeat`. Reads the store once, except in the first epoch."""
        if self._last_heartbeat is None:
            parts = self._parts
            query = LastHeartbeat(self._origin.run, parts.job.number, parts.place.epoch)
            note = parts.persistence.read(query) if parts.place.epoch > 1 else None
            self._last_heartbeat = (None if note is None else note.data,)
        return self._last_heartbeat[0]

    def publish(self, type: str, data: str, /) -> None:
        """See `OutputTarget.publish`. Holds the event until the attempt ends."""
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

    @property
    def artifact_outputs(self) -> tuple[AttemptOutput, ...]:
        """The artifacts that the attempt has put, to be stored with its result."""
        if self._artifacts is None:
            return self._step_artifacts
        put = tuple(self._artifacts.put_so_far.values())
        return tuple(self._output("artifact", to_data(one)) for one in put)

    def finish_step(self, step: EventAppend) -> None:
        """Take over what the queued step of this attempt stores with its result."""
        self._published = list(step.published)
        self._step_artifacts = step.artifacts

    def take_outputs(self) -> tuple[AttemptOutput, ...]:
        """Remove and return the buffered output, for a heartbeat."""
        return self._buffer.take()

    def take_all(self) -> tuple[AttemptOutput, ...]:
        """Remove and return the buffered output, with what a function itself has reported."""
        outputs = self._buffer.take()
        return outputs if self._of_function is None else (*self._of_function.take(), *outputs)

    def put_back(self, outputs: Sequence[AttemptOutput]) -> None:
        """Buffer output that was taken again, because it could not be stored."""
        own, buffer = self._of_function, self._buffer
        if own is not None:
            own.put_back([one for one in outputs if _is_of_function(one)])
        buffer.put_back([one for one in outputs if own is None or not _is_of_function(one)])

    def _add_ai_call(self, call: AiCallOutput) -> None:
        self._buffer.add(self._output("ai_call", to_data(call)))

    # What a durable function itself reports -------------------------------------------------------------------------

    @property
    def has_function_output(self) -> bool:
        """Whether the function has reported something that is not stored."""
        return self._of_function is not None and bool(self._of_function)

    def report(self, one: FunctionOutput, row_at: Micros) -> None:
        """Buffer what the function has reported in the turn of a row, which was stored at `row_at`.

        Its id is the same if the turn is executed again. The time is not, except of model calls, whose key contains it.
        """
        run = hashlib.sha256(self._origin.run.encode()).hexdigest()[:_HASH]
        name = f"{one.row:08}{one.number:06}{run}"
        output: AttemptOutput | None
        match one.content:
            case LogOutput(message=message, fields=fields, level=level):
                output = self._line(message, fields, level)
            case ProgressOutput(done=done, of=of, message=message):
                output = self._progress_output(done, of, message)
            case AnnotationOutput() as annotation:
                actor = annotation.actor if annotation.actor != Actor() else self._origin.actor
                key = annotation.key or f"@{name}"
                output = self._output("annotation", to_data(attrs.evolve(annotation, actor=actor, key=key)))
            case AiOutput(call=call, options=options):
                logged = self.ai.output(name, call, options, inline_max=CALL_MAX)
                output = evolve(self._output("ai_call", to_data(logged)), at=row_at)
            case content:
                raise AssertionError(f"a function reports {content}")
        if output is not None:
            self._of_function = self._of_function or OutputBuffer(annotations=math.inf)
            self._of_function.add(evolve(output, id=name))

    # Forms ----------------------------------------------------------------------------------------------------------

    def _line(
        self, message: str, fields: Mapping[str, str | int | float | bool], level: Level
    ) -> AttemptOutput | None:
        """Return a log line; None if the attempt has logged too many."""
        self._lines += 1
        if self._lines > LINES_MAX:
            if self._lines > LINES_MAX + 1:
                return None
            message, level = (
                f"this attempt has logged {LINES_MAX} lines: further lines are dropped",
                "warning",
            )
            fields = {}
        line: dict[str, object] = {"message": printable(message[:LINE_MAX]), "fields": _kept(fields)}
        if level != "info":
            line["level"] = level
        return self._output("log", {**line, **self._where()})

    def _progress_output(self, done: float, of: float, message: str) -> AttemptOutput:
        return self._output(
            "progress", {"done": done, "of": of, "message": printable(message), **self._where()}
        )

    def _where(self) -> dict[str, object]:
        origin = self._origin
        item = {} if origin.item is None else {"item": origin.item}
        return {"stage": origin.stage, "attempt": origin.attempt, **item}

    def _output(self, kind: OutputKind, data: dict[str, object]) -> AttemptOutput:
        origin = self._origin
        node = origin.stage if origin.call else None
        return AttemptOutput(kind=kind, at=self._now(), node=node, call=origin.call, data=canonical(data))

    def _now(self) -> Micros:
        return micros(self._parts.clock.now())


class StepRuntime(AttemptRuntime):
    """The services behind the context of one attempt of a step. Its output is stored with that of its runner."""

    def __init__(
        self,
        origin: Origin,
        parts: AttemptParts,
        buffer: OutputBuffer,
        runner: AttemptRuntime,
        heartbeats: HeartbeatSink | None,
    ) -> None:
        super().__init__(origin, parts, buffer)
        self._runner = runner
        self._heartbeats = heartbeats

    @property
    @override
    def cancelled(self) -> bool:
        return self._is_cancelled or self._runner.cancelled

    @override
    def heartbeat(self, details: str, /) -> None:
        if self._heartbeats is not None:
            self._heartbeats.beat(details)

    @override
    def last_heartbeat(self) -> str | None:
        return None if self._heartbeats is None else self._heartbeats.last


def _is_of_function(output: AttemptOutput) -> bool:
    """Whether a function itself has reported this, and no step."""
    return output.node is None and output.kind != "heartbeat"


class AttemptBlobs:
    """See `Blobs`. The blobs that a stage stores belong to its attempt."""

    def __init__(self, payloads: Payloads, place: BlobOwner) -> None:
        self._payloads = payloads
        self._place = place

    def put(self, name: str, data: bytes, /) -> BlobRef:
        """See `Blobs.put`."""
        check("put", TEXT, name=name)
        check("put", DATA, data=data)
        if self._payloads.blobs is None:
            raise NoBlobStoreError(name)
        sha256 = hashlib.sha256(data).hexdigest()
        key = self._place.key(sha256)
        self._payloads.blobs.put(key, data)
        return BlobRef(key=key, sha256=sha256, size=len(data))

    def get(self, ref: BlobRef, /) -> bytes:
        """See `Blobs.get`."""
        check("get", an("the BlobRef that put returned", BlobRef), ref=ref)
        if self._payloads.blobs is None:
            raise NoBlobStoreError(ref.key)
        if not ref.key.startswith(f"{self._place.namespace}/"):
            raise BlobCorruptError(ref.key)
        data = self._payloads.blobs.get(ref.key)
        if hashlib.sha256(data).hexdigest() != ref.sha256:
            raise BlobCorruptError(ref.key)
        return data


def _kept(fields: Mapping[str, str | int | float | bool]) -> dict[str, str | float]:
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
