"""The builder of one run's changes: used by every rule that changes a run, its jobs or its history."""

from collections.abc import Mapping, Sequence
from typing import Final

from attrs import frozen

from holdfast.kernel.commands import NO_FOLLOW_UP, FollowUp, PublishedEvent, QueuedStepJob
from holdfast.kernel.history.events import HistoryEvent, SignalReceived, UserEvent
from holdfast.kernel.limits.concurrency import stage_limit_key, step_limit_key
from holdfast.kernel.pipelines.plan import RatePlan, StagePlan
from holdfast.kernel.runs.gathered_starts import after_gathering
from holdfast.kernel.runs.reply_deliveries import ReplyDelivery
from holdfast.kernel.runs.subscriptions import without_subscriptions
from holdfast.kernel.runs.transitions import JOB_TRANSITIONS, RUN_TRANSITIONS
from holdfast.ports.changes import (
    CancelExternalWork,
    Change,
    Delete,
    DeleteJobs,
    DeleteJobsOfNode,
    Insert,
    Update,
)
from holdfast.ports.events import USER_EVENTS
from holdfast.ports.json import canonical
from holdfast.ports.mailboxes import Mailbox, mailbox_from
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import Job, JobKind, JobState, cancelling, job_id, rank_of, step_definition
from holdfast.ports.records.run import HELD, TERMINAL, Run, RunStatus
from holdfast.ports.records.values import Micros, Payload
from holdfast.ports.references import Reference, reference_text
from holdfast.ports.structs import changer, evolve
from holdfast.ports.tables import JOBS
from holdfast.ports.transport import Hint, JobHint, RunEnded

INPUT_ROW: Final = 1
"""Number of the history row with the run's input, unless a fork keeps earlier rows."""


@frozen
class PollSchedule:
    """The schedule of polls of external work."""

    until: Micros
    """When the first poll is due."""
    check_after: Micros
    """Time between polls, in microseconds."""
    give_up_at: Micros | None
    """When the stage stops waiting and fails."""
    key: str
    """Wakes the poll early."""


@frozen
class NextClaim:
    """A session that claims the next job of a run together with a settle, if the job is in its queue."""

    session: str
    queue: str


_changed_run: Final = changer(
    Run,
    *("status", "updated_at", "ended_at", "last_row", "last_job", "open_jobs"),
    *("children", "mailbox", "progress", "result", "error"),
)


