"""Checks of messages (M1): no message is lost.

Each message was received, or moved to the next generation, or is unread in an ended run that may leave it there. A
closed channel accepts only messages from which the next generation can start. See docs/decisions/0061.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from holdfast.kernel.invariants.history_facts import RunView
from holdfast.kernel.invariants.snapshots import Snapshot
from holdfast.kernel.invariants.violations import Violation
from holdfast.ports.json import parse
from holdfast.ports.mailboxes import Mailbox, mailbox_from
from holdfast.ports.records.history import CHANNEL_CLOSED, SIGNAL_RECEIVED, START_RECEIVED, HistoryRow
from holdfast.ports.records.run import TERMINAL, Run, RunName, RunStatus


def mailbox_fits(seen: RunView) -> Iterator[str]:
    """M1: the mailbox in the run's row fits its history."""
    run, history = seen.run, seen.history
    mailbox = mailbox_from(run.mailbox)
    rows = {
        row.number: row for row in history if row.type in (SIGNAL_RECEIVED, START_RECEIVED, CHANNEL_CLOSED)
    }
    if not rows and run.mailbox is None:
        return
    own = [number for number in mailbox.unread if number >= run.first_row]
    if list(mailbox.unread) != sorted(set(mailbox.unread)):
        yield (
            f"the unread messages in the run's mailbox, {mailbox.unread}, must be in order and without"
            " duplicates"
        )
    if wrong := [number for number in own if number not in rows or rows[number].type != SIGNAL_RECEIVED]:
        yield f"the mailbox lists rows {wrong} as unread, but they are not messages"
    if lost := sorted(mailbox.starts.keys() - set(mailbox.unread)):
        yield f"the mailbox keeps starts for messages {lost}, but these messages are not unread"
    closed: set[str] = set()
    for number, row in rows.items():
        facts = _facts(row)
        if row.type == CHANNEL_CLOSED:
            channel = str(facts["channel"])
            closed.add(channel)
            before = (one for one in own if one < number and _facts(rows[one]).get("channel") == channel)
            if left := list(before):
                yield f"row {number} closes channel {channel!r}, but messages {left} in it are unread"
        elif row.type == SIGNAL_RECEIVED and facts["channel"] in closed:
            if "start" not in facts and "again" not in facts:
                yield (
                    f"message {number} was accepted for channel {facts['channel']!r}, which an earlier"
                    " row has closed"
                )
            if number not in mailbox.unread:
                yield (
                    f"message {number} was received, but its channel was closed before it; it must stay"
                    " unread"
                )
    if not closed.issubset(mailbox.closed):
        yield (
            f"the history closes channels {sorted(closed)}, but the mailbox lists {mailbox.closed} as closed"
        )


def messages_go_on(snapshot: Snapshot) -> Iterator[Violation]:
    """M1: unread messages move to the next generation, which must exist if one of them came with a start."""
    by_name = {(run.name, run.generation): run for run in snapshot.runs.values()}
    newest: dict[RunName, int] = {}
    for name, generation in by_name:
        newest[name] = max(generation, newest.get(name, 0))
    for run in snapshot.runs.values():
        following = by_name.get((run.name, run.generation + 1))
        if run.mailbox is None and (following is None or following.mailbox is None):
            continue
        mailbox = mailbox_from(run.mailbox)
        if run.generation == newest[run.name]:
            yield from (Violation("M1", run.key, what) for what in _left(run, mailbox, snapshot))
        elif following is not None and following.rerun_of is None:
            found = _handed_on(run, mailbox, following, snapshot)
            yield from (Violation("M1", following.key, what) for what in found)


def _left(run: Run, mailbox: Mailbox, snapshot: Snapshot) -> Iterator[str]:
    """Yield messages that an ended run, the newest generation, must not have left unread."""
    if run.status not in TERMINAL:
        return
    rows = {row.number: row for row in _whole(run, snapshot)}
    for number, start in mailbox.starts.items():
        kept = cast("Mapping[str, object]", _facts(rows[start])["start"]) if start in rows else None
        is_rerun = kept is not None and kept.get("if_ended") == "rerun"
        if is_rerun or run.status is not RunStatus.COMPLETED:
            yield (
                f"the run has ended with message {number} unread, but the start in row {start} has"
                " started no generation"
            )
    wanted = _wanted(tuple(rows.values()))
    for number in mailbox.unread:
        row = rows.get(number)
        is_kept = row is not None and "start" in _facts(row) and number > wanted
        if is_kept and number not in mailbox.starts:
            yield f"message {number} came with a start and is unread, but the mailbox keeps no start for it"


