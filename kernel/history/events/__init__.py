"""Events of a run's history: one class for each type of history row, and the registry of them.

`event_of(row)` returns the event of a row. Write `from holdfast.kernel.history import events` and match on classes:

    match events.event_of(row):
        case events.StepCompleted(step=step, attempt=attempt):
            ...

Decoding is lazy: a `HistoryRow` is read from a store as it is, and only who needs its fields makes the event. Replays
of long histories use `parsed_rows`.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar, Final, TypeAlias

from typing_extensions import override

from holdfast.kernel.history.events import (
    child_events,
    message_events,
    replay_events,
    run_events,
    stage_events,
    step_events,
)
from holdfast.kernel.history.events.child_events import (
    ChildCompleted,
    ChildFailed,
    ChildStarted,
)
from holdfast.kernel.history.events.event import (
    CallKind,
    Facts,
    HistoryEvent,
    Identity,
    OperatorEvent,
    RecordedError,
    facts_of,
)
from holdfast.kernel.history.events.message_events import (
    CancelSent,
    ChannelClosed,
    MessagePublished,
    SignalReceived,
    SignalRefused,
    SignalSent,
    StartReceived,
    TopicSubscribed,
    TopicUnsubscribed,
    UpdateAnswer,
    UpdateCompleted,
    UpdateFailed,
    UpdateReceived,
    UpdateRejected,
    UpdateReplied,
    UpdateSent,
    ValuePublished,
)
from holdfast.kernel.history.events.replay_events import (
    ClockRead,
    FunctionBegan,
    HistoryLong,
    PatchMarked,
    ResultRefused,
    TimerFired,
)
from holdfast.kernel.history.events.run_events import (
    RunAdmitted,
    RunBlocked,
    RunCancelled,
    RunCancelling,
    RunCompleted,
    RunContinued,
    RunCreated,
    RunFailed,
    RunGathered,
    RunPaused,
    RunRepaired,
    RunResumed,
    RunTerminated,
)
from holdfast.kernel.history.events.stage_events import (
    StageAttempt,
    StageCancelFailed,
    StageCancelled,
    StageCompleted,
    StageExpanded,
    StageFailed,
    StageLost,
    StageRetrying,
    StageSkipped,
    StageStarted,
    StageSuspended,
    StageTested,
)
from holdfast.kernel.history.events.step_events import (
    StepCancelled,
    StepCompleted,
    StepFailed,
    StepQueued,
    StepRetrying,
    StepStarted,
)
from holdfast.ports.events import USER_EVENTS
from holdfast.ports.json import canonical
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.structs import frozen

EVENTS: Final[Mapping[str, type[HistoryEvent]]] = {
    event.type: event
    for module in (run_events, stage_events, step_events, child_events, message_events, replay_events)
    for event in vars(module).values()
    if isinstance(event, type) and issubclass(event, HistoryEvent) and "type" in vars(event)
}
"""The class of each type of event, by type; all but `user.*`."""


@frozen(kw_only=True)
class UserEvent(HistoryEvent):
    """An event that a stage, a step or a durable function published. Its rows have the type `user.<name>`."""

    type: ClassVar[str] = f"{USER_EVENTS}*"
    payload: ClassVar[str | None] = "the published data"
    call: str = ""
    """Of a step's event, the call. Of a function's own, `after<row>.<number>`: the row that it had received then."""

    @property
    @override
    def identity(self) -> Identity:
        return self.type, self.call, 1


@frozen(kw_only=True)
class UnknownEvent(HistoryEvent):
    """An event of a newer version, of a type that this version does not know."""

    type: ClassVar[str] = "*"


def event_of(row: HistoryRow) -> HistoryEvent:
    """Return the event of a row. UnreadableRowError if its data is damaged."""
    return class_of(row.type).from_row(row)


def class_of(kind: str) -> type[HistoryEvent]:
    """Return the class of events of a type; `UnknownEvent` if this version does not know the type."""
    known = EVENTS.get(kind)
    if known is None:
        return UserEvent if kind.startswith(USER_EVENTS) else UnknownEvent
    return known


def shown_facts(row: HistoryRow) -> Facts:
    """Return what a row's data holds, without the hidden fields. Raises what `facts_of` raises."""
    hidden = class_of(row.type).hidden
    return {name: value for name, value in facts_of(row).items() if name not in hidden}


