"""The observer of a simulation: checks every commit, every start of a body or step, and every delivered event."""

from bisect import bisect, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import attrs

from holdfast.kernel.commands import (
    JobHeartbeat,
    JobRecord,
    JobRelease,
    JobSettle,
    JobWakeDue,
    RunExpire,
    SessionReap,
)
from holdfast.kernel.history import events
from holdfast.kernel.invariants import Snapshot, Violation, as_snapshot, check, check_step
from holdfast.kernel.limits.overrides import applied
from holdfast.kernel.runs.external_work import LOST_WORKER
from holdfast.ports.changes import (
    BlockRun,
    CancelExternalWork,
    Change,
    Delete,
    DeleteJobs,
    DeleteJobsOfNode,
    Insert,
    Update,
    inserted,
)
from holdfast.ports.clock import micros
from holdfast.ports.events import Event
from holdfast.ports.records.history import HistoryRow, OutputRow
from holdfast.ports.records.job import Job, JobKey, JobState, job_key
from holdfast.ports.records.limits import RateName
from holdfast.ports.records.run import ACTIVE, Run, RunStatus
from holdfast.ports.records.session import Session, SessionState
from holdfast.ports.records.values import Micros
from holdfast.ports.unreadable import unreadable_columns
from holdfast.ports.working_set import Tables
from holdfast.testing.simulation.lease_checks import lease_violations, missing_blobs
from holdfast.testing.simulation.schedule_ledger import ScheduleLedger
from holdfast.testing.simulation.state_records import StateRecords
from holdfast.testing.simulation.step_records import StartedAttempt, StepRecords
from holdfast.testing.simulation.store import Commit
from holdfast.testing.simulation.topic_ledger import TopicLedger
from holdfast.testing.simulation.trace import Trace, described

_ENDS: Final = frozenset(
    {
        *events.ATTEMPT_ENDS,
        *events.CANCELLATION_OUTCOMES,
        *events.STEP_ENDS,
        events.StepQueued.type,
        events.StepRetrying.type,
        events.TimerFired.type,
    }
)
_OF_STEPS: Final = frozenset({events.StepCompleted.type, events.StepFailed.type, events.StepRetrying.type})
_BLOCKS: Final = frozenset({"blob_missing", "blob_corrupt"})
_VIOLATIONS_MAX: Final = 5


