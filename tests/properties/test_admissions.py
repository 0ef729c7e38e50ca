"""Concurrency slots under random events: given in order, never twice, and no run waits for ever."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import attrs
import pytest
from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from typing_extensions import override

from holdfast.kernel.commands import (
    Attempt,
    JobAdmit,
    LeaseReapStale,
    RunCancel,
    RunClaimPending,
    RunCreate,
    RunExpire,
    RunPause,
    RunResume,
    RunTerminate,
    SessionReap,
)
from holdfast.ports.records.job import Job, JobState
from holdfast.ports.records.limits import SlotName
from holdfast.ports.records.run import TERMINAL, Run, RunStatus
from tests.unit.kernel.world import SECOND, World, each, failed, payload, pipeline, settling, stage

Waiter: TypeAlias = Run | Job

NARROW = attrs.evolve(stage("narrow", wait_us=SECOND), max_concurrency=2)
PLANS = (
    pipeline(stage("a"), NARROW),
    pipeline((attrs.evolve(stage("b"), max_concurrency=1), stage("c")), workflow="v"),
    pipeline(stage("list"), each("free", limit=2), NARROW, workflow="m"),
)
LIMITS = {"a": 1, "b": 2}
_SMALL = st.integers(0, 7)
_SPAN = st.sampled_from([None, None, None, SECOND, 20 * SECOND])


def let_in(waiting: Sequence[Waiter], others: Sequence[Waiter]) -> set[object]:
    """Who of those who wait gets a slot, said in the plainest way: in order, until one finds none."""
    used: dict[SlotName | None, int] = {}
    for one in others:
        if one.has_slot:
            used[one.slot] = used.get(one.slot, 0) + 1
    full: set[SlotName | None] = set()
    lucky: set[object] = set()
    for one in sorted(waiting, key=lambda one: (one.queue_position, one.key)):
        if one.slot not in full and used.get(one.slot, 0) < (one.concurrency_limit or 0):
            used[one.slot] = used.get(one.slot, 0) + 1
            lucky.add(one.key)
        else:
            full.add(one.slot)
    return lucky


class Admissions(RuleBasedStateMachine):
    """A world in which everything waits for something. It checks the invariants after every command."""

    @initialize()
    def begin(self) -> None:
        self.world = World(*PLANS)
        self.session = self.world.open(lease=10 * SECOND)
        self.held: list[Attempt] = []
        self.serial = 0

    # What waits.

    @rule(
        plan=st.sampled_from(PLANS),
        key=st.sampled_from([None, "a", "a", "b"]),
        after=_SPAN,
        deadline=_SPAN,
        priority=st.integers(0, 1),
    )
    def create(self, plan: Any, key: Any, after: Any, deadline: Any, priority: int) -> None:
        self.serial += 1
        self._create(
            plan.workflow,
            f"r{self.serial}",
            concurrency_key=key,
            concurrency_limit=LIMITS.get(key, 1),
            start_at=None if after is None else self.world.now + after,
            deadline=deadline,
            priority=priority,
        )

    @rule(place=_SMALL, key=st.sampled_from([None, "a"]))
    def replace(self, place: int, key: str | None) -> None:
        if self.serial:
            options = {"if_active": "terminate", "if_ended": "rerun", "concurrency_key": key}
            self._create("w", self._name(place), **options)

    # What lets in.

    @rule(keys=st.sampled_from([(), ("a",), ("a", "b")]))
    def claim_pending(self, keys: tuple[str, ...]) -> None:
        before = self.world.tables().runs
        ready = [run for run in before.values() if run.status is RunStatus.PENDING]
        due = {run.key for run in ready if run.start_at is not None and run.start_at <= self.world.now}
        at_once = {key for key in due if before[key].concurrency_key is None}
        waiting = [run for run in ready if run.start_at is None and (not keys or run.concurrency_key in keys)]
        expected = let_in(waiting, list(before.values()))
        if not keys:
            expected |= at_once

        reply = self.world.do(RunClaimPending(keys=keys))

        after = self.world.tables().runs
        assert {key for key in before if after[key].status is not before[key].status} == expected
        assert reply.admitted == len(expected)
        if not keys:
            assert all(after[key].start_at is None for key in due)
        if expected:
            event("a pending run begins")

    @rule(keys=st.sampled_from([(), ("w/narrow", "v/b", "m/narrow")]))
    def admit(self, keys: tuple[str, ...]) -> None:
        jobs = list(self.world.tables().all_jobs())
        expected = let_in([job for job in jobs if job.state is JobState.LIMITED], jobs)

        reply = self.world.do(JobAdmit(keys=keys))

        queued = {job.key for job in self.world.tables().all_jobs() if job.state is JobState.QUEUED}
        assert expected == queued - {job.key for job in jobs if job.state is JobState.QUEUED}
        assert reply.admitted == len(expected)
        if expected:
            event("a limited job gets its turn")

    @rule(limit=st.sampled_from([1, 2]))
    def several_at_once(self, limit: int) -> None:
        """In one batch, and with a limit: what one lets in, the next one counts."""
        self.world.send(RunClaimPending(limit=limit), JobAdmit(limit=limit), RunClaimPending(), JobAdmit())

    # What frees.

    @rule(how=st.sampled_from(["ok", "ok", "ok", "fail", "fatal", "back", "later"]), most=st.integers(1, 4))
    def work(self, how: str, most: int) -> None:
        if self.world.tables().sessions[self.session].state != "open":
            self.session = self.world.open(lease=10 * SECOND)
        self.held += self.world.claim(self.session, limit=most)
        done, self.held = self.held[:most], self.held[most:]
        for attempt in done:
            self._settle(attempt, how)

    @rule(place=_SMALL, command=st.sampled_from([RunCancel, RunTerminate, RunPause, RunResume, RunResume]))
    def meddle(self, place: int, command: Callable[..., Any]) -> None:
        if self.serial:
            self.world.do(command(run_id=self._name(place)))

    @rule()
    def expire(self) -> None:
        overdue = {
            run.key
            for run in self.world.tables().runs.values()
            if run.status not in TERMINAL and run.deadline is not None and run.deadline <= self.world.now
        }
        assert self.world.do(RunExpire()).expired == len(overdue)
        assert {self.world.tables().runs[key].status for key in overdue} <= {RunStatus.FAILED}

    @rule()
    def wake(self) -> None:
        self.world.wake_due()

    @rule(seconds=st.sampled_from([0.001, 1.0, 5.0, 30.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.wait(seconds)

    @rule()
    def reap(self) -> None:
        self.world.do(SessionReap(grace=0))
        self.world.do(LeaseReapStale())

    @override
    def teardown(self) -> None:
        """When all is over, maintenance and one good worker bring every run to its end."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.lose()
        for run in list(world.tables().runs.values()):
            if run.status is RunStatus.PAUSED:
                world.do(RunResume(run_id=run.id))
        for _ in range(1_000):
            if all(run.status in TERMINAL for run in world.tables().runs.values()):
                break
            world.wait(60)
            world.wake_due()
            world.do(RunExpire())
            for _ in range(2):  # those whose time has come queue first
                world.do(RunClaimPending())
            world.do(JobAdmit())
            session = world.open()
            for attempt in world.claim(session):
                self._settle(attempt, "ok")
        assert all(run.status in TERMINAL for run in world.tables().runs.values())

    # The rest.

    def _create(self, workflow: str, name: str, **options: Any) -> None:
        command = RunCreate(workflow=workflow, id=name, input=payload(1))
        self.world.do(attrs.evolve(command, **options))

    def _settle(self, attempt: Attempt, how: str) -> None:
        match how:
            case "back" | "later":
                self.world.release(attempt, delay=SECOND if how == "later" else 0)
            case "fail" | "fatal":
                self.world.do(settling(attempt, failed(retryable=how == "fail")))
            case _ if attempt.kind == "expand_map":
                self.world.expand(attempt, [1, 2, 3])
            case _:
                self.world.complete(attempt, [1, 2, 3])

    def _name(self, place: int) -> str:
        return f"r{max(1, self.serial - place)}"


@pytest.mark.slow
def test_slots_are_given_out_in_order_and_never_twice() -> None:
    run_state_machine_as_test(
        Admissions,
        settings=settings(
            deadline=None,
            max_examples=20,
            stateful_step_count=25,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
