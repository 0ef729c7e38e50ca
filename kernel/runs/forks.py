"""Plans a fork: the rerun of a durable function that keeps the history rows before a point (docs/decisions/0013).

A history contains everything that a function has received, so each prefix of it is a state that the function was in.
Pure functions, used by the rule and by the preview.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from holdfast.kernel.history import events
from holdfast.kernel.runs.reply_deliveries import UPDATE_CALL
from holdfast.ports.errors import RerunRefusedError
from holdfast.ports.mailboxes import GroupMessage, ReplyAddress, mailbox_from
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import TERMINAL, Run, RunStatus
from holdfast.ports.references import KeptRows

_OF_CALLS: Final = events.types_where(lambda event: event.call_kind is not None)
"""The types of rows about calls. `child.failed` may be without a call."""

_ENDS: Final = frozenset({events.StageCompleted.type, events.StageFailed.type, *events.RUN_ENDS})
"""The types of rows that end a generation. A fork never keeps them."""

_BARE: Final = 2
"""A history with at most this many rows, the last of which ends it, holds nothing worth keeping."""

_BEFORE_CODE: Final = events.types_where(lambda event: event.may_precede_code)
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
    kind: events.CallKind
    name: str
    first: int
    label: str = ""
    is_completed: bool = False
    ended: int | None = None
    run: str | None = None
    undoes: str | None = None

    @property
    def chose_id(self) -> bool:
        """Whether the code chose the id of the child run. It can't start another one with this id."""
        return self.run is not None and not self.run.endswith(f"/{self.call}")


@attrs.frozen(kw_only=True)
class SentUpdate:
    """An update that a function has sent to another run.

    Attributes:
        run: The id of that run.
        key: The key of the update.
    """

    run: str
    key: str


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
        kept_messages: The numbers of kept rows with messages, without those that went back to their groups.
        returned: The numbers of kept rows with messages that went back.
        closed_channels: The channels that kept rows have closed.
        subscriptions: The subscriptions to topics that kept rows have begun and not ended. Of a member of a group it is
            its wait, which ends with its message, also with a redelivered one.
        kept_of_groups: Of the kept messages those of groups, by the numbers of their rows.
        updates: The updates of other runs in kept rows that no kept row answers, by row number.
        sent: The updates that kept rows have sent, and whose replies no row has: the run and the key of each, by call.
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
    returned: tuple[int, ...] = ()
    closed_channels: tuple[str, ...] = ()
    subscriptions: tuple[events.TopicSubscribed, ...] = ()
    kept_of_groups: Mapping[int, GroupMessage] = attrs.field(factory=dict[int, GroupMessage])
    updates: Mapping[int, ReplyAddress] = attrs.field(factory=dict[int, ReplyAddress])
    sent: Mapping[str, SentUpdate] = attrs.field(factory=dict[str, SentUpdate])


def plan_fork(
    run: Run,
    history: Sequence[HistoryRow],
    children: Mapping[str, Run],
    *,
    start: str | None = None,
    row: int | None = None,
) -> Fork:
    """Plan a fork from a call or a row; without either, from where the function stopped, or the start if it completed.

    The call of a child run that was cancelled when the function ended is not kept: a fork without a starting point
    starts at that call. If the code chose the id of the child run, the call can't be made anew.

    Args:
        run: The newest generation.
        history: All its rows, including those kept from earlier generations.
        children: The `open_children` that still exist, by id: the newest generation of each.
        start: The call, by name or label.
        row: The number of a row.

    Raises:
        RerunRefusedError: There is no such call or row, or a function that starts there could not continue correctly.
    """
    calls = _calls(history)
    lost = _cancelled_calls(run, history, calls, children)
    end = next((one.number for one in history if one.type in _ENDS), len(history) + 1)
    if start is not None:
        found = _named(run, calls, start)
        at, label = found.first, found.label
    elif row is not None:
        at, label = row, f"row {row}"
    else:
        at, label = _stopped_at(run, history, calls, end)
        cancelled = _first_kept(lost, history[: at - 1])
        if cancelled is not None and not cancelled.chose_id:
            at, label = cancelled.first, cancelled.label
    if not 1 <= at <= end:
        raise RerunRefusedError(run.id, f"its rows 1 to {end - 1} can be kept: choose a row from 1 to {end}")
    keeps = tuple(one for one in calls if one.first < at)
    before = history[: at - 1]
    begins_anew = all(row.type in _BEFORE_CODE for row in before)
    returned = mailbox_from(run.mailbox).returned
    redelivered = tuple(_redelivered(history, at, returned, begins_anew=begins_anew))
    fork = Fork(
        start=label if at > 1 else None,
        row=at,
        kept=_kept(run, at - 1),
        redelivered=redelivered,
        children=tuple(one for one in open_children(before) if one in open_children(history)),
        keeps=keeps,
        runs=tuple(one for one in calls if one.first >= at),
        begins_anew=begins_anew,
        kept_messages=tuple(
            row.number
            for row in before
            if row.type == events.SignalReceived.type and row.number not in returned
        ),
        returned=tuple(number for number in returned if number < at),
        closed_channels=tuple(
            sorted(
                events.ChannelClosed.from_row(row).channel
                for row in before
                if row.type == events.ChannelClosed.type
            )
        ),
        subscriptions=tuple(open_subscriptions((*before, *redelivered))),
        kept_of_groups=_messages_of_groups(before, returned),
        updates=_open_updates(before),
        sent={call: sent for call, sent in _open_sent(before).items() if call in _open_sent(history)},
    )
    _check(run, history, fork, children)
    if (cancelled := _first_kept(lost, before)) is not None:
        way = f"start from {cancelled.label} (row {cancelled.first}) or before it, or rerun {cancelled.run!r} first"
        raise RerunRefusedError(
            run.id,
            f"its child run {cancelled.run!r} was cancelled, so the call can't be kept; "
            + (f"rerun {cancelled.run!r} first" if cancelled.chose_id else way),
        )
    return fork


