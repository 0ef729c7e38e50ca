"""Limits within each other, rates and gathered starts together: `why` has the cause, and `doctor` finds nothing."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest

from holdfast import Concurrency, Gather, Rate, workflow
from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.testing import World

MINUTE = timedelta(minutes=1)
NESTED = Concurrency(by="user", limit=1, within=Concurrency("all", limit=2))


@workflow(concurrency=NESTED, rate=Rate(1, per=MINUTE))
async def rated() -> None:
    await asyncio.sleep(86_400)


@workflow(concurrency=NESTED)
async def plain() -> None:
    await asyncio.sleep(86_400)


@workflow(gather=Gather(within=timedelta(seconds=1)), rate=Rate(1, per=MINUTE))
async def gathered() -> None: ...


@pytest.fixture
def world() -> Iterator[World]:
    with World([rated, plain, gathered]) as world:
        yield world
        assert world.engine.sync.doctor().findings == ()


def why(run: SyncRunHandle[None]) -> list[tuple[str, str]]:
    """Return the code and the text of each reason."""
    return [(reason.code, reason.text) for reason in run.why()]


def test_each_line_that_a_run_waits_in_is_its_one_cause(world: World) -> None:
    first = world.start(rated(), attributes={"user": "ann"})
    same_user = world.start(rated(), attributes={"user": "ann"})
    other_user = world.start(rated(), attributes={"user": "bob"})
    [(code, text)] = why(same_user)
    assert (code, "the concurrency key 'all :: user/ann' run at a time" in text) == ("concurrency_key", True)
    [(code, text)] = why(other_user)
    assert (code, "1 of 1 in 1m are used. It may start in 1m" in text) == ("rate_limit", True)

    other = world.start(plain(), attributes={"user": "cid"})
    assert other.info().status == "running"
    world.advance(minutes=1, seconds=1)
    [(code, text)] = why(other_user)
    assert (code, "at most 2 of the runs with the concurrency key 'all' run" in text) == (
        "concurrency_key",
        True,
    )
    assert other.id in text
    assert first.id in text

    other_user.pause()
    assert [code for code, _ in why(other_user)] == ["paused"]
    other_user.resume()
    other.cancel()
    world.advance(seconds=1)
    assert other_user.info().status == "running"


def test_a_batch_that_waits_for_its_rate_says_that_it_gathers_until_then(world: World) -> None:
    world.start(gathered())
    world.advance(seconds=2)
    second = world.start(gathered())
    [(code, text)] = why(second)
    assert (code, "It gathers until " in text) == ("gathering", True)
    world.advance(seconds=2)
    [(code, text), (other, _)] = why(second)
    assert (code, text) == (
        "gathering",
        "It gathers until its rate allows its start: 1 start of at most 10,000 so far.",
    )
    assert other == "rate_limit"
    world.advance(minutes=1)
    assert second.info().status == "completed"
