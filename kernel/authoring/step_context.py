"""Where a step's body is: which run, which try, until when."""

from contextvars import ContextVar
from datetime import datetime
from typing import Final

import attrs


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
