"""A host that stood still together with its monotonic clock, like a suspended laptop."""

from datetime import timedelta

import pytest

from holdfast.hosts.execution.bodies import Body
from holdfast.kernel.authoring.functions import Workflow, sleep, workflow
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.commands import FunctionWaiting
from holdfast.ports.clock import micros
from holdfast.testing.clock import ManualClock
from tests.unit.hosts.attempt_harness import Bench, StoreWithClock

pytestmark = pytest.mark.anyio
A_WHILE = timedelta(seconds=20)


@step
async def charge(order: str) -> str:
    return f"receipt of {order}"


@workflow
async def rests(order: str) -> str:
    await sleep(60)
    return order


@workflow
async def pays(order: str) -> str:
    receipt = await charge(order)
    await sleep(60)
    return receipt


async def slept(bench: Bench, body: Body, there: ManualClock) -> float:
    """Run a body on a host that has just stood still; return the seconds that its function sleeps."""
    there.advance(A_WHILE)
    bench.clock.jump(A_WHILE)
    outcome = await bench.run(body)
    assert isinstance(outcome, FunctionWaiting)
    assert outcome.wake_at is not None
    return (outcome.wake_at - micros(there.now())) / 1_000_000


@pytest.mark.parametrize("function", [rests, pays], ids=["at-once", "after-a-step"])
async def test_a_function_sleeps_for_as_long_as_it_says_where_its_host_had_stood_still(
    function: Workflow[[str], str],
) -> None:
    there = ManualClock()
    machine = ManualClock()
    bench = Bench(function, persistence=StoreWithClock(there), clock=machine)
    bench.clock = machine
    bench.start(function("a"))

    assert await slept(bench, bench.body(), there) == pytest.approx(60, abs=0.1)
