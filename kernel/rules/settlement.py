"""Rules for `job.settle`: the outcome of an attempt is stored, and the run continues, in one transaction.

**What a settle does.** It checks the fencing token (`kernel/rules/leases.py`), then that the outcome fits the job's
kind. It appends the row that records the outcome, closes the job or puts it to sleep, advances the run in its plan, and
opens the jobs that follow. If the run ends, it closes all other jobs, adds a delivery job for a parent or child runs,
and starts the next generation for a message that asked for one (`kernel/rules/successors.py`). Attempt output that no
heartbeat has sent goes with it, but the artifacts of a failed body do not.

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
other, with its own epoch. It needs an open session, and takes only a new job of the same queue without limits. Such a
job was never lost, so quarantine does not apply. A settle whose reply is lost may leave a job leased that no process
runs; the worker then replaces its session.

**Ugly, and why it stays.** `Cancelled` has two meanings, by the job's kind: external work was cancelled, or a function
ended as cancelled. The JSON form is public. `ResultRefused` is a subclass of `Failed` that only the dispatcher makes,
when the store refuses an output. Its case must come before that of `Failed`: a function is driven again with it, so
that it compensates. `suspend_function` gets the run twice, with and without the newly received messages, because a
function that parks should not touch the run's row unless its mailbox changed. Not all retries are decided from here:
see `kernel/rules/retries.py`.
"""

from collections.abc import Sequence
from typing import Final

from holdfast.kernel.commands import (
    Blocked,
    Cancelled,
    ChildRunStarted,
    Completed,
    ConditionEvaluated,
    ContinuedAsNew,
    Failed,
    Failure,
    FollowUp,
    FunctionWaiting,
    JobSettle,
    JobSettled,
    MapExpanded,
    Outcome,
    PollNotReady,
    QueuedStepCompleted,
    QueuedStepFailed,
    StageSuspended,
    merge,
)
from holdfast.kernel.commands.jobs import ResultRefused
from holdfast.kernel.history import events
from holdfast.kernel.pipelines.plan import MapPlan
from holdfast.kernel.pipelines.progress import MapProgress, progress_from
from holdfast.kernel.rules.admissions import follow_up_after
from holdfast.kernel.rules.attempt_output import (
    annotation_keys,
    check_published,
    known_annotations,
    output_changes,
)
from holdfast.kernel.rules.children import start_child
from holdfast.kernel.rules.continue_as_new import continue_run
from holdfast.kernel.rules.external_cancels import record_cancelled, retry_cancel
from holdfast.kernel.rules.external_work import schedule_next_check, suspend_stage
from holdfast.kernel.rules.function_history import (
    block,
    function_cancelled,
    retry_refused_result,
    suspend_function,
    with_received,
)
from holdfast.kernel.rules.leases import attempt_of, find_leased_job, job_hints, parse_job_id
from holdfast.kernel.rules.queued_steps import settle_step
from holdfast.kernel.rules.reruns import retry_run
from holdfast.kernel.rules.retries import NO_DETAILS, AttemptDetails, fail_attempt, fail_stage
from holdfast.kernel.rules.successors import start_successor
from holdfast.kernel.runs.builder import NextClaim, RunDraft
from holdfast.kernel.runs.plan_interpreter import condition_evaluated, map_expanded, stage_completed
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.changes import Change, Insert, Update
from holdfast.ports.clock import Ids
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.json import compact
from holdfast.ports.records.job import Job, JobKind
from holdfast.ports.records.run import Run, RunName
from holdfast.ports.records.session import SessionState
from holdfast.ports.records.values import MapItems, Micros, Payload
from holdfast.ports.structs import evolve