class SimulationObserver:
    """Records what happens in one simulation and collects the violations of invariants."""

    def __init__(self, trace: Trace, now: Callable[[], Micros]) -> None:
        self.trace = trace
        self.violations: list[Violation] = []
        self.fenced = 0
        self.started: dict[tuple[str, int], str] = {}
        self.repaired: list[str] = []
        self._now = now
        self._claims: dict[tuple[str, int], str] = {}
        self._hosts: dict[str, str] = {}
        self._starts: dict[RateName, list[Micros]] = defaultdict(list)
        self._spans: dict[RateName, Micros] = defaultdict(int)
        self._old: Snapshot | None = None
        self._old_jobs: dict[str, dict[int, Job]] = {}
        self.delivered: dict[tuple[str, str], list[int]] = defaultdict(list)
        self._tables: Tables | None = None
        self.steps = StepRecords()
        self.states = StateRecords()
        self.skipped: set[tuple[str, str, int]] = set()
        self.schedules: ScheduleLedger | None = None
        self.topics: TopicLedger | None = None
        self.has_blob: Callable[[str], bool] = lambda _: True
        """Returns whether a blob with this key exists, without simulated faults of the blob store."""
        self.may_be_early: Callable[[str], float] = lambda _: 0.0
        """Returns by how many microseconds a process may be early because its clock runs too fast."""
        self.was_stopped: Callable[[str], bool] = lambda _: False
        """Returns whether a fault has crashed or paused a process, so that its work may be lost with it."""

    def report_violation(self, invariant: str, where: str, what: str) -> None:
        """Record a violation."""
        violation = Violation(invariant, where, what)
        self.trace.add(self._now(), "!", str(violation))
        if len(self.violations) < _VIOLATIONS_MAX:
            self.violations.append(violation)

    # Commits --------------------------------------------------------------------------------------------------------

    def before(self, tables: Tables, commit: Commit) -> None:
        """Check the rights of a commit, and remember the rows that it changes."""
        for violation in (
            *lease_violations(tables, commit, self._now()),
            *missing_blobs(commit, self.has_blob),
        ):
            self.report_violation(violation.invariant, violation.where, violation.what)
        if self.schedules is not None:
            self.schedules.before(tables)
        if self.topics is not None:
            latest = self._now() + round(self.may_be_early(commit.process))
            for violation in self.topics.before(tables, commit, latest):
                self.report_violation(violation.invariant, violation.where, violation.what)
        waiting = {key for key, run in tables.runs.items() if run.in_rate_line}  # none of them is overtaken
        runs = _touched(commit.changes) | waiting
        noted = {
            change.record.run
            for change in commit.changes
            if isinstance(change, Insert) and isinstance(change.record, OutputRow)
        }
        self._old_jobs = {key: dict(tables.jobs.get(key, ())) for key in runs | noted}
        self._old = Snapshot(
            runs={key: tables.runs[key] for key in runs if key in tables.runs},
            jobs={key: jobs for key, jobs in self._old_jobs.items() if key in runs},
            history={key: list(tables.history.get(key, ())) for key in runs},
            plans={},
            sessions={
                change.record.id: tables.sessions[change.record.id]
                for change in commit.changes
                if isinstance(change, Insert)
                and isinstance(change.record, Session)
                and change.record.id in tables.sessions
            },
            limits=dict(tables.limits),
        )

    def apply(self, tables: Tables, change: Change) -> None:
        """Make a change, and check the transitions of states in it."""
        for violation in self.states.apply(tables, change):
            self.report_violation(violation.invariant, violation.where, violation.what)

    def after(self, tables: Tables, commit: Commit) -> None:
        """Check the invariants that the commit may have broken."""
        assert self._old is not None
        self._tables = tables
        self._trace(commit)
        new = as_snapshot(tables)
        runs = _touched(commit.changes)
        for violation in (
            *check_step(self._old, new, commands=max(1, len(commit.sent))),
            *(check(new, runs=runs) if runs else ()),
        ):
            self.report_violation(violation.invariant, violation.where, violation.what)
        for change in commit.changes:
            if isinstance(change, Insert) and isinstance(change.record, Run):
                self.steps.forked(change.record, tables.whole_history(change.record))
            if isinstance(change, Insert) and isinstance(change.record, HistoryRow):
                for violation in (*self.steps.record_row(change.record), *self._blocked(change.record)):
                    self.report_violation(violation.invariant, violation.where, violation.what)
            for violation in _unreadable(change):
                self.report_violation(violation.invariant, violation.where, violation.what)
        if self.schedules is not None:
            for violation in self.schedules.after(tables, commit):
                self.report_violation(violation.invariant, violation.where, violation.what)
        self._guarded(commit.changes)
        self._fenced(commit)
        self._claimed(tables, commit.changes)
        self._on_time(tables, commit)

    def _trace(self, commit: Commit) -> None:
        now = self._now()
        kinds: dict[str, int] = {}
        for one in commit.sent:
            name = type(one).__name__
            kinds[name] = kinds.get(name, 0) + 1
        sent = ", ".join(name if many == 1 else f"{many} {name}" for name, many in kinds.items())
        self.trace.add(now, commit.process, f"COMMIT {sent}")
        for change in commit.changes:
            self.trace.add(now, commit.process, f"  {described(change)}")
            if (
                isinstance(change, Insert)
                and isinstance(change.record, HistoryRow)
                and change.record.type == events.RunRepaired.type
            ):
                self.repaired.append(change.record.run)
            elif isinstance(change, Insert) and isinstance(change.record, Session):
                self._hosts[change.record.id] = change.record.host

    def _guarded(self, changes: Iterable[Change]) -> None:
        """Check that the rows which end an attempt come from the holder of its job (S3)."""
        for change in changes:
            if (
                not (isinstance(change, Insert) and isinstance(change.record, HistoryRow))
                or change.record.type not in _ENDS
            ):
                continue
            row = change.record
            jobs = self._old_jobs.get(row.run, {}).values()
            if not any(_is_held(job, row) for job in jobs):
                held = [f"{job.number} {job.state} e{job.epoch}" for job in jobs if (job.node) == row.node]
                self.report_violation(
                    "S3",
                    row.run,
                    f"row {row.number}, {row.type}, is of epoch {row.epoch}, but the jobs are {held}",
                )

    def _fenced(self, commit: Commit) -> None:
        """Check that commands with an old epoch change nothing of the job (S3)."""
        held: dict[str, bool] = {}
        for job_id, epoch in _spoken_for(commit.sent):
            key = job_key(job_id)
            job = self._old_jobs.get(key.run, {}).get(key.number)
            is_held = job is not None and job.state is JobState.LEASED and job.epoch == epoch
            held[job_id] = held.get(job_id, False) or is_held
        for change in commit.changes:
            about = _job_of(change)
            if about is not None and held.get(about.text) is False:
                if any(held.values()) and self._is_woken(change):
                    continue  # another attempt of the same commit woke it, as a step wakes its function
                self.report_violation(
                    "S3",
                    about.text,
                    f"an attempt that does not hold the job made the change {described(change)}",
                )

    def _is_woken(self, change: Change) -> bool:
        """Return whether a change only queues a sleeping job."""
        if (
            not (isinstance(change, Update) and isinstance(change.record, Job))
            or change.record.state is not JobState.QUEUED
        ):
            return False
        known = self._old_jobs.get(change.record.run, {}).get(change.record.number)
        return known is not None and known.state is JobState.SLEEPING and known.epoch == change.record.epoch

    def _claimed(self, tables: Tables, changes: Iterable[Change]) -> None:
        """Check that each epoch of a job is claimed once (S1), and no job of an ended or stopped run (C1)."""
        for change in changes:
            if (
                not (isinstance(change, Update | Insert) and isinstance(change.record, Job))
                or change.record.state is not JobState.LEASED
            ):
                continue
            job = change.record
            known = self._old_jobs.get(job.run, {}).get(job.number)
            if known is not None and known.epoch == job.epoch:
                continue
            claim = (job.key.text, job.epoch)
            if claim in self._claims:
                self.report_violation("S1", job.key.text, f"epoch {job.epoch} was claimed twice")
            self._claims[claim] = self._hosts.get(job.session or "", "an unknown session")
            holder = tables.sessions.get(job.session or "")
            if holder is None or holder.state is not SessionState.OPEN:
                self.report_violation(
                    "S1", job.key.text, f"epoch {job.epoch} was claimed by a session that is not open"
                )
            self._rated(tables, job)
            run = tables.runs[job.run]
            if job.outlives_run:  # deliveries and external cancels are due after the run's end, too
                continue
            if run.status not in ACTIVE or run.status in (RunStatus.PAUSED, RunStatus.BLOCKED):
                self.report_violation("C1", job.key.text, f"the job was claimed, but its run is {run.status}")

    def _rated(self, tables: Tables, job: Job) -> None:
        """Check that no more attempts start within any period of a rate limit than it allows (S11).

        The rate is the one in force. The commit may have changed it: the one before it and the one after it are both
        good. Whoever starts by a longer period counts only the starts that the former period still counted.
        """
        if job.rate is None or job.leased_at is None:
            return
        assert self._old is not None
        rates = {_rate_of(applied(limits, job)) for limits in (self._old.limits, tables.limits)}
        longest = max(period for _, period in rates)
        span = self._spans[job.rate]
        starts = self._starts[job.rate]
        if longest > span:
            self._spans[job.rate] = longest
            if starts:
                del starts[: bisect(starts, starts[-1] - span)]
        insort(starts, job.leased_at)
        found: list[str] = []
        for limit, period in sorted(rates):
            within = sum(job.leased_at - period < at <= job.leased_at for at in starts)
            if within <= limit:
                return
            found.append(f"{within} attempts started within {period} us, but the limit is {limit}")
        self.report_violation("S11", job.key.text, found[0])

    def _on_time(self, tables: Tables, commit: Commit) -> None:
        """Check by the store's clock that nothing is woken, started or ended before its time (T1)."""
        now = self._now() + round(self.may_be_early(commit.process))
        old = self._old
        assert old is not None
        wakes = bool(commit.sent) and all(isinstance(one, JobWakeDue) for one in commit.sent[:1])
        expires = any(isinstance(one, RunExpire) for one in commit.sent)
        reaps = any(isinstance(one, SessionReap) for one in commit.sent)
        # Cancelling a function wakes it before its time.
        rows = inserted(commit.changes, HistoryRow)
        cancelled = {row.run for row in rows if row.type == events.RunCancelling.type}
        rows = inserted(commit.changes, HistoryRow)
        joined = (row for row in rows if row.type == events.RunGathered.type)
        full = {row.run for row in joined if events.RunGathered.from_row(row).start_at is None}
        for change in commit.changes:
            if isinstance(change, Update) and isinstance(change.record, Job) and wakes:
                job = change.record
                known = self._old_jobs.get(job.run, {}).get(job.number)
                if known is None or known.state is not JobState.SLEEPING or known.wake_at is None:
                    continue
                if job.state is not JobState.SLEEPING and known.wake_at > now and job.run not in cancelled:
                    early = (known.wake_at - now) / 1_000_000
                    self.report_violation("T1", job.key.text, f"the job was woken {early:.3f} s too early")
            elif (
                isinstance(change, Insert)
                and isinstance(change.record, HistoryRow)
                and change.record.type == events.RunAdmitted.type
            ):
                before = old.runs.get(change.record.run)
                is_full = change.record.run in full
                if before is not None and not is_full and (before.start_at or 0) > now:
                    self.report_violation(
                        "T1",
                        change.record.run,
                        f"the run was admitted {(before.start_at or 0) - now} us before its start_at",
                    )
            elif isinstance(change, Update) and isinstance(change.record, Run) and expires:
                run, before = change.record, old.runs.get(change.record.key)
                is_expired = '"deadline_exceeded"' in (run.error or "") and before is not None
                was_active = is_expired and before is not None and before.status in ACTIVE
                if was_active and (run.deadline is None or run.deadline > now):
                    early = (run.deadline or 0) - now
                    self.report_violation("T1", run.key, f"the run was ended {early} us before its deadline")
            elif isinstance(change, Insert) and isinstance(change.record, Session) and reaps:
                session = change.record
                if session.expires_at > now:
                    early = (session.expires_at - now) / 1_000_000
                    self.report_violation(
                        "T1",
                        session.id,
                        f"the session was declared dead {early:.3f} s before its lease expired",
                    )

    def observe_dispatch(
        self, process: str, commands: Sequence[object], answers: Sequence[object], changed: int
    ) -> None:
        """Check that a dispatch whose answers are all `fenced` changed nothing (S3)."""
        fenced = sum(getattr(answer, "status", None) == "fenced" for answer in answers)
        self.fenced += fenced
        if (
            fenced
            and fenced == len(answers)
            and changed
            and all(isinstance(one, JobSettle | JobRecord) for one in commands)
        ):
            self.report_violation("S3", process, "all its commands were fenced, but rows were changed")

    # Bodies ---------------------------------------------------------------------------------------------------------

    def observe_body_start(self, process: str, job: str, epoch: int, what: str) -> None:
        """Check that a body starts at most once for each claim of its job, in the process that claimed it (S2)."""
        self.trace.add(self._now(), process, f"BODY {what} {job[-8:]} e{epoch}")
        if (job, epoch) in self.started:
            self.report_violation(
                "S2", job, f"the body of epoch {epoch} was started twice, first in {self.started[job, epoch]}"
            )
        self.started[job, epoch] = process
        claimed_by = self._claims.get((job, epoch))
        if claimed_by != process:
            self.report_violation(
                "S2", job, f"epoch {epoch} starts in {process}, but was claimed by {claimed_by}"
            )

    def observe_step_start(self, process: str, begun: StartedAttempt) -> None:
        """Check that an attempt of a step starts in the process that claimed its job (S2), and its number and time."""
        what = f"{begun.run_id} {begun.step} {begun.call} attempt {begun.attempt}"
        self.trace.add(self._now(), process, f"STEP {what} {begun.job[-8:]} e{begun.epoch}")
        claimed_by = self._claims.get((begun.job, begun.epoch))
        if claimed_by != process:
            self.report_violation(
                "S2",
                begun.job,
                f"epoch {begun.epoch} runs in {process}, but was claimed by {claimed_by}",
            )
        job = None if self._tables is None else self._tables.job(job_key(begun.job))
        for violation in self.steps.record_start(begun, job, self._now() + self.may_be_early(process)):
            self.report_violation(violation.invariant, violation.where, violation.what)

    def _blocked(self, row: HistoryRow) -> Iterator[Violation]:
        """Yield runs that were blocked without a valid reason (S6).

        A blob is missing or corrupt; or one worker after the other was lost with the run, each by a fault. That is
        rare, but faults may be that frequent.
        """
        if row.type != events.RunBlocked.type:
            return
        blocked = events.RunBlocked.from_row(row)
        if blocked.code == LOST_WORKER and self._was_lost_too_often(row.run, blocked):
            return
        if blocked.code not in _BLOCKS:
            yield Violation("S6", row.run, f"the run was blocked: {blocked.code}: {blocked.message}")

    def _was_lost_too_often(self, run: str, blocked: events.RunBlocked) -> bool:
        """Return whether a fault has stopped the processes of as many claims of a job as it has attempts."""
        assert self._tables is not None
        job = self._tables.jobs[run][blocked.job or 0]
        claims = (self._claims.get((job.key.text, epoch)) for epoch in range(1, job.epoch + 1))
        return sum(claim is not None and self.was_stopped(claim) for claim in claims) >= job.max_attempts

    # Events ---------------------------------------------------------------------------------------------------------

    def observe_event(self, sink: str, event: Event, process: str) -> None:
        """Check that the events of a run arrive in order (O3) and match its history rows (O4)."""
        self.trace.add(self._now(), process, f"EVENT {sink} {event.run[-6:]}/{event.number} {event.type}")
        tables = self._tables
        rows: Sequence[HistoryRow] = () if tables is None else tables.history.get(event.run, ())
        taken = self.delivered[sink, event.run]
        row = next((one for one in rows if one.number == event.number), None)
        if row is None:
            self.report_violation(
                "O4", event.id, f"sink {sink} received the event, but no such row is stored"
            )
            return
        if event.type == "event.skipped":
            self.skipped.add((sink, event.run, event.number))
        elif row.type != event.type or row.at != micros(event.at):
            self.report_violation(
                "O4", event.id, f"sink {sink} received {event.type}, but {row.type} is stored"
            )
        last = max(taken, default=0)
        if event.number > last + 1 and last:
            self.report_violation(
                "O3",
                event.id,
                f"sink {sink} received the event right after {last}; it must receive events in order",
            )
        taken.append(event.number)


