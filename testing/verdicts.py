"""Verdicts on simulated runs: whether they ended as without faults, and if not, whether faults explain it."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.hosts.inspection.run_info import error_text
from holdfast.kernel.history import events
from holdfast.ports.errors import CommandError
from holdfast.ports.json import parse
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import TERMINAL, Run, RunStatus
from holdfast.ports.references import reference_from
from holdfast.testing.trials import Trial

_OF_FAULTS: Final = frozenset(
    {
        "cancelled",
        "deadline",
        "gave_up",
        "heartbeat_timeout",
        "step_lost",
        "timeout",
        "timeout_total",
        "unavailable",
        "worker_lost",
    }
)
"""Error codes that faults alone can cause: lost workers, and time that passed without a worker."""

_OF_CALLS: Final = frozenset({events.TimerFired.type, events.StepCompleted.type, events.StepFailed.type})

Node = tuple[str, str | None, int | None]


def problems(trial: Trial, usual: Trial, same: Callable[[Any], object] | None) -> list[str]:
    """Return the problems of a trial, compared with the one without faults."""
    found = [f"an invariant of Holdfast was violated, please report it: {one}" for one in trial.broken]
    lasting = [run for run in trial.started if run.status not in TERMINAL]
    if lasting:
        return [
            *found,
            *(f"{_name(trial, run)} did not end: it is {run.status}{_why(trial, run)}" for run in lasting),
            *([] if trial.raised is None else [_left_undone(trial.raised)]),
        ]
    found += _of_effects(trial, usual)
    for number, (run, usually) in enumerate(zip(trial.started, usual.started, strict=True)):
        if not _is_excused(trial, run, usual, usually):
            found += _of_end(trial, usual, number, same)
    if isinstance(trial.raised, CommandError) and not is_excused(trial, usual):
        found.append(f"an outside action was refused: {trial.raised}; expected it to succeed")
    return found


def is_excused(trial: Trial, usual: Trial) -> bool:
    """Return whether faults alone ended a run: they used up its attempts or its time.

    A body that fails more often by its own errors than without faults is not excused. A durable function whose timer
    fired or whose step timed out only because of faults may end in another way.
    """
    pairs = zip(trial.started, usual.started, strict=True)
    return any(_is_excused(trial, run, usual, usually) for run, usually in pairs)


def _is_excused(trial: Trial, run: Run, usual: Trial, usually: Run) -> bool:
    if _lateness(trial, run) - _lateness(usual, usually) and not _strays(trial, run, usual, usually):
        return True
    if run.status is not RunStatus.FAILED or (usually.error and _where(run) == _where(usually)):
        return False
    return _is_by_faults(trial, run, _own_errors(usual))


def _left_undone(raised: Exception) -> str:
    what = f"{type(raised).__name__}: {raised}"
    return f"an outside action raised {what}; the later actions were skipped"


def _name(trial: Trial, run: Run) -> str:
    return "the run" if len(trial.started) == 1 else f"run {run.id}"


def _is_by_faults(trial: Trial, run: Run, usually: Counter[Node]) -> bool:
    error = _error(run)
    stage, item = error.get("stage"), error.get("item")
    failed = [
        events.StageFailed.from_row(row)
        for row in trial.rows[run.id]
        if row.type == events.StageFailed.type and (row.node, row.item) == (stage, item)
    ]
    child = trial.runs.get(failed[-1].run or "") if failed else None
    if child is not None:
        return child.status is RunStatus.FAILED and _is_by_faults(trial, child, usually)
    where = (run.id, stage, item)
    return _own_errors(trial)[where] <= usually[where]


def _lateness(trial: Trial, run: Run) -> frozenset[tuple[str, str]]:
    """Return the fired timers and the timed-out steps of a durable function, as row types with calls."""
    found: set[tuple[str, str]] = set()
    for call, event in _call_events(trial, run):
        match event:
            case events.TimerFired():
                found.add((event.type, call))
            case events.StepFailed(error=error) if error.code in _OF_FAULTS or error.type == "TimeoutError":
                found.add((event.type, call))
            case _:
                pass
    return frozenset(found)


def _strays(trial: Trial, run: Run, usual: Trial, usually: Run) -> bool:
    """Return whether a durable function made another call than usual before anything was late."""
    known = {call: what for _, call, what in _calls(usual, usually)}
    late = _lateness(trial, run) - _lateness(usual, usually)
    for type_, call, what in _calls(trial, run):
        if known.get(call, what) != what:
            return True
        if (type_, call) in late:
            return False
    return False


def _calls(trial: Trial, run: Run) -> Iterator[tuple[str, str, str]]:
    """Yield the rows about calls: row type, generation with call, and the name of the step."""
    for call, event in _call_events(trial, run):
        yield event.type, call, "a timer" if isinstance(event, events.TimerFired) else event.step


def _call_events(
    trial: Trial, run: Run
) -> Iterator[tuple[str, events.TimerFired | events.StepCompleted | events.StepFailed]]:
    """Yield the ends of timers and steps, each with its generation and call."""
    generation = 0
    for row in trial.rows[run.id]:
        generation += row.type == events.RunCreated.type
        if row.type not in _OF_CALLS:
            continue
        match events.event_of(row):
            case events.TimerFired() | events.StepCompleted() | events.StepFailed() as event:
                yield f"{generation}/{event.call}", event
            case _:
                pass


def _why(trial: Trial, run: Run) -> str:
    """Return why a run is blocked, as text; "" if it is not."""
    if run.status is not RunStatus.BLOCKED:
        return ""
    blocked = [row for row in trial.rows[run.id] if row.type == events.RunBlocked.type]
    return f": {events.RunBlocked.from_row(blocked[-1]).message}" if blocked else ""


def _of_effects(trial: Trial, usual: Trial) -> Iterator[str]:
    is_whole = not is_excused(trial, usual)
    is_late = any(
        _lateness(trial, run) - _lateness(usual, usually)
        for run, usually in zip(trial.started, usual.started, strict=True)
    )
    for what in sorted({*trial.effects, *usual.effects}):
        count, expected = trial.effects.get(what, 0), usual.effects.get(what, 0)
        # A late function may do something else instead, but only once.
        if count > (max(expected, 1) if is_late else expected) or (is_whole and count < expected):
            yield f"{what!r} happened {_times(count)}; expected {_times(expected)}"


def _of_end(trial: Trial, usual: Trial, number: int, same: Callable[[Any], object] | None) -> Iterator[str]:
    run, usually = trial.started[number], usual.started[number]
    name = _name(trial, run)
    if run.status is not usually.status:
        why = f": {error_text(run)}" if run.error else ""
        yield f"{name} ended as {run.status}{why}; expected {usually.status}"
    elif run.status is RunStatus.COMPLETED:
        result = _result(trial.handles[number], run, same)
        usual_result = _result(usual.handles[number], usually, same)
        if result != usual_result:
            yield f"{name} returned {result}; expected {usual_result}"
    elif _where(run) != _where(usually):
        yield f"{name} ended with {error_text(run)}; expected {error_text(usually)}"


def _result(handle: SyncRunHandle[Any], run: Run, same: Callable[[Any], object] | None) -> object:
    if same is not None:
        return same(handle.output(run))
    return handle.core.inputs.text(run.key, reference_from(run.result or "null"))


def _own_errors(trial: Trial) -> Counter[Node]:
    """Return the number of failures of bodies by their own errors, by run, stage and item."""
    return Counter(
        (run, row.node, row.item)
        for run, rows in trial.rows.items()
        for row in rows
        if _code(row) not in {None, *_OF_FAULTS}
    )


def _code(row: HistoryRow) -> str | None:
    """Return the code of the error with which a body failed; None if the row records no such failure."""
    if row.type not in (events.StageRetrying.type, events.StageFailed.type):
        return None
    match events.event_of(row):
        case events.StageRetrying(code=code) | events.StageFailed(code=code):
            return code
        case _:
            return None


def _error(run: Run) -> dict[str, Any]:
    return cast("dict[str, Any]", parse(run.error)) if run.error else {}


def _where(run: Run) -> tuple[object, object]:
    error = _error(run)
    return error.get("stage"), error.get("item")


def _times(count: int) -> str:
    return {0: "not at all", 1: "once", 2: "twice"}.get(count, f"{count} times")