PAGE_BYTES_MAX: Final = 32_768
"""Most JSON text in a page of map items, in characters, unless it holds a single item."""
PAGE_ITEMS_MAX: Final = 100
"""Most items in a page of map items."""
_OUTCOMES: Final[dict[JobKind, tuple[type[Outcome], ...]]] = {
    JobKind.STAGE: (Completed, StageSuspended, Failed, Blocked),
    JobKind.EXPAND_MAP: (MapExpanded, Failed, Blocked),
    JobKind.CONDITION: (ConditionEvaluated, Failed, Blocked),
    JobKind.POLL: (Completed, PollNotReady, Failed, Blocked),
    JobKind.CANCEL: (Cancelled, Failed),
    JobKind.CHILD: (ChildRunStarted, Failed, Blocked),
    JobKind.DELIVER: (),
    JobKind.WORKFLOW: (Completed, Failed, Cancelled, FunctionWaiting, Blocked, ContinuedAsNew),
    JobKind.STEP: (QueuedStepCompleted, QueuedStepFailed),
}
"""Outcomes that a job of each kind can have. Delivery jobs are never claimed: `run.deliver` ends them."""


def reads_of_settle(command: JobSettle) -> Reads:
    """Lock the run, then the job; read the session of `take_next` and the run with the id of a new child run.

    Blocking or continuing a run locks all of its jobs. The end of a queued step locks the job that drives its function.
    """
    key = parse_job_id(command.job)
    sessions = () if command.take_next is None else (command.take_next,)
    outcome = command.outcome
    may_end = isinstance(outcome, Completed | Failed | Cancelled)
    names = (RunName(command.namespace, outcome.run_id),) if isinstance(outcome, ChildRunStarted) else ()
    goes_on = outcome if isinstance(outcome, ContinuedAsNew) else None
    return Reads(
        runs=(key.run,),
        whole_runs=isinstance(outcome, Blocked | ContinuedAsNew),
        drivers=isinstance(outcome, QueuedStepCompleted | QueuedStepFailed),
        names=names,
        jobs=(key,),
        sessions=sessions,
        annotation_keys=annotation_keys(command),
        annotations=(key.run,) if goes_on else (),
        history_after=((key.run, goes_on.seen),) if goes_on else (),
        messages=(key.run,) if goes_on else (),
        kept_starts=(key.run,) if may_end else (),
        retried=(key.run,) if isinstance(outcome, Failed) and outcome.failure.retryable else (),
    )


def decide_settle(state: State, command: JobSettle, now: Micros, ids: Ids) -> Decision[JobSettled]:
    """Settle the attempt and continue the run, or reply `fenced` if the attempt no longer holds its job.

    Raises InvalidCommandError if the outcome or the events do not fit the job.
    """
    held = find_leased_job(state, command.job, command.epoch, command.namespace)
    if held is None:
        return Decision(JobSettled(status="fenced"))
    before, job = held
    has_failed = isinstance(command.outcome, Failed | QueuedStepFailed)
    if not isinstance(command.outcome, _OUTCOMES[job.kind]):
        raise InvalidCommandError(
            f"job {command.job} is of kind {job.kind}; it can't be settled as {command.outcome.tag}"
        )
    _check_events(command)
    decision = _apply_outcome(state, command, before, job, now, ids)
    if command.outputs:
        known = known_annotations(state)
        reported = output_changes(job, command.epoch, command.outputs, ids, known, artifacts=not has_failed)
        return evolve(decision, changes=(*decision.changes, *reported))
    return decision


def _check_events(command: JobSettle) -> None:
    if command.events and not isinstance(command.outcome, Completed | QueuedStepCompleted):
        raise InvalidCommandError(f"job {command.job} did not complete; then it publishes no events")
    check_published(command.events)


