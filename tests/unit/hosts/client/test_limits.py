"""`engine.limits`: limits are read and changed while the system runs."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import attrs
import pytest

from holdfast import Concurrency, Engine, Pipeline, Rate, stage
from holdfast.client import Actor, LimitInfo
from holdfast.errors import InvalidArgumentError, InvalidCommandError
from holdfast.testing import World

MINUTE = timedelta(minutes=1)
ANN = Actor("user", "ann")


@stage(max_concurrency=1, queue="llm")
def translate(page: str) -> str:
    return page.upper()


@stage(rate_limit=Rate(1, per=MINUTE, name="model"))
def classify(page: str) -> str:
    return page


@stage
def plain(page: str) -> str:
    return page


books = Pipeline("books", input=str).pipe(translate)
letters = Pipeline("letters", input=str).pipe(classify)
notes = Pipeline("notes", input=str).pipe(plain)


@pytest.fixture
def world() -> Iterator[World]:
    with World([books, letters, notes]) as world:
        yield world


def test_a_limit_is_set_shown_and_cleared(world: World) -> None:
    limits = world.engine.acting_as(ANN).sync.limits
    at = world.now
    info = limits.set("stage:books/translate", slots=20, reason="big import")
    assert info == LimitInfo(
        name="stage:books/translate", slots=20, is_set=True, set_at=at, actor=ANN, reason="big import"
    )
    assert limits.list() == (info,)
    assert limits.get("stage:books/translate") == info

    cleared = limits.clear("stage:books/translate", actor=Actor("user", "bob"))
    assert (cleared.slots, cleared.is_set, cleared.actor) == (None, False, Actor("user", "bob"))
    assert limits.list() == ()


def test_what_waits_is_listed_with_what_the_plan_says(world: World) -> None:
    engine = world.engine.sync
    for number in range(3):
        engine.start(books(f"page {number}"))
    (info,) = engine.limits.list()
    assert (info.name, info.slots, info.planned_slots) == ("stage:books/translate", 1, 1)
    assert (info.under_way, info.waiting, info.is_set) == (1, 2, False)
    assert info.waiting_since is not None

    raised = engine.limits.set("stage:books/translate", slots=2)
    assert (raised.slots, raised.planned_slots, raised.under_way, raised.waiting) == (2, 1, 2, 1)


def test_runs_of_a_key(world: World) -> None:
    engine = world.engine.sync
    for number in range(3):
        engine.start(notes("x"), id=f"run-{number}", concurrency=Concurrency("customer Ann", limit=1))
    assert [one.name for one in engine.limits.list()] == ["run:customer Ann"]
    info = engine.limits.set("run:customer Ann", slots=3)
    assert (info.under_way, info.waiting, info.planned_slots) == (3, 0, 1)


def test_a_rate_by_its_name(world: World) -> None:
    engine = world.engine.sync
    for _ in range(3):
        engine.start(letters("x"))
    world.advance(seconds=1)
    info = engine.limits.get("rate:model")
    assert (info.rate_limit, info.rate_period, info.started, info.waiting) == (1, MINUTE, 1, 2)
    assert info.next_turn is not None

    info = engine.limits.set("rate:model", rate=Rate(5, per=MINUTE), reason="faster")
    assert (info.rate_limit, info.planned_rate_limit, info.waiting, info.next_turn) == (5, 1, 0, None)


def test_a_paused_queue(world: World) -> None:
    engine = world.engine.sync
    run = engine.start(books("page"))
    info = engine.limits.set("queue:llm", paused=True, reason="deploy")
    assert (info.is_paused, info.waiting, info.under_way) == (True, 1, 0)
    world.advance(minutes=5)
    assert run.info().status == "running"
    (reason,) = run.why()
    assert reason.code == "queue_paused"
    assert "the queue 'llm' is paused, since 5m ago" in reason.text
    assert "because 'deploy'; `holdfast limit clear queue:llm` unpauses it" in reason.text

    assert not engine.limits.set("queue:llm", paused=False).is_paused
    world.advance(seconds=1)
    assert run.info().status == "completed"


def test_why_names_what_was_set_and_what_the_plan_says(world: World) -> None:
    engine = world.engine.acting_as(ANN).sync
    engine.limits.set("rate:model", rate=Rate(2, per=MINUTE), reason="provider is slow")
    engine.limits.set("stage:books/translate", slots=0)
    engine.limits.set("run:k", slots=0)
    runs = [engine.start(letters("x")) for _ in range(4)]
    world.advance(seconds=1)
    texts = " ".join(reason.text for run in runs for reason in run.why())
    assert "the rate limit of 2 per 1m" in texts
    assert "The limit of rate:model is 2 in 1m, set by user ann 1.0s ago" in texts
    assert "because 'provider is slow'; the plan says 1." in texts

    (reason,) = engine.start(books("page")).why()
    assert reason.code == "concurrency_limit"
    assert "as no bodies of this stage may start" in reason.text
    assert "The limit of stage:books/translate is 0, set by user ann" in reason.text
    assert reason.text.endswith("the plan says 1.")

    (reason,) = engine.start(notes("x"), concurrency=Concurrency("k", limit=3)).why()
    assert "at most 0 of the runs" in reason.text
    assert reason.text.endswith("; the plan says 3.")


def test_doctor_says_that_a_queue_is_paused_and_no_slot_exceeded(world: World) -> None:
    engine = world.engine.sync
    engine.limits.set("stage:books/translate", slots=3)
    for _ in range(3):
        engine.start(books("page"))
    engine.limits.clear("stage:books/translate")
    assert engine.doctor().findings == ()
    engine.limits.set("queue:llm", paused=True)
    (finding,) = engine.doctor().findings
    assert (finding.code, finding.key) == ("queue_paused", "queue:llm")
    assert "the queue 'llm' is paused" in finding.text
    assert finding.text.endswith("3 jobs wait")


@pytest.mark.parametrize(
    ("name", "values", "says"),
    [
        ("stage:books/ship", {"slots": 1}, "has no stage 'ship'; it has 'translate'"),
        ("stage:notes/plain", {"slots": 1}, "give the stage max_concurrency"),
        ("stage:letters/classify", {"rate": Rate(1, per=MINUTE)}, "set rate:model"),
        ("stage:books/translate", {"rate": Rate(1, per=MINUTE)}, "give the stage rate_limit"),
        ("rate:model", {"rate": Rate(1, per=MINUTE, name="model")}, "rate:model/acme"),
        ("rate:model", {"rate": 300}, "Rate"),
        ("run:k", {"slots": -1}, "slots"),
        ("run:k", {"slots": True}, "slots"),
        ("queue:llm", {"paused": 1}, "paused"),
        (7, {"slots": 1}, "name"),
    ],
)
def test_wrong_arguments(world: World, name: str, values: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidArgumentError, match=says):
        world.engine.sync.limits.set(name, **values)
    assert world.engine.sync.limits.list() == ()


def test_wrong_names(world: World) -> None:
    limits = world.engine.sync.limits
    for call in (limits.get, limits.clear):
        with pytest.raises(InvalidCommandError, match="write one of"):
            call("model")
    with pytest.raises(InvalidCommandError, match="only queues can be paused"):
        limits.set("run:k", paused=True)


def test_a_limit_of_code_that_this_engine_lacks_is_set(world: World) -> None:
    assert world.engine.sync.limits.set("stage:elsewhere/translate", slots=2).is_set


@pytest.mark.anyio
async def test_async_code(tmp_path: Any) -> None:
    async with Engine.open(f"sqlite:///{tmp_path}/x.db", workflows=[books]) as engine:
        info = await engine.limits.set("queue:llm", paused=True)
        assert await engine.limits.list() == (info,)
        assert attrs.evolve(info) == await engine.limits.get("queue:llm")
        assert not (await engine.limits.clear("queue:llm")).is_set
