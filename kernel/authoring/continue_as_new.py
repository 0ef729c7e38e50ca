"""Going on as a new generation: a durable function that would never end starts over, with a history that is empty."""

from asyncio import current_task
from collections.abc import Callable
from typing import Any, Final, cast

from typing_extensions import TypeIs, TypeVar

from holdfast.kernel.authoring.calls import Call, Definition
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.functions.loop import FunctionLoop, loop_for
from holdfast.kernel.functions.protocol import GoesOn
from holdfast.kernel.functions.tasks import RunTask
from holdfast.ports.errors import ContinueRefusedError
from holdfast.ports.validation import TRUTH, an, check

R = TypeVar("R")

_NAMED_MAX: Final = 3
"""How many of what is in its way an error names."""


async def continue_as_new(
    call: Call[R] | Callable[[], Call[R]], /, *, forget_compensations: bool = False
) -> R:
    """Have this run go on as a new generation, with this input and an empty history.

    Write `return await continue_as_new(...)`: nothing of the function runs after it. The run keeps its id, its parent,
    its deadline, what was said of it, the last of what it has published, and the messages that it has not received, in
    their order; whoever waits for its result waits on. Updates that are being carried out are waited for; those that
    come meanwhile go on too. Steps, timers, tasks and local variables are gone: what the next generation needs is in
    its input. A cancellation that comes meanwhile reaches the next generation.

    Args:
        call: This function, or another that gives the same type, with its input; or what gives that call:
            `lambda: serve(state.total)`. It is asked for when no update is being carried out any more, so what they
            have changed is in the input. The engine must know the function.
        forget_compensations: What was done so far stands, so nobody will take it back.

    Raises:
        ContinueRefusedError: Something is under way that would be lost: a step, or a run that ends with this one; or
            there are compensations; or the run is cancelled; or an update calls it.
        UnstorableValueError: An argument is not of its parameter's type.
        InvalidArgumentError: It is no call of a durable function.
        RuntimeError: No durable function calls.
    """
    loop = loop_for("holdfast.continue_as_new()")
    check("continue_as_new", TRUTH, forget_compensations=forget_compensations)
    if not _is_late(call):
        _input_of(call)  # what is wrong with it is said at once
    # Nothing is raised here that code could catch: the function waits, and its loop runs no more of it.
    never = loop.create_future()
    if not loop.has_returned:
        updates = FunctionLoop.updates.of(loop)
        if updates is not None:
            _check_caller()
            await updates.close(loop.create_future)
        try:
            goes_on = _input_of(call() if _is_late(call) else call)
            _check_may(loop, may_forget=forget_compensations)
        except BaseException:
            if updates is not None:
                updates.open()
            raise
        loop.goes_on = goes_on
    await never
    raise AssertionError("a function that goes on as a new generation was run on")


def _is_late(call: Call[R] | Callable[[], Call[R]]) -> TypeIs[Callable[[], Call[R]]]:
    return callable(call) and not isinstance(call, Call | Definition)


def _input_of(call: object) -> GoesOn:
    """Return what the next generation begins with. InvalidArgumentError, UnstorableValueError."""
    check("continue_as_new", an("a call of a durable function: f(...)", Call), call=call)
    given = cast("Call[Any]", call)
    definition = given.definition
    check("continue_as_new", an("a durable function, not a pipeline", Workflow), workflow=definition)
    return GoesOn(
        workflow=definition.name,
        version=definition.version,
        input=definition.input_text(given.value),
    )


def _check_caller() -> None:
    """Raise if an update calls: it would wait for its own end. ContinueRefusedError."""
    task = current_task()
    if isinstance(task, RunTask) and task.numbers.path.startswith("update"):
        raise ContinueRefusedError(
            "an update has called it, and is answered before that: let the function call it"
        )


def _check_may(loop: FunctionLoop, *, may_forget: bool) -> None:
    """Raise if something would be lost. ContinueRefusedError."""
    if loop.is_cancelling:
        raise ContinueRefusedError("the run is cancelled: clean up, and let the CancelledError end it")
    if calls := loop.under_way:
        raise ContinueRefusedError(
            f"steps, or starts of runs, are under way (calls {_named(calls)}): await them, or cancel their tasks"
        )
    if runs := loop.children.bound:
        raise ContinueRefusedError(
            f"runs that it has started would end with it ({_named(runs)}): await them, or start them with"
            " parent_end='abandon'"
        )
    if loop.saga and not may_forget:
        raise ContinueRefusedError(
            f"nobody could take back any more what was done ({_named(loop.saga.whats)}); if that is to stand, say"
            " forget_compensations=True"
        )


def _named(names: tuple[str, ...]) -> str:
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
