"""Plans a fork: the rerun of a durable function that keeps the history rows before a point (docs/decisions/0013).

A history contains everything that a function has received, so each prefix of it is a state that the function was in.
Pure functions, used by the rule and by the preview.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias, cast

import attrs

from holdfast.ports.errors import RerunRefusedError
from holdfast.ports.events import RUN_ENDS
from holdfast.ports.json import parse
from holdfast.ports.records.history import CHANNEL_CLOSED, SIGNAL_RECEIVED, START_RECEIVED, HistoryRow
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.references import KeptRows

CallKind: TypeAlias = Literal["step", "timer", "run", "message", "channel"]

_KINDS: Final[Mapping[str, CallKind]] = {
    "step.queued": "step",
    "step.completed": "step",
    "step.failed": "step",
    "step.retrying": "step",
    "timer.fired": "timer",
    "child.started": "run",
    "child.failed": "run",
    "child.signalled": "message",
    "child.cancelling": "message",
    CHANNEL_CLOSED: "channel",
}
"""The types of rows with the outcome of a call, and the kind of the call. `child.failed` may be without a call."""

_ENDS: Final = frozenset({"stage.completed", "stage.failed", *RUN_ENDS})
"""The types of rows that end a generation. A fork never keeps them."""

_BARE: Final = 2
"""A history with at most this many rows, the last of which ends it, holds nothing worth keeping."""

_BEFORE_CODE: Final = frozenset(
    {
        "run.created",
        "run.admitted",
        "run.paused",
        "run.resumed",
        "update.received",
        START_RECEIVED,
        SIGNAL_RECEIVED,
    }
)
"""The types of rows that may precede the first row written by code."""

_UNDO: Final = "undo."
"""Prefix of the calls of compensations."""


@attrs.frozen(kw_only=True)
class RecordedCall:
    """A recorded call of a durable function.

    Attributes:
        call: Its name in the history, for example `3.1`.
        kind: What was called: a step, a timer, a child run, a message to one, or the close of a channel.
        name: The name of the step or of the child's workflow; else "".
        label: Its name for display: `charge`, or `charge#2` if there were several; else `call`.
        first: The number of its first row.
        is_completed: Whether it is a step that completed.
        ended: The number of the row that ended the step; None for others, or if it has not ended.
        run: The id of the child run that it started.
        undoes: For a compensation, the call that it undoes, "" if unknown; None for other calls.
    """

    call: str
    kind: CallKind
    name: str
    first: int
    label: str = ""
    is_completed: bool = False
    ended: int | None = None
    run: str | None = None
    undoes: str | None = None


@attrs.frozen(kw_only=True)
class Fork:
    """A planned fork.

    Attributes:
        start: The label of the call that it starts at, or the row; None: at the start.
        row: The number of the first row that is not kept. The new generation's own rows start with this number.
        kept: The rows that are kept, by generation.
        redelivered: Later rows with external input: the new generation receives them again.
        children: The ids of kept child runs that have not ended for the function. They become children of the new
            generation.
        keeps: The calls that have kept rows.
        runs: The recorded calls that are not kept. They are made again if the code makes them.
        begins_anew: Whether no row written by code is kept: redelivered rows are then there when the function starts.
        kept_messages: The numbers of kept rows with messages.
        closed_channels: The channels that kept rows have closed.
    """

    start: str | None
    row: int
    kept: tuple[KeptRows, ...]
    redelivered: tuple[HistoryRow, ...]
    children: tuple[str, ...]
    keeps: tuple[RecordedCall, ...]
    runs: tuple[RecordedCall, ...]
    begins_anew: bool = False
    kept_messages: tuple[int, ...] = ()
    closed_channels: tuple[str, ...] = ()


def plan_fork(
    run: Run,
    history: Sequence[HistoryRow],
    children: Collection[str],
    *,
    start: str | None = None,
    row: int | None = None,
) -> Fork:
    """Plan a fork from a call or a row; without either, from where the function stopped, or the start if it completed.

    Args:
        run: The newest generation.
        history: All its rows, including those kept from earlier generations.
        children: The ids of the `open_children` that still exist.
        start: The call, by name or label.
        row: The number of a row.

    Raises:
        RerunRefusedError: There is no such call or row, or a function that starts there could not continue correctly.
    """
    calls = _calls(history)
    end = next((one.number for one in history if one.type in _ENDS), len(history) + 1)
    if start is not None:
        found = _named(run, calls, start)
        at, label = found.first, found.label
    elif row is not None:
        at, label = row, f"row {row}"
    else:
        at, label = _stopped_at(run, history, calls, end)
    if not 1 <= at <= end:
        raise RerunRefusedError(
            run.id, f"its history has the rows 1 to {end - 1}: choose a row from 1 to {end}"
        )
    keeps = tuple(one for one in calls if one.first < at)
    before = history[: at - 1]
    begins_anew = all(row.type in _BEFORE_CODE for row in before)
    fork = Fork(
        start=label if at > 1 else None,
        row=at,
        kept=_kept(run, at - 1),
        redelivered=tuple(_redelivered(history, at, begins_anew=begins_anew)),
        children=tuple(one for one in open_children(before) if one in open_children(history)),
        keeps=keeps,
        runs=tuple(one for one in calls if one.first >= at),
        begins_anew=begins_anew,
        kept_messages=tuple(row.number for row in before if row.type == SIGNAL_RECEIVED),
        closed_channels=tuple(
            sorted(str(_facts(row)["channel"]) for row in before if row.type == CHANNEL_CLOSED)
        ),
    )
    _check(run, history, fork, children)
    return fork


def open_children(history: Iterable[HistoryRow]) -> tuple[str, ...]:
    """Return the ids of the child runs whose ends the function has not received."""
    found: dict[str, None] = {}
    for row in history:
        if row.type == "child.started":
            found[str(_facts(row)["run"])] = None
        elif _is_end_of_child(row):
            found.pop(str(_facts(row)["run"]), None)
    return tuple(found)


def labels(calls: Iterable[RecordedCall]) -> tuple[str, ...]:
    """Return the labels of calls."""
    return tuple(one.label for one in calls)


def _calls(history: Iterable[HistoryRow]) -> list[RecordedCall]:
    """Return the recorded calls, in the order of their first rows."""
    found: dict[str, RecordedCall] = {}
    for row in history:
        facts = _facts(row)
        call = str(facts.get("call", "")) if row.type in _KINDS else ""
        if not call:
            continue
        made = found.get(call) or RecordedCall(
            call=call,
            kind=_KINDS[row.type],
            name=str(facts.get("step") or facts.get("workflow") or ""),
            first=row.number,
            run=str(facts["run"]) if row.type == "child.started" else None,
            undoes=str(facts.get("undoes", "")) if call.startswith(_UNDO) else None,
        )
        if row.type in ("step.completed", "step.failed"):
            made = attrs.evolve(made, is_completed=row.type == "step.completed", ended=row.number)
        found[call] = made
    times = Counter(one.name for one in found.values())
    seen: Counter[str] = Counter()
    named: list[RecordedCall] = []
    for one in found.values():
        seen[one.name] += 1
        many = f"{one.name}#{seen[one.name]}" if times[one.name] > 1 else one.name
        named.append(attrs.evolve(one, label=many if one.name else one.call))
    return named


def _named(run: Run, calls: Sequence[RecordedCall], start: str) -> RecordedCall:
    """Return the call that `start` names. RerunRefusedError if there is no such call, or several."""
    found = [one for one in calls if start in (one.call, one.label, f"{one.label}#1")]
    found = found or [one for one in calls if one.name == start]
    if len(found) == 1:
        return found[0]
    if found:
        several = ", ".join(f"{one.label} (call {one.call}, row {one.first})" for one in found[:10])
        more = f" and {len(found) - 10} more" if len(found) > 10 else ""
        raise RerunRefusedError(
            run.id, f"{start!r} was called {len(found)} times; name one of {several}{more}"
        )
    known = ", ".join(dict.fromkeys(one.name for one in calls if one.name)) or "none"
    raise RerunRefusedError(
        run.id,
        f"its history has no call {start!r}; name a step in it ({known}), one of several as step#2,"
        " a call as `holdfast run show` lists it, or the number of a row",
    )


def _stopped_at(
    run: Run, history: Sequence[HistoryRow], calls: Sequence[RecordedCall], end: int
) -> tuple[int, str]:
    """Return the row where a failed or stopped function continues, and its label."""
    if run.status is RunStatus.COMPLETED or end <= _BARE:
        return 1, ""
    cancelling = next((row for row in history if row.type == "run.cancelling"), None)
    if cancelling is not None:
        return cancelling.number, f"row {cancelling.number}"
    if run.status is RunStatus.FAILED:
        forward = [
            row for row in history[: end - 1] if not str(_facts(row).get("call", "")).startswith(_UNDO)
        ]
        known = (row for row in reversed(forward) if row.type in _KINDS and row.type != "step.queued")
        last = next(known, None)
        if last is not None and last.type == "step.failed":
            failed = next(one for one in calls if one.call == _facts(last)["call"])
            return failed.first, failed.label
    return end, f"row {end}"


def _kept(run: Run, last: int) -> tuple[KeptRows, ...]:
    """Return the rows up to number `last`, by the generations that hold them."""
    kept: list[KeptRows] = []
    for part in (*run.kept_rows, KeptRows(run.key, run.last_row)):
        if kept and kept[-1].last >= last:
            break
        kept.append(KeptRows(part.run, min(part.last, last)))
    return tuple(kept) if last else ()


def _redelivered(history: Sequence[HistoryRow], at: int, *, begins_anew: bool) -> Iterable[HistoryRow]:
    """Yield the rows of external input after the point, and those that record the clock and patches.

    A sender does not know about the fork and does not send again. Rejected and failed updates are left out: their
    callers have got the error.
    """
    kept_children = frozenset(open_children(history[: at - 1]))
    refused = {
        str(_facts(row)["call"]) for row in history if row.type in ("update.rejected", "update.failed")
    }
    for row in history[at - 1 :]:
        match row.type:
            case "signal.received":
                yield row
            case "update.received" if f"update{row.number}" not in refused:
                yield row
            case "function.began" if cast("int", _facts(row)["row"]) < at and not begins_anew:
                yield row
            case "clock.read" if cast("int", _facts(row)["row"]) < at > 1:
                yield row
            case "patch.marked" if at > 1:
                # Code before the point may have checked the patch: its row is stored after that code has run.
                yield row
            case _ if _is_end_of_child(row) and _facts(row)["run"] in kept_children:
                yield row
            case _:
                pass


def _check(run: Run, history: Sequence[HistoryRow], fork: Fork, children: Collection[str]) -> None:
    """Refuse a fork that could not continue correctly. RerunRefusedError."""
    cancelling = next((row.number for row in history if row.type == "run.cancelling"), fork.row)
    if cancelling < fork.row:
        raise RerunRefusedError(
            run.id,
            f"it was cancelled in row {cancelling}, and from row {fork.row} on it would only clean up; start from row"
            f" {cancelling} or before it",
        )
    _check_undone(run, history, fork)
    for child in fork.children:
        if child not in children:
            begun = next(one for one in fork.keeps if one.run == child)
            raise RerunRefusedError(
                run.id,
                f"run {child!r} is kept, but no longer exists; start from row {begun.first} or before it",
            )


def _check_undone(run: Run, history: Sequence[HistoryRow], fork: Fork) -> None:
    """Refuse to keep steps that were undone after the point, or may have been. RerunRefusedError."""
    kept = {one.call: one for one in fork.keeps}
    undoes = {one.call: one.undoes or "" for one in (*fork.keeps, *fork.runs)}
    undone = {
        undoes[str(_facts(one)["call"])]: one.number
        for one in history[fork.row - 1 :]
        if one.type in _KINDS and str(_facts(one).get("call", "")).startswith(_UNDO)
    }
    if kept and "" in undone:
        raise RerunRefusedError(
            run.id,
            f"it compensated a step in row {undone['']}, and which one is not recorded; start from row 1",
        )
    lost = [kept[call] for call in undone if call in kept]
    if lost:
        first = min(lost, key=lambda one: one.first)
        names = ", ".join(labels(sorted(lost, key=lambda one: one.first)))
        what = f"{names} {'was' if len(lost) == 1 else 'were'} compensated"
        raise RerunRefusedError(
            run.id,
            f"{what}, so that can't be kept; start from {first.label} (row {first.first}) or before it",
        )


def _is_end_of_child(row: HistoryRow) -> bool:
    """Whether a row is the end of a child run. If a child could not be started, `child.failed` is about the call."""
    return row.type == "child.completed" or (row.type == "child.failed" and "call" not in _facts(row))


def _facts(row: HistoryRow) -> Mapping[str, object]:
    return cast("Mapping[str, object]", parse(row.data or "{}"))
