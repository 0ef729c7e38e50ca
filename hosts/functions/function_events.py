"""Conversion of history rows into the events that a durable function receives, and their classification.

In its first turn, live and in every replay, a function finds the messages and updates that were stored with its run,
and those that arrived before the first attempt started. A row `function.began` records the latter before anything else
(docs/decisions/0061).
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from holdfast.kernel.functions.protocol import (
    Cancelling,
    ChannelClosed,
    ChildEnded,
    ChildStarted,
    FunctionEvent,
    MessagePublished,
    Row,
    RunNotified,
    SignalReceived,
    StepCompleted,
    StepFailed,
    StepQueued,
    TimerFired,
    TopicSubscribed,
    UpdateOutcome,
    UpdateReceived,
    UpdateReplied,
    UpdateSent,
)
from holdfast.kernel.history import events
from holdfast.kernel.history.error_values import class_name
from holdfast.kernel.history.events.parsed_rows import ParsedRow
from holdfast.ports.errors import UnreadableInputError
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.values import Payload

_MESSAGES: Final = frozenset({events.SignalReceived.type, events.UpdateReceived.type})
_UNREADABLE: Final = class_name(UnreadableInputError)

Texts: TypeAlias = Callable[[Payload], str]
"""Returns the JSON text of a payload; may read a blob store."""


def function_event(row: HistoryRow, event: events.HistoryEvent, text: Texts) -> FunctionEvent | None:
    """Return what a function receives of the event of a row; None if it does not receive it."""
    match event:
        case events.StepCompleted(call=call, step=step, given=given):
            return StepCompleted(call=call, step=step, output=text(payload_of(row)), given=given)
        case events.TimerFired(call=call):
            return TimerFired(call=call)
        case events.StepQueued(call=call, step=step):
            return StepQueued(call=call, step=step)
        case events.StepFailed(call=call, step=step, error=error, given=given):
            return StepFailed(call=call, step=step, error=error.raised, given=given)
        case events.ChildStarted(call=call, workflow=workflow, run=run):
            return ChildStarted(call=call, workflow=workflow, run=run)
        case events.ChildFailed(call=str(call), workflow=workflow, run=run, code=code, message=message):
            return ChildStarted(
                call=call, workflow=str(workflow), run=run, error=str(message), code=str(code)
            )
        case events.SignalSent(call=call, run=run, channel=channel, message=message, closed=is_closed):
            return RunNotified(call=call, run=run, error=message, closed=channel if is_closed else None)
        case events.CancelSent(call=call, run=run):
            return RunNotified(call=call, run=run, is_cancel=True)
        case events.UpdateSent(call=call, run=run, update=update, code=code, message=message):
            return UpdateSent(call=call, run=run, update=update, error=message, code=code)
        case events.UpdateReplied(call=call, outcome=outcome, error=error, message=message):
            return UpdateReplied(
                call=call,
                output=text(payload_of(row)) if outcome == "completed" else None,
                error=None if error is None else error.raised,
                is_rejected=outcome == "rejected",
                lost=str(message) if outcome == "lost" else None,
            )
        case events.ChildCompleted(run=run):
            return ChildEnded(run=run, output=text(payload_of(row)))
        case events.ChildFailed(run=run, code=code, message=message, error=error):
            return ChildEnded(
                run=run,
                is_cancelled=code == "child_cancelled",
                message=str(message),
                error=None if error is None else error.raised,
            )
        case events.ChannelClosed(call=call, channel=channel):
            return ChannelClosed(call=call, channel=channel)
        case events.MessagePublished(call=call, topic=topic):
            return MessagePublished(call=call, topic=topic)
        case events.TopicSubscribed(call=call, channel=channel):
            return TopicSubscribed(call=call, channel=channel)
        case events.TopicUnsubscribed(call=call, channel=channel):
            return TopicSubscribed(call=call, channel=channel, is_end=True)
        case events.SignalReceived(channel=channel, checked=is_checked, sender=sender):
            return SignalReceived(
                channel=channel, text=text(payload_of(row)), checked=is_checked, sender=sender
            )
        case events.UpdateReceived(update=update, checked=is_checked):
            return UpdateReceived(
                call=call_of_update(row.number),
                update=update,
                arguments=text(payload_of(row)),
                checked=is_checked,
            )
        case events.RunCancelling(reason=reason):
            return Cancelling(reason=reason)
        case _:
            return None


def call_of_update(number: int) -> str:
    """Return the call name of the update with this row number."""
    return f"update{number}"


def type_of_answer(answer: UpdateOutcome) -> str:
    """Return the type of the row that records the result of an update."""
    if answer.rejected is not None:
        return events.UpdateRejected.type
    return events.UpdateCompleted.type if answer.error is None else events.UpdateFailed.type


def payload_of(row: HistoryRow) -> Payload:
    """Return the payload of a row that must have one."""
    assert row.payload is not None, f"row {row.number} of run {row.run} has no payload"
    return row.payload


def is_unreadable(error_type: str) -> bool:
    """Return whether an attempt failed because a value cannot be decoded: then the run is blocked."""
    return error_type == _UNREADABLE


def last_first_turn_row(history: Sequence[ParsedRow]) -> int:
    """Return the number of the last row in the first turn, as recorded; 0 if there are no such messages."""
    last = 0
    for one in history:
        if one.row.type == events.FunctionBegan.type:
            last = max(last, one.read(events.FunctionBegan).row)
        elif one.row.type == events.RunCreated.type:
            last = max(last, one.read(events.RunCreated).inbox or 0)
    return last


def last_message_row(history: Sequence[ParsedRow]) -> int:
    """Return the number of the last message or update of a history; 0 if it has none."""
    return max((one.row.number for one in history if one.row.type in _MESSAGES), default=0)


def first_turn_rows(history: Sequence[ParsedRow], last: int, text: Texts) -> list[Row]:
    """Return the messages and updates up to a row, as the function receives them."""
    return [
        Row(number=one.row.number, at=one.row.at, event=event)
        for one in history
        if one.row.number <= last
        and one.row.type in _MESSAGES
        and (event := function_event(one.row, one.event, text)) is not None
    ]
