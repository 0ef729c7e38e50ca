"""A corpus of durable functions that use asyncio in all the usual ways."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

from holdfast.kernel.authoring.calls import Call
from holdfast.kernel.authoring.channels import Channel, select
from holdfast.kernel.authoring.continue_as_new import continue_as_new
from holdfast.kernel.authoring.functions import (
    compensate_with,
    now,
    patched,
    random,
    side_effect,
    sleep,
    uuid4,
    workflow,
)
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.functions.protocol import Cancelling, FunctionEvent, SignalReceived


class DeclinedError(Exception):
    """The bank declined."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(code, why)
        self.code = code


@step
def double(number: int) -> int:
    return 2 * number


@step
async def greet(name: str, *, loudly: bool = False) -> str:
    return f"Hello {name}" + ("!" if loudly else "")


@step
def decline(code: int) -> None:
    raise DeclinedError(code, "no funds")


@step
def total(*numbers: int, **named: int) -> int:
    return sum(numbers) + sum(named.values())


@workflow
async def nothing() -> None:
    pass


@workflow
async def sequence(upto: int) -> list[int]:
    return [await double(number) for number in range(upto)]


@workflow
async def keywords(name: str, *, loudly: bool = True) -> str:
    return await greet(name, loudly=loudly)


@workflow
async def variadic() -> int:
    return await total(1, 2, three=3, four=4)


@workflow
async def gathered(upto: int) -> list[int]:
    return list(await asyncio.gather(*(double(number) for number in range(upto))))


@workflow
async def gathered_coroutines() -> list[int]:
    async def twice(number: int) -> int:
        return await double(await double(number))

    return list(await asyncio.gather(*(twice(number) for number in range(4))))


@workflow
async def grouped() -> list[int]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(double(number)) for number in range(4)]
    return [task.result() for task in tasks]


@workflow
async def group_fails() -> str:
    async def slow(number: int) -> int:
        await asyncio.sleep(number)
        return await double(number)

    said = "no error"
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(slow(1))
            group.create_task(decline(3))
            group.create_task(slow(5))
            group.create_task(slow(500))
    except* DeclinedError as errors:
        said = f"{[error.args for error in errors.exceptions]}"
    return said


