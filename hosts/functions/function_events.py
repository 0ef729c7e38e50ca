"""Conversion of history rows into the events that a durable function receives, and their classification.

In its first turn, live and in every replay, a function finds the messages and updates that were stored with its run,
and those that arrived before the first attempt started. A row `function.began` records the latter before anything else
(docs/decisions/0061).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, cast

from holdfast.kernel.functions.machine import ParsedRow
from holdfast.kernel.functions.protocol import (
    Cancelling,
    ChannelClosed,
    ChildEnded,
    ChildNotified,
    ChildStarted,
    FunctionEvent,
    Row,
    SignalReceived,
    StepCompleted,
    StepFailed,
    StepQueued,
    TimerFired,
    UpdateOutcome,
    UpdateReceived,
)
from holdfast.kernel.history import events
from holdfast.kernel.history.error_values import class_name
from holdfast.kernel.history.raised import Raised
from holdfast.ports.errors import UnreadableInputError
from holdfast.ports.json import parse
from holdfast.ports.records.history import (
    CHANNEL_CLOSED,
    CLOCK_READ,
    FUNCTION_BEGAN,
    PUBLISHED,
    RESULT_REFUSED,
    SIGNAL_RECEIVED,
    SIGNAL_REFUSED,
    STEP_CANCELLED,
    STEP_GIVEN,
    STEP_QUEUED,
    STEP_STARTED,
    HistoryRow,
)
from holdfast.ports.records.values import Payload

PATCHED: Final = "patch.marked"
NOTES: Final = frozenset({PATCHED, CLOCK_READ, FUNCTION_BEGAN, SIGNAL_REFUSED})
"""Types of rows that must be stored before anything relies on them."""
RETRYING: Final = "step.retrying"
FUNCTION_EVENT_TYPES: Final = frozenset(
    {
        "step.completed",
        "step.failed",
        STEP_QUEUED,
        "timer.fired",
        "child.signalled",
        "child.cancelling",
        "child.started",
        "child.completed",
        "child.failed",
        SIGNAL_RECEIVED,
        "update.received",
        "run.cancelling",
        CHANNEL_CLOSED,
    }
)
"""Types of rows that a function receives. Others, such as pauses, do not concern it."""

_OF_DRIVERS: Final = frozenset(
    {
        STEP_QUEUED,
        STEP_CANCELLED,
        "timer.fired",
        "child.started",
        PUBLISHED,
        RESULT_REFUSED,
        CHANNEL_CLOSED,
        SIGNAL_REFUSED,
        *events.UPDATE_ANSWERS,
    }
)
"""Types of rows that exist only because the code requested something."""
_OF_STEPS: Final = frozenset({"step.completed", "step.failed", RETRYING, STEP_STARTED})
"""Types of rows that a driver records about inline steps."""

_MESSAGE_TYPES: Final = frozenset({SIGNAL_RECEIVED, "update.received"})
_UNREADABLE: Final = class_name(UnreadableInputError)

Texts: TypeAlias = Callable[[Payload], str]
"""Returns the JSON text of a payload; may read a blob store."""
Facts: TypeAlias = Mapping[str, Any]
"""The parsed data of a history row."""


def function_event(row: HistoryRow, facts: Facts, text: Texts) -> FunctionEvent | None:
    """Return the event of a row; None if a function does not receive it."""
    call, step = facts.get("call", ""), facts.get("step", "")
    match row.type:
        case "step.completed":
            output, given = text(payload_of(row)), facts.get(STEP_GIVEN)
            return StepCompleted(call=call, step=step, output=output, given=given)
        case "timer.fired":
            return TimerFired(call=call)
        case "step.queued":
            return StepQueued(call=call, step=step)
        case "step.failed":
            error = raised_from_facts(facts)
            return StepFailed(call=call, step=step, error=error, given=facts.get(STEP_GIVEN))
        case "child.started" | "child.failed" if call:
            why = str(facts["message"]) if row.type == "child.failed" else None
            return ChildStarted(call=call, workflow=str(facts["workflow"]), run=str(facts["run"]), error=why)
        case "child.signalled" | "child.cancelling":
            return ChildNotified(
                call=call,
                run=str(facts["run"]),
                is_cancel=row.type == "child.cancelling",
                error=str(facts["message"]) if "message" in facts else None,
                closed=str(facts["channel"]) if facts.get("closed") else None,
            )
        case "child.completed":
            return ChildEnded(run=str(facts["run"]), output=text(payload_of(row)))
        case "child.failed":
            is_cancelled = facts["code"] == "child_cancelled"
            return ChildEnded(
                run=str(facts["run"]),
                is_cancelled=is_cancelled,
                message=str(facts["message"]),
                error=raised_from_facts(facts) if "error" in facts else None,
            )
        case "channel.closed":
            return ChannelClosed(call=call, channel=str(facts["channel"]))
        case "signal.received":
            return SignalReceived(
                channel=str(facts["channel"]), text=text(payload_of(row)), checked="checked" in facts
            )
        case "update.received":
            return UpdateReceived(
                call=call_of_update(row.number),
                update=str(facts["update"]),
                arguments=text(payload_of(row)),
                checked="checked" in facts,
            )
        case "run.cancelling":
            return Cancelling(reason=str(facts.get("reason", "")))
        case _:
            return None


def call_of_update(number: int) -> str:
    """Return the call name of the update with this row number."""
    return f"update{number}"


def type_of_answer(answer: UpdateOutcome) -> Literal["update.completed", "update.failed", "update.rejected"]:
    """Return the type of the row that records the result of an update."""
    if answer.rejected is not None:
        return "update.rejected"
    return "update.completed" if answer.error is None else "update.failed"


def is_of_driver(row: HistoryRow, facts: Facts) -> bool:
    """Return whether a row exists only because the code requested something, a refused child run included."""
    if row.type in _OF_STEPS:
        return "job" not in facts
    if row.type == PUBLISHED:
        return bool(facts["number"])  # 0: carried over from an earlier generation
    return row.type in _OF_DRIVERS or (row.type == "child.failed" and "call" in facts)


def known_from(history: Sequence[HistoryRow]) -> list[ParsedRow]:
    """Return rows with their parsed data. Parsing all of them as one text takes half as long as one by one."""
    facts: list[Facts] = parse(f"[{','.join(row.data or '{}' for row in history)}]")
    return list(zip(history, facts, strict=True))


def payload_of(row: HistoryRow) -> Payload:
    """Return the payload of a row that must have one."""
    assert row.payload is not None, f"row {row.number} of run {row.run} has no payload"
    return row.payload


def is_unreadable(error_type: object) -> bool:
    """Return whether an attempt failed because a value cannot be decoded: then the run is blocked."""
    return error_type == _UNREADABLE


def raised_from_facts(facts: Mapping[str, object]) -> Raised:
    """Return the exception that a row records."""
    error = cast("Mapping[str, str | None]", facts.get("error") or {})
    return Raised(
        type=str(error.get("type", "")),
        message=str(error.get("message", "")),
        arguments=error.get("arguments"),
        code=str(error.get("code", "body_error")),
    )


def last_first_turn_row(rows: Sequence[ParsedRow]) -> int:
    """Return the number of the last row in the first turn, as recorded; 0 if there are no such messages."""
    row_numbers = (
        facts.get("row" if row.type == FUNCTION_BEGAN else "inbox", 0)
        for row, facts in rows
        if row.type in (FUNCTION_BEGAN, "run.created")
    )
    return max((cast("int", one) for one in row_numbers), default=0)


def last_message_row(history: Sequence[ParsedRow]) -> int:
    """Return the number of the last message or update of a history; 0 if it has none."""
    return max((row.number for row, _ in history if row.type in _MESSAGE_TYPES), default=0)


def first_turn_rows(history: Sequence[ParsedRow], last: int, text: Texts) -> list[Row]:
    """Return the messages and updates up to a row, as the function receives them."""
    return [
        Row(number=row.number, at=row.at, event=event)
        for row, facts in history
        if row.number <= last
        and row.type in _MESSAGE_TYPES
        and (event := function_event(row, facts, text)) is not None
    ]
