"""Where a step's body is: which run, which try, until when."""

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
    """What hears the heartbeats of one try of a step. From any thread."""

    def beat(self, details: str, /) -> None:
        """Note that the body is alive, with JSON text for the next try. Never blocks."""
        ...

    @property
    def last(self) -> str | None:
        """What a try before this one noted last."""
        ...


class _NoHeartbeatSink:
    """Hears nothing, for nobody asks."""

    last: str | None = None

    def beat(self, details: str, /) -> None:
        """Forget it."""


@attrs.frozen(kw_only=True)
class StepContext:
    """What the body of a step can know of its call.

    Attributes:
        run_id: The id of the run.
        workflow: The name of the durable function.
        step: The name of the step.
        attempt: The how-manieth try this is, from 1.
        idempotency_key: The same for every try of this call, and of no other: hand it on to what keeps such keys.
        deadline: When the try times out; None if it has no end.
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
        """Say that the body is alive, and what the next try is to know if this one does not end well. Never blocks.

        A step's `heartbeat_timeout` counts from then. Without one nobody listens, and nothing is kept.

        Args:
            details: A small value: plain JSON, or of a class that values can be of.

        Raises:
            UnstorableValueError: The details can't be stored, or are longer than 16 KiB.
        """
        self._heartbeat_sink.beat(details_text(details))

    @overload
    def last_heartbeat(self, form: TypeForm[T], /) -> T | None: ...
    @overload
    def last_heartbeat(self, form: TypeForm[T], /, default: D) -> T | D: ...
    def last_heartbeat(self, form: object, /, default: object = None) -> object:
        """Return the details that an earlier try of this call gave last. The default if there were none.

        Raises:
            UnreadableInputError: They are not of this type. If the step does not handle that, its run is blocked.
        """
        text = self._heartbeat_sink.last
        return default if text is None else decode_recorded(text, form, "the details of the last heartbeat")


_here: Final[ContextVar[StepContext | None]] = ContextVar("holdfast_step", default=None)


def step_context() -> StepContext:
    """Return where the step is whose body calls this. RuntimeError if none does."""
    context = _here.get()
    if context is None:
        raise RuntimeError("step_context() is for the bodies of steps that a workflow has called")
    return context


def enter_step(context: StepContext) -> None:
    """Have `step_context` give this, in the context that is current."""
    _here.set(context)