def _apply_outcome(
    state: State, command: JobSettle, before: Run, job: Job, now: Micros, ids: Ids
) -> Decision[JobSettled]:
    run = with_received(before, command.received)
    match command.outcome:
        case Completed(output=output):
            return _completed(state, command, run, job, output, now, ids)
        case ResultRefused(failure=failure) if job.kind is JobKind.WORKFLOW:
            return retry_refused_result(run, job, failure, now)
        case Failed(failure=failure):
            return _failed(state, command, run, job, failure, now, ids)
        case MapExpanded(items=items):
            return _expanded(state, command, run, job, items, now)
        case ConditionEvaluated(passed=passed):
            return _record_condition(state, command, run, job, passed, now)
        case StageSuspended():
            draft = RunDraft(run, now)
            retry_at = suspend_stage(draft, state.plan_of(run), job, command.outcome, now, _details(command))
            return _settled(state, run, draft, retry_at=retry_at)
        case PollNotReady(check_after=check_after):
            return _schedule_check(state, command, run, job, None, check_after, now)
        case Cancelled(reason=reason) if job.kind is JobKind.WORKFLOW:
            draft = function_cancelled(state, run, reason, now)
            return _with_successor(state, run, draft, _settled(state, run, draft), now, ids)
        case Cancelled():
            return record_cancelled(run, job, _details(command), now)
        case ChildRunStarted():
            return _started(state, command, run, job, command.outcome, now, ids)
        case FunctionWaiting():
            return suspend_function(before, run, job, command.outcome, now)
        case ContinuedAsNew():
            return continue_run(state, run, job, command.outcome, now, ids)
        case QueuedStepCompleted() | QueuedStepFailed():
            return settle_step(state, command, run, job, _details(command), now)
        case Blocked(failure=failure):
            return block(state, run, job, failure, now, _failure_details(command, failure))


def _completed(
    state: State, command: JobSettle, run: Run, job: Job, output: Payload, now: Micros, ids: Ids
) -> Decision[JobSettled]:
    draft = RunDraft(run, now, taker=_taker(state, command, job))
    for event in command.events:
        draft.append_user_event(job, event)
    completed = events.StageCompleted(
        attempt=job.attempts, job=job.number, started_at=command.started_at, host=command.host or None
    )
    row = draft.append_of(job, completed, payload=output)
    draft.close_job(job)
    stage_completed(draft, state.plan_of(run), progress_from(run.progress), job, row)
    return _with_successor(state, run, draft, _settled(state, run, draft, row=row), now, ids)


