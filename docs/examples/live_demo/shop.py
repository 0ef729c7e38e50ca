"""The shop: orders come in by themselves, and there is a workflow for each state that a run can wait in."""

import os
import time
from datetime import timedelta
from decimal import Decimal

import attrs

import holdfast
from holdfast import (
    Channel,
    Concurrency,
    Cron,
    Engine,
    Every,
    Gather,
    GiveUp,
    Pipeline,
    Rate,
    Retry,
    Schedule,
    StageContext,
    stage,
    start_child,
    step,
    step_context,
    workflow,
)

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
STORE = os.environ.get("LIVE_DEMO_STORE", "sqlite:///live-demo/shop.db")
CUSTOMERS = ("ann", "bob", "eve")
ITEMS = ("tea", "cup", "pot", "vase", "lamp")


# A pipeline with a map: the items of an order are packed beside each other.


@attrs.frozen
class Order:
    """What a customer orders."""

    customer: str
    items: list[str]


@stage
def check(order: Order) -> list[str]:
    return order.items


@stage(retry=Retry(attempts=3, wait=2 * SECOND))
def pack(ctx: StageContext[None], item: str) -> str:
    for quarter in range(1, 5):
        ctx.progress(quarter, 4, f"packing {item}")
        time.sleep(0.2)
    if item == "vase" and ctx.attempt == 1:
        raise ValueError("the vase broke")  # the second attempt packs another one
    if item == "unicorn":
        raise GiveUp("there are no unicorns")  # the run fails
    ctx.log("packed", item=item)
    return f"{item} in paper"


@stage
def ship(parcels: list[str]) -> str:
    return ", ".join(parcels)


orders = Pipeline("order", input=Order).pipe(check).map(pack).pipe(ship)


# Orders come in every few seconds: a schedule starts a run, which starts child runs.


@workflow
async def traffic() -> list[str]:
    """Place an order for each customer, and wait for the first one."""
    source = holdfast.random()  # it draws the same in each replay
    runs = [
        await start_child(
            orders(Order(customer, [source.choice(ITEMS) for _ in range(3)])),
            attributes={"customer": customer},
            parent_end="abandon",
        )
        for customer in CUSTOMERS
    ]
    return [runs[0].id, await runs[0].result()]


@step
def count_orders(day: str) -> int:
    return len(day)


@workflow
async def report(day: str) -> str:
    return f"{await count_orders(day)} orders"


# A run that waits for a person.


@attrs.frozen
class Approval:
    """What somebody says of a refund."""

    approved: bool
    by: str


approval = Channel("approval", Approval)


@step
def pay_back(cents: int) -> str:
    return f"paid back {cents / 100:.2f}"


@workflow
async def refund(cents: int) -> str:
    said = await approval.receive()
    return f"{await pay_back(cents)}, approved by {said.by}" if said.approved else f"declined by {said.by}"


# A step that fails many times: the run goes on after each wait.


@step(retry=Retry(attempts=10, wait=10 * SECOND, wait_max=MINUTE))
def send_invoice(order: str) -> str:
    if step_context().attempt < 5:
        raise ConnectionError("the mail server does not answer")
    return f"sent the invoice of {order}"


@workflow
async def invoice(order: str) -> str:
    return await send_invoice(order)


# Limits: one export of a customer at a time, one newsletter in a minute, and one index of a document for many starts.


@step
def write_rows(month: str) -> int:
    return len(month)


@workflow(concurrency=Concurrency(by="customer"))
async def export(month: str) -> int:
    rows = await write_rows(month)
    await holdfast.sleep(10 * MINUTE)
    return rows


@step(queue="mail")
def mail(text: str) -> str:
    step_context().ai.record(
        topic="letter.subject", model="small-1", input_tokens=1_200, output_tokens=40, cost=Decimal("0.0014")
    )
    return f"mailed {text}"


@workflow(rate=Rate(1, per=MINUTE))
async def newsletter(text: str) -> str:
    return await mail(text)


@step
def index(document: str) -> str:
    return f"indexed {document}"


@workflow(gather=Gather(by="document", quiet=2 * MINUTE, within=10 * MINUTE))
async def reindex(document: str) -> str:
    return await index(document)


# The code of this workflow has changed, in a way that its open run does not fit: the run is blocked.

price_changed = Channel("price_changed", int)


@step
def read_price(article: str) -> int:
    return len(article)


@step
def check_article(article: str) -> bool:
    return bool(article)


@workflow
async def watch_price(article: str) -> int:
    await check_article(article)  # seed.py has the old code, without this line
    return await read_price(article) + await price_changed.receive()


WORKFLOWS = (orders, traffic, report, refund, invoice, export, newsletter, reindex, watch_price)
SCHEDULES = (
    Schedule("traffic", traffic(), when=Every(15 * SECOND)),
    Schedule("nightly", report("yesterday"), when=Cron("30 2 * * *")),
)
engine = Engine.open(STORE, workflows=WORKFLOWS, schedules=SCHEDULES)
