"""What the web application starts and the worker runs: an order that is charged once somebody has approved it."""

import os

import attrs

from holdfast import Channel, Engine, step, workflow


@attrs.frozen
class Order:
    """What a customer orders."""

    customer: str
    cents: int


@attrs.frozen
class Approval:
    """What somebody says of an order."""

    approved: bool
    by: str


approval = Channel("approval", Approval)


@step
def charge(customer: str, cents: int) -> str:
    return f"{customer} paid {cents / 100:.2f}"


@workflow
async def checkout(order: Order) -> str:
    said = await approval.receive()
    if not said.approved:
        return f"declined by {said.by}"
    return await charge(order.customer, order.cents)


engine = Engine.open(os.environ.get("SHOP_STORE", "sqlite:///shop.db"), workflows=[checkout])
