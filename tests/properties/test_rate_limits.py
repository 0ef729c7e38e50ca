"""Rate limits under random events: never exceeded in any period, and every job starts."""

from typing import Any

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.kernel.commands import (
    Attempt,
    JobAdmit,
    JobRelease,
    JobWakeDue,
    LeaseReapStale,
    LimitClear,
    LimitSet,
    RunPause,
    RunResume,
    RunTerminate,
    SessionClose,
    admissions,
    follow_up_of,
)
from holdfast.kernel.pipelines.plan import RatePlan
from holdfast.ports.records.job import JobState
from tests.unit.kernel.world import SECOND, World, completing, pipeline, stage

_LIMIT = "stage:w/a"
_RATES = st.builds(
    RatePlan,
    limit=st.sampled_from([1, 2, 3, 7, 101, 200, 250]),
    per_us=st.sampled_from([SECOND, 7 * SECOND, 60 * SECOND]),
)
_OFTEN = ("start", "claim", "wait")
_STEPS = st.lists(
    st.sampled_from(
        (
            *_OFTEN,
            *_OFTEN,
            *("admit", "wake", "complete", "fail", "release"),
            *("lose", "pause", "resume", "terminate", "slow"),
        )
    ),
    min_size=10,
    max_size=60,
)


class Rated:
    """A world with one limited stage, and all that was ever claimed of it."""

    def __init__(self, rate: RatePlan, slots: int | None, follows: bool) -> None:
        self.world = World(pipeline(attrs.evolve(stage("a", attempts=9), rate=rate, max_concurrency=slots)))
        self.rate = self.in_force = rate
        self.longest, self.known_from = rate.per_us, 0
        self.follows = follows
        self.session = self.world.open(lease=10**6 * SECOND)
        self.held: list[Attempt] = []
        self.starts: list[int] = []
        self.runs = 0

    def do(self, step: str, number: int) -> None:
        world = self.world
        name = f"r{number % max(1, self.runs)}"
        held = (
            self.held.pop(number % len(self.held))
            if self.held and step in {"complete", "fail", "release"}
            else None
        )
        match step:
            case "start":
                self.runs += 1
                self._follow(world.create(f"r{self.runs - 1}"))
            case "claim":
                self.claim(limit=1 + number % 5)
            case "admit":
                self._follow(world.do(JobAdmit()))
            case "wake":
                self._follow(world.do(JobWakeDue()))
            case "wait":
                world.wait((number % 17) * self.rate.per_us / SECOND / 16)
            case "slow":
                world.wait(10 * self.rate.per_us / SECOND)
            case "complete" if held:
                self._follow(*world.send(completing(held)))
            case "fail" if held:
                self._follow(world.fail(held))
            case "release" if held:
                self._follow(world.do(JobRelease(job=held.job, epoch=held.epoch)))
            case "lose":
                world.do(SessionClose(session=self.session))
                self._follow(world.do(LeaseReapStale()))
                self.session, self.held = world.open(lease=10**6 * SECOND), []
            case "pause" | "resume" | "terminate" if self.runs:
                verb: Any = {"pause": RunPause, "resume": RunResume, "terminate": RunTerminate}[step]
                self._follow(*world.send(verb(run_id=name)))
            case _:
                pass

    @property
    def asleep(self) -> int:
        """How many sleep whose time has not come. One whose time has come does not keep others from it."""
        jobs = self.world.tables().all_jobs()
        return sum(job.state is JobState.SLEEPING and (job.wake_at or 0) > self.world.now for job in jobs)

    def change(self, rate: RatePlan | None) -> None:
        """Set another rate while running, or clear what is set."""
        if rate is None:
            self._follow(self.world.do(LimitClear(name=_LIMIT)))
        else:
            command = LimitSet(name=_LIMIT, rate_limit=rate.limit, rate_period=rate.per_us)
            self._follow(self.world.do(command))
        self.in_force = rate or self.rate

    def claim(self, limit: int) -> None:
        before = len(self.held)
        self.held += self.world.claim(self.session, limit=limit)
        self.starts += [self.world.now] * (len(self.held) - before)
        if len(self.held) > before:
            self._check()

    def _check(self) -> None:
        """Check the period up to now. What is counted for the longest period so far is all that is known."""
        now, rate = self.world.now, self.in_force
        if rate.per_us > self.longest:
            earlier = [at for at in self.starts if at < now]
            self.known_from = max(self.known_from, max(earlier, default=0) - self.longest + 1)
            self.longest = rate.per_us
        since = max(now - rate.per_us + 1, self.known_from)
        assert sum(at >= since for at in self.starts) <= rate.limit

    def drain(self) -> None:
        """Do what maintenance and a good worker do, until nothing is left."""
        for number in range(self.runs):
            self.world.send(RunResume(run_id=f"r{number}"))
        for _ in range(400):
            self.world.do(JobWakeDue())
            self.world.do(LeaseReapStale())
            self.world.do(JobAdmit())
            self.claim(limit=50)
            while self.held:
                self.world.send(completing(self.held.pop()))
            if not any(True for _ in self.world.tables().all_jobs()):
                return
            self.world.wait(self.rate.per_us / SECOND / 2)

    def _follow(self, *replies: object) -> None:
        answers: list[object] = list(replies)
        while self.follows and (commands := admissions("default", follow_up_of(answers))):
            answers = list(self.world.send(*commands))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@example(  # the first sleeper's time comes, and nobody has woken it when the next one is let in
    rate=RatePlan(limit=2, per_us=SECOND),
    slots=None,
    follows=True,
    steps=[*["start"] * 4, "claim", "start", "wait", "start", "start", "wait", "claim", "start", "start"],
    numbers=[*[0] * 6, 88, 0, 0, 64, *[0] * 50],
)
@given(
    rate=_RATES,
    slots=st.sampled_from([None, None, 1, 3]),
    follows=st.booleans(),
    steps=_STEPS,
    numbers=st.lists(st.integers(0, 1_000), min_size=60, max_size=60),
)
def test_in_no_span_do_more_start_than_the_limit_says(
    rate: RatePlan, slots: int | None, follows: bool, steps: list[str], numbers: list[int]
) -> None:
    rated = Rated(rate, slots, follows)
    for step, number in zip(steps, numbers, strict=False):
        rated.do(step, number)
        assert rated.asleep <= 1
    rated.drain()

    at = rated.starts
    assert all(later - earlier >= rate.per_us for earlier, later in zip(at, at[rate.limit :], strict=False))
    assert list(rated.world.tables().all_jobs()) == []


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@example(  # jobs are queued by the rate of the plan when a lower one is set
    rate=RatePlan(limit=7, per_us=SECOND),
    slots=None,
    follows=True,
    steps=[*["start"] * 6, "claim", "claim", "wait", "claim"],
    numbers=[*[0] * 6, *[4] * 54],
    changes={6: RatePlan(limit=1, per_us=7 * SECOND)},
)
@given(
    rate=_RATES,
    slots=st.sampled_from([None, None, 1, 3]),
    follows=st.booleans(),
    steps=_STEPS,
    numbers=st.lists(st.integers(0, 1_000), min_size=60, max_size=60),
    changes=st.dictionaries(st.integers(0, 59), st.none() | _RATES, min_size=1, max_size=8),
)
def test_with_changed_rates_no_more_start_than_the_one_in_force_says(
    rate: RatePlan,
    slots: int | None,
    follows: bool,
    steps: list[str],
    numbers: list[int],
    changes: dict[int, RatePlan | None],
) -> None:
    """Each claim is checked by the rate that is in force then, and in the end every job has started."""
    rated = Rated(rate, slots, follows)
    for at, (step, number) in enumerate(zip(steps, numbers, strict=False)):
        if at in changes:
            rated.change(changes[at])
        rated.do(step, number)
    rated.change(None)
    rated.drain()

    assert list(rated.world.tables().all_jobs()) == []
