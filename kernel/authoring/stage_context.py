"""What a stage can ask while it runs, and what a host must offer for that."""

import math
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, Final, Generic, Literal, Protocol, TypeAlias, cast, overload

import attrs
from typing_extensions import TypeForm, TypeVar

from holdfast.kernel.authoring.ai import AiLog, AsyncAi, StageAi
from holdfast.kernel.authoring.artifacts import AsyncArtifacts, StageArtifacts
from holdfast.kernel.authoring.heartbeat_details import details_text, form_of
from holdfast.kernel.authoring.nodes import AnyNode, Node
from holdfast.kernel.values import encode
from holdfast.kernel.values.stored_values import decode_recorded
from holdfast.ports.attempt_output import Actor, Scope
from holdfast.ports.errors import InvalidEventError, OutputMissingError, StageCancelledError
from holdfast.ports.events import EVENT_BYTES_MAX, is_event_type
from holdfast.ports.validation import TEXT, Wanted, an, check

R = TypeVar("R")
T = TypeVar("T")
D = TypeVar("D")
ConfigOut = TypeVar("ConfigOut", covariant=True, default=None)

MESSAGE_MAX: Final = 1_000
"""How many characters of a message of progress are kept."""

Level: TypeAlias = Literal["debug", "info", "warning", "error", "critical"]
LEVELS: Final[tuple[Level, ...]] = ("debug", "info", "warning", "error", "critical")
"""How much a line of a log matters, in rising order."""

_STAGE: Final = an("a stage of the pipeline, and not its name", Node)
_SCOPE: Final = Wanted(
    f"one of {', '.join(repr(scope.value) for scope in Scope)}",
    lambda value: isinstance(value, str) and value in frozenset(Scope),
)
_LEVEL: Final = Wanted(
    f"one of {', '.join(map(repr, LEVELS))}", lambda value: isinstance(value, str) and value in LEVELS
)
_FIELD: Final = an("a string, a number, True or False", str, int, float)
_MEASURE: Final = Wanted(
    "a number that is finite and not negative",
    lambda value: isinstance(value, int | float) and math.isfinite(value) and value >= 0,
)
_NOTHING: Final = object()


@attrs.frozen
class BlobRef:
    """Where a blob is, and what it must be. A value like any other: give it on, or store it in one.

    Attributes:
        key: Its name in the blob store.
        sha256: The hash of its bytes, 64 hex digits, by which every read is checked.
        size: How many bytes it has.
    """

    key: str
    sha256: str
    size: int


class StageBlobs(Protocol):
    """Bytes that are too large for a value, kept for as long as their run is."""

    def put(self, name: str, data: bytes, /) -> BlobRef:
        """Store bytes for this attempt, durably. `name` is for people; it need not be unique."""
        ...

    def get(self, ref: BlobRef, /) -> bytes:
        """Return the bytes. BlobMissingError if there are none, BlobCorruptError if they are not those."""
        ...


@attrs.frozen
class StageOutputs:
    """What a stage of this run gave, as canonical JSON: one text, or one for each item if it was mapped."""

    texts: tuple[str, ...]
    mapped: bool = False


