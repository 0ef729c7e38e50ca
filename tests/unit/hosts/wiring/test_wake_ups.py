"""Wake-ups requested from a scheduler after commits, and failures of the scheduler."""

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import count
from threading import Barrier
from typing import Final

import pytest
from attrs import evolve
from typing_extensions import override

from holdfast.hosts.wiring.wake_ups import (
    AT_ONCE,
    KNOWN_MAX,
    PAUSE_SECONDS,
    SIDE_BY_SIDE,
    WakeUps,
    wake_up_key,
)
from holdfast.ports.changes import Change, Delete, DeleteJobs, Insert, Update
from holdfast.ports.clock import instant
from holdfast.ports.errors import UnavailableError
from holdfast.ports.records.job import Job, JobKind, JobState
from holdfast.ports.tables import JOBS
from holdfast.testing.scheduler import MemoryScheduler

RUN: Final = "01TESTKEY00000000000000001"
NOON: Final = 1_764_000_000_000_000
JOB: Final = Job(
    run=RUN,
    number=1,
    namespace="default",
    queue="main",
    definition="w@1",
    kind=JobKind.STAGE,
    node="a",
    state=JobState.SLEEPING,
    wake_at=NOON,
    epoch=3,
)


def before() -> datetime:
    """The clock is an hour before any of them is due."""
    return instant(NOON) - timedelta(hours=1)


class Noted(MemoryScheduler):
    """A scheduler that counts requests, and fails while it is away."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.error: Exception | None = None

    @override
    def schedule(self, key: str, command: str, at: datetime, /) -> None:
        self.asked.append(f"schedule {key}")
        if self.error is not None:
            raise self.error
        super().schedule(key, command, at)

    @override
    def cancel(self, key: str, /) -> None:
        self.asked.append(f"cancel {key}")
        super().cancel(key)


@pytest.fixture
def scheduler() -> Noted:
    return Noted()


def sleepers(number: int) -> list[Change]:
    return [Insert(evolve(JOB, number=at, wake_at=NOON + at)) for at in range(number)]


def test_a_sleeper_gets_the_message_that_names_it_when_it_is_due(scheduler: Noted) -> None:
    WakeUps(scheduler, before).follow([Update(JOB)])

    (wake_up,) = scheduler.pending
    assert wake_up.key == wake_up_key("default", f"{RUN}.1") == f"holdfast/default/{RUN}.1"
    assert wake_up.command == f'{{"epoch":3,"job_id":"{RUN}.1"}}'
    assert wake_up.at == instant(NOON)


@pytest.mark.parametrize(
    "changes",
    [
        [Update(evolve(JOB, wake_at=None))],
        [Update(evolve(JOB, state=JobState.QUEUED, wake_at=None))],
        [Update(JOB), Update(evolve(JOB, state=JobState.LEASED, wake_at=None))],
        [Update(JOB), Delete(JOBS, JOB.key)],
        [Delete(JOBS, JOB.key), DeleteJobs(RUN)],
        [],
    ],
)
def test_who_does_not_sleep_until_an_instant_costs_no_request(
    scheduler: Noted, changes: Sequence[Change]
) -> None:
    WakeUps(scheduler, before).follow(changes)

    assert scheduler.asked == []


def test_the_same_wake_up_is_asked_for_once_and_another_one_replaces_it(scheduler: Noted) -> None:
    wake_ups = WakeUps(scheduler, before)
    for job in (JOB, JOB, evolve(JOB, epoch=4, wake_at=NOON + 5_000_000)):
        wake_ups.follow([Update(job)])

    assert len(scheduler.asked) == 2
    (wake_up,) = scheduler.pending
    assert (wake_up.at, '"epoch":4' in wake_up.command) == (instant(NOON) + timedelta(seconds=5), True)


@pytest.mark.parametrize(
    "change",
    [Update(evolve(JOB, state=JobState.QUEUED, wake_at=None)), Delete(JOBS, JOB.key), DeleteJobs(RUN)],
    ids=["awake", "closed", "its run has ended"],
)
def test_a_wake_up_that_is_of_no_use_any_more_is_taken_back_once(scheduler: Noted, change: Change) -> None:
    wake_ups = WakeUps(scheduler, before)
    wake_ups.follow([Update(JOB)])
    wake_ups.follow([change])
    wake_ups.follow([change])

    assert scheduler.pending == ()
    assert scheduler.asked[1:] == [f"cancel {wake_up_key('default', JOB.key.text)}"]


def test_a_wake_up_whose_time_has_come_is_not_taken_back(scheduler: Noted) -> None:
    """It was sent, or is about to be: the request would be wasted."""
    wake_ups = WakeUps(scheduler, lambda: instant(NOON))
    wake_ups.follow([Update(JOB)])
    wake_ups.follow([Delete(JOBS, JOB.key)])

    assert len(scheduler.asked) == 1


def test_a_commit_asks_for_the_first_ones_only(scheduler: Noted) -> None:
    WakeUps(scheduler, before).follow(list(reversed(sleepers(AT_ONCE + 10))))

    assert [wake_up.at for wake_up in scheduler.pending] == [instant(NOON + at) for at in range(AT_ONCE)]


def test_requests_are_made_side_by_side() -> None:
    together = Barrier(SIDE_BY_SIDE, timeout=10)

    class Slow(MemoryScheduler):
        @override
        def schedule(self, key: str, command: str, at: datetime, /) -> None:
            together.wait()
            super().schedule(key, command, at)

    scheduler = Slow()
    WakeUps(scheduler, before).follow(sleepers(SIDE_BY_SIDE))
    assert len(scheduler.pending) == SIDE_BY_SIDE


def test_a_scheduler_that_fails_is_left_alone_for_a_while_and_nobody_suffers(
    scheduler: Noted, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    wake_ups = WakeUps(scheduler, before, monotonic=lambda: now[0])
    numbers = count()

    def sleep() -> None:
        wake_ups.follow([Update(evolve(JOB, number=next(numbers)))])

    with caplog.at_level(logging.WARNING):
        for scheduler.error in (UnavailableError("it is away"), ValueError("a bug of its")):
            sleep()
            sleep()
            now[0] += PAUSE_SECONDS
    assert len(scheduler.asked) == 2
    assert caplog.text.count("maintenance wakes the jobs") == 2
    scheduler.error = None
    sleep()
    assert len(scheduler.pending) == 1


@pytest.mark.slow
def test_so_many_are_remembered_and_no_more(scheduler: Noted) -> None:
    wake_ups = WakeUps(scheduler, before)
    for number in range(KNOWN_MAX + 1):
        wake_ups.follow([Update(evolve(JOB, number=number))])
    scheduler.asked.clear()
    wake_ups.follow([Delete(JOBS, evolve(JOB, number=0).key)])
    assert scheduler.asked == []
    wake_ups.follow([Delete(JOBS, evolve(JOB, number=1).key)])
    assert len(scheduler.asked) == 1
