"""Workflows whose inputs and messages have many shapes."""

import asyncio
from datetime import datetime, timedelta
from enum import Enum

import attrs

from holdfast import Channel, Pipeline, Retry, expose, stage, step, update, workflow
from tests.integration.http.programs import CANARY, Order


class Size(Enum):
    """Sizes."""

    SMALL = "small"
    LARGE = "large"


@attrs.frozen
class Customer:
    """A part of an input."""

    name: str
    is_new: bool = False
    tags: list[str] = attrs.field(factory=list[str])


@attrs.frozen
class Parcel:
    """An input with many kinds of fields."""

    customer: Customer
    number: int
    is_paid: bool
    weight: float | None = None
    due: datetime | None = None
    size: Size = Size.SMALL
    note: str = ""
    backup: Customer | None = None


@attrs.frozen
class Verdict:
    """A message with one boolean."""

    approved: bool


@attrs.frozen
class Remark:
    """A message."""

    text: str
    stars: int = 0


verdict = Channel("verdict", Verdict)
urgent = Channel("urgent", bool)
remark = Channel("remark", Remark)


@stage
def weigh(parcel: Parcel) -> list[int]:
    return list(range(parcel.number))


@stage(retry=Retry(attempts=1))
def pack(number: int) -> int:
    if number == 13:
        raise ValueError(CANARY)
    return number


@stage
def total(numbers: list[int]) -> int:
    return sum(numbers)


@stage
def label(number: int) -> int:
    return number


@stage
def bill(number: int) -> int:
    return number


shipped = Pipeline("shipped", input=Parcel).pipe(weigh).map(pack).pipe(total).parallel(label, bill)


@step
def reserve(text: str) -> str:
    return f"{CANARY} {text}"


@step(retry=Retry(attempts=1))
def pay(text: str) -> str:
    raise ValueError(CANARY)


@workflow
async def bought(text: str) -> str:
    await reserve(text)
    await reserve(text)
    return await pay(text)


@workflow
async def judged(order: Order) -> str:
    """Wait for messages of each kind."""
    found, _ = await asyncio.gather(verdict.receive(), asyncio.sleep(0))
    if found.approved:
        await urgent.receive()
        await remark.receive(timeout=timedelta(days=1))
    return f"{order.number} {found.approved}"


class Shelf:
    """An object that a function exposes, with updates of several shapes."""

    def __init__(self) -> None:
        self.titles: list[str] = []

    @update
    def put(self, title: str, copies: int = 1, size: Size = Size.SMALL, others: tuple[str, ...] = ()) -> int:
        self.titles += [title, *others] * copies
        return len(self.titles)

    @update
    def clear(self) -> None:
        self.titles.clear()


@workflow
async def stocked() -> list[str]:
    shelf = expose(Shelf())
    await urgent.receive()
    return shelf.titles


PROGRAMS = (shipped, bought, judged, stocked)