def open_children(history: Iterable[HistoryRow]) -> tuple[str, ...]:
    """Return the ids of the child runs whose ends the function has not received."""
    found: dict[str, None] = {}
    for row in history:
        if row.type == events.ChildStarted.type:
            found[events.ChildStarted.from_row(row).run] = None
        elif (ended := _ended_child(row)) is not None:
            found.pop(ended, None)
    return tuple(found)


def _cancelled_calls(
    run: Run, history: Sequence[HistoryRow], calls: Iterable[RecordedCall], children: Mapping[str, Run]
) -> Sequence[RecordedCall]:
    """Return the calls that started child runs which were cancelled when the function was to end, or after it ended."""
    if run.status not in TERMINAL and not run.is_ending:
        return ()
    open_ones = {
        name for name, child in children.items() if child.status is RunStatus.CANCELLED or child.is_ending
    }
    cancelling = next((row.number for row in history if row.type == events.RunCancelling.type), len(history))
    failures = (
        events.ChildFailed.from_row(row)
        for row in history[cancelling:]
        if row.type == events.ChildFailed.type
    )
    ended = {failed.run for failed in failures if failed.code == "child_cancelled"}
    return [one for one in calls if one.run in open_ones or (one.run in ended and not one.chose_id)]


def _first_kept(calls: Iterable[RecordedCall], kept: Sequence[HistoryRow]) -> RecordedCall | None:
    """Return the first of these calls that is in the kept rows, unless the function cancels its child run there."""
    cancelled = {events.CancelSent.from_row(row).run for row in kept if row.type == events.CancelSent.type}
    return next((one for one in calls if one.first <= len(kept) and one.run not in cancelled), None)


def labels(calls: Iterable[RecordedCall]) -> tuple[str, ...]:
    """Return the labels of calls."""
    return tuple(one.label for one in calls)


def _calls(history: Iterable[HistoryRow]) -> list[RecordedCall]:
    """Return the recorded calls, in the order of their first rows."""
    found: dict[str, RecordedCall] = {}
    for row in history:
        recorded = _recorded(row)
        if recorded is None:
            continue
        made = found.get(recorded.call) or recorded
        if row.type in (events.StepCompleted.type, events.StepFailed.type):
            is_completed = row.type == events.StepCompleted.type
            made = attrs.evolve(made, is_completed=is_completed, ended=row.number)
        found[made.call] = made
    times = Counter(one.name for one in found.values())
    seen: Counter[str] = Counter()
    named: list[RecordedCall] = []
    for one in found.values():
        seen[one.name] += 1
        many = f"{one.name}#{seen[one.name]}" if times[one.name] > 1 else one.name
        named.append(attrs.evolve(one, label=many if one.name else one.call))
    return named


