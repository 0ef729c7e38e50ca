"""`step_context()`: the run, attempt, deadline and heartbeats of a step, for its body."""

from contextvars import ContextVar
from datetime import datetime
from typing import Final, Protocol, overload

import attrs
from typing_extensions import TypeForm, TypeVar

from holdfast.kernel.authoring.heartbeat_details import details_text
from holdfast.kernel.values.stored_values import decode_recorded

T = TypeVar("T")
D = TypeVar("D")


class HeartbeatSink(Protocol):
    """The receiver of the heartbeats of an attempt. It may be called from any thread."""

    def beat(self, details: str, /) -> None:
        """Record a heartbeat, with JSON text for the next attempt. Never blocks."""
        ...

    @property
    def last(self) -> str | None:
        """The details of the last heartbeat of earlier attempts, or None."""
        ...


class _NoHeartbeatSink:
    """A sink that drops all heartbeats, for steps without a heartbeat timeout."""

    last: str | None = None

    def beat(self, details: str, /) -> None:
        """Drop a heartbeat."""


@attrs.frozen(kw_only=True)
class StepContext:
    """The context of one attempt of a step, as `step_context()` returns it.

    Attributes:
        run_id: Id of the run.
        workflow: Name of the durable function.
        step: Name of the step.
        attempt: Number of this attempt, from 1.
        idempotency_key: The same text for every attempt of this call, and unique to it. Pass it to services that accept
            idempotency keys.
        deadline: When the attempt times out; None if it has no timeout.
    """

    run_id: str
    workflow: str
    step: str
    attempt: int
    idempotency_key: str
    deadline: datetime | None
    _heartbeat_sink: HeartbeatSink = attrs.field(
        default=_NoHeartbeatSink(), alias="pulse", eq=False, repr=False
    )

    def heartbeat(self, details: object = None) -> None:
        """Send a heartbeat, with details for the next attempt if this one fails or is lost. Never blocks.

        The step's `heartbeat_timeout` starts anew. For a step without one, heartbeats are dropped.

        Args:
            details: A small value, plain JSON or of a storable class: up to 16 KiB as JSON.

        Raises:
            UnstorableValueError: The details can't be stored, or are too large.
        """
        self._heartbeat_sink.beat(details_text(details))

    @overload
    def last_heartbeat(self, form: TypeForm[T], /) -> T | None: ...
    @overload
    def last_heartbeat(self, form: TypeForm[T], /, default: D) -> T | D: ...
    def last_heartbeat(self, form: object, /, default: object = None) -> object:
        """Return the details of the last heartbeat of earlier attempts, read as `form`, or the default.

        Raises:
            UnreadableInputError: They do not have this type. If the body does not catch it, the run is blocked.
        """
        text = self._heartbeat_sink.last
        return default if text is None else decode_recorded(text, form, "the details of the last heartbeat")


_here: Final[ContextVar[StepContext | None]] = ContextVar("holdfast_step", default=None)


def step_context() -> StepContext:
    """Return the context of the step whose body calls this. RuntimeError outside of a step."""
    context = _here.get()
    if context is None:
        raise RuntimeError("step_context() works only in the body of a step that a workflow called")
    return context


def enter_step(context: StepContext) -> None:
    """Set the context that `step_context()` returns, in the current `contextvars` context."""
    _here.set(context)