def _unreadable(change: Change) -> Iterator[Violation]:
    """Yield written values that are taken for unreadable (R1)."""
    match change:
        case Insert(Run() as run) | Update(Run() as run):
            where, found = run.key, unreadable_columns(Run, attrs.asdict(run, recurse=False))
        case Insert(Job() as job) | Update(Job() as job):
            where, found = job.key.text, unreadable_columns(Job, attrs.asdict(job, recurse=False))
        case Insert(HistoryRow() as row):
            columns = attrs.asdict(row, recurse=False) | {"payload": None, "blob": None}
            where, found = f"{row.run}.{row.number}", unreadable_columns(HistoryRow, columns)
        case BlockRun(key):
            where, found = key, iter([("*", "the run was blocked because a value can't be read")])
        case _:
            return
    yield from (Violation("R1", where, f"{name}: {why}") for name, why in found)


def _touched(changes: Iterable[Change]) -> set[str]:
    """Return the keys of the runs that the changes touch."""
    runs: set[str] = set()
    for change in changes:
        match change:
            case Insert(Run() as run) | Update(Run() as run):
                runs.add(run.key)
            case Insert(Job() as job) | Update(Job() as job):
                runs.add(job.run)
            case Delete(key=JobKey() as key):
                runs.add(key.run)
            case DeleteJobs(run) | DeleteJobsOfNode(run) | CancelExternalWork(run):
                runs.add(run)
            case Insert(HistoryRow() as row):
                runs.add(row.run)
            case _:
                pass
    return runs


