"""Durable functions that must not type-check, as `wrong.py` for pipelines. This file is only read, never run."""

from datetime import timedelta

from holdfast import (
    Channel,
    Engine,
    Pipeline,
    Retry,
    compensate_with,
    now,
    select,
    sleep,
    sleep_until,
    start_child,
    step,
    workflow,
)
from tests.typing.orders import (
    Decision,
    Order,
    Receipt,
    approval,
    at_night,
    book,
    charge,
    fulfil,
    mail,
    pack,
    withdrawal,
)

ORDER = Order("a", 1)


# steps
@workflow
async def wrong_calls(order: Order) -> str:
    await charge("a")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await charge(order, "USD")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await charge(order, currency="GBP")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await charge(order, curency="USD")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await charge()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await pack(order=order)  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportCallIssue]
    await pack(order, "1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await pack(order, colour=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    charge(order)  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
    mail("ann")  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
    number: int = await pack(order)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    receipt: Receipt = charge(order)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    print(number, receipt)
    return await charge.options(retry=Retry())(order)  # type: ignore[return-value]  # pyright: ignore[reportReturnType]


charge.options(retries=Retry())  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
charge.options(timeout="30")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
step(retry=3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
step(heartbeat_timeout="soon")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
step(timout=timedelta(seconds=1))  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
step(ORDER)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


# steps in transactions: the first parameter is the connection, which calls leave out
async def wrong_bookings(order: Order) -> None:
    await book(order, 2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await book(2)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@step.in_transaction  # type: ignore[arg-type, type-var]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def without_connection(order: Order) -> str:
    return order.id


# functions
@workflow  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def not_async(order: Order) -> str:
    return order.id


@workflow(verson="2")  # type: ignore[call-overload, untyped-decorator]  # pyright: ignore[reportCallIssue, reportUntypedFunctionDecorator]
async def misspelt(order: Order) -> str:
    return order.id


workflow(version=2)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
fulfil("a")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
fulfil(ORDER, True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
fulfil(ORDER, expres=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
fulfil()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
at_night(1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


@workflow
async def wrong_times() -> None:
    await sleep("3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await sleep_until(timedelta(days=1))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    sleep(timedelta(days=1))  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
    text: str = now()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    print(text)


# calls are values, and what they come to has their type
async def starts(engine: Engine) -> None:
    await engine.start(fulfil, ORDER)  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportCallIssue]
    await engine.start(fulfil)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await engine.start(charge(ORDER))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    text: str = await engine.run(fulfil(ORDER))  # type: ignore[arg-type]  # pyright: ignore[reportAssignmentType]
    print(text)
    engine.handle(charge, "a")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


Engine.open("memory://", workflows=[charge])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
Pipeline("p", input=Order).pipe(charge)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# messages
@workflow
async def wrong_messages() -> None:
    number: int = await withdrawal.receive()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    word: str = await select(approval, withdrawal)  # type: ignore[arg-type]  # pyright: ignore[reportAssignmentType]
    withdrawal.receive()  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
    await select(approval)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    await select(approval, "withdrawal")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    await withdrawal.receive("3")  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportCallIssue]
    print(number, word)


async def sends(engine: Engine) -> None:
    run = engine.handle(fulfil, "a")
    await run.signal(approval)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await run.signal(approval, Decision(True))  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportCallIssue]
    await engine.start(fulfil(ORDER), signals=[Decision(True)])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]


approval(True)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
approval()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Channel("x")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


# what takes a step back
@charge.compensate  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
async def takes_another(receipt: int) -> None: ...


@charge.compensate  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
async def gives(receipt: Receipt) -> int:
    return 1


compensate_with(mail, 3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
compensate_with(mail)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


# children
@workflow
async def wrong_children() -> None:
    number: int = await fulfil(ORDER)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    await start_child(fulfil, ORDER)  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportCallIssue]
    await start_child(fulfil(ORDER), parent_end="ends")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await start_child(fulfil(ORDER), deadline="1h")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await start_child(fulfil(ORDER), priorty=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    print(number)
