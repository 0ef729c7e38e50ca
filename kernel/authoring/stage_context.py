"""`StageContext`: what a stage can read and write while it runs, and the protocol that hosts implement for it."""

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
from holdfast.kernel.authoring.nodes import AnyNode, PlanNode
from holdfast.kernel.values import encode
from holdfast.kernel.values.stored_values import decode_recorded
from holdfast.ports.actors import ACTOR, Actor
from holdfast.ports.attempt_output import AnnotationScope
from holdfast.ports.errors import InvalidEventError, OutputMissingError, StageCancelledError
from holdfast.ports.events import EVENT_BYTES_MAX, is_event_type
from holdfast.ports.validation import TEXT, Wanted, an, check

R = TypeVar("R")
T = TypeVar("T")
D = TypeVar("D")
ConfigOut = TypeVar("ConfigOut", covariant=True, default=None)

MESSAGE_MAX: Final = 1_000
"""Maximum length of a progress message, in characters. Longer ones are cut."""

Level: TypeAlias = Literal["debug", "info", "warning", "error", "critical"]
LEVELS: Final[tuple[Level, ...]] = ("debug", "info", "warning", "error", "critical")
"""Log levels, in rising order."""

_STAGE: Final = an("a stage of the pipeline, and not its name", PlanNode)
_SCOPE: Final = Wanted(
    f"one of {', '.join(repr(scope.value) for scope in AnnotationScope)}",
    lambda value: isinstance(value, str) and value in frozenset(AnnotationScope),
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
    """A reference to a blob. It is a value: return it from a stage, or store it in one.

    Attributes:
        key: Name of the blob in the blob store.
        sha256: SHA-256 of its bytes in 64 hex digits. Every read verifies it.
        size: Number of bytes.
    """

    key: str
    sha256: str
    size: int


class StageBlobs(Protocol):
    """Bytes that are too large for a value, as `ctx.blobs`. They are deleted with their run."""

    def put(self, name: str, data: bytes, /) -> BlobRef:
        """Store bytes durably: `ctx.blobs.put("page.png", data)`. The name is for people and need not be unique."""
        ...

    def get(self, ref: BlobRef, /) -> bytes:
        """Return the bytes of a blob. BlobMissingError if it does not exist, BlobCorruptError if it has changed."""
        ...


@attrs.frozen
class StageOutputs:
    """The output of a stage as canonical JSON: one text, or for a mapped stage one for each item."""

    texts: tuple[str, ...]
    mapped: bool = False


class StageRuntime(Protocol):
    """What a host provides for a stage's context. Its methods may be called from any thread."""

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
        """The log of model calls of this attempt."""
        ...

    @property
    def cancelled(self) -> bool:
        """Whether the result of this attempt will be dropped. Never blocks."""
        ...

    def outputs(self, stage: str, /) -> StageOutputs | None:
        """Return the output of a stage; None if the run has no such stage, or it has not completed."""
        ...

    async def in_thread(self, call: Callable[[], R], /) -> R:
        """Run a call that reads or writes the store in a thread. Return its result, or raise its error."""
        ...

    def progress(self, done: float, of: float, message: str, /) -> None:
        """Record the progress of the stage. Never blocks; of several records only the last one may be stored."""
        ...

    def log(self, message: str, fields: dict[str, str | float | bool], /, level: Level = "info") -> None:
        """Add a line to the log of this attempt. Never blocks."""
        ...

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
        """Annotate this attempt, or its item, stage or run. Never blocks."""
        ...

    def heartbeat(self, details: str, /) -> None:
        """Record a heartbeat with JSON text for the next attempt. Never blocks; the last one counts."""
        ...

    def last_heartbeat(self) -> str | None:
        """Return the details of the last heartbeat of earlier attempts, or None."""
        ...

    def publish(self, type: str, data: str, /) -> None:
        """Hold an event until the attempt ends; `data` is JSON text. Never blocks. Raises InvalidEventError."""
        ...


@attrs.frozen(kw_only=True, eq=False)
class StageContext(Generic[ConfigOut]):
    """The context of a stage, passed to a body whose first parameter is annotated `StageContext`.

    `output_of`, `outputs_of`, `last_heartbeat`, `blobs` and `artifacts` read and write the store, and so does `ai` for
    large texts. They block: mostly for a millisecond, but for up to half a minute while the store is unavailable. In
    async bodies, await the methods of `ctx.aio` instead. Nothing else blocks.

    Attributes:
        run_id: Id of the run.
        workflow: Name of the pipeline.
        stage: Name of the stage.
        item: Index of the map item, from 0; None if the stage is not mapped.
        attempt: Number of this attempt, from 1.
        epoch: Number of the job's claim. It rises with every claim, including those that were given back.
        idempotency_key: The same text for every attempt of this stage or map item. Pass it to services that accept
            idempotency keys.
        deadline: When the attempt times out, or the run's deadline if that is earlier; None if neither is set.
        config: The config set with `configure`, or the defaults of the config class.
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
        """Return the output of an earlier stage: `ctx.output_of(extract)`.

        Raises:
            OutputMissingError: The run has no such stage or it has not completed, and no default is given; or the stage
                was mapped.
        """
        check("output_of", _STAGE, stage=stage)
        outputs = self._runtime.outputs(stage.name)
        if outputs is None and default is not _NOTHING:
            return default
        if outputs is None:
            raise _missing(stage.name)
        if outputs.mapped:
            raise OutputMissingError(stage.name, "it was mapped; use outputs_of for the list of its outputs")
        return decode_recorded(
            outputs.texts[0], stage.output_type, f"the output of stage {stage.name!r} gave"
        )

    def outputs_of(self, stage: AnyNode[R], /) -> list[R]:
        """Return the outputs of an earlier mapped stage as a list, in the order of the items.

        Raises:
            OutputMissingError: The run has no such stage, it has not completed, or it was not mapped.
        """
        check("outputs_of", _STAGE, stage=stage)
        outputs = self._runtime.outputs(stage.name)
        if outputs is None:
            raise _missing(stage.name)
        if not outputs.mapped:
            raise OutputMissingError(stage.name, "it was not mapped; use output_of for its output")
        what = f"the output of stage {stage.name!r} for an item"
        return [cast("R", decode_recorded(text, stage.output_type, what)) for text in outputs.texts]

    def progress(self, done: float, of: float, message: str = "") -> None:
        """Report progress: `ctx.progress(3, 10)`. InvalidArgumentError if a number is negative, infinite or NaN."""
        check("progress", _MEASURE, done=done, of=of)
        check("progress", TEXT, message=message)
        self._runtime.progress(done, of, message[:MESSAGE_MAX])

    def log(self, message: str, /, *, level: Level = "info", **fields: str | float | bool) -> None:
        """Add a line to the log of this attempt: `ctx.log("sent", to=address)`. It is not part of the history.

        Readers see it within about two seconds. The message is cut at 4,000 characters, and so are all fields together.
        Of more than 1,000 lines in two seconds the last are stored; of an attempt, 20,000 in all.
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
        scope: AnnotationScope | Literal["run", "stage", "item", "attempt"] = AnnotationScope.ATTEMPT,
        reason: str = "",
        key: str | None = None,
        actor: Actor | None = None,
    ) -> None:
        """Annotate this attempt, or its run, stage or item: `ctx.annotate("quality", "good", scope="run")`.

        The annotation is stored within about two seconds, and at the latest with the outcome of the attempt, even if
        the body fails. If the attempt is lost before that, the annotation is lost too. Runs can be found by annotations
        whose value is a text. See `RunHandle.annotate`.

        Args:
            name: 1 to 200 characters.
            value: Plain JSON, up to 16,384 characters.
            scope: What to annotate: "attempt", "item", "stage" or "run".
            reason: Why, for people.
            key: Store the annotation once in a run: from the first attempt that uses this key and name.
            actor: The author, if it is not this stage.

        Raises:
            InvalidArgumentError: An argument is of the wrong type.
            UnstorableValueError: The value is not plain JSON.
            InvalidCommandError: An argument is too long or can't be stored, or there are more than 1,000 annotations in
                two seconds.
        """
        check("annotate", TEXT, name=name, reason=reason)
        check("annotate", _SCOPE, scope=scope)
        check("annotate", TEXT.or_none, key=key)
        check("annotate", ACTOR.or_none, actor=actor)
        self._runtime.annotate(name, value, scope=AnnotationScope(scope), actor=actor, reason=reason, key=key)

    def heartbeat(self, details: object = None) -> None:
        """Send a heartbeat, with details for the next attempt if this one is lost.

        The last of several is stored within seconds. The stage's `heartbeat_timeout` starts anew then.

        Args:
            details: A small value, plain JSON or of a storable class: up to 16 KiB as JSON.

        Raises:
            UnstorableValueError: The details can't be stored, or are too large.
        """
        self._runtime.heartbeat(details_text(details))

    @overload
    def last_heartbeat(self, form: TypeForm[T], /) -> T | None: ...
    @overload
    def last_heartbeat(self, form: TypeForm[T], /, default: D) -> T | D: ...
    def last_heartbeat(self, form: object, /, default: object = None) -> object:
        """Return the details of the last heartbeat of earlier attempts, read as `form`, or the default.

        Raises:
            UnreadableInputError: They do not have this type. If the body does not catch it, the run is blocked.
        """
        text = self._runtime.last_heartbeat()
        return default if text is None else decode_recorded(text, form, "the details of the last heartbeat")

    def publish(self, type: str, data: object = None, /) -> None:
        """Publish an event for sinks, as a row of the history: `ctx.publish("order.paid", {"cents": 1999})`.

        Its type is `user.<type>`. It is stored with the output of the stage, if and only if that is stored. Events of
        an attempt that fails or is late are dropped.

        Args:
            type: Words of `a-z 0-9 _` joined by dots, such as `order.paid`; up to 100 characters.
            data: Plain JSON or an object of a storable class; up to 64 KiB as JSON.

        Raises:
            InvalidEventError: The type is invalid, the data are too large, or there are too many events.
            UnstorableValueError: The data can't be stored.
        """
        check("publish", TEXT, type=type)
        if not is_event_type(type):
            raise InvalidEventError(
                f"{type[:120]!r} is not an event type: use words of a-z 0-9 _ with dots between them, as order.paid"
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
        """The log of model calls: topics, tokens, costs, prompts and responses."""
        return StageAi(self._runtime.ai)

    @property
    def aio(self) -> "AsyncAccess":
        """Async versions of the methods that block: `await ctx.aio.output_of(extract)`."""
        return AsyncAccess(self, self._runtime)

    @property
    def cancelled(self) -> bool:
        """Whether the body should stop: its run was cancelled, the attempt timed out, or its lease was lost."""
        return self._runtime.cancelled

    def check_cancelled(self) -> None:
        """Raise StageCancelledError if the body should stop. For loops in sync bodies: async bodies are cancelled."""
        if self._runtime.cancelled:
            raise StageCancelledError(self.run_id, self.stage)


@attrs.frozen
class AsyncBlobs:
    """`StageBlobs` with async methods, as `ctx.aio.blobs`."""

    _runtime: StageRuntime

    async def put(self, name: str, data: bytes, /) -> BlobRef:
        """See `StageBlobs.put`."""
        return await self._runtime.in_thread(partial(self._runtime.blobs.put, name, data))

    async def get(self, ref: BlobRef, /) -> bytes:
        """See `StageBlobs.get`."""
        return await self._runtime.in_thread(partial(self._runtime.blobs.get, ref))


@attrs.frozen
class AsyncAccess:
    """The blocking methods of `StageContext` as async ones, as `ctx.aio`. They run in threads."""

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
