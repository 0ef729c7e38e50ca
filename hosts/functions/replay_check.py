"""Replay of a recorded history with the current code. Without a store, without effects.

The rows reach the function through `FunctionReplay`, as in live runs, so code that replays here continues there.
"""

import os
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

import attrs
from typing_extensions import override

from holdfast.hosts.execution.failures import failure_of
from holdfast.hosts.execution.off_loop import run_off_loop
from holdfast.hosts.functions.history_document import RunHistory, text_of
from holdfast.hosts.functions.replay import FunctionReplay
from holdfast.kernel.authoring.calls import WorkflowDefinition
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.functions.machine import FunctionMachine
from holdfast.kernel.functions.protocol import (
    Ended,
    FunctionContinued,
    FunctionFailed,
    FunctionReturned,
    Request,
    TimerRequest,
)
from holdfast.kernel.history import events
from holdfast.kernel.history.exceptions import error_words
from holdfast.kernel.pipelines.plan import stage_of
from holdfast.kernel.runs.transitions import DEADLINE_EXCEEDED
from holdfast.ports.clock import instant
from holdfast.ports.errors import InvalidHistoryError, NondeterminismError, UnknownWorkflowError
from holdfast.ports.json import are_alike
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.validation import an, check

_ENDS_OF_FUNCTIONS: Final = frozenset({events.StageCompleted.type, events.StageFailed.type})
_SHOWN_MAX: Final = 300
"""How many characters of a value an error message contains."""


@attrs.frozen(kw_only=True)
class PendingCall:
    """Something that a function waits for."""

    what: str
    """What it is, for people."""
    call: str = ""
    """The name of the call in the history; empty for messages and ends of runs, which answer no call."""
    site: str = ""
    """The file and line of the call; empty for messages and ends of runs."""

    @override
    def __str__(self) -> str:
        """Return it for people."""
        return f"{self.what} ({self.site})" if self.site else self.what


@attrs.frozen(kw_only=True)
class ReplayResult:
    """The result of a replay with the current code: the function ended, or waits for something.

    Attributes:
        history: The history that was replayed.
        ended: How the function ended: a `FunctionReturned`, a `FunctionFailed` or a `FunctionContinued`; None if it
            waits.
        waits_for: What it waits for, in the order of the calls. If this is empty and the function has not ended,
            nothing will ever wake it: such a run is blocked.
        as_recorded: Whether the history has the end of the function, and the replay ended in the same way.
    """

    history: RunHistory
    ended: Ended | None
    waits_for: tuple[PendingCall, ...]
    as_recorded: bool

    @property
    def output(self) -> str | None:
        """The return value as JSON text; None if the function did not return."""
        return self.ended.output if isinstance(self.ended, FunctionReturned) else None

    @property
    def error(self) -> BaseException | None:
        """The exception that the function raised; None if it raised none."""
        return self.ended.error if isinstance(self.ended, FunctionFailed) else None

    @property
    def is_stuck(self) -> bool:
        """Whether the function has not ended and waits for nothing that could arrive."""
        return self.ended is None and not self.waits_for

    @override
    def __str__(self) -> str:
        """Return the result for people."""
        if self.ended is not None:
            return f"{_end_text(self.ended)}{', as recorded' if self.as_recorded else ''}"
        if self.is_stuck:
            return "it waits for something that can never happen"
        return f"it waits for {', '.join(map(str, self.waits_for))}"


def replay(
    history: RunHistory | str | os.PathLike[str], /, *workflows: WorkflowDefinition[Any]
) -> ReplayResult:
    """Replay a recorded history with the current code and return the result. Runs no step.

    Args:
        history: The result of `handle.export_history()`, or the path of a file that `holdfast history export` wrote.
        workflows: Durable functions. The history names the one that it belongs to.

    Raises:
        NondeterminismError: The code makes another call than the recorded one, or ends differently. The error has the
            row, what was recorded and what the code requests, each with its file and line.
        UnknownWorkflowError: The history belongs to none of these workflows, or to another version.
        InvalidHistoryError: It is not a history, or not that of a durable function.
        UnreadableValueError: A recorded value, or the input of the run, no longer fits the code.
        WorkflowStalledError: The function runs for too long without waiting for anything.
    """
    history = load_history(history)
    return run_off_loop(lambda: replay_here(history, workflow_of(history, workflows)))


def replay_here(history: RunHistory, workflow: Workflow[..., object]) -> ReplayResult:
    """Replay in this thread, in which no event loop may run. See `replay`."""
    with replayed(history, workflow) as (machine, drive):
        waits_for = tuple(map(_waiting, machine.pending_requests))
        if drive.waits_for_others:
            waits_for += (PendingCall(what="a message, or the end of a child run"),)
        recorded = _end_of(history)
        if recorded is not None and not _is_alike(recorded, drive, workflow):
            raise _otherwise(recorded, drive.ended, waits_for)
        return ReplayResult(
            history=history, ended=drive.ended, waits_for=waits_for, as_recorded=recorded is not None
        )


def unchanged(machine: FunctionMachine) -> FunctionMachine:
    """Return a machine as it is, without interceptors."""
    return machine


@contextmanager
def replayed(
    history: RunHistory,
    workflow: Workflow[..., object],
    enter: Callable[[FunctionMachine], object] = unchanged,
) -> Generator[tuple[FunctionMachine, FunctionReplay]]:
    """Replay a history, and close the replay at the end of the block. Raises what the replay failed with.

    `enter` is called with the machine before it begins, for interceptors of the function.
    """
    machine = machine_for(history, workflow)
    drive = FunctionReplay(machine, text_of)
    try:
        enter(machine)
        drive.open(history.rows)
        if drive.fault is not None:
            raise drive.fault
        yield machine, drive
    finally:
        drive.close()