def shown_data(row: HistoryRow) -> str | None:
    """Return a row's data as JSON text, without the hidden fields. Raises what `facts_of` raises."""
    data = row.data
    if data is None or not any(f'"{name}":' in data for name in class_of(row.type).hidden):
        return data
    return canonical(shown_facts(row))


def job_of(event: HistoryEvent) -> int | None:
    """Return the number of the job that an event names; None if it names none."""
    job: int | None = getattr(event, "job", None)
    return job


def types_where(condition: Callable[[type[HistoryEvent]], bool]) -> frozenset[str]:
    """Return the types of the events whose class fulfils a condition."""
    return frozenset(kind for kind, event in EVENTS.items() if condition(event))


DriverEvent: TypeAlias = (
    StepCompleted
    | StepFailed
    | StepStarted
    | PatchMarked
    | UpdateCompleted
    | UpdateFailed
    | UpdateRejected
    | ValuePublished
    | ClockRead
    | FunctionBegan
    | SignalRefused
)
"""The events that the driver of a durable function records as they are."""

RUN_ENDS: Final = types_where(lambda event: event.ends_run)
"""The types of events that end a generation of a run."""
CANCELLATION_OUTCOMES: Final = types_where(lambda event: event.cancels_work)
"""The types of events with the outcome of cancelling external work. They may follow a run's end."""
ATTEMPT_ENDS: Final = types_where(lambda event: event.ends_attempt)
"""The types of events that end an attempt of a stage or map item."""
STEP_ENDS: Final = types_where(lambda event: event.ends_step)
"""The types of events that end a step."""
UPDATE_ANSWERS: Final = types_where(lambda event: event.answers_update)
"""The types of events that end an update."""
FUNCTION_EVENTS: Final = types_where(lambda event: event.reaches_function)
"""The types of events that a durable function receives."""
READ_FIRST: Final = types_where(lambda event: event.read_first)
"""The types of events that a replay must know before it feeds earlier rows."""
RECORDED_FIRST: Final = types_where(lambda event: event.recorded_first)
"""The types of events that are recorded before anything new is started."""

__all__ = [
    "ATTEMPT_ENDS",
    "CANCELLATION_OUTCOMES",
    "EVENTS",
    "FUNCTION_EVENTS",
    "READ_FIRST",
    "RECORDED_FIRST",
    "RUN_ENDS",
    "STEP_ENDS",
    "UPDATE_ANSWERS",
    "CallKind",
    "CancelSent",
    "ChannelClosed",
    "ChildCompleted",
    "ChildFailed",
    "ChildStarted",
    "ClockRead",
    "DriverEvent",
    "Facts",
    "FunctionBegan",
    "HistoryEvent",
    "HistoryLong",
    "Identity",
    "MessagePublished",
    "OperatorEvent",
    "PatchMarked",
    "RecordedError",
    "ResultRefused",
    "RunAdmitted",
    "RunBlocked",
    "RunCancelled",
    "RunCancelling",
    "RunCompleted",
    "RunContinued",
    "RunCreated",
    "RunFailed",
    "RunGathered",
    "RunPaused",
    "RunRepaired",
    "RunResumed",
    "RunTerminated",
    "SignalReceived",
    "SignalRefused",
    "SignalSent",
    "StageAttempt",
    "StageCancelFailed",
    "StageCancelled",
    "StageCompleted",
    "StageExpanded",
    "StageFailed",
    "StageLost",
    "StageRetrying",
    "StageSkipped",
    "StageStarted",
    "StageSuspended",
    "StageTested",
    "StartReceived",
    "StepCancelled",
    "StepCompleted",
    "StepFailed",
    "StepQueued",
    "StepRetrying",
    "StepStarted",
    "TimerFired",
    "TopicSubscribed",
    "TopicUnsubscribed",
    "UnknownEvent",
    "UpdateAnswer",
    "UpdateCompleted",
    "UpdateFailed",
    "UpdateReceived",
    "UpdateRejected",
    "UpdateReplied",
    "UpdateSent",
    "UserEvent",
    "ValuePublished",
    "class_of",
    "event_of",
    "facts_of",
    "job_of",
    "shown_data",
    "shown_facts",
    "types_where",
]
