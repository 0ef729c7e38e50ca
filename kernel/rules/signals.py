"""Rules for signals and cancellation requests of durable functions: both are history rows that wake the function."""

from collections.abc import Sequence
from typing import Final

from holdfast.kernel.commands import ChannelMessage, RunSignal, RunSignalled, RunStopped
from holdfast.kernel.commands.names import check_name
from holdfast.kernel.history import events
from holdfast.kernel.pipelines.plan import Plan
from holdfast.kernel.pipelines.progress import driver_of
from holdfast.kernel.runs.builder import RunDraft
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.clock import Ids
from holdfast.ports.errors import (
    ChannelClosedError,
    InvalidCommandError,
    RunNotFoundError,
    SignalRefusedError,
)
from holdfast.ports.records.job import JobKind, JobState
from holdfast.ports.records.run import TERMINAL, Run, RunName, RunStatus, end_of
from holdfast.ports.records.topic import GROUP_CHANNEL, TOPIC_CHANNEL
from holdfast.ports.records.values import Micros, Payload
from holdfast.ports.structs import evolve, frozen
from holdfast.ports.transport import HistoryGrew

CHANNEL_MAX: Final = 128
"""Longest name of a channel, in characters."""


@frozen
class StartToKeep:
    """A `RunCreate` that is stored with its messages, so that the next generation can start from it."""

    payload: Payload
    """Its input."""
    event: events.StartReceived
    """Its other fields."""


def reads_of_signal(command: RunSignal) -> Reads:
    """Lock the newest generation of the run and the job that drives it."""
    return Reads(names=(RunName(command.namespace, command.run_id),), drivers=True)


def decide_signal(state: State, command: RunSignal, now: Micros, _: Ids) -> Decision[RunSignalled]:
    """Append the message to the history and wake the function. See `RunSignal` for the errors."""
    run = state.tables.run_named(RunName(command.namespace, command.run_id))
    if run is None:
        raise RunNotFoundError(command.run_id)
    if command.generation is not None and command.generation != run.generation:
        why = f"generation {command.generation} was requested, but {run.generation} is the newest"
        raise SignalRefusedError(run.id, why)
    draft = RunDraft(run, now)
    receive(state, draft, run, (command.signal,), now, key=command.idempotency_key)
    reply = RunSignalled(run=run.key, number=draft.rows[-1].number, status=run.status)
    return Decision(reply, draft.changes(), tuple(draft.hints))


def receive(
    state: State,
    draft: RunDraft,
    run: Run,
    signals: Sequence[ChannelMessage],
    now: Micros,
    *,
    key: str | None = None,
    start: StartToKeep | None = None,
    sender: str | None = None,
) -> tuple[int, ...]:
    """Append messages to the history of a run and wake its function; return the numbers of their rows.

    `key` is the idempotency key of their command, `sender` the id of the run that sends them. With a `start`, the next
    generation may start from it and receive them, so they may also be for channels that this generation has closed.
    Raises SignalRefusedError, ChannelClosedError.
    """
    check_signals(state.plan_of(run), run.id, signals)
    if run.status in TERMINAL:
        raise SignalRefusedError(run.id, f"the run {end_of(run.status)}")
    closed = draft.mailbox.closed
    if start is None and (refused := next((one for one in signals if one.channel in closed), None)):
        raise ChannelClosedError(run.id, refused.channel)
    row = None if start is None else draft.append(start.event, payload=start.payload)
    numbers = append_signals(draft, signals, key=key, start=row, sender=sender)
    wake_driver(state, draft, run, now)
    return numbers


def check_signals(plan: Plan, run_id: str, signals: Sequence[ChannelMessage]) -> None:
    """Raise SignalRefusedError if the plan is a pipeline, InvalidCommandError if a channel's name is not valid."""
    if plan.function is None:
        raise SignalRefusedError(
            run_id, f"{plan.workflow!r} is a pipeline; only durable functions receive messages"
        )
    for signal in signals:
        check_name("the channel", signal.channel)
        if signal.channel.startswith((TOPIC_CHANNEL, GROUP_CHANNEL)):
            raise InvalidCommandError(
                f"the channel {signal.channel!r} gets the messages of a topic; publish to the topic instead"
            )
        if not 1 <= len(signal.channel) <= CHANNEL_MAX:
            raise InvalidCommandError(
                f"a channel's name has 1 to {CHANNEL_MAX} characters, not {len(signal.channel)}"
            )


def append_signals(
    draft: RunDraft,
    signals: Sequence[ChannelMessage],
    *,
    key: str | None = None,
    start: int | None = None,
    sender: str | None = None,
) -> tuple[int, ...]:
    """Append messages to the history and return the numbers of their rows. `start` is the row of their start."""
    return tuple(
        draft.append_message(
            one.payload,
            events.SignalReceived(
                channel=one.channel, checked=one.checked, key=key, start=start, sender=sender
            ),
        )
        for one in signals
    )


def wake_driver(state: State, draft: RunDraft, run: Run, now: Micros) -> None:
    """Wake the function of a run, as its history has a new row. A queued job needs no waking."""
    key = driver_of(run)
    job = None if key is None else state.tables.job(key)
    if job is None:
        return
    match job.state:
        case JobState.LEASED:
            draft.hints.append(HistoryGrew(run=run.key))
        case JobState.SLEEPING:
            draft.reschedule_job(job, now)
        case JobState.PAUSED if draft.status is RunStatus.CANCELLING:
            draft.reschedule_job(job, now)
        case JobState.PAUSED if job.wake_at is not None:
            draft.update_job(evolve(job, wake_at=None))
        case _:
            pass


def request_cancel(
    state: State, run: Run, reason: str, now: Micros, *, superseded_by: str | None = None
) -> Decision[RunStopped]:
    """Request the cancellation of a function, which then cleans up. Does nothing if it is ending already."""
    if run.is_ending:
        return Decision(RunStopped(status=run.status, changed=False))
    draft = RunDraft(run, now)
    draft.keep_mailbox(draft.mailbox.without_starts())
    error: dict[str, object] = {"code": "cancelled", "message": reason}
    event = events.RunCancelling(reason=reason, superseded_by=superseded_by)
    start_cancelling(state, draft, event, run, error, now)
    return Decision(RunStopped(status=draft.status, changed=True), draft.changes(), tuple(draft.hints))


def start_cancelling(
    state: State,
    draft: RunDraft,
    event: events.RunCancelling,
    run: Run,
    error: dict[str, object],
    now: Micros,
) -> None:
    """Make a run `cancelling` and wake its function. `error` becomes the run's error when the function has ended."""
    draft.append(event)
    draft.cancel(error)
    wake_driver(state, draft, run, now)
    for job in state.tables.jobs.get(run.key, {}).values():  # all jobs were read if the run was held
        if job.kind is JobKind.STEP and job.state is JobState.PAUSED:
            draft.reschedule_job(job, job.wake_at or now)
