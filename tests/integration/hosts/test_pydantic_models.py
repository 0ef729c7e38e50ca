"""Pipelines with pydantic models as inputs, outputs and configs."""

from datetime import timedelta
from pathlib import Path

import attrs
import pytest
from pydantic import BaseModel, Field

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring import Pipeline, StageContext, stage
from holdfast.ports.errors import InvalidValueError, RunFailedError

SOON = timedelta(minutes=2)


class Line(BaseModel):
    name: str
    price: float = Field(gt=0, alias="unitPrice")


class Order(BaseModel):
    id: str
    lines: list[Line]


class Discount(BaseModel):
    percent: int = Field(default=0, ge=0, le=100)


@attrs.frozen
class Bill:
    order: Order
    total: float


@stage
def lines(order: Order) -> list[Line]:
    return order.lines


@stage
def reduce(ctx: StageContext[Discount], line: Line) -> Line:
    return line.model_copy(update={"price": line.price * (100 - ctx.config.percent) / 100})


@stage
async def bill(ctx: StageContext, reduced: list[Line]) -> Bill:
    order = Order(id=ctx.run_id, lines=reduced)
    return Bill(order, sum(line.price for line in reduced))


ORDERS = Pipeline("orders", input=Order).pipe(lines).map(reduce.configure(Discount(percent=50))).pipe(bill)
FREE = Pipeline("free", input=Order).pipe(lines).map(reduce.configure(Discount(percent=100)))
PLAIN = Pipeline("plain", input=Order).pipe(lines).map(reduce)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/holdfast.db"


def order(*prices: float) -> Order:
    return Order(id="a", lines=[Line(name="tea", unitPrice=price) for price in prices])


@pytest.mark.slow
def test_models_go_through_a_pipeline_and_its_store(url: str) -> None:
    with Engine.open(url, workflows=[ORDERS, PLAIN]).sync as engine, Worker(engine):
        made = engine.start(ORDERS(order(3, 5)), id="order-1").result(timeout=SOON)
        assert engine.run(PLAIN(order(3))) == order(3).lines

    expected = Order(id="order-1", lines=order(1.5, 2.5).lines)
    assert made == Bill(expected, 4.0)


@pytest.mark.slow
def test_what_a_body_gives_is_held_to_its_model(url: str) -> None:
    with (
        Engine.open(url, workflows=[FREE]).sync as engine,
        Worker(engine),
        pytest.raises(RunFailedError, match=r"\$\.price: Input should be greater than 0"),
    ):
        engine.run(FREE(order(3)))


@pytest.mark.slow
def test_an_input_that_is_no_longer_its_model_is_refused_before_anything_is_stored(url: str) -> None:
    changed = order(3, 5)
    changed.lines[1].price = -1

    with Engine.open(url, workflows=[ORDERS]).sync as engine:
        with pytest.raises(InvalidValueError, match=r"\$\.lines\[1\]\.price: Input should be greater than 0"):
            engine.start(ORDERS(changed))
        assert not list(engine.runs())
