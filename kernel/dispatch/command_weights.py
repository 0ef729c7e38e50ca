"""How many bytes of values commands carry, by which batches are split."""

from typing import Any

from holdfast.kernel.commands import (
    Blocked,
    Cancelled,
    ChildRunStarted,
    ChildStart,
    Command,
    Completed,
    CompletedAfterStep,
    ConditionEvaluated,
    ContinuedAsNew,
    EventAppend,
    EventPublish,
    Failed,
    FunctionWaiting,
    JobRecord,
    JobSettle,
    MapExpanded,
    PollNotReady,
    QueuedStepCompleted,
    QueuedStepFailed,
    RunCreate,
    SignalSend,
    StageSuspended,
    StepFail,
    StepQueue,
    TriggerFire,
    UpdateSend,
)
from holdfast.kernel.history import events
from holdfast.ports.records.values import Payload


def weight_of(command: Command[Any]) -> int:
    """Return roughly how many bytes of values a command carries."""
    if isinstance(command, JobRecord):
        weight = sum([len(one.data) for one in command.outputs]) if command.outputs else 0
        for record in command.records:
            match record:
                case EventAppend(event=event, payload=payload, published=published):
                    weight += 0 if payload is None else len(payload.inline or "")
                    if published:
                        weight += sum([_size(one.payload) for one in published])
                    if isinstance(event, events.StepCompleted) and event.given is not None:
                        weight += len(event.given)
                case EventPublish(published=one):
                    weight += _size(one.payload)
                case StepFail(event=failed):
                    weight += len(failed.given or "")
                case StepQueue(queued=queued):
                    weight += _size(queued.input)
                case ChildStart(child=child):
                    weight += _size(child.input)
                case SignalSend(signal=signal):
                    weight += _size(signal.payload)
                case UpdateSend(arguments=arguments):
                    weight += _size(arguments)
                case _:
                    pass
        return weight
    if isinstance(command, JobSettle):
        reported_size = sum(len(one.data) for one in command.outputs)
        match command.outcome:
            case QueuedStepCompleted(output=output):
                return reported_size + _size(output)
            case CompletedAfterStep(output=output, result=result, step=step):
                return reported_size + _size(output) + _size(result) + len(step.given or "")
            case Completed(output=output):
                return reported_size + _size(output) + sum(_size(event.payload) for event in command.events)
            case StageSuspended(state=output) | ChildRunStarted(input=output) | ContinuedAsNew(input=output):
                return reported_size + _size(output)
            case MapExpanded(items=items):
                return reported_size + sum(map(_size, items))
            case Failed(failure=failure) | Blocked(failure=failure):
                return (
                    reported_size
                    + len(failure.message)
                    + len(failure.traceback)
                    + len(failure.arguments or "")
                )
            case QueuedStepFailed(error=error):
                return reported_size + len(error)
            case ConditionEvaluated() | PollNotReady() | Cancelled() | FunctionWaiting():
                return reported_size
    start = command.start if isinstance(command, TriggerFire) else command
    return _size(start.input) if isinstance(start, RunCreate) else 0


def _size(payload: Payload) -> int:
    return len(payload.inline or "")
