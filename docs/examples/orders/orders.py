"""An order: charge it, have it approved, ship it, and ask after thirty days. What fails is taken back.

In this folder, with the last two lines in a second terminal:

holdfast worker orders:engine
holdfast run start orders:engine fulfil '{"order": {"id": "7", "cents": 120000, "address": "Rome"}}' --id order-7
holdfast run signal orders:engine order-7 approval '{"approved": true, "by": "ann"}'
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

import holdfast
from holdfast import (
    Channel,
    Engine,
    Retry,
    compensate_with,
    select,
    start_child,
    step,
    step_context,
    workflow,
)


@dataclass(frozen=True)
class Order:
    id: str
    cents: int
    address: str


@dataclass(frozen=True)
class Receipt:
    charge: str


@dataclass(frozen=True)
class Parcel:
    tracking: str


@dataclass(frozen=True)
class Decision:
    approved: bool
    by: str


class CardDeclinedError(Exception):
    """The bank said no."""


class OrderRefusedError(Exception):
    """We, or the customer, said no."""


APPROVED_FROM = 100_000
"""From how many cents on somebody has to approve an order."""
PATIENCE = timedelta(days=3)
"""How long we wait for that."""

approval = Channel("approval", Decision)
withdrawal = Channel("withdrawal", str)


@step(retry=Retry(attempts=5, give_up_on=(CardDeclinedError,)), timeout=timedelta(seconds=30))
async def charge(order: Order, *, currency: str = "EUR") -> Receipt:
    """Take the money. The bank takes our key, so it does so once, however often this is called."""
    key = step_context().idempotency_key
    print(f"charged {order.cents} {currency} under {key}")
    return Receipt(f"{order.id}-{currency}")


@charge.compensate
@step(retry=Retry(attempts=20, wait=timedelta(minutes=1)))
async def refund(receipt: Receipt | None, order: Order) -> None:
    """Give it back. Without a receipt nobody knows whether it was taken: the bank is asked by the order."""
    print(f"refunded {receipt.charge if receipt else f'order {order.id}, if it was charged'}")


@step
def pack(order: Order) -> Parcel:  # not async: it has a thread
    """Put it in a box."""
    return Parcel(f"{order.id} to {order.address}")


@step
async def mail(order: Order, text: str) -> None:
    """Write to the customer."""
    print(f"mail about {order.id}: {text}")


@workflow
async def remind(order: Order, after: timedelta) -> None:
    """Ask, after a while. It is a run of its own: the order is done long before."""
    await holdfast.sleep(after)
    await mail(order, "How do you like it?")


@workflow
async def fulfil(order: Order) -> Parcel:
    """Carry out an order. What it has done is taken back if it fails, is refused or cancelled."""
    await charge(order)
    compensate_with(mail, order, "We are sorry.")

    if order.cents >= APPROVED_FROM:
        await ask(order)

    parcel, _ = await asyncio.gather(pack(order), mail(order, "We are packing!"))
    await start_child(remind(order, timedelta(days=30)), parent_end="abandon")
    return parcel


async def ask(order: Order) -> None:
    """Wait until somebody has approved the order. OrderRefusedError if nobody does, or the customer withdraws it."""
    try:
        said = await select(approval, withdrawal, timeout=PATIENCE)
    except TimeoutError:
        raise OrderRefusedError(f"nobody has approved order {order.id}") from None
    match said:
        case Decision(approved=True):
            return
        case Decision(by=who):
            raise OrderRefusedError(f"{who} refused order {order.id}")
        case reason:
            raise OrderRefusedError(f"order {order.id} was withdrawn: {reason}")


engine = Engine.open("sqlite:///orders.db", workflows=[fulfil, remind])