def machine_for(history: RunHistory, workflow: Workflow[..., object]) -> FunctionMachine:
    """Return the machine that runs the function of a history from its start."""
    return workflow.machine(
        history.input,
        began_at=history.began_at,
        seed=history.key,
        run=history.facts,
    )


def load_history(history: RunHistory | str | os.PathLike[str]) -> RunHistory:
    """Return a history, read from a file if it is a path. InvalidHistoryError."""
    check("replay", an("a history, or the path of one", RunHistory, str, os.PathLike), history=history)
    if isinstance(history, RunHistory):
        return history
    try:
        return RunHistory.from_json(Path(history).read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise InvalidHistoryError(f"{os.fspath(history)} is not a text file: {error}") from None


def workflow_of(history: RunHistory, workflows: Sequence[WorkflowDefinition[Any]]) -> Workflow[..., object]:
    """Return the workflow of a history. UnknownWorkflowError, InvalidHistoryError."""
    for one in workflows:
        if (one.name, one.version) == (history.workflow, history.version):
            if isinstance(one, Workflow):
                return cast("Workflow[..., object]", one)
            raise InvalidHistoryError(
                f"{history.definition} is a pipeline: its progress is in the store, and there is nothing to replay"
            )
    known = tuple(f"{one.name}@{one.version}" for one in workflows)
    raise UnknownWorkflowError(history.workflow, history.version, known)


def _waiting(request: Request) -> PendingCall:
    until = f" until {instant(request.at).isoformat()}" if isinstance(request, TimerRequest) else ""
    return PendingCall(what=f"{request.what}{until}", call=request.call, site=request.site)


# Ends ------------------------------------------------------------------------------------------------------------


def _end_of(history: RunHistory) -> HistoryRow | None:
    """Return the row with which the function ended; None if it had not ended, even if the run has."""
    was_cancelling = any(row.type == events.RunCancelling.type for row in history.rows)
    for row in reversed(history.rows):
        if row.type in _ENDS_OF_FUNCTIONS and row.node == history.workflow:
            return row
        by_itself = row.type == events.RunCancelled.type and events.RunCancelled.from_row(row).raised
        if (
            row.type == events.RunContinued.type
            or by_itself
            or (was_cancelling and _is_end_of_cancelled(row))
        ):
            return row
    return None


def _is_end_of_cancelled(row: HistoryRow) -> bool:
    """Return whether a row is the end of a function that was cancelled: by a command or by its deadline."""
    if row.type == events.RunFailed.type:
        return events.RunFailed.from_row(row).code == DEADLINE_EXCEEDED
    return row.type == events.RunCancelled.type


def _is_alike(row: HistoryRow, drive: FunctionReplay, workflow: Workflow[..., object]) -> bool:
    """Return whether the function ended as a row records it."""
    ended = drive.ended
    if ended is None or _is_end_of_cancelled(row):
        return drive.is_cancelled
    match events.event_of(row), ended:
        case events.RunContinued(definition=definition), FunctionContinued():
            code = f"{ended.workflow}@{ended.version}"
            return code == definition and are_alike(ended.input, text_of(row.payload))
        case events.StageCompleted(), FunctionReturned():
            return are_alike(ended.output, text_of(row.payload))
        case events.StageFailed() as failed, FunctionFailed(error=error):
            return _is_alike_error(failed, error, workflow)
        case _:
            return False


def _is_alike_error(
    failed: events.StageFailed, error: BaseException, workflow: Workflow[..., object]
) -> bool:
    if _named(failed.error_type) != type(error).__qualname__.rpartition(".")[2]:
        return False
    if not isinstance(error, Exception):  # such as `sys.exit()`: it has no recorded message to compare
        return True
    (stage,) = workflow.bodies.values()
    return failure_of(error, stage, stage_of(workflow.plan().node(stage.name))).message == failed.message


def _otherwise(row: HistoryRow, ended: Ended | None, waits_for: Iterable[PendingCall]) -> NondeterminismError:
    if ended is None:
        actual = f"the code waits for {', '.join(map(str, waits_for)) or 'something that can never happen'}"
    else:
        actual = f"now {_end_text(ended)}"
    return NondeterminismError(row=row.number, call="", recorded=_recorded(row), requested=actual)


def _recorded(row: HistoryRow) -> str:
    if _is_end_of_cancelled(row):
        return "the function's end when it was cancelled"
    match events.event_of(row):
        case events.RunContinued(definition=definition):
            return f"that it continues as {definition} with {_shown(text_of(row.payload))}"
        case events.StageFailed(error_type=kind, message=message):
            return f"the function's failure with {kind}: {_shown(message)}"
        case _:
            return f"the function's return of {_shown(text_of(row.payload))}"


def _end_text(ended: Ended) -> str:
    if isinstance(ended, FunctionReturned):
        return f"it returns {_shown(ended.output)}"
    if isinstance(ended, FunctionContinued):
        return f"it continues as {ended.workflow}@{ended.version} with {_shown(ended.input)}"
    return f"it raises {_shown(error_words(ended.error))}"


def _named(kind: str) -> str:
    """Return the name of a class without its module, which differs if the program was run as the main module."""
    return kind.rpartition(".")[2]


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}… ({len(text):,} characters)"