def _recorded(row: HistoryRow) -> RecordedCall | None:
    """Return the call that a row is about, with what this row records of it; None if it is about no call."""
    if row.type not in _OF_CALLS:
        return None
    event = events.event_of(row)
    name, undoes, run = "", None, None
    match event:
        case events.StepQueued() | events.StepCompleted() | events.StepFailed() | events.StepRetrying():
            call, name, undoes = event.call, event.step, event.undoes
        case events.ChildStarted():
            call, name, run = event.call, event.workflow, event.run
        case events.ChildFailed(call=str() as call):
            name = event.workflow or ""
        case (
            events.TimerFired()
            | events.SignalSent()
            | events.CancelSent()
            | events.UpdateSent()
            | events.ChannelClosed()
        ):
            call = event.call
        case _:
            return None
    assert event.call_kind is not None
    return RecordedCall(
        call=call,
        kind=event.call_kind,
        name=name,
        first=row.number,
        run=run,
        undoes=(undoes or "") if call.startswith(_UNDO) else None,
    )


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
        f"its history has no call {start!r}; name a step or a child's workflow in it ({known}), one of several as"
        " step#2, a call as `holdfast run show` lists it, or the number of a row",
    )


def _stopped_at(
    run: Run, history: Sequence[HistoryRow], calls: Sequence[RecordedCall], end: int
) -> tuple[int, str]:
    """Return the row where a failed or stopped function continues, and its label."""
    if run.status is RunStatus.COMPLETED or end <= _BARE:
        return 1, ""
    cancelling = next((row for row in history if row.type == events.RunCancelling.type), None)
    if cancelling is not None:
        return cancelling.number, f"row {cancelling.number}"
    if run.status is RunStatus.FAILED:
        last = next((row for row in reversed(history[: end - 1]) if _is_outcome(row)), None)
        if last is not None and last.type == events.StepFailed.type:
            call = events.StepFailed.from_row(last).call
            failed = next(one for one in calls if one.call == call)
            return failed.first, failed.label
    return end, f"row {end}"


def _is_outcome(row: HistoryRow) -> bool:
    """Whether a row has the outcome of something that the function did, other than a compensation."""
    if row.type not in _OF_CALLS or row.type == events.StepQueued.type:
        return False
    recorded = _recorded(row)
    return recorded is None or not recorded.call.startswith(_UNDO)


def _kept(run: Run, last: int) -> tuple[KeptRows, ...]:
    """Return the rows up to number `last`, by the generations that hold them."""
    kept: list[KeptRows] = []
    for part in (*run.kept_rows, KeptRows(run.key, run.last_row)):
        if kept and kept[-1].last >= last:
            break
        kept.append(KeptRows(part.run, min(part.last, last)))
    return tuple(kept) if last else ()


def _redelivered(
    history: Sequence[HistoryRow], at: int, returned: Container[int], *, begins_anew: bool
) -> Iterable[HistoryRow]:
    """Yield the rows of external input after the point, and those that record the clock and patches.

    Messages that went back to their groups are left out. A sender does not know about the fork and does not send again.
    Rejected and failed updates are left out: their callers have got the error.
    """
    kept_children = frozenset(open_children(history[: at - 1]))
    kept_sent = _open_sent(history[: at - 1])
    refused = set(_refused_updates(history))
    for row in history[at - 1 :]:
        match row.type:
            case events.SignalReceived.type if row.number not in returned:
                yield row
            case events.UpdateReceived.type if f"{UPDATE_CALL}{row.number}" not in refused:
                yield row
            case events.FunctionBegan.type if not begins_anew and events.FunctionBegan.from_row(row).row < at:
                yield row
            case events.ClockRead.type if events.ClockRead.from_row(row).row < at > 1:
                yield row
            case events.PatchMarked.type if at > 1:
                # Code before the point may have checked the patch: its row is stored after that code has run.
                yield row
            case events.UpdateReplied.type if events.UpdateReplied.from_row(row).call in kept_sent:
                yield row
            case _ if _ended_child(row) in kept_children:
                yield row
            case _:
                pass


def _open_updates(history: Iterable[HistoryRow]) -> Mapping[int, ReplyAddress]:
    """Return the updates of other runs that no row of a history answers, by row number."""
    found: dict[int, ReplyAddress] = {}
    for row in history:
        if row.type == events.UpdateReceived.type:
            address = events.UpdateReceived.from_row(row).address
            if address is not None:
                found[row.number] = address
        elif row.type in events.UPDATE_ANSWERS:
            found.pop(int(events.UpdateAnswer.from_row(row).call.removeprefix(UPDATE_CALL)), None)
    return found


def _open_sent(history: Iterable[HistoryRow]) -> Mapping[str, SentUpdate]:
    """Return the updates that a history has sent and whose replies it does not have, by call."""
    found: dict[str, SentUpdate] = {}
    for row in history:
        if row.type == events.UpdateSent.type:
            sent = events.UpdateSent.from_row(row)
            if sent.code is None:
                found[sent.call] = SentUpdate(run=sent.run, key=f"{row.run}/{sent.call}")
        elif row.type == events.UpdateReplied.type:
            found.pop(events.UpdateReplied.from_row(row).call, None)
    return found