class StageRuntime(Protocol):
    """What a host does for the context of a stage. Its methods may be called from any thread."""

    @property
    def blobs(self) -> StageBlobs:
        """The blobs of this run."""
        ...

    @property
    def artifacts(self) -> StageArtifacts:
        """The artifacts of this run."""
        ...

    @property
    def ai(self) -> AiLog:
        """The log of calls of models of this attempt."""
        ...

    @property
    def cancelled(self) -> bool:
        """Whether what this attempt gives will be thrown away. Never blocks."""
        ...

    def outputs(self, stage: str, /) -> StageOutputs | None:
        """Return what the stage of this name gave; None if the run has no such stage, or it is not done."""
        ...

    async def in_thread(self, call: Callable[[], R], /) -> R:
        """Make a call that reads or writes the store, in a thread; return what it gives, or raise what it raises."""
        ...

    def progress(self, done: float, of: float, message: str, /) -> None:
        """Note how far the stage is. Never blocks; only the last note of several may be kept."""
        ...

    def log(self, message: str, fields: dict[str, str | float | bool], /, level: Level = "info") -> None:
        """Add a line to the log of this attempt. Never blocks."""
        ...

    def annotate(
        self, name: str, value: object, /, *, scope: Scope, actor: Actor | None, reason: str, key: str | None
    ) -> None:
        """Say something of this attempt, or of what it belongs to. Never blocks."""
        ...

    def heartbeat(self, details: str, /) -> None:
        """Note that the body is alive, with JSON text for the next attempt. Never blocks; the last one counts."""
        ...

    def last_heartbeat(self) -> str | None:
        """Return what was noted last by an attempt before this one; None if nothing ever was."""
        ...

    def publish(self, type: str, data: str, /) -> None:
        """Keep an event, whose data are JSON text, until the attempt ends. Never blocks. InvalidEventError."""
        ...


