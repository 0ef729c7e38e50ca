"""`continue_as_new`: ends a generation of a durable function, and starts the next one with an empty history."""

from asyncio import current_task
from collections.abc import Callable
from typing import Any, Final, cast

from typing_extensions import TypeIs, TypeVar

from holdfast.kernel.authoring.calls import Call, WorkflowDefinition
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.functions.loop import FunctionLoop, loop_for
from holdfast.kernel.functions.protocol import FunctionContinued
from holdfast.kernel.functions.tasks import RunTask
from holdfast.ports.errors import ContinueRefusedError
from holdfast.ports.validation import TRUTH, an, check

R = TypeVar("R")

_NAMED_MAX: Final = 3
"""How many calls, runs or compensations an error names."""


async def continue_as_new(
    call: Call[R] | Callable[[], Call[R]], /, *, forget_compensations: bool = False
) -> R:
    """Continue this run as a new generation, with new arguments and an empty history.

    Write `return await continue_as_new(poll(cursor))`: no code of the function runs after it.

    The run keeps its id, parent, deadline, annotations, the last value published under each name, and the messages that
    it has not received, in their order. Callers that wait for its result wait for that of the next generation. Running
    updates are awaited first, and new ones go to the next generation, as does a cancellation. Steps, timers, tasks and
    local variables are lost: pass what the next generation needs as arguments.

    Args:
        call: A call of this function, or of another one with the same return type. Or a function that returns it, such
            as `lambda: serve(state.total)`: it is called after the running updates, so that the arguments include their
            changes. The engine must know the workflow.
        forget_compensations: Drop the compensations that are registered, so that completed steps are never undone.

    Raises:
        ContinueRefusedError: A step, or a child run that would end with this one, is active; or there are
            compensations; or the run is cancelled; or an update made the call.
        InvalidValueError: An argument does not have the type of its parameter.
        UnstorableValueError: An argument can't be stored.
        InvalidArgumentError: `call` is not a call of a durable function.
        RuntimeError: It was not called by a durable function.
    """
    loop = loop_for("holdfast.continue_as_new()")
    check("continue_as_new", TRUTH, forget_compensations=forget_compensations)
    if not _is_deferred(call):
        _read_next_generation(call)  # report wrong arguments before waiting for updates
    # No error is raised, since the function could catch it: it waits for ever, and its loop runs no more of its code.
    never = loop.create_future()
    if not loop.has_returned:
        updates = FunctionLoop.updates.of(loop)
        if updates is not None:
            _check_not_in_update()
            await updates.close(loop.create_future)
        try:
            next_generation = _read_next_generation(call() if _is_deferred(call) else call)
            _check_nothing_lost(loop, may_forget=forget_compensations)
        except BaseException:
            if updates is not None:
                updates.open()
            raise
        loop.next_generation = next_generation
    await never
    raise AssertionError("a function that continued as a new generation was run further")


def _is_deferred(call: Call[R] | Callable[[], Call[R]]) -> TypeIs[Callable[[], Call[R]]]:
    return callable(call) and not isinstance(call, Call | WorkflowDefinition)


def _read_next_generation(call: object) -> FunctionContinued:
    """Return the start of the next generation. Raises InvalidArgumentError or UnstorableValueError."""
    check("continue_as_new", an("a call of a durable function: f(...)", Call), call=call)
    given = cast("Call[Any]", call)
    definition = given.definition
    check("continue_as_new", an("a durable function, not a pipeline", Workflow), workflow=definition)
    return FunctionContinued(
        workflow=definition.name, version=definition.version, input=definition.input_text(given.value)
    )


def _check_not_in_update() -> None:
    """Raise ContinueRefusedError in an update: it would wait for itself."""
    task = current_task()
    if isinstance(task, RunTask) and task.numbers.path.startswith("update"):
        raise ContinueRefusedError(
            "an update called it, and must be answered first: let the function call it"
        )


def _check_nothing_lost(loop: FunctionLoop, *, may_forget: bool) -> None:
    """Raise ContinueRefusedError if steps, child runs or compensations would be lost."""
    if loop.is_cancelling:
        raise ContinueRefusedError("the run is cancelled: clean up, and let the CancelledError end it")
    if calls := loop.under_way:
        raise ContinueRefusedError(
            f"steps, or starts of child runs, are still running (calls {_named(calls)}): await them, or cancel"
            " their tasks"
        )
    if runs := loop.children.bound:
        raise ContinueRefusedError(
            f"child runs would end with it ({_named(runs)}): await them, or start them with"
            " parent_end='abandon'"
        )
    if loop.saga and not may_forget:
        raise ContinueRefusedError(
            f"the compensations would be lost ({_named(loop.saga.whats)}); to keep what was done, pass"
            " forget_compensations=True"
        )


def _named(names: tuple[str, ...]) -> str:
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
