"""Rates of starts as programs see them: options, errors, `why` and `engine.limits`."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Engine, Every, Pipeline, Rate, Schedule, stage, start_child, step, workflow
from holdfast.errors import (
    ChildRefusedError,
    DefinitionError,
    InvalidArgumentError,
    InvalidCommandError,
    RateExceededError,
)
from holdfast.testing import World

MINUTE = timedelta(minutes=1)
ANY: dict[str, dict[str, Any]] = {"rate": {"rate": 5}, "over": {"over": "drop"}, "units": {"units": 5}}


@workflow(rate=Rate(2, per=MINUTE, by="tenant"))
async def mail(text: str) -> str:
    return text.upper()


@workflow(rate=Rate(1, per=MINUTE, over="refuse"))
async def report(text: str) -> str:
    return text


@workflow
async def parent(text: str) -> str:
    handle = await start_child(report(text), id=f"report {text}")
    try:
        await start_child(report(text), id=f"report {text} again")
    except RateExceededError as error:
        return f"{await handle.result()}: {error.name}"
    return "both"


@workflow(rate=Rate(10, per=MINUTE, units="size"))
async def sized(text: str) -> str:
    return text


@workflow
async def parent_of_sized(text: str) -> str:
    try:
        await start_child(sized(text))
    except ChildRefusedError as error:
        return str(error)
    return "started"


@stage
def load(text: str) -> str:
    return text


imports = Pipeline("imports", input=str, rate=Rate(10, per=MINUTE, units="size")).pipe(load)


@pytest.fixture
def world() -> Iterator[World]:
    with World([mail, report, parent, sized, parent_of_sized, imports]) as world:
        yield world


def test_what_is_over_the_rate_starts_once_it_fits(world: World) -> None:
    began = world.now
    runs = [world.start(mail(str(number)), attributes={"tenant": "ann"}) for number in range(5)]
    other = world.start(mail("bob"), attributes={"tenant": "bob"})
    assert [run.info().status for run in (*runs, other)] == [*["running"] * 2, *["pending"] * 3, "running"]
    (reason,) = runs[3].why()
    assert (reason.code, reason.until) == ("rate_limit", None)
    assert "waits for the rate of starts run-rate:mail/ann: 2 of 2 in 1m are used" in reason.text
    assert "1 run is before it" in reason.text
    (reason,) = runs[2].why()
    assert (reason.until, "It may start in 1m" in reason.text) == (began + MINUTE, True)
    assert [run.result() for run in runs] == list("01234")
    assert world.now - began == 2 * MINUTE


def test_a_refused_start_says_when_it_fits(world: World) -> None:
    began = world.now
    world.start(report("a"))
    with pytest.raises(
        RateExceededError, match="run-rate:report is used up: 1 of 1 units in any 60 s count"
    ) as caught:
        world.start(report("b"))
    assert caught.value.name == "run-rate:report"
    fits_at = datetime.fromtimestamp((caught.value.fits_at or 0) / 1_000_000, UTC)
    assert abs(fits_at - began - MINUTE) < timedelta(seconds=1)


def test_a_child_run_that_is_refused_raises_in_its_parent(world: World) -> None:
    assert world.run(parent("x")) == "x: None"


def test_a_child_run_whose_inherited_attribute_is_not_a_number_of_units_raises_in_its_parent(
    world: World,
) -> None:
    message = "the attribute 'size', which says how many units the run costs, is 'large'"
    assert message in world.run(parent_of_sized("x"), attributes={"size": "large"})


def test_a_start_costs_its_units(world: World) -> None:
    first = world.start(imports("a"), attributes={"size": "8"})
    second = world.start(imports("b"), units=3)
    third = world.start(imports("c"), rate=Rate(1, per=MINUTE, name="other"))
    assert [run.info().status for run in (first, second, third)] == ["running", "pending", "running"]
    assert "It costs 3." in second.why()[0].text
    with pytest.raises(InvalidCommandError, match="units is 11; it must be from 1 to 10"):
        world.start(imports("d"), units=11)


def test_a_rate_is_read_and_changed_while_runs_wait_for_it(world: World) -> None:
    runs = [world.start(mail(str(number)), attributes={"tenant": "ann"}) for number in range(4)]
    (limit,) = world.engine.sync.limits.list()
    assert (limit.name, limit.rate_limit, limit.rate_period) == ("run-rate:mail/ann", 2, MINUTE)
    assert (limit.started, limit.waiting, limit.slots) == (2, 2, None)
    assert limit.next_turn is not None

    changed = world.engine.sync.limits.set("run-rate:mail", rate=Rate(3, per=MINUTE), reason="busy")
    assert (changed.is_set, changed.started) == (True, 3)
    assert [run.info().status for run in runs] == [*["running"] * 3, "pending"]
    text = runs[3].why()[0].text
    assert "3 of 3 in 1m are used" in text
    assert "The limit of run-rate:mail is 3 in 1m, set" in text
    assert "busy" in text


def test_a_schedule_skips_a_time_that_its_rate_refuses() -> None:
    with World([report]) as world:
        often = Schedule("reports", report("b"), when=Every(timedelta(seconds=40)), overlap="allow")
        schedule = world.engine.sync.create_schedule(often)
        world.advance(timedelta(minutes=5))
        info = schedule.info()
    assert (info.runs_started, info.times_skipped) == (4, 3)


@pytest.mark.parametrize(
    ("define", "what"),
    [
        (lambda: stage(rate_limit=Rate(1, per=1, units="x"))(lambda: 1), "without units and over"),
        (
            lambda: step(queue="q", rate_limit=Rate(1, per=1, over="refuse"))(lambda: 1),
            "without units and over",
        ),
        (lambda: Pipeline("p", rate_limit=Rate(1, per=1, units="x")), "without units and over"),
        (lambda: Pipeline("p", **ANY["rate"]), r"rate is 5; it must be a Rate\(...\)"),
        (lambda: Rate(1, per=1, **ANY["over"]), "it must be 'wait' or 'refuse'"),
        (lambda: Rate(1, per=1, **ANY["units"]), "units is 5; it must be the name of an attribute"),
    ],
)
def test_a_rate_that_means_nothing_is_refused(define: Any, what: str) -> None:
    with pytest.raises(DefinitionError, match=what):
        define()


@pytest.mark.parametrize(("option", "value"), [("units", 0), ("units", True), ("rate", "5/1m")])
def test_a_start_checks_its_rate(world: World, option: str, value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=option):
        world.start(mail("a"), **{option: value})


def test_engines_are_opened_with_such_workflows() -> None:
    with Engine.open("memory://", workflows=[mail]).sync as engine:
        assert engine.start(mail("a")).info().status == "running"
