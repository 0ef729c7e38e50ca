"""Checks of messages (M1): no message is lost.

Each message was received, or moved to the next generation, or is unread in an ended run that may leave it there. A
closed channel accepts only messages from which the next generation can start. See docs/decisions/0061.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from holdfast.kernel.history import events
from holdfast.kernel.invariants.history_facts import RunView
from holdfast.kernel.invariants.row_events import event_of
from holdfast.kernel.invariants.snapshots import Snapshot
from holdfast.kernel.invariants.violations import Violation
from holdfast.ports.mailboxes import Mailbox, mailbox_from
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import TERMINAL, Run, RunName, RunStatus

_OF_MAILBOX: Final = frozenset(
    {events.SignalReceived.type, events.StartReceived.type, events.ChannelClosed.type}
)


def mailbox_fits(seen: RunView) -> Iterator[str]:
    """M1: the mailbox in the run's row fits its history."""
    run, history = seen.run, seen.history
    mailbox = mailbox_from(run.mailbox)
    rows = {row.number: event_of(row) for row in history if row.type in _OF_MAILBOX}
    messages = {number: one for number, one in rows.items() if isinstance(one, events.SignalReceived)}
    if not rows and run.mailbox is None:
        return
    own = [number for number in mailbox.unread if number >= run.first_row]
    if list(mailbox.unread) != sorted(set(mailbox.unread)):
        yield (
            f"the unread messages in the run's mailbox, {mailbox.unread}, must be in order and without"
            " duplicates"
        )
    if wrong := [number for number in own if number not in messages]:
        yield f"the mailbox lists rows {wrong} as unread, but they are not messages"
    if lost := sorted(mailbox.starts.keys() - set(mailbox.unread)):
        yield f"the mailbox keeps starts for messages {lost}, but these messages are not unread"
    closed: set[str] = set()
    for number, event in rows.items():
        match event:
            case events.ChannelClosed(channel=channel):
                closed.add(channel)
                before = (one for one in own if one < number and _channel(messages.get(one)) == channel)
                if left := list(before):
                    yield f"row {number} closes channel {channel!r}, but messages {left} in it are unread"
            case events.SignalReceived(channel=channel) as message if channel in closed:
                if message.start is None and message.again is None:
                    yield (
                        f"message {number} was accepted for channel {channel!r}, which an earlier row has closed"
                    )
                if number not in mailbox.unread:
                    yield (
                        f"message {number} was received, but its channel was closed before it; it must stay"
                        " unread"
                    )
            case _:
                pass
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
        kept = event_of(rows[start]) if start in rows else None
        is_rerun = isinstance(kept, events.StartReceived) and kept.start.get("if_ended") == "rerun"
        if is_rerun or run.status is not RunStatus.COMPLETED:
            yield (
                f"the run has ended with message {number} unread, but the start in row {start} has"
                " started no generation"
            )
    wanted = _wanted(tuple(rows.values()))
    for number in mailbox.unread:
        message = event_of(rows[number]) if number in rows else None
        came_with = message.start if isinstance(message, events.SignalReceived) else None
        is_kept = came_with is not None and number > wanted
        if is_kept and number not in mailbox.starts:
            yield f"message {number} came with a start and is unread, but the mailbox keeps no start for it"


def _handed_on(run: Run, mailbox: Mailbox, following: Run, snapshot: Snapshot) -> Iterator[str]:
    """Yield messages that the next generation, which is not a rerun, lacks, has changed, or has too many of."""
    history = snapshot.history.get(following.key, ())
    if not history or not _is_function(following, snapshot):
        return
    whole = _whole(run, snapshot)
    sent = {row.number: (row, message) for row, message in _messages(whole)}
    got = [(row, message) for row, message in _messages(history) if message.again is not None]
    again = [message.again for _, message in got]
    unread = tuple(number for number in mailbox.unread if number not in mailbox.read_before)
    if again != list(unread):
        yield (
            f"the run has messages {again} of generation {run.generation}, but the unread ones there are"
            f" {unread}"
        )
        return
    used = _start_of(history)
    for (row, message), number in zip(got, unread, strict=True):
        before = sent.get(number)
        if before is not None and (row.payload, message.channel) != (before[0].payload, before[1].channel):
            yield (
                f"message {row.number} differs from message {number} of generation {run.generation},"
                " which it must repeat"
            )
        start = mailbox.starts.get(number)
        is_used = start is not None and start == used
        if (message.start is not None) is not (start is not None and not is_used):
            must = "have no start" if start is None or is_used else f"keep the start in row {start}"
            yield f"message {row.number}, from generation {run.generation}, must {must}"
    yield from _begins(history, following, whole)


def _begins(history: Sequence[HistoryRow], following: Run, before: Sequence[HistoryRow]) -> Iterator[str]:
    """Yield the faults of a generation that started from a stored start."""
    number = _start_of(history)
    if number is None:
        return
    row = next((row for row in before if row.number == number), None)
    start = None if row is None else event_of(row)
    if row is None or not isinstance(start, events.StartReceived):
        yield f"the run was started by the start in row {number}, but that row is not a start"
        return
    wanted = _wanted(before)
    if start.plan != following.plan or row.payload != history[0].payload:
        yield f"the run's plan or input differs from the start in row {number}, which started it"
    if number < wanted:
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
    created = event_of(history[0]) if history else None
    continues = isinstance(created, events.RunCreated) and created.continues is not None
    is_cancelling = any(row.type == events.RunCancelling.type for row in history)
    for row in history:
        match row.type:
            case events.RunTerminated.type:
                last = row.number
            case events.RunCancelled.type if not is_cancelling:
                last = row.number
            case events.RunCancelling.type:
                is_copied = continues and row.at <= history[0].at  # from the previous generation
                if not is_copied and events.RunCancelling.from_row(row).deadline is None:
                    last = row.number
            case _:
                pass
    return last


def _is_function(run: Run, snapshot: Snapshot) -> bool:
    plan = snapshot.plans.get(run.plan)
    return plan is not None and '"function":true' in plan


def _messages(history: Sequence[HistoryRow]) -> Iterator[tuple[HistoryRow, events.SignalReceived]]:
    """Yield the rows of messages, with their events."""
    for row in history:
        if row.type == events.SignalReceived.type:
            yield row, events.SignalReceived.from_row(row)


def _start_of(history: Sequence[HistoryRow]) -> int | None:
    """Return the row of the stored start that a generation started from."""
    created = event_of(history[0])
    return created.start if isinstance(created, events.RunCreated) else None


def _channel(message: events.SignalReceived | None) -> str | None:
    return None if message is None else message.channel
