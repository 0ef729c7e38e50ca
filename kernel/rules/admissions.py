"""Rules for admission: pending runs start, and jobs that wait for a concurrency or rate limit are queued."""

from collections import Counter

from holdfast.kernel.commands import FollowUp, JobAdmit, JobsAdmitted, RunClaimPending, RunsAdmitted, merge
from holdfast.kernel.history import events
from holdfast.kernel.limits.concurrency import count_used_slots
from holdfast.kernel.limits.rates import Rates, queued_rates
from holdfast.kernel.pipelines.plan import Plan
from holdfast.kernel.rules.leases import job_hints
from holdfast.kernel.runs.builder import RunDraft
from holdfast.kernel.runs.plan_interpreter import begin
from holdfast.kernel.runs.transitions import JOB_TRANSITIONS
from holdfast.kernel.state import Decision, Reads, State, WaitingJobs, WaitingRuns
from holdfast.ports.changes import Change, Insert, Update
from holdfast.ports.clock import Ids
from holdfast.ports.records.job import Job, JobState
from holdfast.ports.records.limits import RateName, SlotName
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.records.values import Micros
from holdfast.ports.references import references_from
from holdfast.ports.searches import Waiting
from holdfast.ports.structs import evolve
from holdfast.ports.transport import Hint


class Slots:
    """Allocator of concurrency slots: once a request for a slot is refused, later ones for the same slot are too."""

    def __init__(self, state: State, waiting: Waiting) -> None:
        self._state = state
        self._used: Counter[SlotName] = count_used_slots(state.tables, waiting)
        self._full: set[SlotName] = set()
        self.changes: list[Change] = []

    def take(self, one: Run | Job) -> bool:
        """Take a slot for a run or a job; return whether there was one. True if it needs none."""
        slot = one.slot
        if slot is None:
            return True
        used = self._state.used_slots.get(slot)
        if used is None:  # not in the search, so not locked
            return False
        if slot in self._full or used + self._used[slot] >= (one.concurrency_limit or 0):
            self._full.add(slot)
            return False
        self._used[slot] += 1
        added = Insert(slot)
        # A row that does not exist cannot be locked: of two commands that add it, one conflicts and counts again.
        if slot not in self._state.tables.slots and added not in self.changes:
            self.changes.append(added)
        return True


class Turns:
    """Allocator of starts under rate limits: once a request is refused, later ones for the same limit are too."""

    def __init__(self, state: State, now: Micros) -> None:
        self._state = state
        self._now = now
        self._queued = queued_rates(state.tables)
        self._over: set[RateName] = set()
        self.rates = Rates(state.tables, now)
        self.asleep: list[Job] = []

    def take(self, job: Job, slots: Slots) -> bool:
        """Return whether a job may be queued: its rate limit allows a start, and it got a slot."""
        name = job.rate
        if name is None:
            return slots.take(job)
        beside = self._state.queued_by_rate.get(name)
        if beside is None or name in self._over:  # None: not in the search, so not locked
            return False
        waiting = beside + self._queued[name]
        starts = self.rates.starts(name)
        if starts.free(job, self._now) <= waiting:
            self._over.add(name)
            self._sleep(job, name, starts.free_at(job, self._now, waiting))
            return False
        if not slots.take(job):
            self._over.add(name)
            return False
        self._queued[name] += 1
        return True

    def _sleep(self, job: Job, name: RateName, until: Micros | None) -> None:
        window = self.rates.window(name)
        wakes_at = None if window is None else window.wakes_at
        if until is None or (wakes_at is not None and wakes_at > self._now):
            return
        asleep = JOB_TRANSITIONS.check(job.state, JobState.SLEEPING)
        self.asleep.append(evolve(job, state=asleep, wake_at=until))
        self.rates.wake(name, until)