def _expanded(
    state: State, command: JobSettle, run: Run, job: Job, items: tuple[Payload, ...], now: Micros
) -> Decision[JobSettled]:
    draft = RunDraft(run, now, taker=_taker(state, command, job))
    plan = state.plan_of(run)
    size = _page_size(items)
    node = plan.node(job.node)
    assert isinstance(node, MapPlan)
    if node.enough is not None and node.enough.is_missed(total=len(items), failed=0):
        wanted = f"at least {node.enough.at_least} must complete"
        message = f"it has {len(items)} items, and {wanted}"
        fail_stage(draft, plan, job, Failure(code="too_few_items", message=message), NO_DETAILS)
        return _settled(state, run, draft)
    row = draft.append(events.StageExpanded(items=len(items)), node=job.node, epoch=job.epoch)
    draft.close_job(job)
    counters = MapProgress(total=len(items), next=0, done=0, page_size=size, first_row=row)
    map_expanded(draft, plan, progress_from(run.progress), job.node, counters)
    pages = [
        Insert(
            MapItems(run=run.key, node=job.node, page=start // size, items=_page(items[start : start + size]))
        )
        for start in range(0, len(items), size)
    ]
    return _settled(state, run, draft, more=pages)


def _record_condition(
    state: State, command: JobSettle, run: Run, job: Job, passed: bool, now: Micros
) -> Decision[JobSettled]:
    draft = RunDraft(run, now, taker=_taker(state, command, job))
    plan, progress = state.plan_of(run), progress_from(run.progress)
    tested = events.StageTested(
        test=plan.groups[progress.group].test,
        passed=passed,
        attempt=job.attempts,
        job=job.number,
        started_at=command.started_at,
        host=command.host or None,
    )
    draft.append(tested, node=job.node, epoch=job.epoch)
    draft.close_job(job)
    condition_evaluated(draft, plan, progress, passed=passed)
    return _settled(state, run, draft)


def _started(
    state: State, command: JobSettle, run: Run, job: Job, child: ChildRunStarted, now: Micros, ids: Ids
) -> Decision[JobSettled]:
    draft = RunDraft(run, now)
    created = start_child(state, draft, run, job, child, now, ids)
    if isinstance(created, Failure):
        fail_attempt(draft, state.plan_of(run), job, created, now, _details(command))
        return _settled(state, run, draft)
    return _with(_settled(state, run, draft), created)


def _failed(
    state: State, command: JobSettle, run: Run, job: Job, failure: Failure, now: Micros, ids: Ids
) -> Decision[JobSettled]:
    if job.kind is JobKind.POLL and failure.retryable:
        return _schedule_check(state, command, run, job, failure, None, now)
    if job.kind is JobKind.CANCEL:
        return retry_cancel(run, state.plan_of(run), job, failure, _failure_details(command, failure), now)
    details = _failure_details(command, failure)
    if job.kind is JobKind.WORKFLOW and run.key in state.histories:
        retried = retry_run(state, run, job, failure, details, now, ids)
        if retried is not None:
            return retried
    draft, retry_at = RunDraft(run, now), None
    if job.kind is JobKind.WORKFLOW:
        fail_stage(draft, state.plan_of(run), job, failure, details)
    else:
        retry_at = fail_attempt(draft, state.plan_of(run), job, failure, now, details)
    return _with_successor(state, run, draft, _settled(state, run, draft, retry_at=retry_at), now, ids)


def _schedule_check(
    state: State,
    command: JobSettle,
    run: Run,
    job: Job,
    failure: Failure | None,
    check_after: Micros | None,
    now: Micros,
) -> Decision[JobSettled]:
    """Schedule the next check of unfinished external work, or fail the stage. Usually writes only the job."""
    plan = state.plan_of(run)
    details = _details(command) if failure is None else _failure_details(command, failure)
    found = schedule_next_check(plan, run, job, failure, check_after, now)
    if isinstance(found, Failure):
        draft = RunDraft(run, now)
        fail_stage(draft, plan, job, found, details)
        return _settled(state, run, draft)
    reply = JobSettled(status="settled", run_status=run.status, retry_at=found.wake_at or now)
    return Decision(reply, (Update(found),), job_hints(found))


def _failure_details(command: JobSettle, failure: Failure) -> AttemptDetails:
    return AttemptDetails(
        started_at=command.started_at, host=command.host or None, traceback=failure.traceback or None
    )


def _details(command: JobSettle) -> AttemptDetails:
    """Return the start and the host of the body, for the row, as far as the command has them."""
    return AttemptDetails(started_at=command.started_at, host=command.host or None)


def _taker(state: State, command: JobSettle, job: Job) -> NextClaim | None:
    """Return the session of `take_next` and the queue; None if the session is not open."""
    session = state.tables.sessions.get(command.take_next or "")
    if session is None or session.state is not SessionState.OPEN:
        return None
    return NextClaim(session.id, job.queue)


def _settled(
    state: State,
    run: Run,
    draft: RunDraft,
    *,
    retry_at: Micros | None = None,
    row: int | None = None,
    more: Sequence[Change] = (),
) -> Decision[JobSettled]:
    taken = draft.claimed_job
    reply = JobSettled(
        status="settled",
        run_status=draft.status,
        retry_at=retry_at,
        next=None if taken is None else attempt_of(taken),
        row=None if taken is None else row,
        more=taken is not None and bool(draft.hints),
        follow_up=follow_up_after(state, run, draft),
    )
    return Decision(reply, (*draft.changes(), *more), tuple(draft.hints))


def _with_successor(
    state: State, run: Run, draft: RunDraft, settled: Decision[JobSettled], now: Micros, ids: Ids
) -> Decision[JobSettled]:
    """Add the next generation to a settle that ended the run, if an unread message came with a start."""
    if run.mailbox is None:
        return settled
    return _with(settled, start_successor(state, run, draft, now, ids))


def _with(settled: Decision[JobSettled], other: Decision[FollowUp]) -> Decision[JobSettled]:
    """Add the changes to another run, and what follows from them."""
    return Decision(
        evolve(settled.reply, follow_up=merge(settled.reply.follow_up, other.reply)),
        (*settled.changes, *other.changes),
        (*settled.hints, *other.hints),
    )


def _page_size(items: tuple[Payload, ...]) -> int:
    longest = max((len(item.inline or item.blob or "") for item in items), default=0)
    return max(1, min(PAGE_ITEMS_MAX, PAGE_BYTES_MAX // (longest + 1)))


def _page(items: tuple[Payload, ...]) -> str:
    return compact([[item.inline, item.blob] for item in items])