def _refused_updates(history: Iterable[HistoryRow]) -> Iterator[str]:
    """Yield the calls of updates that were rejected or failed."""
    for row in history:
        if row.type == events.UpdateRejected.type:
            yield events.UpdateRejected.from_row(row).call
        elif row.type == events.UpdateFailed.type:
            yield events.UpdateFailed.from_row(row).call


def _check(run: Run, history: Sequence[HistoryRow], fork: Fork, children: Mapping[str, Run]) -> None:
    """Refuse a fork that could not continue correctly. RerunRefusedError."""
    cancelling = next((row.number for row in history if row.type == events.RunCancelling.type), fork.row)
    if cancelling < fork.row:
        raise RerunRefusedError(
            run.id,
            f"it was cancelled in row {cancelling}, and from row {fork.row} on it would only clean up; start from row"
            f" {cancelling} or before it",
        )
    _check_undone(run, history, fork)
    _check_returned(run, history, fork)
    for child in fork.children:
        if child not in children:
            begun = next(one for one in fork.keeps if one.run == child)
            raise RerunRefusedError(
                run.id,
                f"run {child!r} is kept, but no longer exists; start from row {begun.first} or before it",
            )


def _check_returned(run: Run, history: Sequence[HistoryRow], fork: Fork) -> None:
    """Refuse to keep a message that went back to its group after the point. RerunRefusedError."""
    back = {
        number: events.SignalReceived.from_row(history[number - 1])
        for number in mailbox_from(run.mailbox).returned
        if number < fork.row
    }
    if not back:
        return
    ended = {
        events.TopicUnsubscribed.from_row(row).channel
        for row in history[: fork.row - 1]
        if row.type == events.TopicUnsubscribed.type
    }
    for number, message in sorted(back.items()):
        if message.channel not in ended:
            raise RerunRefusedError(
                run.id,
                f"its message in row {number} went back to a group of topic {message.topic!r}, so it can't be kept;"
                f" start from row {number} or before it",
            )


def _messages_of_groups(rows: Iterable[HistoryRow], returned: Container[int]) -> dict[int, GroupMessage]:
    """Return the messages of groups in rows, by number, without those that went back."""
    received = (
        (row.number, events.SignalReceived.from_row(row).of_group)
        for row in rows
        if row.type == events.SignalReceived.type and row.number not in returned
    )
    return {number: message for number, message in received if message is not None}


def _check_undone(run: Run, history: Sequence[HistoryRow], fork: Fork) -> None:
    """Refuse to keep steps that were undone after the point, or may have been. RerunRefusedError."""
    kept = {one.call: one for one in fork.keeps}
    undoes = {one.call: one.undoes or "" for one in (*fork.keeps, *fork.runs)}
    later = (_recorded(row) for row in history[fork.row - 1 :])
    undone = {undoes[one.call]: one.first for one in later if one is not None and one.call.startswith(_UNDO)}
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
            f"{what}, so its result can't be kept; start from {first.label} (row {first.first}) or before it",
        )


def _ended_child(row: HistoryRow) -> str | None:
    """Return the id of the child run whose end a row records; None if it records none.

    If a child could not be started, `child.failed` is about the call.
    """
    if row.type == events.ChildCompleted.type:
        return events.ChildCompleted.from_row(row).run
    if row.type == events.ChildFailed.type:
        failed = events.ChildFailed.from_row(row)
        return failed.run if failed.call is None else None
    return None


def open_subscriptions(history: Iterable[HistoryRow]) -> Iterator[events.TopicSubscribed]:
    """Yield the subscriptions to topics that rows of a history have begun and not ended, by channel.

    A member of a group waits no more once its channel has a message, also if a rerun had that before the call.
    """
    found: dict[str, events.TopicSubscribed] = {}
    over: set[str] = set()
    for row in history:
        if row.type == events.TopicSubscribed.type:
            subscribed = events.TopicSubscribed.from_row(row)
            if subscribed.channel not in over:
                found[subscribed.channel] = subscribed
        elif row.type == events.SignalReceived.type:
            message = events.SignalReceived.from_row(row)
            if message.group_key is not None:
                over.add(message.channel)
                found.pop(message.channel, None)
        elif row.type == events.TopicUnsubscribed.type:
            found.pop(events.TopicUnsubscribed.from_row(row).channel, None)
    yield from (found[channel] for channel in sorted(found))
