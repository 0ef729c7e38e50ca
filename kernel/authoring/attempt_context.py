"""What the bodies of stages, steps and workflows share: what they report, and what the context of an attempt offers."""

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Final, Literal, Protocol, TypeAlias, cast, overload

import attrs
from typing_extensions import TypeForm, TypeVar

from holdfast.kernel.authoring.ai import Ai, AiLog, AsyncAi
from holdfast.kernel.authoring.artifacts import Artifacts, AsyncArtifacts
from holdfast.kernel.authoring.heartbeat_details import details_text, form_of
from holdfast.kernel.values import encode
from holdfast.kernel.values.stored_values import decode_recorded
from holdfast.ports.actors import ACTOR, Actor
from holdfast.ports.attempt_output import AnnotationScope
from holdfast.ports.errors import InvalidEventError
from holdfast.ports.events import EVENT_BYTES_MAX, is_event_type
from holdfast.ports.validation import TEXT, Wanted, an, check

R = TypeVar("R")
T = TypeVar("T")
D = TypeVar("D")

MESSAGE_MAX: Final = 1_000
"""Maximum length of a progress message, in characters. Longer ones are cut."""

Level: TypeAlias = Literal["debug", "info", "warning", "error", "critical"]
LEVELS: Final[tuple[Level, ...]] = ("debug", "info", "warning", "error", "critical")
"""Log levels, in rising order."""

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


@attrs.frozen
class BlobRef:
    """A reference to a blob. It is a value: return it from a stage or step, or store it in one.

    Attributes:
        key: Name of the blob in the blob store.
        sha256: SHA-256 of its bytes in 64 hex digits. Every read verifies it.
        size: Number of bytes.
    """

    key: str
    sha256: str
    size: int


class Blobs(Protocol):
    """Bytes that are too large for a value, as `ctx.blobs`. They are deleted with their run."""

    def put(self, name: str, data: bytes, /) -> BlobRef:
        """Store bytes durably: `ctx.blobs.put("page.png", data)`. The name is for people and need not be unique."""
        ...

    def get(self, ref: BlobRef, /) -> bytes:
        """Return the bytes of a blob. BlobMissingError if it does not exist, BlobCorruptError if it has changed."""
        ...


class LogTarget(Protocol):
    """What receives the log of a body."""

    def log(self, message: str, fields: Mapping[str, str | float | bool], /, level: Level = "info") -> None:
        """Add a line. Never blocks; may be called from any thread."""
        ...


class OutputTarget(LogTarget, Protocol):
    """What receives the output of a body. Its methods never block and may be called from any thread."""

    def progress(self, done: float, of: float, message: str, /) -> None:
        """Record progress. Of several records only the last one may be stored."""
        ...

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
        """Annotate the attempt, or its item, stage or run. `scope` None is the default of the body."""
        ...

    def publish(self, type: str, data: str, /) -> None:
        """Publish an event; `data` is JSON text. Raises InvalidEventError."""
        ...


class AttemptServices(OutputTarget, Protocol):
    """What a host provides for the context of an attempt. Its methods may be called from any thread."""

    @property
    def blobs(self) -> Blobs:
        """The blobs of this run."""
        ...

    @property
    def artifacts(self) -> Artifacts:
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

    async def in_thread(self, call: Callable[[], R], /) -> R:
        """Run a call that reads or writes the store in a thread. Return its result, or raise its error."""
        ...

    def heartbeat(self, details: str, /) -> None:
        """Record a heartbeat with JSON text for the next attempt. Never blocks; the last one counts."""
        ...

    def last_heartbeat(self) -> str | None:
        """Return the details of the last heartbeat of earlier attempts, or None."""
        ...