def begin_run(draft: RunDraft, plan: Plan, run: Run) -> None:
    """Open the first jobs of a run; in a rerun, those of the stage from which it reruns."""
    groups = (at for at, group in enumerate(plan.groups) if run.rerun_from in {n.name for n in group.nodes})
    begin(draft, plan, run.first_row, group=next(groups, 0), keeps=references_from(run.inherited))


def reads_of_claim_pending(command: RunClaimPending) -> Reads:
    """Search for runs that may be admitted."""
    return Reads(search=_waiting_runs(command))


def decide_claim_pending(
    state: State, command: RunClaimPending, now: Micros, _: Ids
) -> Decision[RunsAdmitted]:
    """Admit runs that get a slot. When its `start_at` passes, a run with a key joins the line for a slot first."""
    found = state.found[_waiting_runs(command)]
    runs = sorted(
        (run for run in map(state.tables.runs.get, found.runs) if run is not None),
        key=lambda run: (run.namespace, run.concurrency_key or "", run.queue_position, run.key),
    )
    slots = Slots(state, Waiting.RUNS)
    changes: list[Change] = []
    hints: list[Hint] = []
    follow_ups: list[FollowUp] = []
    admitted = 0
    for run in runs:
        state.current_run = run.key
        if run.status is not RunStatus.PENDING or (run.start_at is not None and run.start_at > now):
            continue
        if run.start_at is not None and run.concurrency_key is not None:
            changes.append(Update(evolve(run, start_at=None, updated_at=max(now, run.updated_at))))
            follow_ups.append(FollowUp(runs=(run.concurrency_key,)))
        elif slots.take(run):
            draft = RunDraft(run, now)
            draft.admit()
            draft.append(events.RunAdmitted())
            begin_run(draft, state.plan_of(run), run)
            changes.extend(draft.changes())
            hints.extend(draft.hints)
            follow_ups.append(draft.follow_up)
            admitted += 1
    reply = RunsAdmitted(
        admitted=admitted,
        next=found.next,
        more=bool(runs) and len(runs) >= command.limit,
        follow_up=merge(*follow_ups),
    )
    return Decision(reply, (*changes, *slots.changes), tuple(hints))


def _waiting_runs(command: RunClaimPending) -> WaitingRuns:
    return WaitingRuns(
        namespace=command.namespace, keys=command.keys, after=command.after, limit=command.limit
    )


def reads_of_admit(command: JobAdmit) -> Reads:
    """Search for jobs that may be queued."""
    return Reads(search=_waiting_jobs(command))


def decide_admit(state: State, command: JobAdmit, now: Micros, _: Ids) -> Decision[JobsAdmitted]:
    """Queue jobs that get a slot and whose rate limit allows a start.

    The first job that its rate limit refuses sleeps until the limit allows the next start; waking it triggers the next
    admission. The rate limit's row has that instant, so that only one job sleeps for it.
    """
    found = state.found[_waiting_jobs(command)]
    jobs = sorted(
        (
            job
            for job in map(state.tables.job, found.jobs)
            if job is not None and job.state is JobState.LIMITED
        ),
        key=lambda job: (job.namespace, job.concurrency_key or "", job.queue_position, job.key),
    )
    slots = Slots(state, Waiting.JOBS)
    turns = Turns(state, now)
    queued = [
        evolve(job, state=JOB_TRANSITIONS.check(job.state, JobState.QUEUED))
        for job in jobs
        if turns.take(job, slots)
    ]
    reply = JobsAdmitted(
        admitted=len(queued),
        next=found.next,
        more=bool(jobs) and len(jobs) >= command.limit,
        wakes_at=tuple(sorted(job.wake_at for job in turns.asleep if job.wake_at is not None)),
    )
    changes = (*map(Update, (*queued, *turns.asleep)), *slots.changes, *turns.rates.changes())
    return Decision(reply, changes, tuple(hint for job in queued for hint in job_hints(job)))


def _waiting_jobs(command: JobAdmit) -> WaitingJobs:
    return WaitingJobs(
        namespace=command.namespace, keys=command.keys, after=command.after, limit=command.limit
    )
