"""Rules for terminating, pausing, resuming and continuing runs."""

from typing import TypeAlias

from holdfast.kernel.commands import (
    RunCancel,
    RunPause,
    RunPaused,
    RunRemove,
    RunRerunFrom,
    RunResume,
    RunStopped,
    RunTerminate,
    RunTransition,
    RunTransitioned,
)
from holdfast.kernel.history import events
from holdfast.kernel.pipelines.progress import progress_from
from holdfast.kernel.rules.follow_ups import follow_up_after
from holdfast.kernel.runs.builder import RunDraft
from holdfast.kernel.runs.plan_interpreter import advance
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.clock import Ids
from holdfast.ports.errors import RunNotFoundError
from holdfast.ports.records.job import JobState
from holdfast.ports.records.run import HELD, TERMINAL, Run, RunName, RunStatus
from holdfast.ports.records.values import Micros

_OfGeneration: TypeAlias = RunCancel | RunTerminate | RunPause | RunResume | RunRerunFrom | RunRemove


def reads_of_named(command: RunTerminate | RunTransition) -> Reads:
    """Lock the newest generation of the run."""
    return Reads(names=(RunName(command.namespace, command.run_id),))


def decide_terminate(state: State, command: RunTerminate, now: Micros, _: Ids) -> Decision[RunStopped]:
    """End the run at once. An ended run stays unchanged. Raises RunNotFoundError.

    A run whose plan cannot be read is ended too, without cancelling its external work, which only the plan names.
    """
    return end_run(state, command, events.RunTerminated(reason=command.reason), now)


def reads_of_whole(command: RunPause | RunResume) -> Reads:
    """Lock the newest generation of the run and all of its jobs."""
    return Reads(names=(RunName(command.namespace, command.run_id),), whole_names=True)


def decide_pause(state: State, command: RunPause, now: Micros, _: Ids) -> Decision[RunPaused]:
    """Pause the run and hold its jobs. Leased jobs are held once their attempts have ended.

    A pending run has no jobs, and is not admitted while it is paused. Raises RunNotFoundError.
    """
    run = named_run(state, command)
    if run.status not in (RunStatus.RUNNING, RunStatus.PENDING) or is_older(run, command):
        return Decision(RunPaused(status=run.status, changed=False))
    draft = RunDraft(run, now)
    draft.append(events.RunPaused(reason=command.reason))
    draft.pause()
    return _reschedule_jobs(state, draft, run, (JobState.QUEUED, JobState.SLEEPING, JobState.LIMITED), now)


def decide_resume(state: State, command: RunResume, now: Micros, _: Ids) -> Decision[RunPaused]:
    """Resume the run: queue its held jobs, or let them sleep or wait for limits again. Raises RunNotFoundError."""
    run = named_run(state, command)
    if run.status not in HELD or is_older(run, command) or command.row not in {None, run.last_row}:
        return Decision(RunPaused(status=run.status, changed=False))
    draft = RunDraft(run, now)
    draft.append(events.RunResumed(reason=command.reason))
    draft.resume()
    return _reschedule_jobs(state, draft, run, (JobState.PAUSED,), now)


def _reschedule_jobs(
    state: State, draft: RunDraft, run: Run, of: tuple[JobState, ...], now: Micros
) -> Decision[RunPaused]:
    for job in state.tables.jobs.get(run.key, {}).values():
        if job.state in of and not job.outlives_run:
            draft.reschedule_job(job, None if job.waits_for_child else job.wake_at or now)
    reply = RunPaused(status=draft.status, changed=True, follow_up=draft.follow_up)
    return Decision(reply, draft.changes(), tuple(draft.hints))


def decide_transition(state: State, command: RunTransition, now: Micros, _: Ids) -> Decision[RunTransitioned]:
    """Continue the run if its current stages are done. Never needed after a settle. Raises RunNotFoundError."""
    run = named_run(state, command)
    if run.status in TERMINAL or not run.is_admitted:
        return Decision(RunTransitioned(action="none", status=run.status))
    draft = RunDraft(run, now)
    if not advance(draft, state.plan_of(run), progress_from(run.progress)):
        return Decision(RunTransitioned(action="none", status=run.status))
    ended = draft.status in TERMINAL
    reply = RunTransitioned(action="completed" if ended else "advanced", status=draft.status)
    return Decision(reply, draft.changes(), tuple(draft.hints))


def end_run(
    state: State,
    command: RunCancel | RunTerminate,
    event: events.RunCancelled | events.RunTerminated,
    now: Micros,
) -> Decision[RunStopped]:
    """End a run as cancelled, with this event. An ended run stays unchanged. Raises RunNotFoundError."""
    run = named_run(state, command)
    if run.status in TERMINAL or is_older(run, command):
        return Decision(RunStopped(status=run.status, changed=False))
    draft = RunDraft(run, now)
    draft.keep_mailbox(draft.mailbox.without_starts())
    draft.append(event)
    error: dict[str, object] = {"code": event.type.removeprefix("run."), "message": command.reason}
    has_plan = isinstance(command, RunCancel) or state.has_plan(run)
    draft.end(RunStatus.CANCELLED, cancels=state.cancels_of(run) if has_plan else {}, error=error)
    follow_up = follow_up_after(state, run, draft) if has_plan else draft.follow_up
    reply = RunStopped(status=draft.status, changed=True, follow_up=follow_up)
    return Decision(reply, draft.changes(), tuple(draft.hints))


def named_run(state: State, command: _OfGeneration | RunTransition) -> Run:
    """Return the newest generation of the run that a command names. Raises RunNotFoundError."""
    run = state.tables.run_named(RunName(command.namespace, command.run_id))
    if run is None:
        raise RunNotFoundError(command.run_id)
    return run


def is_older(run: Run, command: _OfGeneration) -> bool:
    """Whether the command names another generation than this, the newest one."""
    return command.generation is not None and command.generation != run.generation
