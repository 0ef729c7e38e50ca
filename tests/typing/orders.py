"""An order as a durable function: what both type checkers must infer of it and its steps."""

import asyncio
from collections.abc import Coroutine
from datetime import datetime, timedelta
from random import Random
from typing import Any, Literal, TypedDict, assert_type
from uuid import UUID

import attrs
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from holdfast import (
    Channel,
    Engine,
    Retry,
    RunHandle,
    SyncEngine,
    SyncRunHandle,
    compensate_with,
    now,
    patched,
    random,
    select,
    side_effect,
    sleep,
    sleep_until,
    start_child,
    step,
    step_context,
    uuid4,
    workflow,
)
from holdfast.kernel.authoring.functions import WorkflowDecorator
from holdfast.kernel.authoring.steps import StepDecorator
from holdfast.workflows import Call, ChildRun, Inbox, Signal, Step, Workflow, WorkflowDefinition


@attrs.frozen
class Order:
    id: str
    cents: int


class Receipt(TypedDict):
    number: str


patient = step(retry=Retry(attempts=5), timeout=timedelta(seconds=30))
assert_type(patient, StepDecorator)
assert_type(patient(name="careful"), StepDecorator)


@step.in_transaction
def book(db: Connection, order: Order, *, seats: int = 1) -> str:
    return f"{order}{seats}{db}"


@step.in_transaction
async def book_async(db: AsyncSession, order: Order) -> str:
    return f"{order}{db}"


@patient.in_transaction
def book_in_session(db: Session, order: Order) -> Receipt:
    return {"number": f"{order}{db}"}


@step(heartbeat_timeout=timedelta(minutes=1))
def walk(pages: int) -> int:
    assert_type(step_context().last_heartbeat(int), int | None)
    assert_type(step_context().last_heartbeat(Order, default="none"), Order | str)
    step_context().heartbeat({"page": 3})
    return pages


async def booked(order: Order) -> None:
    assert_type(await book(order, seats=2), str)
    assert_type(await book_async(order), str)
    assert_type(await book_in_session(order), Receipt)
    assert_type(await book.options(retry=Retry(attempts=2))(order), str)


@patient
async def charge(order: Order, *, currency: Literal["EUR", "USD"] = "EUR") -> Receipt:
    context = step_context()
    assert_type(context.attempt, int)
    assert_type(context.idempotency_key, str)
    assert_type(context.deadline, datetime | None)
    return {"number": f"{order.id}-{currency}"}


@step
def pack(order: Order, /, *boxes: int, **labels: str) -> list[str]:
    return [*map(str, boxes), *labels, order.id]


@step(name="mail-it")
async def mail(to: str, text: str = "Hello") -> None: ...


@step
def look_up(key: str) -> dict[str, Any]:
    return {key: 1}


@step
def may_be(key: str | None) -> int | None:
    return None if key is None else len(key)


# steps are awaited, whatever their bodies are
async def of_steps(order: Order) -> None:
    as_any_other: Coroutine[Any, Any, Receipt] = charge(order)
    assert_type(await as_any_other, Receipt)
    assert_type(await charge(order, currency="USD"), Receipt)
    assert_type(await charge(order=order), Receipt)
    assert_type(await pack(order, 1, 2, colour="red"), list[str])
    assert_type(await look_up("x"), dict[str, Any])
    assert_type(await may_be(None), int | None)
    assert_type(await charge.options(retry=Retry(attempts=1))(order, currency="EUR"), Receipt)
    both = await asyncio.gather(charge(order), pack(order))
    assert_type(both, tuple[Receipt, list[str]])
    async with asyncio.TaskGroup() as group:
        task = group.create_task(charge(order))
    assert_type(task.result(), Receipt)


steps: list[Step[..., object]] = [charge, pack, mail, look_up, may_be]


@workflow
async def fulfil(order: Order, *, express: bool = False) -> list[str]:
    assert_type(now(), datetime)
    assert_type(uuid4(), UUID)
    await sleep(timedelta(days=3))
    await sleep_until(now() + timedelta(days=3))
    receipt = await charge(order)
    return [receipt["number"], *(await pack(order) if express else ())]


@workflow(
    version="2", name="nightly", queue="q", priority=1, deadline=60, retry=Retry(attempts=None, total_time=9)
)
async def at_night() -> int | None:
    return await may_be("x")


# calls of functions are values, with their keyword arguments
assert_type(workflow, WorkflowDecorator)
assert_type(fulfil(Order("a", 1)), Call[list[str]])
assert_type(fulfil(order=Order("a", 1), express=True), Call[list[str]])
assert_type(at_night(), Call[int | None])
assert_type(fulfil(Order("a", 1)).definition, WorkflowDefinition[list[str]])
in_full: Workflow[[], int | None] = at_night
definitions: list[WorkflowDefinition[object]] = [fulfil, at_night]


async def of_engines(engine: Engine) -> None:
    assert_type(await engine.run(fulfil(Order("a", 1), express=True), id="a"), list[str])
    run = await engine.start(fulfil(Order("a", 1)), idempotency_key="a")
    assert_type(run, RunHandle[list[str]])
    assert_type(await run.result(), list[str])
    assert_type(engine.handle(at_night, "a"), RunHandle[int | None])


def of_sync_engines(runs: SyncEngine) -> None:
    assert_type(runs.run(at_night()), int | None)
    assert_type(runs.start(fulfil(Order("a", 1))), SyncRunHandle[list[str]])


# messages
@attrs.frozen
class Decision:
    approved: bool


approval = Channel("approval", Decision)
withdrawal = Channel("withdrawal", str)
maybe = Channel("maybe", int | None)
assert_type(approval, Channel[Decision])
assert_type(maybe, Channel[int | None])
assert_type(approval(Decision(True)), Signal)
inboxes: list[Inbox[object]] = [approval, withdrawal]


@workflow
async def listen(customer: str) -> str:
    assert_type(await approval.receive(), Decision)
    assert_type(await withdrawal.receive(timeout=timedelta(days=1)), str)
    assert_type(await select(approval, withdrawal, timeout=60), Decision | str)
    assert_type(await select(approval, withdrawal, maybe), Decision | str | int | None)
    in_a_wider_one: Decision | str | None = await select(approval, withdrawal)
    async for decision in approval:
        assert_type(decision, Decision)
        break
    assert_type(random(), Random)
    assert_type(patched("x"), bool)
    assert_type(await side_effect(lambda: 3), int)
    return f"{in_a_wider_one} {customer}"


async def of_signals(engine: Engine) -> None:
    run = await engine.start(listen("x"), signals=[approval(Decision(True)), withdrawal("x")])
    await run.signal(approval(Decision(True)), idempotency_key="k")


# what takes a step back
@charge.compensate
async def refund(receipt: Receipt, order: Order) -> None: ...


@pack.compensate
def unpack(parcel: list[str] | None) -> None: ...


as_step: Step[[Receipt, Order], None] = refund
charge.options(name="again").compensate(refund)


@workflow
async def buys(order: Order) -> None:
    compensate_with(mail, "ann", text="sorry")
    await refund({"number": "1"}, order)


# children
@workflow
async def parent(order: Order) -> int:
    assert_type(await fulfil(order, express=True), list[str])
    both = await asyncio.gather(fulfil(order), at_night())
    assert_type(both, tuple[list[str], int | None])
    child = await start_child(fulfil(order), id="x", parent_end="abandon")
    await start_child(at_night(), queue="q", priority=1, attributes={"a": "b"}, start_at=now(), deadline=60)
    assert_type(child, ChildRun[list[str]])
    assert_type(await child.result(), list[str])
    return 1