class RunDraft:
    """The changes to one run while a rule decides. The run's own row is written once.

    The first job opened for the queue of a `taker` is leased to its session at once; it is then `taken`.
    """

    def __init__(
        self, run: Run, now: Micros, *, is_new: bool = False, taker: NextClaim | None = None
    ) -> None:
        self._before = run
        self._is_new = is_new
        self._taker = taker
        self.claimed_job: Job | None = None
        self._now = now
        # The clock of a host may be behind that of the previous one, but the times in a run never go back.
        self._changed_at = max(now, run.updated_at)
        self._changes: list[Change] = []
        self._status = run.status
        self._last_row = run.last_row
        self._last_job = run.last_job
        self._open_jobs = run.open_jobs
        self._progress = run.progress
        self._result = run.result
        self._error = run.error
        self._ended_at = run.ended_at
        self._limited: dict[str, None] = {}
        self.closed_all = False
        """Whether jobs were deleted unread, with the run or with a map: their slots are not in `follow_up`."""
        self._children = run.children
        self._mailbox = run.mailbox
        self._has_deliveries = False
        self._returns: tuple[str, ...] = ()
        self.rows: list[HistoryRow] = []
        """The history rows appended so far."""
        self.hints: list[Hint] = []
        self.outliving: list[Change] = []
        """Changes of jobs that outlive the run, which leave the row of the run unchanged."""

    @property
    def run_key(self) -> str:
        """The key of the run."""
        return self._before.key

    @property
    def follow_up(self) -> FollowUp:
        """What can be done next: admit to slots that may have become free or are waited for, and deliver results."""
        run = self._before
        waits = self._status is RunStatus.PENDING and run.start_at is None
        # A run that is held in a line lets those behind it pass, and these may fit where it did not.
        leaves = self._status in TERMINAL or (self._status in HELD and not run.is_admitted)
        has_run = run.concurrency_key is not None and (waits or leaves)
        has_rate = run.in_rate_line == 1 and (waits or leaves)
        if not (has_run or has_rate or self._limited or self._has_deliveries or self._returns):
            return NO_FOLLOW_UP
        runs = (run.concurrency_key,) if has_run and run.concurrency_key is not None else ()
        rates = (run.rate_key,) if has_rate and run.rate_key is not None else ()
        return FollowUp(runs, tuple(self._limited), self._has_deliveries, rates, self._returns)

    @property
    def is_changed(self) -> bool:
        """Whether there are changes besides those to the run's row."""
        return bool(self._changes)

    @property
    def status(self) -> RunStatus:
        """The status as decided so far."""
        return self._status

    @property
    def progress(self) -> str:
        """The progress of the run through its plan as decided so far, as JSON text."""
        return self._progress

    def append(
        self,
        event: HistoryEvent,
        *,
        node: str | None = None,
        item: int | None = None,
        epoch: int | None = None,
        payload: Payload | None = None,
    ) -> int:
        """Append an event to the history and return the number of its row."""
        return self._append_row(event.type, event.data, node, item, epoch, payload)

    def append_of(self, job: Job, event: HistoryEvent, *, payload: Payload | None = None) -> int:
        """Append an event of an attempt of a job, at its stage and map item; return the number of its row."""
        return self._append_row(event.type, event.data, job.node, job.item, job.epoch, payload)

    def append_user_event(
        self, job: Job, published: PublishedEvent, *, node: str | None = None, call: str = ""
    ) -> None:
        """Append an event that a body published. `call` is as in `UserEvent`; `node` None is that of the job."""
        kind, data = f"{USER_EVENTS}{published.type}", UserEvent(call=call).data
        self._append_row(kind, data, node or job.node, job.item, job.epoch, published.payload)

    def _append_row(
        self,
        kind: str,
        data: str | None,
        node: str | None,
        item: int | None,
        epoch: int | None,
        payload: Payload | None,
    ) -> int:
        self._last_row += 1
        # Positional arguments: keywords take twice as long.
        row = HistoryRow(
            self._before.key, self._last_row, kind, self._changed_at, node, item, epoch, payload, data
        )
        self._changes.append(Insert(row))
        self.rows.append(row)
        return self._last_row

    @property
    def mailbox(self) -> Mailbox:
        """The unread messages of the run as decided so far."""
        return mailbox_from(self._mailbox)

    def keep_mailbox(self, mailbox: Mailbox) -> None:
        """Set the unread messages of the run."""
        self._mailbox = mailbox.to_text()

    def append_message(self, payload: Payload, message: SignalReceived) -> int:
        """Append a message, put it into the mailbox, and return its row number."""
        number = self.append(message, payload=payload)
        of_group = message.of_group
        self.keep_mailbox(
            self.mailbox.put(number, message.start)
            if of_group is None
            else self.mailbox.put_of_group(number, of_group)
        )
        return number

    def open_job(self, stage: StagePlan, kind: JobKind, gets: Reference, *, item: int | None = None) -> int:
        """Open a job for a stage or map item and return its number."""
        job = self._new_job(stage, kind, gets, item, stage.max_attempts)
        if kind is JobKind.STAGE and (stage.max_concurrency is not None or stage.rate is not None):
            job = limited(job, stage_limit_key(self._before, stage), stage.max_concurrency, stage.rate)
        taker = self._taker
        is_free = self._status not in HELD and job.concurrency_key is None
        is_ours = not stage.is_remote(kind)  # a worker that has the code takes it
        is_takeable = is_free and is_ours and self.claimed_job is None
        if is_takeable and taker is not None and job.queue == taker.queue:
            self.claimed_job = job = leased(job, taker.session, self._now)
        else:
            job = self._in_line(job)
        self._changes.append(Insert(job))
        return job.number

    def open_poll(self, stage: StagePlan, row: int, item: int | None, waits: PollSchedule) -> int:
        """Open a job that polls the external work described in row `row`; return its number."""
        assert stage.check is not None
        job = self._new_job(stage, JobKind.POLL, row, item, stage.check.retry.attempts)
        job = evolve(
            job,
            state=JobState.SLEEPING,  # as it is created
            waiting_for=waits.key,
            check_after=waits.check_after,
            give_up_at=waits.give_up_at,
        )
        job = rescheduled(job, waits.until, self._now, self._status)
        if job.state is JobState.QUEUED:
            self._announce(job)
        self._changes.append(Insert(job))
        return job.number

    def _new_job(
        self, stage: StagePlan, kind: JobKind, gets: Reference, item: int | None, max_attempts: int
    ) -> Job:
        run = self._before
        priority = run.priority if stage.priority is None else stage.priority
        self._last_job += 1
        self._open_jobs += 1
        return Job(
            run=run.key,
            number=self._last_job,
            namespace=run.namespace,
            queue=stage.queue_of(run.queue, kind),
            definition=stage.definition(f"{run.workflow}@{run.version}", kind),
            kind=kind,
            node=stage.name,
            item=item,
            priority=priority,
            # Older runs go first with all of their stages: started runs are finished before new ones are started.
            queue_position=rank_of(run.queue_position, priority - run.priority),
            max_attempts=max_attempts,
            input=reference_text(gets),
            timeout_total=stage.timeout_total_us if kind is JobKind.STAGE else None,
            heartbeat_timeout=stage.heartbeat_timeout_us if kind is JobKind.STAGE else None,
        )

    @property
    def next_job(self) -> int:
        """The number of the next job to be opened."""
        return self._last_job + 1

    def open_step(self, call: str, step: str, row: int, queued: QueuedStepJob) -> None:
        """Open the job of a queued step, which gets its arguments from row `row`."""
        run, rate = self._before, queued.rate
        priority = run.priority if queued.priority is None else queued.priority
        definition = step_definition(step)
        self._last_job += 1
        self._open_jobs += 1
        job = Job(
            run=run.key,
            number=self._last_job,
            namespace=run.namespace,
            queue=queued.queue,
            definition=definition,
            kind=JobKind.STEP,
            node=call,
            priority=priority,
            queue_position=rank_of(run.queue_position, priority - run.priority),
            max_attempts=queued.attempts,
            input=reference_text(row),
        )
        if queued.max_concurrency is not None or rate is not None:
            key = step_limit_key(run, definition, rate, queued.slots)
            job = limited(job, key, queued.max_concurrency, rate)
        self._changes.append(Insert(self._in_line(job)))

    def _in_line(self, job: Job) -> Job:
        """Return a new job in its first state: paused with its run, limited, or queued."""
        if self._status in HELD:
            job = evolve(job, state=JOB_TRANSITIONS.check(job.state, JobState.PAUSED))
        elif job.concurrency_key is not None:
            self._limited[job.concurrency_key] = None
            job = evolve(job, state=JOB_TRANSITIONS.check(job.state, JobState.LIMITED))
        else:
            self._announce(job)
        return job

    def count_child(self) -> None:
        """Count a child run that has to be closed when this run ends."""
        self._children += 1

    def wait_for_child(self, job: Job, child: str) -> None:
        """Put a job to sleep until child run `child`, which it has started, has ended."""
        self._children += 1
        waiting = evolve(job, waiting_for=child)
        self._changes.append(Update(rescheduled(waiting, None, self._now, self._status)))

    def reschedule_job(self, job: Job, wake_at: Micros | None, *, is_damaged: bool = False) -> None:
        """Put a job to sleep until `wake_at`, or queue it if that has passed. Its lease ends."""
        had_slot, key = job.has_slot, job.concurrency_key
        job = rescheduled(job, wake_at, self._now, self._status, is_damaged=is_damaged)
        self._changes.append(Update(job))
        if key is not None and (had_slot > job.has_slot or job.state is JobState.LIMITED):
            self._limited[key] = None
        if job.state is JobState.QUEUED:
            self._announce(job)

    def admit(self) -> None:
        """Admit a pending run."""
        self._before = evolve(self._before, start_at=None)
        self._status = RUN_TRANSITIONS.check(self._status, RunStatus.RUNNING)

    def pause(self) -> None:
        """Pause the run. Its jobs without a lease have to be rescheduled."""
        self._status = RUN_TRANSITIONS.check(self._status, RunStatus.PAUSED)

    def block(self) -> None:
        """Block the run until an operator resumes it or a deploy does."""
        self._status = RUN_TRANSITIONS.check(self._status, RunStatus.BLOCKED)

    def resume(self) -> None:
        """Resume the run; a run that was not admitted is pending again. Its paused jobs have to be rescheduled."""
        after = RunStatus.RUNNING if self._before.is_admitted else RunStatus.PENDING
        if self._before.is_ending:
            after = RunStatus.CANCELLING
        self._status = RUN_TRANSITIONS.check(self._status, after)

    def cancel(self, error: dict[str, object]) -> None:
        """Let the function clean up. The run will end with `error`."""
        self._status = RUN_TRANSITIONS.check(self._status, RunStatus.CANCELLING)
        self._error = canonical(error)

    def update_job(self, job: Job) -> None:
        """Change a job without rescheduling it."""
        self._changes.append(Update(job))

    def close_job(self, job: Job) -> None:
        """Delete the job of a finished stage, step or map item."""
        self._open_jobs -= 1
        self._changes.append(Delete(JOBS, job.key))
        # Under a rate limit, the end of a body frees nothing: its start counts.
        if job.concurrency_key is not None and job.concurrency_limit is not None:
            self._limited[job.concurrency_key] = None

    def close_node(self, stage: StagePlan, jobs: int) -> None:
        """Delete the remaining jobs of a map that ended without them; `jobs` is their number.

        Child runs are closed and external work is cancelled.
        """
        if jobs:
            self._open_jobs -= jobs
            if stage.cancel is not None:
                self._changes.append(
                    CancelExternalWork(self._before.key, stage.name, stage.cancel.retry.attempts)
                )
            self._changes.append(DeleteJobsOfNode(self._before.key, stage.name))
            self.closed_all = True
            if stage.child is not None:
                self._add_delivery_job("null")

    def cancel_external_work(self, check: Job, stage: StagePlan) -> None:
        """Replace a poll that has given up by a job that cancels the work, if the stage defines how."""
        if stage.cancel is None:
            self.close_job(check)
            return
        self._open_jobs -= 1
        job = cancelling(check, stage.cancel.retry.attempts)
        JOB_TRANSITIONS.check(check.state, job.state)
        self._changes.append(Update(job))
        self._announce(job)

    def open_cancel(self, stage: StagePlan, row: int, item: int | None, key: str) -> None:
        """Open a job that cancels the external work described in row `row`. It is not one of the run's open jobs."""
        assert stage.cancel is not None
        job = self._new_job(stage, JobKind.CANCEL, row, item, stage.cancel.retry.attempts)
        self._open_jobs -= 1
        self._changes.append(Insert(evolve(job, waiting_for=key)))
        self._announce(job)

    def retry_outliving_job(self, job: Job) -> None:
        """Queue a job that outlives the run again. Its lease ends."""
        job = rescheduled(job, self._now, self._now, self._status)
        self.outliving.append(Update(job))
        self._announce(job)

    def delete_outliving_job(self, job: Job) -> None:
        """Delete a job that outlived its run: a delivery or a cancellation of external work."""
        self._changes.append(Delete(JOBS, job.key))

    def keep_progress(self, progress: str) -> None:
        """Set the progress of the run through its plan."""
        self._progress = progress

    def end(
        self,
        status: RunStatus,
        *,
        cancels: Mapping[str, int],
        result: str | None = None,
        error: dict[str, object] | None = None,
    ) -> None:
        """End the run and delete its jobs, so that sessions that lease them are fenced.

        `cancels` are stages whose external work is cancelled, each with the maximum number of attempts.
        """
        self._status = RUN_TRANSITIONS.check(self._status, status)
        self._returns = tuple(sorted({one.topic for one in self.mailbox.groups.values()}))
        self._mailbox, unsubscribed = without_subscriptions(self._before, self._mailbox)
        self._changes += unsubscribed
        if self._open_jobs:
            for node, attempts in cancels.items():
                self._changes.append(CancelExternalWork(self._before.key, node, attempts))
            self._changes.append(DeleteJobs(self._before.key))
            self._open_jobs = 0
            self.closed_all = True
            self.claimed_job = None
        self.add_parent_delivery()
        if self._children:
            self._add_delivery_job("null")
        self._end_updates()
        self._result = result
        self._error = canonical(error) if error else None
        self._ended_at = self._changed_at
        self.hints = [RunEnded(run=self._before.key)]

    def changes(self) -> tuple[Change, ...]:
        """Return all changes, including the run's row."""
        run = _changed_run(
            self._before,
            status=self._status,
            updated_at=self._changed_at,
            ended_at=self._ended_at,
            last_row=self._last_row,
            last_job=self._last_job,
            open_jobs=self._open_jobs,
            children=self._children,
            mailbox=self._mailbox,
            progress=self._progress,
            result=self._result,
            error=self._error,
        )
        closed: tuple[Change, ...] = ()
        if run.gathered is not None:
            run, closed = after_gathering(self._before, run)
        return (Insert(run) if self._is_new else Update(run), *self._changes, *closed)

    def add_parent_delivery(self) -> None:
        """Open the delivery of the run's result to its parent, if it has a parent job that waits."""
        if self._before.parent is not None:
            self._add_delivery_job(canonical(self._before.parent))

    def add_children_delivery(self) -> None:
        """Open the delivery that closes child runs for which no job of the run waits any more."""
        self._add_delivery_job("null")

    def add_reply_delivery(self, reply: ReplyDelivery) -> None:
        """Open the delivery of the reply to an update."""
        self._add_delivery_job(reply.to_text())

    def _end_updates(self) -> None:
        """Deliver to other runs that their updates get no answer, and forget the updates that this run has sent."""
        mailbox = self.mailbox
        if mailbox.updates or mailbox.sent:
            for address in mailbox.updates.values():
                self.add_reply_delivery(ReplyDelivery(address=address, outcome="lost"))
            self.keep_mailbox(evolve(mailbox, updates={}, sent={}))

    def _add_delivery_job(self, recipient: str) -> None:
        """Open a delivery to a parent job, by its id as JSON text, to all child runs, by "null", or of a reply."""
        run = self._before
        self._last_job += 1
        self._has_deliveries = True
        job = Job(
            run=run.key,
            number=self._last_job,
            namespace=run.namespace,
            queue=run.queue,
            definition=f"{run.workflow}@{run.version}",
            kind=JobKind.DELIVER,
            node="",
            state=JobState.PENDING_DELIVERY,
            input=recipient,
        )
        self._changes.append(Insert(job))

    def _announce(self, job: Job) -> None:
        # One hint for each job: a transport may start a function for each hint, which claims just that job.
        self.hints.append(hint_of(job))