def _handed_on(run: Run, mailbox: Mailbox, following: Run, snapshot: Snapshot) -> Iterator[str]:
    """Yield messages that the next generation, which is not a rerun, lacks, has changed, or has too many of."""
    history = snapshot.history.get(following.key, ())
    if not history or not _is_function(following, snapshot):
        return
    whole = _whole(run, snapshot)
    sent = {row.number: row for row in whole if row.type == SIGNAL_RECEIVED}
    got = [row for row in history if row.type == SIGNAL_RECEIVED and "again" in _facts(row)]
    again = [_facts(row)["again"] for row in got]
    if again != list(mailbox.unread):
        yield (
            f"the run has messages {again} of generation {run.generation}, but the unread ones there are"
            f" {mailbox.unread}"
        )
        return
    for row, number in zip(got, mailbox.unread, strict=True):
        before = sent.get(number)
        if before is not None and (row.payload, _channel(row)) != (before.payload, _channel(before)):
            yield (
                f"message {row.number} differs from message {number} of generation {run.generation},"
                " which it must repeat"
            )
        start = mailbox.starts.get(number)
        is_used = start is not None and start == _facts(history[0]).get("start")
        if ("start" in _facts(row)) is not (start is not None and not is_used):
            must = "have no start" if start is None or is_used else f"keep the start in row {start}"
            yield f"message {row.number}, from generation {run.generation}, must {must}"
    yield from _begins(history, following, whole)


def _begins(history: Sequence[HistoryRow], following: Run, before: Sequence[HistoryRow]) -> Iterator[str]:
    """Yield the faults of a generation that started from a stored start."""
    number = _facts(history[0]).get("start")
    if number is None:
        return
    row = next((row for row in before if row.number == number), None)
    if row is None or row.type != START_RECEIVED:
        yield f"the run was started by the start in row {number}, but that row is not a start"
        return
    facts = _facts(row)
    wanted = _wanted(before)
    if facts["plan"] != following.plan or row.payload != history[0].payload:
        yield f"the run's plan or input differs from the start in row {number}, which started it"
    if cast("int", number) < wanted:
        yield (
            f"the run was started by the start in row {number}, but row {wanted} cancelled or terminated"
            " it later"
        )


def _whole(run: Run, snapshot: Snapshot) -> Sequence[HistoryRow]:
    """Return the history of a run, with the kept rows of earlier generations that the snapshot has."""
    rows: list[HistoryRow] = []
    first = 0
    for part in run.kept_rows:
        rows += (row for row in snapshot.history.get(part.run, ()) if first < row.number <= part.last)
        first = part.last
    return [*rows, *snapshot.history.get(run.key, ())]


def _wanted(history: Sequence[HistoryRow]) -> int:
    """Return the number of the last row that requests the end of the run, 0 if none does. Deadlines do not count."""
    last = 0
    is_cancelling = any(row.type == "run.cancelling" for row in history)
    for row in history:
        is_end = row.type == "run.terminated" or (row.type == "run.cancelled" and not is_cancelling)
        is_new = row.at > history[0].at or "continues" not in _facts(
            history[0]
        )  # else copied from the previous generation
        if is_end or (row.type == "run.cancelling" and is_new and "deadline" not in _facts(row)):
            last = row.number
    return last


def _is_function(run: Run, snapshot: Snapshot) -> bool:
    plan = snapshot.plans.get(run.plan)
    return plan is not None and '"function":true' in plan


def _channel(row: HistoryRow) -> object:
    return _facts(row).get("channel")


def _facts(row: HistoryRow) -> Mapping[str, object]:
    return cast("Mapping[str, object]", parse(row.data or "{}"))
