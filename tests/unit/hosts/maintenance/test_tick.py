"""Pruning by the maintenance tick, on both sides of each bound."""

import logging
from datetime import timedelta

import attrs
import pytest

from holdfast.hosts.maintenance.tick import KEPT_FOR, PRUNE_INTERVAL, Maintenance, Tick
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.ports.changes import Insert
from holdfast.ports.clock import micros
from holdfast.testing.conformance.builders import a_reply
from tests.unit.hosts.attempt_harness import Bench


@stage
def same(text: str) -> str:
    return text


ONE = Pipeline("one", input=str).pipe(same)
WEEK = timedelta(days=7)


def test_replies_are_kept_for_a_week() -> None:
    """A caller that repeats a command within it gets the first reply."""
    assert timedelta(microseconds=KEPT_FOR) == WEEK


@pytest.mark.parametrize(("age", "is_kept"), [(WEEK, True), (WEEK + timedelta(microseconds=1), False)])
def test_a_reply_goes_when_its_week_is_over_and_not_before(age: timedelta, *, is_kept: bool) -> None:
    bench = Bench(ONE)
    store(bench, age)
    Maintenance(bench.core, lease=30).prune()
    assert bool(bench.store.dump().replies) is is_kept


def test_what_is_kept_no_longer_is_looked_for_every_ten_minutes() -> None:
    bench = Bench(ONE)
    maintenance = Maintenance(bench.core, lease=30)
    maintenance.prune()
    store(bench, 2 * WEEK)
    bench.clock.advance(timedelta(seconds=PRUNE_INTERVAL - 1))
    maintenance.prune()
    assert bench.store.dump().replies, "it is not looked for in each round"
    bench.clock.advance(timedelta(seconds=1))
    maintenance.prune()
    assert not bench.store.dump().replies
    assert timedelta(minutes=1) <= timedelta(seconds=PRUNE_INTERVAL) <= timedelta(hours=1)


def test_the_expired_session_of_a_lost_worker_and_its_jobs_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(ONE)
    bench.start(ONE("a"))
    assert len(bench.claim()) == 1
    bench.clock.advance(timedelta(days=1))
    maintenance = Maintenance(bench.core, lease=30)
    with caplog.at_level(logging.INFO, logger="holdfast.maintenance"):
        maintenance.tick()
        maintenance.tick()

    assert [one.getMessage() for one in caplog.records if one.name == "holdfast.maintenance"] == [
        "1 worker session expired: other workers take over",
        "1 job of expired worker sessions can be claimed again",
    ]


def store(bench: Bench, age: timedelta) -> None:
    """Store a reply of this age."""
    reply = attrs.evolve(a_reply(), created_at=micros(bench.clock.now() - age))
    bench.store.transact(lambda tx: tx.apply([Insert(reply)]))


def test_two_ticks_together_did_what_each_of_them_did() -> None:
    """A serverless host returns one tick for all that it ran: nothing of the first may be missing."""
    numbers = {field.name: 2 for field in attrs.fields(Tick) if field.type in (int, "int")}
    one = Tick(**{**numbers, "repaired": ("a",), "wakes_at": (1,), "more": True})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    other = Tick(**{**numbers, "repaired": ("b",), "wakes_at": (5,), "more": False})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    both = one.followed_by(other)

    assert {name: getattr(both, name) for name in numbers} == dict.fromkeys(numbers, 4)
    assert len(numbers) >= 10
    assert (both.repaired, both.wakes_at, both.more) == (("a", "b"), (1, 5), False)
