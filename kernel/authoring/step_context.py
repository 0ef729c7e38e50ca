"""`step_context()`: the run, the attempt and the output of a step, for its body."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

import attrs

from holdfast.kernel.authoring.attempt_context import AttemptContext


@attrs.frozen(kw_only=True, eq=False)
class StepContext(AttemptContext):
    """The context of one attempt of a step, as `step_context()` returns it.

    Attributes:
        run_id: Id of the run.
        workflow: Name of the durable function.
        step: Name of the step.
        attempt: Number of this attempt, from 1.
        idempotency_key: The same text for every attempt of this call, and unique to it. Pass it to services that accept
            idempotency keys.
        deadline: When the attempt times out; None if it has no timeout.
        headers: The headers of the run.
    """

    step: str


_here: Final[ContextVar[Callable[[], StepContext] | None]] = ContextVar("holdfast_step", default=None)


def step_context() -> StepContext:
    """Return the context of the step whose body calls this. RuntimeError outside of a step."""
    context_of_step = _here.get()
    if context_of_step is None:
        raise RuntimeError("step_context() works only in the body of a step that a workflow called")
    return context_of_step()


def enter_step(context_of_step: Callable[[], StepContext]) -> None:
    """Set what `step_context()` calls in the current `contextvars` context. Most steps never ask for theirs."""
    _here.set(context_of_step)
