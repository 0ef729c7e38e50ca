"""Rules for `job.settle`: the outcome of an attempt is stored, and the run continues, in one transaction.

**What a settle does.** It checks the fencing token (`kernel/rules/leases.py`), then that the outcome fits the job's
kind. What the outcome of each kind of job does is a function in a table (`kernel/rules/outcomes.py`): stages are
settled here, other kinds in the file of their feature. A settle appends the row that records the outcome, closes the
job or puts it to sleep, advances the run in its plan, and opens the jobs that follow. If the run ends, it closes all
other jobs, adds a delivery job for a parent or child runs, and starts the next generation for a message that asked for
one (`kernel/rules/successors.py`). Attempt output that no heartbeat has sent goes with it, but the artifacts of a
failed body do not.

**Why one transaction.** A queue and a result backend that are written one after the other always have a state between
them: the result stored and the next task not sent, or the task acknowledged and the result lost. Here there is no such
state, so nothing has to look for it. `run.transition`, which continues a run whose stages are done, never finds
anything unless a store has lost rows.

**Guaranteed.**

- At most one settle of each epoch changes anything. Later ones are `fenced`: no row, no output, no events. So a worker
  may repeat a settle whose reply was lost.
- A stage has one result. The row has the output, and what follows refers to that row by number (docs/decisions/0002);
  the kernel never opens a payload.
- User events are rows just before the result, or they do not exist.
- A failed attempt has its next instant in the job before anyone learns that it failed: no process has to remember it.

**What it costs.** The run's row is written once, however much happens. A check that finds external work unfinished, a
failed cancellation that is retried, and a function that parks write the job's row only: they are frequent, and a row
each would fill the history (docs/decisions/0015). A run ends without reading its jobs, by a fixed number of set-based
statements, however wide its maps are. The price: the reply then names all limits of the plan in `follow_up`, as the
deleted jobs may have held a slot of any of them.

**`take_next`.** A worker that settles one stage of a chain will almost always run the next. With `take_next` the settle
leases that job to its session: one transaction a stage instead of two (docs/decisions/0008). It is a claim like any
other, with its own epoch. It needs an open session and a queue that is not paused, and takes only a new job of the same
queue without limits. Such a
job was never lost, so quarantine does not apply. A settle whose reply is lost may leave a job leased that no process
runs; the worker then replaces its session.

**Ugly, and why it stays.** `Cancelled` has two meanings, by the job's kind: external work was cancelled, or a function
ended as cancelled. The JSON form is public. `ResultRefused` is a subclass of `Failed` that only the dispatcher makes,
when the store refuses an output: a function is driven again with it, so that it compensates. A settlement has the run
twice, with and without the newly received messages, because a function that parks should not touch the run's row unless
its mailbox changed. Not all retries are decided from here: see `kernel/rules/retries.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from holdfast.kernel.commands import (
    Blocked,
    Completed,
    Failed,
    Failure,
    FollowUp,
    JobSettle,
    JobSettled,
    Outcome,
    QueuedStepCompleted,
    merge,
)
from holdfast.kernel.history import events
from holdfast.kernel.limits.overrides import is_queue_paused
from holdfast.kernel.pipelines.plan import Plan
from holdfast.kernel.pipelines.progress import progress_from
from holdfast.kernel.rules.follow_ups import follow_up_after
from holdfast.kernel.rules.leases import attempt_of, find_leased_job, parse_job_id
from holdfast.kernel.rules.retries import AttemptDetails, fail_attempt
from holdfast.kernel.runs.builder import NextClaim, RunDraft, with_received
from holdfast.kernel.runs.plan_interpreter import stage_completed
from holdfast.kernel.runs.subscriptions import read_changes
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.changes import Change
from holdfast.ports.clock import Ids
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.records.job import Job, JobKind, JobState
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.records.session import SessionState
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import evolve, frozen


@frozen
class Settlement:
    """An attempt that is settled: its run and job, and what its outcome is decided by."""

    state: State
    command: JobSettle
    before: Run
    """The run as it was read."""
    run: Run
    """The run without the messages that its function has received."""
    job: Job
    now: Micros
    ids: Ids

    @property
    def plan(self) -> Plan:
        """The plan of the run."""
        return self.state.plan_of(self.run)

    @property
    def details(self) -> AttemptDetails:
        """The start and the host of the body, for the row, as far as the command has them."""
        return AttemptDetails(started_at=self.command.started_at, host=self.command.host or None)

    def details_of(self, failure: Failure) -> AttemptDetails:
        """Return the details of the attempt with the traceback of its failure."""
        return evolve(self.details, traceback=failure.traceback or None)

    def draft(self, *, takes_next: bool = False) -> RunDraft:
        """Return a draft of the run. With `takes_next`, its next job is leased to the session of the command."""
        return RunDraft(self.run, self.now, taker=self._taker() if takes_next else None)

    def _taker(self) -> NextClaim | None:
        """Return the session of `take_next` and the queue; None if the session is not open, or the queue is paused."""
        session = self.state.tables.sessions.get(self.command.take_next or "")
        if session is None or session.state is not SessionState.OPEN:
            return None
        if is_queue_paused(self.state.tables.limits, self.job.namespace, self.job.queue):
            return None
        return NextClaim(session.id, self.job.queue)

    def settled(
        self,
        draft: RunDraft,
        *,
        retry_at: Micros | None = None,
        row: int | None = None,
        more: Sequence[Change] = (),
    ) -> Decision[JobSettled]:
        """Return the decision with the changes of a draft, and more changes after them."""
        taken = draft.claimed_job
        reply = JobSettled(
            status="settled",
            run_status=draft.status,
            retry_at=retry_at,
            next=None if taken is None else attempt_of(taken),
            row=None if taken is None else row,
            more=taken is not None and bool(draft.hints),
            follow_up=follow_up_after(self.state, self.run, draft),
        )
        return Decision(reply, (*draft.changes(), *more), tuple(draft.hints))


OutcomeRule: TypeAlias = Callable[[Settlement], Decision[JobSettled]]
OutcomeRules: TypeAlias = Mapping[JobKind, Mapping[type[Outcome], OutcomeRule]]
"""For each kind of job the outcomes that it can have, each with its rule."""
OutcomeReads: TypeAlias = Mapping[type[Outcome], Callable[[Reads, JobSettle], Reads]]
"""What some outcomes read besides the run, the job and a session."""


def settle_reads(more: OutcomeReads) -> Callable[[JobSettle], Reads]:
    """Return the function that lists the rows that a settle reads."""

    def reads_of_settle(command: JobSettle) -> Reads:
        """Lock the run, then the job; read the session of `take_next`, and what the outcome needs."""
        key = parse_job_id(command.job)
        reads = Reads(
            runs=(key.run,),
            jobs=(key,),
            sessions=() if command.take_next is None else (command.take_next,),
            takers=() if command.take_next is None else (key,),
        )
        adds = more.get(type(command.outcome))
        return reads if adds is None else adds(reads, command)

    return reads_of_settle


def settle_decision(
    rules: OutcomeRules, replaced: Callable[[JobSettle, Run], JobSettle]
) -> Callable[[State, JobSettle, Micros, Ids], Decision[JobSettled]]:
    """Return the function that decides a settle.

    `replaced` returns the command to decide in place of one that does not fit the run as it is; usually the same one.
    """

    def decide_settle(state: State, command: JobSettle, now: Micros, ids: Ids) -> Decision[JobSettled]:
        """Settle the attempt and continue the run, or reply `fenced` if the attempt no longer holds its job.

        Raises InvalidCommandError if the outcome or the events do not fit the job.
        """
        held = find_leased_job(state, command.job, command.epoch, command.namespace)
        if held is None:
            return Decision(JobSettled(status="fenced"))
        run, job = held
        command = replaced(command, run)
        settle = rules[job.kind].get(type(command.outcome))
        if settle is None:
            raise InvalidCommandError(
                f"job {command.job} is of kind {job.kind}; it can't be settled as {command.outcome.tag}"
            )
        if command.events and not isinstance(command.outcome, Completed | QueuedStepCompleted):
            raise InvalidCommandError(f"job {command.job} did not complete; then it publishes no events")
        received = with_received(run, command.received)
        decision = settle(Settlement(state, command, run, received, job, now, ids))
        read = read_changes(run, command.received)
        return evolve(decision, changes=(*decision.changes, *read)) if read else decision

    return decide_settle


def complete(settlement: Settlement) -> Decision[JobSettled]:
    """Store the output of a stage, and continue the run."""
    draft = settlement.draft(takes_next=True)
    return settlement.settled(draft, row=completed(settlement, draft))


def completed(settlement: Settlement, draft: RunDraft) -> int:
    """Add the output of a body and what follows from it to a draft; return the number of the row with the output."""
    command, job = settlement.command, settlement.job
    assert isinstance(command.outcome, Completed)
    for event in command.events:
        draft.append_user_event(job, event)
    event_of_output = events.StageCompleted(
        attempt=job.attempts, job=job.number, started_at=command.started_at, host=command.host or None
    )
    row = draft.append_of(job, event_of_output, payload=command.outcome.output)
    draft.close_job(job)
    stage_completed(draft, settlement.plan, progress_from(settlement.run.progress), job, row)
    return row


def fail(settlement: Settlement) -> Decision[JobSettled]:
    """Schedule another attempt of a stage, or fail the stage."""
    outcome = settlement.command.outcome
    assert isinstance(outcome, Failed)
    return fail_with(settlement, outcome.failure, settlement.details_of(outcome.failure))


def fail_with(settlement: Settlement, failure: Failure, details: AttemptDetails) -> Decision[JobSettled]:
    """Schedule another attempt of a stage after this failure, or fail the stage."""
    draft = settlement.draft()
    retry_at = fail_attempt(draft, settlement.plan, settlement.job, failure, settlement.now, details)
    return settlement.settled(draft, retry_at=retry_at)


def block(settlement: Settlement) -> Decision[JobSettled]:
    """Block the run of a stage that cannot continue, and hold its jobs that are not leased.

    The attempt is not counted: no body ran.
    """
    outcome, job = settlement.command.outcome, settlement.job
    assert isinstance(outcome, Blocked)
    draft = settlement.draft()
    draft.append_of(job, blocked_event(job, outcome.failure, settlement.details_of(outcome.failure)))
    if draft.status is not RunStatus.BLOCKED:  # another stage may have blocked it
        draft.block()
    draft.reschedule_job(evolve(job, attempts=max(0, job.attempts - 1)), settlement.now)
    for other in settlement.state.tables.jobs.get(draft.run_key, {}).values():
        if other.state not in (JobState.LEASED, JobState.PAUSED) and not other.outlives_run:
            draft.reschedule_job(other, None if other.waits_for_child else other.wake_at or settlement.now)
    return blocked(draft)


def blocked(draft: RunDraft) -> Decision[JobSettled]:
    """Return the decision that blocks a run."""
    reply = JobSettled(status="settled", run_status=draft.status, follow_up=draft.follow_up)
    return Decision(reply, draft.changes(), tuple(draft.hints))


def blocked_event(job: Job, failure: Failure, details: AttemptDetails) -> events.RunBlocked:
    """Return the event with the job and the failure that block a run."""
    return events.RunBlocked(
        code=failure.code,
        message=failure.message,
        error_type=failure.type,
        attempt=job.attempts,
        job=job.number,
        started_at=details.started_at,
        host=details.host,
        traceback=details.traceback,
    )


def with_other(settled: Decision[JobSettled], other: Decision[FollowUp]) -> Decision[JobSettled]:
    """Add the changes to another run, and what follows from them."""
    return Decision(
        evolve(settled.reply, follow_up=merge(settled.reply.follow_up, other.reply)),
        (*settled.changes, *other.changes),
        (*settled.hints, *other.hints),
    )