def with_received(run: Run, numbers: Sequence[int]) -> Run:
    """Return the run with the messages of these rows removed from its mailbox."""
    if run.mailbox is None or not numbers:
        return run
    return evolve(run, mailbox=mailbox_from(run.mailbox).received(numbers).to_text())


def hint_of(job: Job) -> Hint:
    """Return the hint about a queued job."""
    return JobHint(job=job_id(job.run, job.number), epoch=job.epoch, queue=job.queue)


def limited(job: Job, key: str, max_concurrency: int | None, rate: RatePlan | None) -> Job:
    """Return a job with a concurrency key and the limits that it waits for."""
    return evolve(
        job,
        concurrency_key=key,
        concurrency_limit=max_concurrency,
        rate_limit=None if rate is None else rate.limit,
        rate_period=None if rate is None else rate.per_us,
    )


def leased(job: Job, session: str, now: Micros) -> Job:
    """Return a job as claimed by a session. This counts the attempt."""
    return evolve(
        job,
        state=JOB_TRANSITIONS.check(job.state, JobState.LEASED),
        epoch=job.epoch + 1,
        attempts=job.attempts + 1,
        session=session,
        wake_at=None,
        leased_at=now,
        first_claimed_at=_first_claim(job, now),
        heartbeat_by=heartbeat_deadline(job, now),
    )


