"""Rate limits under random events: never exceeded in any period, and every job starts."""

from typing import Any

import attrs
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.kernel.commands import (
    Attempt,
    JobAdmit,
    JobRelease,
    JobWakeDue,
    LeaseReapStale,
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
        self.rate = rate
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

    def claim(self, limit: int) -> None:
        before = len(self.held)
        self.held += self.world.claim(self.session, limit=limit)
        self.starts += [self.world.now] * (len(self.held) - before)

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
