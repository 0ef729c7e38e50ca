"""`attributes_from`: runs get attributes from their input, whoever starts them."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import attrs
import pytest

from holdfast import Every, Gather, Pipeline, Rate, Schedule, stage, start_child, workflow
from holdfast.errors import DefinitionError, InvalidArgumentError
from holdfast.testing import World

MINUTE = timedelta(minutes=1)


@attrs.frozen
class Order:
    id: str
    tenant: str | None = None
    lines: tuple[str, ...] = ()


@workflow(
    rate=Rate(1, per=MINUTE, by="tenant"), attributes_from={"tenant": "order.tenant", "copies": "copies"}
)
async def pay(order: Order, copies: int = 1) -> str:
    return order.id


@stage
def ship(order: Order) -> str:
    return order.id


parcels = Pipeline("parcels", input=Order, attributes_from=["tenant"]).pipe(ship)
nested = Pipeline("nested", input=Order).pipe(stage(parcels))


@workflow
async def parent(order: Order) -> None:
    await start_child(pay(order), id="inherits")
    await start_child(pay(order), id="has none of its parent", attributes={})
    await start_child(parcels(order), id="is given one", attributes={"tenant": "own"})


@workflow
async def parent_of_long(text: str) -> str:
    try:
        await start_child(named(text))
    except InvalidArgumentError as error:
        return str(error)
    return "started"


@workflow(attributes_from=["text"])
async def named(text: str) -> str:
    return text


@workflow(attributes_from=["tenant"], gather=Gather(by="tenant", within=MINUTE, keep="last"))
async def reindex(tenant: str) -> str:
    return tenant


@workflow(attributes_from=["lines"])
async def listed(lines: list[str]) -> int:
    return len(lines)


@pytest.fixture
def world() -> Iterator[World]:
    with World([pay, parcels, nested, parent, reindex, listed, named, parent_of_long]) as world:
        yield world


def test_a_rate_goes_by_an_argument(world: World) -> None:
    runs = [world.start(pay(Order(*order))) for order in (("1", "a"), ("2", "a"), ("3", "b"))]
    assert [run.info().status for run in runs] == ["running", "pending", "running"]
    assert runs[0].info().attributes == {"tenant": "a", "copies": "1"}
    (found,) = world.engine.sync.runs(attributes={"tenant": "b"})
    assert found.id == runs[2].id


def test_an_attribute_of_the_start_comes_first(world: World) -> None:
    run = world.start(pay(Order("1", "a")), attributes={"tenant": "z", "of": "start"})
    assert run.info().attributes == {"tenant": "z", "copies": "1", "of": "start"}


def test_child_runs_add_them_to_those_of_their_parent(world: World) -> None:
    world.start(parent(Order("1", "a")), attributes={"of": "parent"})
    world.run_until_quiet()
    found = {run.id: run.attributes for run in world.engine.sync.runs()}
    assert found["inherits"] == {"of": "parent", "tenant": "a", "copies": "1"}
    assert found["has none of its parent"] == {"tenant": "a", "copies": "1"}
    assert found["is given one"] == {"tenant": "own"}


def test_a_stage_that_is_a_workflow_has_them_too(world: World) -> None:
    assert world.run(nested(Order("1", "a")), attributes={"of": "parent"}) == "1"
    (found,) = world.engine.sync.runs(workflow=parcels)
    assert found.attributes == {"of": "parent", "tenant": "a"}


def test_schedules_and_starts_of_many_have_them(world: World) -> None:
    engine = world.engine.sync
    engine.create_schedule(Schedule("hourly", parcels(Order("1", "a")), when=Every(timedelta(hours=1))))
    engine.start_all([parcels(Order("2", "b")), parcels(Order("3"))])
    world.advance(timedelta(hours=2))
    found = [run.attributes for run in engine.runs(workflow=parcels)]
    assert {"tenant": "a"} in found
    assert sorted(map(len, found)) == sorted([0, *[1] * (len(found) - 1)])


def test_starts_are_gathered_by_an_argument(world: World) -> None:
    engine = world.engine.sync
    first, second, other = (engine.start(reindex(tenant)) for tenant in ("a", "a", "b"))
    assert first.id == second.id != other.id


def test_a_value_that_is_no_text_is_refused(world: World) -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"'lines' of the input, which must be a text.*it is a list"
    ):
        world.start(listed(["a"]))
    assert not list(world.engine.sync.runs())


@pytest.mark.parametrize(
    "value", ["tenant", [1], {"a": ""}, {"a": "b..c"}, {1: "b"}, [""], [*map(str, range(21))]]
)
def test_what_is_no_place_is_refused(value: object) -> None:
    options: dict[str, Any] = {"attributes_from": value}
    with pytest.raises(DefinitionError, match=r"attributes_from is .*it must be a list of at most 20 fields"):
        Pipeline("p", input=Order, **options)


def test_a_parameter_that_the_function_lacks_is_refused() -> None:
    with pytest.raises(DefinitionError, match="the parameter 'tenant', which the function does not have"):

        @workflow(attributes_from={"tenant": "tenant.id"})
        async def lost(order: str) -> str:
            return order


def test_a_value_that_is_too_long_is_an_error_of_the_call_and_not_of_the_whole_parent(world: World) -> None:
    assert "has 70,000 characters; at most 1,000" in world.run(parent_of_long("x" * 70_000))