def heartbeat_deadline(job: Job, now: Micros) -> Micros | None:
    """Return when a job that sent a heartbeat now is lost without another; None without a heartbeat timeout."""
    return None if job.heartbeat_timeout is None else now + job.heartbeat_timeout


def _first_claim(job: Job, now: Micros) -> Micros | None:
    """Return when the first attempt began. Polls and drivers have no first attempt: they are claimed for weeks."""
    is_known = job.first_claimed_at is not None or job.kind in (JobKind.POLL, JobKind.WORKFLOW)
    return job.first_claimed_at if is_known else now


def ready_state(job: Job) -> JobState:
    """Return the state of a job that can run now: queued, or limited if it needs a slot or counts under a rate limit.

    Under a rate limit, it waits before each claim, because each claim is a start.
    """
    if job.concurrency_key is None or (job.has_slot and job.rate_limit is None):
        return JobState.QUEUED
    return JobState.LIMITED


def rescheduled(
    job: Job, wake_at: Micros | None, now: Micros, status: RunStatus, *, is_damaged: bool = False
) -> Job:
    """Return a job without a lease: sleeping until `wake_at`, or ready now; paused if its run is paused or blocked.

    Without `wake_at`, it sleeps until the child run that it waits for has ended. Jobs that outlive their run are never
    paused. A damaged job may be in any state.
    """
    is_held = status in HELD and not job.outlives_run
    asleep = wake_at is None or wake_at > now
    state = JobState.PAUSED if is_held else JobState.SLEEPING if asleep else ready_state(job)
    return evolve(
        job,
        state=state if is_damaged else JOB_TRANSITIONS.check(job.state, state),
        wake_at=wake_at if asleep else None,
        session=None,
        leased_at=None,
        heartbeat_by=None,
    )
