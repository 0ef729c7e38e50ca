"""A trigger is checked when it is made."""

from datetime import UTC, datetime
from typing import Any

import attrs
import pytest

from holdfast import Pipeline, Topic, Trigger, stage, workflow
from holdfast.ports.errors import DefinitionError, HoldfastError


@attrs.frozen
class Order:
    id: str
    country: str


orders = Topic("orders", Order, keys=("country",))


@workflow
async def ship(order: Order, note: str = "") -> str:
    return order.id + note


@workflow
async def either(order: Order | None) -> None: ...


@workflow
async def two(order: Order, other: Order) -> None: ...


@workflow
async def none() -> None: ...


@workflow
async def number(n: int) -> int:
    return n


@stage
def label(order: Order) -> str:
    return order.id


labels = Pipeline("labels", input=Order).pipe(label)


@pytest.mark.parametrize("taker", [ship, either, labels])
def test_a_workflow_with_one_parameter_takes_the_messages(taker: Any) -> None:
    assert Trigger("t", orders, taker).messages is orders


def test_options_are_those_of_a_start() -> None:
    one = Trigger("t", orders.where(country="nz"), ship, priority=3, attributes={"a": "b"})
    assert one.start_options == {"priority": 3, "attributes": {"a": "b"}}
    assert one.messages.selected == {"country": "nz"}


@pytest.mark.parametrize(
    ("arguments", "options", "wrong"),
    [
        (("", orders, ship), {}, "name is ''"),
        (("/x", orders, ship), {}, "name is '/x'"),
        (("x" * 101, orders, ship), {}, "name is"),
        (("t", "orders", ship), {}, "messages is 'orders'; it must be a topic"),
        (("t", orders, "ship"), {}, "workflow is 'ship'"),
        (("t", orders, ship(Order("1", "nz"))), {}, "which is not called"),
        (
            ("t", orders, two),
            {},
            "one parameter without a default, which takes the message; it has order, other",
        ),
        (("t", orders, none), {}, "it has none"),
        (("t", orders, number), {}, "are Order, and the workflow 'number' takes int"),
        (("t", orders, ship), {"since": datetime(2026, 1, 1)}, "since is"),  # noqa: DTZ001  # that is wrong
        (("t", orders, ship), {"priority": "high"}, "priority"),
        (("t", orders, ship), {"queue": ""}, "queue"),
        (("t", orders, ship), {"attributes": {"a": 1}}, "attributes"),
        (("t", orders, ship), {"concurrency": 3}, "concurrency"),
    ],
)
def test_what_is_wrong_is_refused_with_what_is_wanted(
    arguments: tuple[Any, ...], options: dict[str, Any], wrong: str
) -> None:
    with pytest.raises(HoldfastError, match=wrong) as refused:
        Trigger(*arguments, **options)
    assert (
        isinstance(refused.value, DefinitionError)
        or "start" in str(refused.value)
        or "Trigger" in str(refused.value)
    )


def test_an_aware_instant_is_taken() -> None:
    assert Trigger("t", orders, ship, since=datetime(2026, 1, 1, tzinfo=UTC)).since is not None