@attrs.frozen(kw_only=True, eq=False)
class StageContext(Generic[ConfigOut]):
    """What the engine hands to a stage whose first parameter asks for it.

    `output_of`, `outputs_of`, `last_heartbeat`, `blobs` and `artifacts` read and write the store, and so does `ai`
    where texts are large. They block meanwhile: mostly for a millisecond, and for up to half a minute when the store is
    away. Async bodies that care for the others on their event loop await those of `aio`. Everything else never blocks.

    Attributes:
        run_id: The run.
        workflow: The name of the pipeline.
        stage: The name of the stage.
        item: Which item of a map this is, from 0; None if the stage is not mapped.
        attempt: Which attempt this is, from 1.
        epoch: The number of the lease. It rises with every attempt, also with those given back.
        idempotency_key: The same text for every attempt of this stage, and of this item. Hand it to services that
            accept one, and they do their work once.
        deadline: When the attempt times out, or the run's deadline if that is earlier; None if neither is set.
        config: What `configure` was given, or the default of the config class.
    """

    run_id: str
    workflow: str
    stage: str
    item: int | None = None
    attempt: int
    epoch: int
    idempotency_key: str
    deadline: datetime | None = None
    config: ConfigOut
    _runtime: StageRuntime = attrs.field(alias="runtime", repr=False)

    @overload
    def output_of(self, stage: AnyNode[R], /) -> R: ...
    @overload
    def output_of(self, stage: AnyNode[R], /, default: T) -> R | T: ...
    def output_of(self, stage: AnyNode[object], /, default: object = _NOTHING) -> object:
        """Return what an earlier stage gave.

        Raises:
            OutputMissingError: The run has no such stage, or it is not done, and there is no default. Also if the stage
                was mapped: it gave many.
        """
        check("output_of", _STAGE, stage=stage)
        outputs = self._runtime.outputs(stage.name)
        if outputs is None and default is not _NOTHING:
            return default
        if outputs is None:
            raise _missing(stage.name)
        if outputs.mapped:
            raise OutputMissingError(stage.name, "it was mapped; use outputs_of for the list of what it gave")
        return decode_recorded(outputs.texts[0], stage.output_type, f"what stage {stage.name!r} gave")

    def outputs_of(self, stage: AnyNode[R], /) -> list[R]:
        """Return what an earlier mapped stage gave, one for each item and in their order.

        Raises:
            OutputMissingError: The run has no such stage, it is not done, or it was not mapped.
        """
        check("outputs_of", _STAGE, stage=stage)
        outputs = self._runtime.outputs(stage.name)
        if outputs is None:
            raise _missing(stage.name)
        if not outputs.mapped:
            raise OutputMissingError(stage.name, "it was not mapped; use output_of for what it gave")
        what = f"what stage {stage.name!r} gave for an item"
        return [cast("R", decode_recorded(text, stage.output_type, what)) for text in outputs.texts]

    def progress(self, done: float, of: float, message: str = "") -> None:
        """Say how far the stage is. InvalidArgumentError if a number is negative, infinite or NaN."""
        check("progress", _MEASURE, done=done, of=of)
        check("progress", TEXT, message=message)
        self._runtime.progress(done, of, message[:MESSAGE_MAX])

    def log(self, message: str, /, *, level: Level = "info", **fields: str | float | bool) -> None:
        """Add a line to the log of this attempt. It is kept beside the run's history, not in it.

        Others can read it within about two seconds. A message is kept up to 4,000 characters, and so are all fields
        together. Of more than 1,000 lines within two seconds the last are kept, and of an attempt 20,000 in all.
        """
        check("log", TEXT, message=message)
        check("log", _LEVEL, level=level)
        check("log", _FIELD, **fields)
        self._runtime.log(message, fields, level)

    def annotate(
        self,
        name: str,
        value: object,
        /,
        *,
        scope: Scope | Literal["run", "stage", "item", "attempt"] = Scope.ATTEMPT,
        reason: str = "",
        key: str | None = None,
        actor: Actor | None = None,
    ) -> None:
        """Say something of this attempt, for those who look at the run or look for it. See `RunHandle.annotate`.

        It is stored within about two seconds, at the latest with what the attempt ends with, whether the body fails or
        not; what is not stored when the attempt is lost never is. Runs are found by texts: `value` may be any JSON.

        Args:
            name: 1 to 200 characters.
            value: Plain JSON, up to 16,384 characters.
            scope: Say it of the `run`, the `stage` or the `item`, and not of this `attempt` only.
            reason: Why, for people.
            key: Say it once in this run, whichever attempt says it first under this key and name.
            actor: Who says it, if it is not this stage.

        Raises:
            InvalidArgumentError: One of these is of another kind.
            UnstorableValueError: The value is no plain JSON.
            InvalidCommandError: One of these is too long, or nothing that can be stored; or it is one of more than
                1,000 annotations within two seconds.
        """
        check("annotate", TEXT, name=name, reason=reason)
        check("annotate", _SCOPE, scope=scope)
        check("annotate", TEXT.or_none, key=key)
        check("annotate", an("an Actor(kind, id)", Actor).or_none, actor=actor)
        self._runtime.annotate(name, value, scope=Scope(scope), actor=actor, reason=reason, key=key)

    def heartbeat(self, details: object = None) -> None:
        """Say that the body is alive, and what the next attempt is to know if this one is lost.

        It is stored within some seconds, the last of several; a stage's `heartbeat_timeout` counts from then.

        Args:
            details: A small value: plain JSON, or of a class that values can be of.

        Raises:
            UnstorableValueError: The details can't be stored, or are longer than 16 KiB.
        """
        self._runtime.heartbeat(details_text(details))

    @overload
    def last_heartbeat(self, form: TypeForm[T], /) -> T | None: ...
    @overload
    def last_heartbeat(self, form: TypeForm[T], /, default: D) -> T | D: ...
    def last_heartbeat(self, form: object, /, default: object = None) -> object:
        """Return the details of the last heartbeat that an earlier attempt gave. The default if there was none.

        Raises:
            UnreadableInputError: They are not of this type. If the body does not handle that, its run is blocked.
        """
        text = self._runtime.last_heartbeat()
        return default if text is None else decode_recorded(text, form, "the details of the last heartbeat")

    def publish(self, type: str, data: object = None, /) -> None:
        """Say that something has happened: an event in the run's history, and for sinks, of the type `user.<type>`.

        It is stored together with what the stage gives, if and only if that is. What an attempt publishes that fails
        or comes too late is dropped.

        Args:
            type: Words of `a-z 0-9 _` with dots between them, as `order.paid`; at most 100 characters.
            data: Plain JSON, or an object of a class that values may have; at most 64 KiB as JSON text.

        Raises:
            InvalidEventError: The type is none, the data are too large, or there are too many events.
            UnstorableValueError: The data can't be stored.
        """
        check("publish", TEXT, type=type)
        if not is_event_type(type):
            raise InvalidEventError(
                f"{type[:120]!r} is no type of event: use words of a-z 0-9 _ with dots between them, as order.paid"
            )
        text = encode(data, form_of(data))
        if len(text) > EVENT_BYTES_MAX:
            raise InvalidEventError(
                f"the event {type} has {len(text):,} bytes, more than {EVENT_BYTES_MAX:,}: publish a BlobRef"
            )
        self._runtime.publish(type, text)

    @property
    def blobs(self) -> StageBlobs:
        """Bytes that are too large for a value."""
        return self._runtime.blobs

    @property
    def artifacts(self) -> StageArtifacts:
        """Named blobs that are listed with the run."""
        return self._runtime.artifacts

    @property
    def ai(self) -> StageAi:
        """The log of calls of models: what they were for, what they took and cost, what went in and came out."""
        return StageAi(self._runtime.ai)

    @property
    def aio(self) -> "AsyncAccess":
        """What reads and writes the store, for async bodies: `await ctx.aio.output_of(extract)`."""
        return AsyncAccess(self, self._runtime)

    @property
    def cancelled(self) -> bool:
        """Whether to stop: the run was cancelled, the attempt timed out, or its lease was lost."""
        return self._runtime.cancelled

    def check_cancelled(self) -> None:
        """Raise StageCancelledError if the body is to stop. For loops in sync bodies; async ones are cancelled."""
        if self._runtime.cancelled:
            raise StageCancelledError(self.run_id, self.stage)


