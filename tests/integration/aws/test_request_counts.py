"""The cost of a step in Lambda, counted: invocations, queue requests, transactions."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Pipeline, sleep, stage, step, workflow
from holdfast.kernel.authoring.calls import Call
from tests.aws import FakeAws
from tests.cloud import Cloud

pytestmark = pytest.mark.service

STEPS = 20
WIDTH = 100


@stage
async def add(x: int) -> int:
    return x + 1


@stage
def spread(x: int) -> list[int]:
    return list(range(x))


@stage
def total(xs: list[int]) -> int:
    return sum(xs)


@step
async def plus(x: int, y: int) -> int:
    return x + y


@workflow
async def counts(steps: int) -> int:
    x = 0
    for number in range(steps):
        x = await plus(x, number)
    return x


@workflow
async def days(number: int) -> int:
    """Three days and a hundred steps."""
    x = 0
    for _ in range(number):
        for _ in range(100 // number):
            x = await plus(x, 1)
        await sleep(timedelta(days=3) / number)
    return x


def chain() -> Pipeline[int, int]:
    pipeline: Any = Pipeline("chain", input=int)
    for number in range(STEPS):
        pipeline = pipeline.pipe(add.options(name=f"add_{number}"))
    made: Pipeline[int, int] = pipeline
    return made


CHAIN = chain()
WIDE = Pipeline("wide", input=int).pipe(spread).map(add).pipe(total)

Carry = Callable[[Call[int], int], Cloud]


@pytest.fixture
def carried(aws: FakeAws, shared_database: str, namespace: str) -> Iterator[Carry]:
    """Carry out a run by messages alone, in a warm process; return the counts."""
    with ExitStack() as stack:

        def carry_out(call: Call[int], result: int) -> Cloud:
            cloud = Cloud(aws, shared_database, namespace, [CHAIN, WIDE, counts, days])
            stack.callback(cloud.close)
            for _ in range(2):
                cloud.requests.clear()
                cloud.source.invocations = cloud.calls = cloud.transactions = 0
                run = cloud.engine.sync.start(call)
                while cloud.source.poll():
                    pass
                assert run.result(timeout=120) == result
            return cloud

        yield carry_out


@pytest.mark.slow
def test_a_chain_of_stages_costs_three_requests_and_two_transactions_each(carried: Carry) -> None:
    cloud = carried(CHAIN(0), STEPS)

    assert cloud.source.invocations == STEPS
    # It is claimed and settled; in between its run and its input are read, with one question.
    assert (cloud.transactions, cloud.calls) == (2 * STEPS, 3 * STEPS)
    assert cloud.requests == {
        "SendMessageBatch": STEPS,
        "ReceiveMessage": STEPS + 1,  # the last of them finds nothing
        "DeleteMessageBatch": STEPS,
    }


@pytest.mark.slow
def test_a_fan_out_costs_a_transaction_for_many(carried: Carry) -> None:
    cloud = carried(WIDE(WIDTH), sum(range(WIDTH)) + WIDTH)

    batches = WIDTH // 10
    assert cloud.source.invocations == 3 + batches  # the list, its items, and the sum have one each
    assert cloud.requests["SendMessageBatch"] == 3 + batches
    assert cloud.requests["DeleteMessageBatch"] == 3 + batches
    # Of a batch some may end before others, and are settled then.
    assert 2 * (3 + batches) <= cloud.transactions <= 2 * 3 + batches * 5
    assert cloud.transactions / (WIDTH + 3) < 0.6


@pytest.mark.slow
def test_the_steps_of_a_function_cost_one_transaction_each_and_no_request(carried: Carry) -> None:
    cloud = carried(counts(STEPS), sum(range(STEPS)))

    assert cloud.source.invocations == 1
    assert cloud.transactions == STEPS + 1  # claimed; the last step is stored together with the end
    assert cloud.requests == {"SendMessageBatch": 1, "ReceiveMessage": 2, "DeleteMessageBatch": 1}


@pytest.mark.slow
def test_three_days_and_a_hundred_steps_take_seconds_of_nobodys_time(
    aws: FakeAws, shared_database: str, namespace: str
) -> None:
    """It sleeps ten times: ten invocations wake it, and nothing polls in between."""
    cloud = Cloud(aws, shared_database, namespace, [days])
    with ExitStack() as stack:
        stack.callback(cloud.close)
        run = cloud.engine.sync.start(days(10))
        began = cloud.clock.now()
        while run.info().ended_at is None:
            while cloud.source.poll():
                pass
            aws.pass_time(timedelta(days=3) / 10 / timedelta(seconds=1))
            cloud.tick()
        assert run.result() == 100
        assert cloud.clock.now() - began > timedelta(days=3)

    assert cloud.source.invocations == 11


@pytest.mark.slow
def test_idling_costs_the_timer_and_nothing_between_its_rounds(
    aws: FakeAws, shared_database: str, namespace: str
) -> None:
    cloud = Cloud(aws, shared_database, namespace, [counts, days])
    with ExitStack() as stack:
        stack.callback(cloud.close)
        cloud.engine.sync.start(counts(3))
        sleeping = cloud.engine.sync.start(days(1))
        while cloud.source.poll():
            pass
        cloud.tick()
        cloud.requests.clear()
        ticks: list[tuple[int, int]] = []
        for _ in range(3):
            before = cloud.calls, cloud.transactions
            cloud.tick()
            ticks.append((cloud.calls - before[0], cloud.transactions - before[1]))
        after = [process.store.calls for process in cloud.processes]
        time.sleep(0.2)  # whatever would ask in the background does so by now
        assert [process.store.calls for process in cloud.processes] == after
        assert sleeping.info().ended_at is None

    assert cloud.requests == {}
    assert len(set(ticks)) == 1
    calls, transactions = ticks[0]
    assert transactions == 1
    assert calls <= 3