@attrs.frozen(kw_only=True, eq=False)
class OutputContext:
    """What every body can report: a log, progress, annotations and events."""

    run_id: str
    workflow: str
    _runtime: OutputTarget = attrs.field(alias="runtime", repr=False)

    def progress(self, done: float, of: float, message: str = "") -> None:
        """Report progress: `ctx.progress(3, 10)`. InvalidArgumentError if a number is negative, infinite or NaN."""
        check("progress", _MEASURE, done=done, of=of)
        check("progress", TEXT, message=message)
        self._runtime.progress(done, of, message[:MESSAGE_MAX])

    def log(self, message: str, /, *, level: Level = "info", **fields: str | float | bool) -> None:
        """Add a line to the log of the run: `ctx.log("sent", to=address)`. It is not part of the history.

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
        scope: AnnotationScope | Literal["run", "stage", "item", "attempt"] | None = None,
        reason: str = "",
        key: str | None = None,
        actor: Actor | None = None,
    ) -> None:
        """Annotate the attempt, or its run, stage or item: `ctx.annotate("quality", "good", scope="run")`.

        The annotation is stored within about two seconds, and at the latest with the outcome of the attempt, even if
        the body fails. If the attempt is lost before that, the annotation is lost too. Runs can be found by
        annotations. See `RunHandle.annotate`.

        Args:
            name: 1 to 200 characters.
            value: Plain JSON, up to 16,384 characters, or an aware datetime, which is stored as a text in UTC.
            scope: What to annotate: "attempt", "item", "stage" (of a step, the step) or "run". Default: the attempt; in
                a workflow, the run.
            reason: Why, for people.
            key: Store the annotation once in a run: from the first attempt that uses this key and name.
            actor: The author, if it is not this stage, step or workflow.

        Raises:
            InvalidArgumentError: An argument is of the wrong type.
            UnstorableValueError: The value is not plain JSON.
            InvalidCommandError: An argument is too long or can't be stored, or there are more than 1,000 annotations in
                two seconds.
        """
        check("annotate", TEXT, name=name, reason=reason)
        check("annotate", _SCOPE.or_none, scope=scope)
        check("annotate", TEXT.or_none, key=key)
        check("annotate", ACTOR.or_none, actor=actor)
        wanted = None if scope is None else AnnotationScope(scope)
        self._runtime.annotate(name, value, scope=wanted, actor=actor, reason=reason, key=key)

    def publish(self, type: str, data: object = None, /) -> None:
        """Publish an event for sinks, as a row of the history: `ctx.publish("order.paid", {"cents": 1999})`.

        Its type is `user.<type>`. It is stored with the output of the stage or step, if and only if that is stored.
        Events of an attempt that fails or is late are dropped. An event of a workflow is stored within a quarter of a
        second.

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


@attrs.frozen(kw_only=True, eq=False)
class AttemptContext(OutputContext):
    """What the bodies of stages and steps have in common: one attempt, which may be repeated.

    `last_heartbeat`, `blobs` and `artifacts` read and write the store, and so does `ai` for large texts. They block:
    mostly for a millisecond, but for up to half a minute while the store is unavailable. In async bodies, await the
    methods of `ctx.aio` instead. Nothing else blocks.
    """

    attempt: int
    idempotency_key: str
    deadline: datetime | None = None
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str])
    _runtime: AttemptServices = attrs.field(alias="runtime", repr=False)

    def heartbeat(self, details: object = None) -> None:
        """Send a heartbeat, with details for the next attempt if this one is lost.

        The last of several is stored within seconds. The `heartbeat_timeout` starts anew then; a step without one drops
        heartbeats. Never blocks.

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

    @property
    def blobs(self) -> Blobs:
        """Bytes that are too large for a value."""
        return self._runtime.blobs

    @property
    def artifacts(self) -> Artifacts:
        """Named blobs that are listed with the run."""
        return self._runtime.artifacts

    @property
    def ai(self) -> Ai:
        """The log of model calls: topics, tokens, costs, prompts and responses."""
        return Ai(self._runtime.ai)

    @property
    def aio(self) -> "AsyncAccess":
        """Async versions of the methods that block: `await ctx.aio.artifacts.put("report.pdf", data)`."""
        return AsyncAccess(self, self._runtime)

    @property
    def cancelled(self) -> bool:
        """Whether the body should stop: its run was cancelled, the attempt timed out, or its lease was lost."""
        return self._runtime.cancelled


@attrs.frozen
class AsyncBlobs:
    """`Blobs` with async methods, as `ctx.aio.blobs`."""

    _runtime: AttemptServices

    async def put(self, name: str, data: bytes, /) -> BlobRef:
        """See `Blobs.put`."""
        return await self._runtime.in_thread(partial(self._runtime.blobs.put, name, data))

    async def get(self, ref: BlobRef, /) -> bytes:
        """See `Blobs.get`."""
        return await self._runtime.in_thread(partial(self._runtime.blobs.get, ref))


@attrs.frozen
class AsyncAccess:
    """The blocking methods of an attempt's context as async ones, as `ctx.aio`. They run in threads."""

    _context: AttemptContext
    _runtime: AttemptServices

    @overload
    async def last_heartbeat(self, form: TypeForm[T], /) -> T | None: ...
    @overload
    async def last_heartbeat(self, form: TypeForm[T], /, default: D) -> T | D: ...
    async def last_heartbeat(self, form: object, /, default: object = None) -> object:
        """See `AttemptContext.last_heartbeat`."""
        read = cast("Callable[..., object]", self._context.last_heartbeat)
        return await self._runtime.in_thread(partial(read, form, default))

    @property
    def blobs(self) -> AsyncBlobs:
        """See `AttemptContext.blobs`."""
        return AsyncBlobs(self._runtime)

    @property
    def artifacts(self) -> AsyncArtifacts:
        """See `AttemptContext.artifacts`."""
        return AsyncArtifacts(self._runtime.artifacts, self._runtime)

    @property
    def ai(self) -> AsyncAi:
        """See `AttemptContext.ai`."""
        return AsyncAi(Ai(self._runtime.ai), self._runtime.ai, self._runtime)
