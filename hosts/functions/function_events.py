"""What the rows of a history tell a function, and whose they are."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, cast

from holdfast.kernel.commands import UPDATE_ANSWERS
from holdfast.kernel.functions.machine import Known
from holdfast.kernel.functions.protocol import (
    Answered,
    Cancelling,
    ChannelClosed,
    ChildEnded,
    ChildNotified,
    ChildStarted,
    HistoryEvent,
    Raised,
    SignalReceived,
    StepCompleted,
    StepFailed,
    StepQueued,
    TimerFired,
    UpdateReceived,
)
from holdfast.kernel.history.error_values import class_name
from holdfast.ports.errors import UnreadableInputError
from holdfast.ports.json import parse
from holdfast.ports.records import (
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
    Payload,
)

PATCHED: Final = "patch.marked"
NOTES: Final = frozenset({PATCHED, CLOCK_READ, FUNCTION_BEGAN, SIGNAL_REFUSED})
"""The types of what is recorded before anything relies on it."""
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
"""The types of the rows that a function is told. Others, such as pauses, say nothing to it."""

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
        *UPDATE_ANSWERS,
    }
)
"""The types of the rows that are there only because some code has asked for something."""
_OF_STEPS: Final = frozenset({"step.completed", "step.failed", RETRYING, STEP_STARTED})
"""The types of the rows that whoever drives a function makes of its steps, but for those that are jobs of their own."""

_UNREADABLE: Final = class_name(UnreadableInputError)

Texts: TypeAlias = Callable[[Payload], str]
Facts: TypeAlias = Mapping[str, Any]


def function_event(row: HistoryRow, facts: Facts, text: Texts) -> HistoryEvent | None:
    """Return what a row tells; None if a function is not told it."""
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
    """Return how the update of a row is called in its run."""
    return f"update{number}"


def type_of_answer(answer: Answered) -> Literal["update.completed", "update.failed", "update.rejected"]:
    """Return the type of the row that says what has come of an update."""
    if answer.rejected is not None:
        return "update.rejected"
    return "update.completed" if answer.error is None else "update.failed"


def is_of_driver(row: HistoryRow, facts: Facts) -> bool:
    """Whether a row is there only because some code has asked for something: a run that was refused, too."""
    if row.type in _OF_STEPS:
        return "job" not in facts
    if row.type == PUBLISHED:
        return bool(facts["number"])  # that is what a generation before has shown
    return row.type in _OF_DRIVERS or (row.type == "child.failed" and "call" in facts)


def known_from(history: Sequence[HistoryRow]) -> list[Known]:
    """Return rows with what they tell, read at once: that takes half as long as to read each by itself."""
    facts: list[Facts] = parse(f"[{','.join(row.data or '{}' for row in history)}]")
    return list(zip(history, facts, strict=True))


def payload_of(row: HistoryRow) -> Payload:
    """Return the payload that a row must have."""
    assert row.payload is not None, f"row {row.number} of run {row.run} has no payload"
    return row.payload


def is_unreadable(error: Mapping[str, object]) -> bool:
    """Whether a try has failed because what it was given, or has asked for, can't be read: then the run is blocked."""
    return error.get("type") == _UNREADABLE


def raised_from_facts(facts: Mapping[str, object]) -> Raised:
    """Return the exception that a row tells of."""
    error = cast("Mapping[str, str | None]", facts.get("error") or {})
    return Raised(
        type=str(error.get("type", "")),
        message=str(error.get("message", "")),
        arguments=error.get("arguments"),
        code=str(error.get("code", "body_error")),
    )