def _spoken_for(sent: Iterable[object]) -> Iterator[tuple[str, int]]:
    """Yield the job and epoch of each attempt for which the commands write."""
    for command in sent:
        match command:
            case JobRecord() | JobSettle() | JobRelease():
                yield command.job, command.epoch
            case JobHeartbeat():
                yield from ((held.job, held.epoch) for held in command.attempts)
            case _:
                pass


def _job_of(change: Change) -> JobKey | None:
    match change:
        case Update(Job() as job):
            return job.key
        case Delete(key=JobKey() as key):
            return key
        case Insert(OutputRow() as note):
            return JobKey(note.run, note.job)
        case _:
            return None


def _is_held(job: Job, row: HistoryRow) -> bool:
    fits = (job.node, job.item) == (row.node, row.item) and row.epoch in (None, job.epoch)
    if row.type in _OF_STEPS:
        match events.event_of(row):
            case (
                events.StepCompleted(job=int(number))
                | events.StepFailed(job=int(number))
                | events.StepRetrying(job=int(number))
            ):  # a queued step has a job of its own
                fits = (job.number, job.epoch) == (number, row.epoch)
            case _:
                pass
    return fits and (job.state is JobState.LEASED or job.waits_for_child)


def is_open(run: Run) -> bool:
    """Return whether a run has not ended."""
    return run.status in ACTIVE


def _rate_of(job: Job) -> tuple[int, int]:
    """Return the rate limit of a job and its period, in microseconds."""
    assert job.rate_limit is not None
    assert job.rate_period is not None
    return job.rate_limit, job.rate_period
