"""Random pipelines and interleavings: the kernel agrees with a plain model.

After every batch the store must keep the invariants and have the rows that the model predicts. At the end faults cease,
one healthy worker drains the store, and every run must end.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, Final, TypeAlias, TypeVar, cast

import attrs
import pytest
from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from typing_extensions import override

from holdfast.adapters.memory.persistence import MemoryPersistence, MemoryTransaction
from holdfast.kernel.commands import (
    Attempt,
    AttemptReport,
    ChildRunStarted,
    Command,
    Completed,
    Failed,
    Failure,
    FollowUp,
    JobClaim,
    JobClaimed,
    JobClaimOne,
    JobHeartbeat,
    JobRelease,
    JobReleased,
    JobsClaimed,
    JobSettle,
    JobSettled,
    JobsHeld,
    JobsWoken,
    JobWakeDue,
    LeaseReapStale,
    LeasesReaped,
    MapExpanded,
    PollNotReady,
    RunCancel,
    RunCreate,
    RunCreated,
    RunDeliver,
    RunDelivered,
    RunPause,
    RunPaused,
    RunRepair,
    RunRepaired,
    RunRerun,
    RunRerunFrom,
    RunResume,
    RunStopped,
    RunTerminate,
    RunTransition,
    RunTransitioned,
    SessionClose,
    SessionOpen,
    SessionOpened,
    SessionReap,
    SessionRenew,
    SessionRenewed,
    StagePollSuspended,
    StageSuspended,
    StagesWoken,
    StageWake,
)
from holdfast.kernel.commands import (
    ConditionEvaluated as Answer,
)
from holdfast.kernel.dispatch.kernel import Kernel
from holdfast.kernel.invariants import check, check_step
from holdfast.kernel.pipelines.plan import MapPlan, Plan, stage_of
from holdfast.kernel.rules.repairs import CHECK_AFTER
from holdfast.kernel.runs.rerun_preview import RerunPreview, preview_rerun
from holdfast.ports.changes import Delete, Insert
from holdfast.ports.clock import micros
from holdfast.ports.errors import (
    CommandError,
    IdempotencyConflictError,
    InvalidCommandError,
    NothingToWakeError,
    RerunRefusedError,
    RunExistsError,
    RunNotFoundError,
    SessionLostError,
)
from holdfast.ports.json import canonical, parse
from holdfast.ports.queries.runs import OrphanedChildren, PendingDeliveries
from holdfast.ports.queries.values import LoadValues
from holdfast.ports.records.job import Job, JobKind, PassOver
from holdfast.ports.records.run import ClosePolicy, RunStatus
from holdfast.ports.records.values import Payload
from holdfast.ports.references import Reference, is_map, is_partial, parts_of, reference_from
from holdfast.ports.searches import QueueClaim
from holdfast.ports.tables import JOBS
from holdfast.testing.clock import ManualClock
from holdfast.testing.ids import SeededIds
from tests.properties.model import (
    JobModel,
    Model,
    Outcome,
    RunModel,
    SessionModel,
    Suspension,
    Task,
    Value,
    body_of,
)
from tests.properties.plans import pipelines
from tests.unit.kernel.world import pipeline, stage

R = TypeVar("R")

SECOND: Final = 1_000_000
LEASE: Final = 30 * SECOND
Judge: TypeAlias = Callable[[Any], None]
"""Compares an answer with what the model predicts, and takes the model on."""
Step: TypeAlias = tuple[Command[Any], Judge]
_Outcome: TypeAlias = (
    Completed | MapExpanded | Failed | Answer | StageSuspended | PollNotReady | ChildRunStarted
)

_SMALL: Final = st.integers(0, 7)
_HOW: Final = st.sampled_from(["ok", "ok", "ok", "ok", "fail", "fail 0", "fail 1", "fatal", "odd"])
_RUN: Final = st.integers(0, 7)
_WHICH: Final = st.sampled_from(["held", "held", "held", "any", "stale"])
_LIMIT: Final = st.sampled_from([1, 2, 500])
_SETTLE: Final = st.tuples(st.just("settle"), _WHICH, _SMALL, _HOW, _SMALL, st.none() | _SMALL)
OPS: Final = st.one_of(
    st.tuples(
        st.just("create"),
        _RUN,
        st.sampled_from(["error", "return"]),
        st.sampled_from([None, None, "k1", "k2"]),
    ),
    st.tuples(st.just("claim"), _SMALL, st.sampled_from([0, 1, 2, 100])),
    st.tuples(st.just("claim"), _SMALL, st.just(100)),
    st.tuples(st.just("claim_one"), _SMALL, _SMALL, _WHICH),
    *[_SETTLE] * 4,
    *[st.tuples(st.just("release"), _WHICH, _SMALL, st.sampled_from([0, 0, SECOND]))] * 2,
    st.tuples(st.just("heartbeat"), _SMALL),
    st.tuples(st.just("open")),
    st.tuples(st.just("renew"), _SMALL),
    st.tuples(st.just("close"), _SMALL),
    st.tuples(st.just("reap"), _LIMIT, st.sampled_from([0, 5 * SECOND])),
    st.tuples(st.just("reap_stale"), _LIMIT),
    st.tuples(st.just("wake_due"), _LIMIT),
    st.tuples(st.just("end"), _RUN, st.booleans()),
    st.tuples(st.just("pause"), _RUN, st.booleans()),
    st.tuples(st.just("rerun"), _RUN, _SMALL, st.sampled_from([None, None, None, 1])),
    st.tuples(st.just("repair")),
    st.tuples(st.just("transition"), _RUN),
    st.tuples(st.just("again"), _SMALL),
    st.tuples(st.just("poll"), _LIMIT),
    *[st.tuples(st.just("deliver"), _SMALL)] * 2,
    st.tuples(st.just("wake"), _RUN, _SMALL, st.sampled_from([None, None, 0, 1])),
)


class Noting(MemoryPersistence):
    """A store that remembers which checks the last transaction has opened."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[Job] = []

    @override
    def transact(self, work: Callable[[Any], R], /) -> R:
        def noting(tx: MemoryTransaction) -> R:
            result = work(tx)
            added = (
                change.record
                for change in tx.pending
                if isinstance(change, Insert) and isinstance(change.record, Job)
            )
            self.opened = [job for job in added if job.kind is JobKind.POLL]
            return result

        return super().transact(noting)