@attrs.frozen
class AsyncBlobs:
    """`StageBlobs`, to be awaited."""

    _runtime: StageRuntime

    async def put(self, name: str, data: bytes, /) -> BlobRef:
        """See `StageBlobs.put`."""
        return await self._runtime.in_thread(partial(self._runtime.blobs.put, name, data))

    async def get(self, ref: BlobRef, /) -> bytes:
        """See `StageBlobs.get`."""
        return await self._runtime.in_thread(partial(self._runtime.blobs.get, ref))


@attrs.frozen
class AsyncAccess:
    """What a context reads and writes in the store, to be awaited: threads do it, so that the event loop goes on."""

    _context: StageContext[Any]
    _runtime: StageRuntime

    @overload
    async def output_of(self, stage: AnyNode[R], /) -> R: ...
    @overload
    async def output_of(self, stage: AnyNode[R], /, default: T) -> R | T: ...
    async def output_of(self, stage: AnyNode[object], /, default: object = _NOTHING) -> object:
        """See `StageContext.output_of`."""
        return await self._runtime.in_thread(partial(self._context.output_of, stage, default))

    async def outputs_of(self, stage: AnyNode[R], /) -> list[R]:
        """See `StageContext.outputs_of`."""
        return await self._runtime.in_thread(partial(self._context.outputs_of, stage))

    @overload
    async def last_heartbeat(self, form: TypeForm[T], /) -> T | None: ...
    @overload
    async def last_heartbeat(self, form: TypeForm[T], /, default: D) -> T | D: ...
    async def last_heartbeat(self, form: object, /, default: object = None) -> object:
        """See `StageContext.last_heartbeat`."""
        read = cast("Callable[..., object]", self._context.last_heartbeat)
        return await self._runtime.in_thread(partial(read, form, default))

    @property
    def blobs(self) -> AsyncBlobs:
        """See `StageContext.blobs`."""
        return AsyncBlobs(self._runtime)

    @property
    def artifacts(self) -> AsyncArtifacts:
        """See `StageContext.artifacts`."""
        return AsyncArtifacts(self._runtime.artifacts, self._runtime)

    @property
    def ai(self) -> AsyncAi:
        """See `StageContext.ai`."""
        return AsyncAi(StageAi(self._runtime.ai), self._runtime.ai, self._runtime)


def _missing(stage: str) -> OutputMissingError:
    return OutputMissingError(stage, "it is not an earlier stage of this pipeline, or has not been done")
