"""Rules for admission: pending runs start, and jobs that wait for a concurrency or rate limit are queued."""

from collections import Counter

from holdfast.kernel.commands import FollowUp, JobAdmit, JobsAdmitted, RunClaimPending, RunsAdmitted, merge
from holdfast.kernel.composed_searches import WaitingJobs, WaitingRuns
from holdfast.kernel.history import events
from holdfast.kernel.limits.concurrency import count_used_slots
from holdfast.kernel.limits.fairness import with_turn
from holdfast.kernel.limits.overrides import applied, slots_in_force
from holdfast.kernel.limits.rates import Rates, queued_rates
from holdfast.kernel.pipelines.plan import Plan
from holdfast.kernel.rules.fair_starts import after_turns, ranked, turn_of_run
from holdfast.kernel.rules.leases import job_hints
from holdfast.kernel.rules.run_rates import RateLines
from holdfast.kernel.runs.builder import RunDraft
from holdfast.kernel.runs.plan_interpreter import begin
from holdfast.kernel.runs.transitions import JOB_TRANSITIONS
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.changes import Change, Insert, Update
from holdfast.ports.clock import Ids
from holdfast.ports.records.job import Job, JobState
from holdfast.ports.records.limits import RateName, SlotName, levels_of
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.records.values import Micros
from holdfast.ports.references import references_from
from holdfast.ports.searches import Waiting
from holdfast.ports.structs import evolve
from holdfast.ports.transport import Hint


class Slots:
    """Allocator of concurrency slots: once a slot was full for a request, later ones for the same slot are refused."""

    def __init__(self, state: State, waiting: Waiting) -> None:
        self._state = state
        self._used: Counter[SlotName] = count_used_slots(state.tables, waiting)
        self._full: set[SlotName] = set()
        self.changes: list[Change] = []

    def take(self, one: Run | Job) -> bool:
        """Take all slots that a run or a job needs; return whether there were. True if it needs none."""
        limits = slots_in_force(self._state.tables.limits, one)
        used_slots = self._state.used_slots
        if any(slot not in used_slots for slot, _ in limits):  # not in the search, so not locked
            return False
        full = {slot for slot, limit in limits if used_slots[slot] + self._used[slot] >= limit}
        if full or any(slot in self._full for slot, _ in limits):
            self._full |= full
            return False
        for slot, _ in limits:
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
        limited = applied(self._state.tables.limits, job)
        if starts.free(limited, self._now) <= waiting:
            self._over.add(name)
            self._sleep(job, name, starts.free_at(limited, self._now, waiting))
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
    begin(draft, plan, run.input, group=next(groups, 0), keeps=references_from(run.inherited))


def reads_of_claim_pending(command: RunClaimPending) -> Reads:
    """Search for runs that may be admitted."""
    return Reads(search=_waiting_runs(command))


def decide_claim_pending(
    state: State, command: RunClaimPending, now: Micros, _: Ids
) -> Decision[RunsAdmitted]:
    """Admit runs that get a slot, and whose rate allows their start.

    When its `start_at` passes, a run joins the line for a slot, if it needs one, or that of its rate.
    """
    found = state.found[_waiting_runs(command)]
    runs = sorted(
        (run for run in map(state.tables.runs.get, found.runs) if run is not None),
        key=_place_in_lines,
    )
    slots = Slots(state, Waiting.RUNS)
    lines = RateLines(state, found.rates, now)
    turns = state
    changes: list[Change] = []
    hints: list[Hint] = []
    follow_ups: list[FollowUp] = []
    admitted, moved_elsewhere = 0, False
    for waiting in runs:
        state.current_run = waiting.key
        if waiting.status is not RunStatus.PENDING or (
            waiting.start_at is not None and waiting.start_at > now
        ):
            continue
        moved = _moved(waiting, slots, lines)
        if moved is None:
            continue
        moved_elsewhere = moved_elsewhere or waiting.namespace != command.namespace
        run, begins = moved
        if not begins:
            changes.append(Update(evolve(run, updated_at=max(now, run.updated_at))))
            if run.in_rate_line or waiting.start_at is not None:  # one without a slot has just looked for it
                follow_ups.append(RunDraft(run, now).follow_up)
        else:
            plan = state.plan_of(run)
            turn = turn_of_run(turns, run, plan, now)
            draft = RunDraft(ranked(run, turn), now)
            draft.admit()
            draft.append(events.RunAdmitted())
            begin_run(draft, plan, run)
            made = with_turn(draft.changes(), run.key, turn)
            turns = after_turns(turns, made) if turn is not None else turns
            changes.extend(made)
            hints.extend(draft.hints)
            follow_ups.append(draft.follow_up)
            admitted += 1
    reply = RunsAdmitted(
        admitted=admitted,
        next=found.next,
        # Follow-ups have no namespace: what they would do in others, the next search of all does.
        more=(bool(runs) and len(runs) >= command.limit) or moved_elsewhere,
        follow_up=merge(*follow_ups, lines.follow_up, FollowUp(rates=found.lines)),
        wakes_at=lines.wakes_at if found.next_at is None else tuple(sorted({*lines.wakes_at, found.next_at})),
    )
    return Decision(reply, (*changes, *slots.changes, *lines.changes()), tuple(hints))


def _moved(run: Run, slots: Slots, lines: RateLines) -> tuple[Run, bool] | None:
    """Return a run with its next line, and whether it begins instead; None if nothing changes."""
    if run.start_at is not None and (run.concurrency_key is not None or run.waits_for_rate):
        return evolve(run, start_at=None, in_rate_line=int(run.concurrency_key is None)), False
    if run.in_rate_line:
        moved = lines.take(run, slots.take)
        return None if moved is None else (moved, not moved.waits_for_rate)
    if not slots.take(run):
        return None
    return (evolve(run, in_rate_line=1), False) if run.waits_for_rate else (run, True)


def _place_in_lines(run: Run) -> tuple[str, bool, str, Micros, str]:
    """Return the place in the order of admission. Those that wait for rates have found a slot before."""
    key = run.rate_key if run.in_rate_line else levels_of(run.concurrency_key or "")[0]
    return run.namespace, not run.in_rate_line, key or "", run.queue_position, run.key


def _waiting_runs(command: RunClaimPending) -> WaitingRuns:
    return WaitingRuns(
        namespace=command.namespace,
        keys=command.keys,
        rates=command.rates,
        after=command.after,
        limit=command.limit,
        due=command.due,
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