@workflow
async def order_of_cancellation() -> list[int]:
    seen: list[int] = []

    async def wait(number: int) -> None:
        try:
            await asyncio.sleep(1_000)
        finally:
            seen.append(number)

    with suppress(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            for number in range(10):
                group.create_task(wait(number))
            group.create_task(decline(1))
    return seen


@workflow
async def first_of() -> str:
    tasks = {asyncio.create_task(greet(name), name=name) for name in ("a", "b", "c")}
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    return f"{[task.get_name() for task in done]} {[task.get_name() for task in pending]}"


@workflow
async def wait_with_timeout() -> list[int]:
    quick = asyncio.create_task(asyncio.sleep(1, 1))
    slow = asyncio.create_task(asyncio.sleep(100, 2))
    done, pending = await asyncio.wait([quick, slow], timeout=10)
    return [len(done), len(pending)]


@workflow
async def as_completed() -> list[int]:
    async def later(number: int) -> int:
        await asyncio.sleep(10 - number)
        return await double(number)

    return [await one for one in asyncio.as_completed([later(number) for number in range(5)])]


@workflow
async def as_completed_steps() -> list[int]:
    return [await one for one in asyncio.as_completed([double(number) for number in range(5)])]


@workflow
async def timed_out() -> str:
    try:
        async with asyncio.timeout(60):
            await asyncio.sleep(3_600)
    except TimeoutError:
        return await greet("late")
    return "in time"


@workflow
async def waited_for() -> list[str]:
    async def twice(name: str) -> str:
        return await greet(await greet(name))

    results = [await asyncio.wait_for(greet("a"), 5), await asyncio.wait_for(twice("b"), 500)]
    try:
        await asyncio.wait_for(asyncio.sleep(100), 5)
    except TimeoutError:
        results.append("timeout")
    return [*results, await greet("c")]


@workflow
async def wait_for_no_time() -> str:
    try:
        await asyncio.wait_for(asyncio.sleep(100), 0)
    except TimeoutError:
        return await greet("none")
    return "?"


@workflow
async def nested_timeouts() -> str:
    try:
        async with asyncio.timeout(10):
            try:
                async with asyncio.timeout(100):
                    await asyncio.sleep(1_000)
            except TimeoutError:
                return "inner"
    except TimeoutError:
        return "outer"
    return "none"


@workflow
async def rescheduled() -> int:
    async with asyncio.timeout(10) as limit:
        for _ in range(5):
            await asyncio.sleep(8)
            limit.reschedule(asyncio.get_running_loop().time() + 10)
    return await double(1)


@workflow
async def shielded() -> str:
    task = asyncio.create_task(greet("shielded"))
    try:
        await asyncio.wait_for(asyncio.shield(task), 0.001)
    except TimeoutError:
        return "late " + await task
    return task.result()


@workflow
async def queues() -> list[int]:
    queue: asyncio.Queue[int | None] = asyncio.Queue(maxsize=2)
    results: list[int] = []

    async def produce() -> None:
        for number in range(5):
            await queue.put(await double(number))
        await queue.put(None)

    async def consume() -> None:
        while (number := await queue.get()) is not None:
            results.append(await double(number))

    await asyncio.gather(produce(), consume())
    return results


@workflow
async def semaphores() -> list[int]:
    limit = asyncio.Semaphore(2)
    order: list[int] = []

    async def one(number: int) -> None:
        async with limit:
            order.append(await double(number))

    await asyncio.gather(*(one(number) for number in range(6)))
    return sorted(order)


@workflow
async def events_and_conditions() -> list[str]:
    started, lock, said = asyncio.Event(), asyncio.Condition(), list[str]()

    async def wait() -> None:
        await started.wait()
        async with lock:
            await lock.wait_for(lambda: bool(said))
            said.append("heard")

    async def speak() -> None:
        said.append(await greet("all"))
        async with lock:
            lock.notify_all()

    waiting = asyncio.create_task(wait())
    started.set()
    await asyncio.gather(waiting, speak())
    return said


@workflow
async def catches() -> str:
    try:
        await decline(7)
    except DeclinedError as error:
        return f"{error.code} {error.args}"
    return "?"


@workflow
async def fails() -> None:
    await decline(9)


@workflow
async def gather_with_exceptions() -> list[str]:
    results = await asyncio.gather(double(1), decline(2), greet("x"), return_exceptions=True)
    return [type(one).__name__ if isinstance(one, Exception) else str(one) for one in results]


@workflow
async def generators() -> list[int]:
    async def numbers() -> AsyncIterator[int]:
        try:
            for number in range(10):
                yield await double(number)
        finally:
            await greet("closed")

    found: list[int] = []
    async for number in numbers():
        found.append(number)
        if number >= 6:
            break
    return found


@workflow
async def context_managers() -> list[str]:
    said: list[str] = []

    @asynccontextmanager
    async def room() -> AsyncGenerator[None, None]:
        said.append(await greet("in"))
        try:
            yield
        finally:
            said.append(await greet("out"))

    async with room():
        said.append(await greet("there"))
    return said


@workflow
async def polling() -> int:
    waited = 0
    while waited < 5:
        await sleep(timedelta(days=30))
        waited += await double(1)
    return waited


@workflow
async def clocks() -> list[str]:
    before, loop = now(), asyncio.get_running_loop()
    began = loop.time()
    await sleep(timedelta(hours=1))
    return [before.isoformat(), now().isoformat(), f"{loop.time() - began:.0f}", str(uuid4()), str(uuid4())]


@workflow
async def left_behind() -> int:
    background = asyncio.create_task(asyncio.sleep(1_000))
    found = await double(1)
    assert not background.done()
    return found


@workflow
async def cleans_up() -> str:
    try:
        await asyncio.sleep(1_000)
    except asyncio.CancelledError:
        await greet("cleaned")
        raise
    return "?"


@workflow
async def refuses_to_be_cancelled() -> str:
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(1_000)
    return await greet("still here")


@workflow
async def cancelled_inside() -> list[str]:
    async def forever() -> None:
        try:
            while True:  # noqa: ASYNC110
                await asyncio.sleep(10)
        finally:
            said.append(await greet("forever"))

    said: list[str] = []
    task = asyncio.create_task(forever())
    await asyncio.sleep(25)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return said


@workflow
async def callbacks() -> list[int]:
    seen: list[int] = []
    task = asyncio.create_task(double(4))
    task.add_done_callback(lambda done: seen.append(done.result()))
    asyncio.get_running_loop().call_later(5, seen.append, 0)
    await asyncio.sleep(10)
    await task
    return sorted(seen)


@workflow
async def race_of_steps_and_time() -> str:
    async def late() -> str:
        await asyncio.sleep(0.5)
        return "time"

    tasks = [asyncio.create_task(greet("step")), asyncio.create_task(late())]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    return " ".join(sorted(task.result() for task in done)) + " " + await greet("after")


@workflow
async def deep(depth: int) -> int:
    async def go(left: int) -> int:
        if not left:
            return await double(1)
        one, other = await asyncio.gather(go(left - 1), go(left - 1))
        return await double(one + other)

    return await go(depth)


@workflow
async def barrier() -> list[int]:
    meeting = asyncio.Barrier(3)
    order: list[int] = []

    async def come(number: int) -> None:
        await asyncio.sleep(number)
        await double(number)
        order.append(await meeting.wait())

    await asyncio.gather(*(come(number) for number in range(3)))
    return sorted(order)


@workflow
async def zero_sleeps() -> list[int]:
    order: list[int] = []

    async def busy(number: int) -> None:
        for _ in range(3):
            order.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(busy(1), busy(2), double(3))
    return order


@workflow
async def not_awaited_at_once() -> int:
    later = double(1)
    now_ = await double(2)
    return now_ + await later


@step
async def book(what: str) -> str:
    return f"booked {what}"


@book.compensate
async def unbook(booked: str | None, what: str) -> None:
    pass


@step
async def pay(amount: int) -> int:
    if amount > 100:
        raise DeclinedError(7, "too much")
    return amount


@pay.compensate
async def pay_back(paid: int) -> None:
    pass


@workflow
async def saga_of_a_journey() -> None:
    await asyncio.gather(book("flight"), book("hotel"))
    await pay(100)
    compensate_with(greet, "nobody", loudly=True)
    await pay(101)


@workflow
async def saga_with_tasks_left() -> None:
    async def slowly() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await greet("tidied")

    left = asyncio.create_task(slowly())
    await book("room")
    await asyncio.sleep(1)
    await decline(3)
    await left


@workflow
async def saga_that_is_caught() -> str:
    try:
        await book("room")
        await decline(1)
    except DeclinedError:
        return "declined"
    return "?"


@workflow
async def drawn() -> list[object]:
    numbers = [random().random() for _ in range(3)]
    names = ["a", "b", "c", "d"]
    random().shuffle(names)
    return [*numbers, names, await side_effect(lambda: {"answer": 42})]


@workflow
async def with_patches() -> list[object]:
    said: list[object] = []
    for number in range(3):
        if patched("twice"):
            said.append(await double(number))
        said.append(await double(number))
    return [*said, patched("later"), patched("twice")]


approval = Channel("approval", bool)
words = Channel("words", str)


@workflow
async def receives() -> list[object]:
    first = await approval.receive()
    found: list[object] = [first]
    async for word in words:
        found.append(word)
        if word == "end":
            break
    return found


@workflow
async def receives_in_time() -> list[object]:
    said: list[object] = []
    for _ in range(4):
        try:
            said.append(await select(approval, words, timeout=timedelta(seconds=20)))
        except TimeoutError:
            said.append("late")
    return said


@workflow
async def receivers_compete() -> list[str]:
    async def one(name: str, patience: float) -> str:
        try:
            return f"{name} {await words.receive(timeout=timedelta(seconds=patience))}"
        except TimeoutError:
            return f"{name} nothing"

    return list(await asyncio.gather(one("a", 5), one("b", 30), one("c", 600), greet("d")))


@workflow
async def receiver_is_cancelled() -> list[str]:
    async def hear() -> str:
        return await words.receive()

    async with asyncio.TaskGroup() as group:
        first = group.create_task(hear())
        await asyncio.sleep(3)
        first.cancel()
        second = group.create_task(hear())
    return [str(first.cancelled()), second.result()]


@workflow
async def saga_that_is_cancelled() -> None:
    await book("flight")
    await words.receive()


@workflow
async def goes_on(left: int, so_far: int = 0) -> int:
    so_far += sum(await asyncio.gather(double(left), double(1)))
    await sleep(2)
    try:
        return await continue_as_new(goes_on(left - 1, so_far)) if left else so_far
    except BaseException:
        await greet("nobody")  # nothing is raised there
        raise


@workflow
async def goes_on_with_messages(left: int, heard: list[str] | None = None) -> list[str]:
    heard = [*(heard or ()), await words.receive()]
    await book(heard[-1])
    if not left:
        return heard
    return await continue_as_new(goes_on_with_messages(left - 1, heard), forget_compensations=True)


CORPUS: list[Call[Any]] = [
    nothing(),
    sequence(5),
    keywords("Ada"),
    keywords("Ada", loudly=False),
    variadic(),
    gathered(6),
    gathered_coroutines(),
    grouped(),
    group_fails(),
    order_of_cancellation(),
    first_of(),
    wait_with_timeout(),
    as_completed(),
    as_completed_steps(),
    timed_out(),
    waited_for(),
    wait_for_no_time(),
    nested_timeouts(),
    rescheduled(),
    shielded(),
    queues(),
    semaphores(),
    events_and_conditions(),
    catches(),
    fails(),
    gather_with_exceptions(),
    generators(),
    context_managers(),
    polling(),
    clocks(),
    left_behind(),
    cancelled_inside(),
    callbacks(),
    race_of_steps_and_time(),
    deep(3),
    barrier(),
    zero_sleeps(),
    not_awaited_at_once(),
    saga_of_a_journey(),
    saga_with_tasks_left(),
    saga_that_is_caught(),
    drawn(),
    with_patches(),
    goes_on(2),
]
WHEN_CANCELLED: list[Call[Any]] = [cleans_up(), refuses_to_be_cancelled()]


def _word(text: str) -> SignalReceived:
    return SignalReceived(channel="words", text=f'"{text}"')


_YES = SignalReceived(channel="approval", text="true")
WHEN_SENT: list[tuple[Call[Any], list[tuple[float, FunctionEvent]]]] = [
    (receives(), [(1, _word("early")), (2, _YES), (3, _word("then")), (400, _word("end"))]),
    (receives_in_time(), [(1, _word("one")), (2, _YES), (30, _word("three"))]),
    (receivers_compete(), [(7, _word("first")), (40, _word("second"))]),
    (receivers_compete(), [(1, _word("first")), (1, _word("second")), (1, _word("third"))]),
    (receiver_is_cancelled(), [(4, _word("late"))]),
    (receiver_is_cancelled(), [(1, _word("early")), (4, _word("late"))]),
    (saga_that_is_cancelled(), [(9, Cancelling(reason="enough"))]),
    (saga_that_is_cancelled(), [(0, Cancelling(reason="enough")), (9, _word("too late"))]),
    (goes_on_with_messages(2), [(1, _word("one")), (1.2, _word("two")), (1.5, _word("three")), (9, _YES)]),
]
"""Functions with the external events that they get, and when."""