class KernelMachine(RuleBasedStateMachine):
    """The kernel beside its model."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.store = Noting()
        self.model = Model()
        self.claimed: list[Attempt] = []
        self.keyed: dict[str, tuple[RunCreate, object]] = {}
        self.serial = 0
        self.is_sound = True
        self.unsound: RunModel | None = None

    @initialize(
        first=pipelines(workflow="w0", may_leave_out=True, may_wait=True, child="c"),
        second=pipelines(workflow="w1", may_leave_out=True, may_wait=True),
        child=pipelines(workflow="c", groups_max=2, may_wait=True),
    )
    def start(self, first: Plan, second: Plan, child: Plan) -> None:
        """Begin with three pipelines, of which one is a stage of another, one session, and one run."""
        self.plans = (first, second, child)
        self.kernel = Kernel(
            persistence=self.store, clock=self.clock, ids=SeededIds(clock=self.clock), plans=self.plans
        )
        self._carry_out([("open",)])
        self._carry_out([("create", 0, "error", None)])

    @rule(op=OPS)
    def one_command(self, op: tuple[Any, ...]) -> None:
        self._carry_out([op])

    @rule(op=OPS)
    def another_command(self, op: tuple[Any, ...]) -> None:
        self._carry_out([op])

    @rule(ops=st.lists(OPS, min_size=2, max_size=6))
    def a_batch(self, ops: list[tuple[Any, ...]]) -> None:
        self._carry_out(ops)

    @rule(
        settles=st.lists(
            st.tuples(_SMALL, st.none() | st.just(0), st.sampled_from(["ok", "lose"])), min_size=1, max_size=6
        ),
        size=st.integers(2, 5),
    )
    def some_work(self, settles: list[tuple[int, int | None, str]], size: int) -> None:
        """What a worker does on a good day, so that runs get far enough for bad days to matter."""
        if not any(session.is_open for session in self.model.sessions.values()):
            self._carry_out([("open",)])
        if not any(run.status is Outcome.RUNNING for run in self.model.runs.values()):
            self._carry_out([("create", 3 + size % 2, "error", None)])
        self.clock.advance(timedelta(minutes=3))
        self._carry_out([("renew", 0), ("wake_due", 500)])
        self._carry_out([("claim", 0, 100)])
        for place, taker, how in settles:
            self._carry_out([("settle", "held", place, how, size + place, taker)])
            self._carry_out([("claim", 0, 2)])
        self._carry_out([("deliver", 0)])

    @rule(place=_RUN, which=_SMALL)
    def a_run_is_run_again(self, place: int, which: int) -> None:
        """Alone, so that what the preview says can be held against it."""
        self._carry_out([("rerun", place, which, None)])

    @rule(seconds=st.sampled_from([0.001, 1.0, 20.0, 100.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))

    @rule(place=st.integers(0, 20), ops=st.lists(_SETTLE | OPS, max_size=3))
    def a_row_is_lost(self, place: int, ops: list[tuple[Any, ...]]) -> None:
        """A fault that no store should have; and a repair, in one batch with whatever else goes on."""
        jobs = sorted(self.store.dump().all_jobs(), key=lambda job: job.key)
        jobs = [job for job in jobs if job.kind is not JobKind.DELIVER]
        if not jobs:
            return
        lost = jobs[place % len(jobs)]
        self.store.transact(lambda tx: tx.apply([Delete(JOBS, lost.key)]))
        self.model.jobs.pop(lost.key.text, None)
        self.unsound = self.model.by_key(lost.run)
        self._carry_out([*ops, ("repair",)])
        self.unsound = None

    @override
    def teardown(self) -> None:
        """Heal, and drain with one good worker."""
        if not self.is_sound or not hasattr(self, "kernel"):
            return
        for status in Outcome:
            if any(run.status is status for run in self.model.runs.values()):
                event(f"a run is {status} before the end")
        self.clock.advance(timedelta(hours=1))
        self._carry_out([("reap", 500, 0)])
        while self.model.lost():
            self._carry_out([("reap_stale", 500)])
        self._carry_out([("open",)])
        for name in [name for name, run in self.model.runs.items() if run.can_resume]:
            event("a run is paused before the end")
            self._carry_out([("resume", name)])
        session = 0  # of the living; there is no other
        for _ in range(1_000):
            if not any(run.status is Outcome.RUNNING for run in self.model.runs.values()):
                break
            self.clock.advance(timedelta(minutes=10))
            self._carry_out([("renew", session), ("wake_due", 500)])
            before = len(self.claimed)
            self._carry_out([("claim", session, 100)])
            for place in range(before, len(self.claimed)):
                self._carry_out([("settle", "exactly", place, "ok", 3, None)])
            while any(run.owed for run in self.model.generations()):
                self._carry_out([("deliver", 0)])
        self._carry_out([("repair",)])
        assert {run.status for run in self.model.runs.values()} <= set(Outcome) - {Outcome.RUNNING}

    # Carrying out, and looking at everything afterwards.

    def _carry_out(self, ops: Sequence[tuple[Any, ...]]) -> None:
        self.is_sound = False
        self.now = micros(self.clock.now())
        self.is_alone = len(ops) == 1
        self.queued_before = self.model.queued()
        self.owed_before = any(run.owed for run in self.model.generations())
        steps = [step for op in ops for step in self._step(*op)]
        before = self.store.dump()
        answers = self.kernel.dispatch_many([command for command, _ in steps])
        after = self.store.dump()
        for (_, judge), answer in zip(steps, answers, strict=True):
            judge(answer)
        found = [*check(after), *check_step(before, after, commands=len(steps))]
        assert not found, "\n".join(map(str, found))
        self._compare()
        self.is_sound = True

    def _compare(self) -> None:
        """The store has the rows that the model has, and no others."""
        tables = self.store.dump()
        assert tables.runs.keys() == {run.key for run in self.model.generations()}
        for run in self.model.generations():
            assert tables.runs[run.key].status is run.run_status
            all_jobs = tables.jobs.get(run.key, {}).values()
            owed = [json.loads(job.input) for job in all_jobs if job.kind is JobKind.DELIVER]
            assert Counter(owed) == Counter(run.owed)
            assert (tables.runs[run.key].parent, tables.runs[run.key].children) == (run.parent, run.children)
            jobs = [job for job in all_jobs if job.kind is not JobKind.DELIVER]
            assert sorted(Task(job.kind, job.node, job.item) for job in jobs) == sorted(run.tasks())
            for job in jobs:
                known = self.model.jobs.get(job.key.text)
                holder, wake_at = (known.holder, known.wake_at) if known else (None, None)
                assert (job.session, job.wake_at) == (holder, wake_at)
                if known:
                    assert (job.epoch, job.attempts) == (known.epoch, known.attempts)
                    suspension = known.run.suspended.get(body_of(known.task))
                    waits_for = suspension.key if suspension else known.waits_for
                    assert job.waiting_for == waits_for
            outputs = {
                Task(JobKind.STAGE, row.node or "", row.item): parse(
                    (row.payload or Payload(inline="")).inline or ""
                )
                for row in tables.history[run.key]
                if row.type == "stage.completed"
            }
            assert outputs == run.all_gave
            ran = {task.node for task in run.all_gave}
            assert ran <= set(run.to_run)
            if run.status is Outcome.COMPLETED:
                stages = {name for name in run.to_run if not isinstance(run.plan.node(name), MapPlan)}
                assert stages - run.skipped <= ran
                assert not ran & run.skipped
                assert self._value(run.key, tables.runs[run.key].result or "") == run.came_in

    def _value(self, run: str, reference: str | Reference) -> Value:
        if isinstance(reference, str):
            reference = reference_from(reference)
        if isinstance(reference, tuple) and reference[0] == "list":
            return [self._value(run, cast("Reference", part)) for part in reference[1:]]
        if is_partial(reference):
            results, failures = (self._value(run, part) for part in parts_of(reference))
            return {"results": results, "failures": failures}
        (stored,) = self.store.read(LoadValues(((run, reference),)))
        values = [parse(payload.inline or "") for payload in stored.payloads]
        return values if is_map(reference) else values[0]

    # One method for each kind of command: it says what to send, and how to judge the answer.

    def _step(self, kind: str, *drawn: Any) -> list[Step]:
        make: Callable[..., Step | list[Step] | None] = getattr(self, f"_{kind}")
        made = make(*drawn)
        if made is None:
            return []
        return made if isinstance(made, list) else [made]

    def _fresh(self) -> int:
        self.serial += 1
        return self.serial

    def _session(self, place: int) -> SessionModel:
        """Mostly one that lives."""
        everyone = list(self.model.sessions.values())
        living = [session for session in everyone if session.is_open]
        among = living if living and place < 6 else everyone
        return among[place % len(among)]

    def _attempt(self, which: str, place: int) -> Attempt | None:
        """One of those that may write, or of those whose job somebody else holds by now; else any."""
        held = [one for one in self.claimed if self.model.held(one.job, one.epoch)]
        if which == "held":
            among = held
        elif which == "stale":
            taken = {one.job for one in held}
            among = [one for one in self.claimed if one.job in taken and one not in held] or self.claimed
        else:
            among = self.claimed
        return among[place % len(among)] if among else None

    def _create(self, place: int, if_exists: Any, key: str | None) -> Step:
        plan = self.plans[place % 2]
        value = self._fresh()
        name = f"r{place}" if place < 3 else f"n{value}"
        command = RunCreate(
            workflow=plan.workflow,
            id=name,
            input=_payload(value),
            if_exists=if_exists,
            idempotency_key=key,
        )

        def judge(answer: object) -> None:
            known = self.model.runs.get(name)
            if key in self.keyed:
                assert isinstance(answer, IdempotencyConflictError)
            elif known is not None and if_exists == "error":
                assert isinstance(answer, RunExistsError)
            else:
                assert isinstance(answer, RunCreated)
                assert answer.created == (known is None)
                if known is None:
                    self.model.runs[name] = RunModel(key=answer.run, plan=plan, given=value)
                else:
                    assert (answer.run, answer.status) == (known.key, known.run_status)
                if key is not None:
                    self.keyed[key] = command, answer

        return command, judge

    def _again(self, place: int) -> Step | None:
        """Send a command with a key a second time."""
        if not self.keyed:
            return None
        command, first = list(self.keyed.values())[place % len(self.keyed)]

        def judge(answer: object) -> None:
            assert answer == first

        return command, judge

    def _open(self) -> Step:
        def judge(answer: object) -> None:
            assert isinstance(answer, SessionOpened)
            assert answer.expires_at == self.now + LEASE
            self.model.sessions[answer.session] = SessionModel(
                id=answer.session, expires_at=answer.expires_at
            )

        return SessionOpen(host="h", lease=LEASE), judge

    def _renew(self, place: int) -> Step:
        session = self._session(place)

        def judge(answer: object) -> None:
            if session.is_open:
                session.expires_at = max(session.expires_at, self.now + LEASE)
                assert answer == SessionRenewed(expires_at=session.expires_at)
            else:
                assert isinstance(answer, SessionLostError)

        return SessionRenew(session=session.id, lease=LEASE), judge

    def _close(self, place: int) -> Step:
        session = self._session(place)

        def judge(answer: object) -> None:
            if session.is_open:
                session.is_open = False
                session.expires_at = self.now
                assert answer == SessionRenewed(expires_at=self.now)
            else:
                assert isinstance(answer, SessionLostError)

        return SessionClose(session=session.id), judge

    def _reap(self, limit: int, grace: int) -> Step:
        found = self.model.expired(self.now - grace)[:limit]

        def judge(answer: object) -> None:
            dead = [one for one in found if one in self.model.expired(self.now - grace)]
            for session in dead:
                session.is_open = False
            assert answer == LeasesReaped(sessions=len(dead), freed=0, dead=0)

        return SessionReap(grace=grace, limit=limit), judge

    def _reap_stale(self, limit: int) -> Step:
        found = self.model.lost()[:limit]

        def judge(answer: object) -> None:
            freed = dead = 0
            for job in [job for job in found if job in self.model.lost()]:
                if not job.is_live:
                    continue
                job.holder = job.wake_at = None
                job.losses += 1
                most = job.run.attempts_max(job.task)
                if job.losses >= (1 if most == 1 else max(most, 5)):
                    message = f"the worker that held attempt {job.attempts} was lost"
                    if job.losses > 2:
                        alone = (
                            f"the last {job.losses - 2} without another quarantined job that was lost before"
                        )
                        message += f": {job.losses} were in all, {alone}"
                    job.run.fail(job.task, message)
                    dead += 1
                else:
                    freed += 1
            assert answer == LeasesReaped(sessions=0, freed=freed, dead=dead)

        return LeaseReapStale(limit=limit), judge

    def _wake_due(self, limit: int) -> Step:
        found = self.model.asleep_until(self.now)[:limit]

        def judge(answer: object) -> None:
            awake = [
                job for job in found if job.is_live and job.wake_at is not None and job.wake_at <= self.now
            ]
            for job in awake:
                job.wake_at = None
            assert answer == JobsWoken(woken=len(awake))

        return JobWakeDue(limit=limit), judge

    def _claim(self, place: int, limit: int) -> Step:
        session = self._session(place)
        lanes = tuple(
            QueueClaim(queue=queue, definitions=tuple(plan.definition for plan in self.plans), limit=limit)
            for queue in ("default", "other")
        )
        pass_over = self.model.combine_pass_over(session.id)

        def judge(answer: object) -> None:
            if isinstance(answer, SessionLostError):
                assert not session.is_open
                assert self.queued_before
                return
            assert isinstance(answer, JobsClaimed)
            assert session.is_open or not answer.attempts
            assert len(answer.attempts) <= limit
            queued = Counter(job.pass_over for job in self.model.queued_after_a_loss())
            taken = Counter(self._claims(attempt, session) for attempt in answer.attempts)
            suspects, lost = taken[PassOver.LOST], taken[PassOver.SUSPECTS]
            match pass_over:
                case PassOver.NOTHING:
                    assert suspects == 0 or (suspects, lost) == (1, 0)
                case PassOver.SUSPECTS:
                    assert suspects == 0
                case PassOver.LOST:
                    assert suspects == lost == 0
            if self.is_alone and session.is_open and limit >= self.queued_before:
                assert taken[PassOver.NOTHING] == self.queued_before - queued.total()
                if pass_over is PassOver.NOTHING:
                    assert suspects + lost >= min(queued.total(), 1)
                if pass_over is not PassOver.LOST and not suspects:
                    assert lost == queued[PassOver.SUSPECTS]

        return JobClaim(session=session.id, queue_claims=lanes, limit=limit, pass_over=pass_over), judge

    def _claims(self, attempt: Attempt, session: SessionModel) -> PassOver:
        """Take a claim into the model; return what must not be claimed beside the job."""
        task = Task(attempt.kind, attempt.node, attempt.item)
        job = self.model.claimed(attempt.job, attempt.run, task)
        pass_over = job.pass_over
        assert job.task == task
        assert task in set(job.run.tasks())
        assert job.holder is None
        assert job.wake_at is None
        assert job.waits_for is None
        assert not job.run.is_paused
        job.epoch += 1
        job.attempts += 1
        job.holder = session.id
        assert (attempt.epoch, attempt.attempt) == (job.epoch, job.attempts)
        assert attempt.attempt - attempt.lost_attempts <= attempt.max_attempts == job.run.attempts_max(task)
        assert self._value(attempt.run, attempt.input) == job.run.gets(task)
        self.claimed.append(attempt)
        assert attempt.pass_over is pass_over is job.pass_over
        return pass_over

    def _poll(self, limit: int) -> Step:
        """Checks that are due are queued, and nothing else that sleeps."""
        found = [job for job in self.model.asleep_until(self.now) if job.task.kind is JobKind.POLL][:limit]

        def judge(answer: object) -> None:
            awake = [job for job in found if job in self.model.asleep_until(self.now)]
            for job in awake:
                job.wake_at = None
            assert answer == JobsWoken(woken=len(awake))

        return StagePollSuspended(limit=limit), judge

    def _wake(self, place: int, which: int, item: int | None) -> Step | None:
        """Check now. Alone: what is found in a batch depends on who looked when."""
        if not self.is_alone:
            return None
        keys = sorted({one.key for run in self.model.runs.values() for one in run.suspended.values()})
        name = self._run(place)
        known = self.model.runs.get(name)
        if which % 2 and keys:
            command = StageWake(key=keys[place % len(keys)])
        elif known is not None:
            stages = tuple(known.plan.nodes)
            command = StageWake(run_id=name, stage=stages[which % len(stages)], item=item)
        else:
            command = StageWake(run_id=name, stage="a")
        found = [job for job in self.model.live() if self._is_meant(job.run, job.task, job, command)]
        known_jobs = {(id(job.run), job.task) for job in self.model.live()}
        unclaimed = sum(
            (id(run), task) not in known_jobs and self._is_meant(run, task, None, command)
            for run in self.model.runs.values()
            for task in run.tasks()
        )

        def judge(answer: object) -> None:
            if not found and not unclaimed:
                assert isinstance(answer, NothingToWakeError)
                return
            for job in found:
                job.wake_at = None if job.holder is None else self.now
            early = sum(job.holder is not None for job in found)
            assert answer == StagesWoken(woken=len(found) - early + unclaimed, early=early)
            event("a suspended stage was woken")

        return command, judge

    def _is_meant(self, run: RunModel, task: Task, job: JobModel | None, command: StageWake) -> bool:
        """Whether a task is one to wake; its job is None where a lost row was made anew and nobody claimed it yet."""
        is_check = task.kind is JobKind.POLL
        if command.key is not None:
            return is_check and run.suspended[body_of(task)].key == command.key
        is_body = task.kind is JobKind.STAGE and job is not None and job.holder is not None
        return (
            (is_check or is_body)
            and run is self.model.runs.get(command.run_id or "")
            and task.node == command.stage
            and command.item in (None, task.item)
        )

    def _deliver(self, place: int) -> list[Step] | None:
        """What a host does for a run that owes its parent its end, or has left children behind."""
        owed = self.store.read(PendingDeliveries(100))
        if not owed:
            return None
        job = owed[place % len(owed)]
        run, whom = self.model.by_key(job.run), json.loads(job.input)
        value = ["gave", self._fresh()]
        output = _payload(value) if whom is not None and run.status is Outcome.COMPLETED else None
        command = RunDeliver(job=job.key.text, parent=whom, output=output)

        def judge(answer: object) -> None:
            assert isinstance(answer, RunDelivered)
            if whom not in run.owed:  # it was told in this batch
                assert answer == RunDelivered(status="closed")
                return
            run.owed.remove(whom)
            waiting = self.model.jobs.get(whom or "")
            name = self.store.dump().runs[run.key].id
            if waiting is None or not waiting.is_live or waiting.waits_for != name:
                assert answer == RunDelivered(status="closed")
                return
            owes = waiting.run.debts
            if run.status is Outcome.COMPLETED:
                waiting.run.complete(waiting.task, value)
            else:
                error = json.loads(self.store.dump().runs[run.key].error or "{}")
                why = f"run {name!r} {run.run_status}: {error.get('message') or error.get('code')}"
                waiting.run.fail(waiting.task, why)
            assert (answer.status, answer.follow_up.deliveries) == ("delivered", waiting.run.debts > owes)
            event("the end of a child was told")

        return [*(self._closings(run) if whom is None else ()), (command, judge)]

    def _closings(self, run: RunModel) -> Iterator[Step]:
        """End the children that a run has left behind: what is found is exactly those."""
        left = self.store.read(OrphanedChildren((run.key,), 500))
        wanted = {
            name
            for name, child in self.model.runs.items()
            if child.status is Outcome.RUNNING
            and child.parent is not None
            and child.close_policy is not ClosePolicy.ABANDON
            and child.parent.rpartition(".")[0] == run.key
            and ((job := self.model.jobs.get(child.parent)) is None or not job.is_live)
        }
        assert {child.id for child in left} == wanted
        for child in left:
            event("a child was left behind")
            yield self._ending(child.id, child.close_policy is ClosePolicy.TERMINATE)

    def _claim_one(self, place: int, which: int, epoch: str) -> Step | None:
        if not self.model.jobs:
            return None
        session = self._session(place)
        job = list(self.model.jobs.values())[which % len(self.model.jobs)]
        said = job.epoch if epoch == "held" else job.epoch - 1
        command = JobClaimOne(
            session=session.id,
            job=job.id,
            epoch=said,
            definitions=tuple(plan.definition for plan in self.plans),
        )

        def judge(answer: object) -> None:
            if not session.is_open:
                assert isinstance(answer, SessionLostError)
                return
            assert isinstance(answer, JobClaimed)
            if not job.is_live:
                assert answer.ignored == "closed"
            elif job.holder is not None:
                assert answer.ignored == "leased"
            elif job.run.is_paused:
                assert answer.ignored == "paused"
            elif job.waits_for is not None:
                assert answer.ignored == "waiting"
            elif job.wake_at is not None and (job.wake_at > self.now or said != job.epoch):
                assert answer.ignored == "not_due"
                assert answer.retry_after == max(1, job.wake_at - self.now)
            elif said != job.epoch:
                assert answer.ignored == "stale"
            else:
                job.wake_at = None  # the claim wakes a sleeper that is due
                assert answer.attempt is not None
                self._claims(answer.attempt, session)

        return command, judge

    def _settle(self, which: str, place: int, how: str, size: int, taker: int | None) -> Step | None:
        attempt = self._attempt(which, place)
        if attempt is None:
            return None
        session = None if taker is None else self._session(taker)
        if how == "lose":  # where that need not be the end
            node = self.model.by_key(attempt.run).plan.node(attempt.node)
            may = isinstance(node, MapPlan) and node.enough is not None and attempt.item is not None
            how = "fatal" if may else "ok"
        kinds = {JobKind.EXPAND_MAP: MapExpanded, JobKind.CONDITION: Answer}
        wanted = kinds.get(attempt.kind, Completed)
        items = [self._fresh() for _ in range(size % 6)]
        value = [attempt.job, attempt.epoch, self._fresh()]
        if how.startswith(("fail", "fatal")):
            rule = int(how[-1]) if how[-1].isdigit() else None
            outcome: _Outcome = Failed(
                failure=Failure(code="c", message="m", retryable=how != "fatal", rule=rule)
            )
        elif wanted is Answer and how == "ok":
            outcome = Answer(passed=size % 2 == 0)
        elif how == "ok" and (waits := self._waiting(attempt, size, value)) is not None:
            outcome = waits
        elif (wanted is MapExpanded) == (how == "ok") and wanted is not Answer:
            outcome = MapExpanded(items=tuple(map(_payload, items)))
        else:
            outcome = Completed(output=_payload(value))
        command = JobSettle(
            job=attempt.job, epoch=attempt.epoch, outcome=outcome, take_next=session.id if session else None
        )

        def judge(answer: object) -> None:
            job = self.model.held(attempt.job, attempt.epoch)
            if job is None:
                assert answer == JobSettled(status="fenced")
            elif how == "odd":
                assert isinstance(answer, InvalidCommandError)
            else:
                assert isinstance(answer, JobSettled)
                before = set(job.run.tasks())
                owed = self.model.debts
                self._settled(job, outcome, items, value, answer)
                # Also an ended child run that is taken over owes its end.
                assert answer.follow_up.deliveries == (self.model.debts > owed)
                gives = isinstance(outcome, Completed | MapExpanded | Answer)
                taker = session if gives else None
                self._takes(job, set(job.run.tasks()) - before, taker, answer)

        return command, judge

    def _takes(
        self, job: JobModel, opened: set[Task], session: SessionModel | None, answer: JobSettled
    ) -> None:
        """One job of the same queue is leased with a settle, if there is one and a session that takes it."""
        queues = {task: stage_of(job.run.plan.node(task.node)).queue for task in (*opened, job.task)}
        fits = {task for task in opened if queues[task] == queues[job.task]}
        if session is None or not session.is_open or job.run.is_paused or not fits:
            assert (answer.next, answer.row, answer.more) == (None, None, False)
            return
        taken = answer.next
        assert taken is not None
        assert Task(taken.kind, taken.node, taken.item) in fits
        assert answer.more == (len(opened) > 1)
        self._claims(taken, session)
        event("a settle took the next job")

    def _settled(
        self,
        job: JobModel,
        outcome: _Outcome,
        items: Value,
        value: Value,
        answer: JobSettled,
    ) -> None:
        job.holder = None
        was_woken, job.wake_at = job.wake_at is not None, None
        match outcome:
            case StageSuspended() | PollNotReady() | ChildRunStarted():
                self._waits(job, outcome, answer, was_woken=was_woken)
            case Failed(failure=failure) if job.task.kind is JobKind.POLL and failure.retryable:
                self._check_failed(job, answer, was_woken=was_woken)
            case Completed():
                job.run.complete(job.task, value)
            case MapExpanded():
                job.run.expand(job.task, items)
            case Answer(passed=passed):
                event("a test was made")
                job.run.test(job.task, passed=passed)
            case Failed(failure=failure):
                tries = job.attempts - job.losses
                if failure.retryable and tries < job.run.attempts_after(job.task, failure.rule):
                    assert answer.retry_at is not None
                    job.wake_at = answer.retry_at if answer.retry_at > self.now else None
                else:
                    assert answer.retry_at is None
                    job.run.fail(job.task, "m")
                    if job.run.lost:
                        event("an item was lost")
        assert answer.status == "settled"
        assert answer.run_status is job.run.run_status

    def _waiting(self, attempt: Attempt, size: int, value: Value) -> _Outcome | None:
        """How attempts end that hand their work on, or ask about it."""
        planned = stage_of(self.model.by_key(attempt.run).plan.node(attempt.node))
        match attempt.kind:
            case JobKind.STAGE if planned.check is not None and size % 3 != 0:
                return StageSuspended(
                    state=_payload(value),
                    check_after=(1 + size) * 20 * SECOND,
                    give_up_at=self.now + 30 * SECOND if size == 4 else None,
                    key=f"key{attempt.run[-1]}",
                )
            case JobKind.POLL if size % 3 == 1:
                return PollNotReady(check_after=size * 10 * SECOND or None)
            case JobKind.CHILD:
                assert planned.child is not None
                return ChildRunStarted(
                    run_id=f"{attempt.run}/{attempt.node}/{attempt.item}",
                    workflow="c",
                    version="1",
                    input=_payload(value),
                    close_policy=planned.child.close_policy,
                )
            case _:
                return None

    def _waits(
        self,
        job: JobModel,
        outcome: StageSuspended | PollNotReady | ChildRunStarted,
        answer: JobSettled,
        *,
        was_woken: bool,
    ) -> None:
        match outcome:
            case StageSuspended():
                event("a stage was suspended")
                suspension = Suspension(
                    state=json.loads(outcome.state.inline or ""),
                    check_after=outcome.check_after,
                    give_up_at=outcome.give_up_at,
                    key=outcome.key,
                )
                job.run.suspend(job.task, suspension)
                check = self._opened_check(job.run, job.task)
                check.wake_at = self._asleep_for(suspension, outcome.check_after, answer, was_woken=was_woken)
            case PollNotReady():
                suspension = job.run.suspended[body_of(job.task)]
                if self._gives_up(job, suspension, ""):
                    return
                event("work was not done yet")
                wait = outcome.check_after or suspension.check_after
                job.attempts = job.losses = 0
                job.wake_at = self._asleep_for(suspension, wait, answer, was_woken=was_woken)
            case ChildRunStarted():
                self._starts(job, outcome)

    def _asleep_for(
        self, suspension: Suspension, wait: int, answer: JobSettled, *, was_woken: bool
    ) -> int | None:
        until = self.now if was_woken else self.now + wait
        if suspension.give_up_at is not None and not was_woken:
            until = min(until, suspension.give_up_at)
        assert answer.retry_at == until
        return until if until > self.now else None

    def _gives_up(self, job: JobModel, suspension: Suspension, why: str) -> bool:
        if suspension.give_up_at is None or self.now < suspension.give_up_at:
            return False
        event("work was given up")
        job.run.fail(job.task, f"the external work was not done in time{why}")
        return True

    def _check_failed(self, job: JobModel, answer: JobSettled, *, was_woken: bool) -> None:
        suspension = job.run.suspended[body_of(job.task)]
        if self._gives_up(job, suspension, "; the last check failed:  m"):
            return
        event("a check failed")
        is_spent = job.attempts - job.losses >= job.run.attempts_max(job.task)
        at = answer.retry_at
        assert at is not None
        assert not was_woken or at == self.now
        if is_spent and not was_woken:
            assert at >= min(self.now + suspension.check_after, suspension.give_up_at or at)
        if is_spent:
            job.attempts = job.losses = 0
        job.wake_at = at if at > self.now else None

    def _opened_check(self, run: RunModel, task: Task) -> JobModel:
        """The job that asks about what a body has handed on: in this batch, for it was not claimed yet."""
        found = next(
            job
            for job in self.store.opened
            if (job.run, job.node, job.item) == (run.key, task.node, task.item)
        )
        self.store.opened.remove(found)
        check = Task(JobKind.POLL, task.node, task.item)
        return self.model.claimed(found.key.text, run.key, check)

    def _starts(self, job: JobModel, started: ChildRunStarted) -> None:
        name = started.run_id
        known = self.model.runs.get(name)
        if known is not None and known.parent is None:
            job.run.fail(job.task, f"there is a run {name!r} already, and it is not a child of this run")
            return
        event("a child was started")
        if known is None:
            key = next(run.key for run in self.store.dump().runs.values() if run.id == name)
            self.model.runs[name] = RunModel(
                key=key,
                plan=self.plans[2],
                given=json.loads(started.input.inline or ""),
                parent=job.id,
                close_policy=started.close_policy,
            )
        else:
            event("a child was taken over")
            known.parent = job.id
            if known.status is not Outcome.RUNNING:
                known.owe(job.id)
        job.waits_for = name
        job.run.children += 1

    def _release(self, which: str, place: int, delay: int) -> Step | None:
        attempt = self._attempt(which, place)
        if attempt is None:
            return None

        def judge(answer: object) -> None:
            job = self.model.held(attempt.job, attempt.epoch)
            assert answer == JobReleased(status="fenced" if job is None else "released")
            if job is not None:
                job.holder = None
                job.attempts -= 1
                job.wake_at = self.now + delay if delay else None

        return JobRelease(job=attempt.job, epoch=attempt.epoch, delay=delay), judge

    def _heartbeat(self, place: int) -> Step:
        asked = self.claimed[-(place + 1) :]

        def judge(answer: object) -> None:
            lost = [one.job for one in asked if self.model.held(one.job, one.epoch) is None]
            assert answer == JobsHeld(lost=tuple(lost))

        return JobHeartbeat(
            attempts=tuple(AttemptReport(job=one.job, epoch=one.epoch) for one in asked)
        ), judge

    def _run(self, place: int) -> str:
        """Mostly the name of a run that there is, and of one that has not ended."""
        active = [name for name, run in self.model.runs.items() if run.status is Outcome.RUNNING]
        among = active if active and place < 5 else [*self.model.runs, "nobody"]
        return among[place % len(among)]

    def _end(self, place: int, terminate: bool) -> Step:
        return self._ending(self._run(place), terminate)

    def _ending(self, name: str, terminate: bool) -> Step:
        def judge(answer: object) -> None:
            run = self.model.runs.get(name)
            if run is None:
                assert isinstance(answer, RunNotFoundError)
                return
            changed, owed = run.status is Outcome.RUNNING, run.debts
            if changed:
                run.end(Outcome.CANCELLED)
            assert answer == RunStopped(
                status=run.run_status, changed=changed, follow_up=FollowUp(deliveries=run.debts > owed)
            )

        return (RunTerminate if terminate else RunCancel)(run_id=name), judge

    def _pause(self, place: int, resumes: bool) -> Step:
        return self._resume(self._run(place), resumes)

    def _resume(self, name: str, resumes: bool = True) -> Step:
        def judge(answer: object) -> None:
            run = self.model.runs.get(name)
            if run is None:
                assert isinstance(answer, RunNotFoundError)
                return
            changed = run.status is Outcome.RUNNING and run.is_paused is resumes
            if changed:
                self.model.pause(run, self.now, paused=not resumes)
            assert answer == RunPaused(status=run.run_status, changed=changed)

        return (RunResume if resumes else RunPause)(run_id=name), judge

    def _rerun(self, place: int, which: int, generation: int | None) -> Step:
        name = self._run(place)
        known = self.model.runs.get(name)
        stages = [None, None, *(known.plan.nodes if known else ()), "nothing"]
        command = RunRerunFrom(run_id=name, stage=stages[which % len(stages)], generation=generation)
        preview = self._preview(command) if self.is_alone else None

        def judge(answer: object) -> None:
            run = self.model.runs.get(name)
            if run is None:
                assert isinstance(answer, RunNotFoundError)
            elif generation not in {None, run.generation}:
                assert isinstance(answer, RunRerun)
                assert (answer.started, answer.run, answer.status) == (False, run.key, run.run_status)
            elif (again := run.again(command.stage)) is None:
                assert isinstance(answer, RerunRefusedError)
                assert preview is None or str(preview) == str(answer)
            else:
                self._reruns(name, run, again, command, answer, preview)

        return command, judge

    def _preview(self, command: RunRerunFrom) -> RerunPreview | CommandError:
        before = self.store.dump()
        try:
            return preview_rerun(self.kernel.persistence, self.kernel.workflows, command)
        except CommandError as error:
            return error
        finally:
            assert self.store.dump() == before

    def _reruns(
        self,
        name: str,
        run: RunModel,
        again: RunModel,
        command: RunRerunFrom,
        answer: object,
        preview: RerunPreview | CommandError | None,
    ) -> None:
        assert isinstance(answer, RunRerun)
        is_active = run.status is Outcome.RUNNING
        again.key = answer.run
        assert answer == RunRerun(
            run_id=name,
            run=again.key,
            generation=again.generation,
            status=RunStatus.RUNNING,
            started=True,
            rerun_of=run.generation,
            stage=command.stage or run.stopped_at(),
            runs=again.to_run,
            keeps=tuple(node for node in again.plan.nodes if node in again.origins),
            terminated=is_active,
            follow_up=FollowUp(deliveries=is_active and run.children > 0),
        )
        if preview is not None:
            assert isinstance(preview, RerunPreview)
            assert (preview.generation, preview.stage) == (again.generation, answer.stage)
            assert (preview.runs, preview.terminates) == (again.to_run, is_active)
            assert preview.again == tuple(node for node in again.to_run if node in run.done())
            assert preview.keeps == again.origins
            event("a rerun was previewed")
            if preview.keeps:
                event("a rerun keeps something")
        if is_active:
            run.parent = None  # whoever waits for it waits for the new generation
            run.end(Outcome.CANCELLED)
        self.model.older.append(run)
        self.model.runs[name] = again

    def _transition(self, place: int) -> Step:
        """Every settle goes on by itself, so there is never anything left to do."""
        name = self._run(place)

        def judge(answer: object) -> None:
            run = self.model.runs.get(name)
            if run is None:
                assert isinstance(answer, RunNotFoundError)
            else:
                assert answer == RunTransitioned(action="none", status=run.run_status)

        return RunTransition(run_id=name), judge

    def _repair(self) -> Step:
        """There is nothing to repair but what a fault has taken, unless its run has ended meanwhile."""
        active = sum(run.status is Outcome.RUNNING for run in self.model.runs.values())

        def judge(answer: object) -> None:
            lacks = self.unsound is not None and self.unsound.status is Outcome.RUNNING
            repaired = tuple(name for name, run in self.model.runs.items() if lacks and run is self.unsound)
            assert answer == RunRepaired(
                repaired=repaired, checked=active, next=None, follow_up=FollowUp(deliveries=self.owed_before)
            )
            if repaired and self.unsound is not None:
                self._check_again(self.unsound)
            self.unsound = None

        return RunRepair(), judge

    def _check_again(self, run: RunModel) -> None:
        """What was handed on is asked about again, of which nothing but its state is known any more."""
        for job in list(self.store.opened):
            body = Task(JobKind.STAGE, job.node, job.item)
            if job.run != run.key or job.waiting_for != _own_key(run, body) or body not in run.suspended:
                continue
            if any(one.task == Task(JobKind.POLL, job.node, job.item) for one in self.model.live()):
                continue
            suspension = run.suspended[body]
            run.suspended[body] = attrs.evolve(
                suspension, check_after=CHECK_AFTER, give_up_at=None, key=_own_key(run, body)
            )
            self._opened_check(run, body)
            event("a lost check was made up for")


def _own_key(run: RunModel, body: Task) -> str:
    return f"{run.key}/{body.node}" if body.item is None else f"{run.key}/{body.node}/{body.item}"


def _payload(value: Value) -> Payload:
    return Payload(inline=canonical(value))


_SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


def test_the_model_has_a_sleeper_claimed_when_it_is_due() -> None:
    machine = KernelMachine()
    machine.start(*(pipeline(stage("a"), workflow=name) for name in ("w0", "w1", "c")))
    session, job = 0, 0
    machine.one_command(("claim", session, 1))
    machine.one_command(("release", "held", 0, SECOND))
    for seconds, epoch in ((0.001, "held"), (1.0, "stale"), (0.001, "held")):
        machine.time_passes(seconds)
        machine.one_command(("claim_one", session, job, epoch))

    assert [attempt.attempt for attempt in machine.claimed[:2]] == [1, 1]


@pytest.mark.slow
def test_the_kernel_does_what_the_model_does() -> None:
    run_state_machine_as_test(
        KernelMachine, settings=settings(_SETTINGS, max_examples=8, stateful_step_count=40)
    )


@pytest.mark.slow
def test_the_kernel_does_what_the_model_does_for_long() -> None:
    run_state_machine_as_test(
        KernelMachine, settings=settings(_SETTINGS, max_examples=60, stateful_step_count=60)
    )
