"""Events that stages publish: in the history and at sinks, if and only if the result is stored."""

from datetime import timedelta

import attrs
import pytest

from holdfast.hosts.events.flusher import Flusher
from holdfast.hosts.execution.attempt_runtime import EVENTS_MAX
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.kernel.commands import Failed, SinkRegister
from holdfast.ports.errors import InvalidEventError
from holdfast.testing.sink import MemorySink
from tests.unit.hosts.attempt_harness import Bench

pytestmark = pytest.mark.anyio


@attrs.frozen
class Paid:
    cents: int


@stage(retry=Retry(attempts=2, wait=timedelta(0)))
def pay(ctx: StageContext[None], cents: int) -> int:
    ctx.publish("order.paid", Paid(cents))
    if ctx.attempt < cents:
        raise OSError("the bank is closed")
    return cents


@stage
async def chatty(ctx: StageContext[None], events: int) -> int:
    for number in range(events):
        ctx.publish("chat", number)
    return events


PAY = Pipeline("pay", input=int).pipe(pay)
CHATTY = Pipeline("chatty", input=int).pipe(chatty)


async def test_what_a_failed_attempt_publishes_is_dropped() -> None:
    bench = Bench(PAY)
    sink = MemorySink()
    bench.core.kernel.dispatch(SinkRegister(sink="audit", types=("user.*",)))
    bench.start(PAY(2))
    first = bench.body()
    outcome = await bench.run(first)
    assert isinstance(outcome, Failed)
    bench.settle(first, outcome)
    second = bench.body()
    bench.settle(second, await bench.run(second))
    Flusher(bench.core, {"audit": sink}).flush()

    (event,) = sink.events
    assert (event.type, event.data, event.stage, event.run_id) == (
        "user.order.paid",
        '{"cents":2}',
        "pay",
        "x",
    )
    history = bench.engine.sync.handle(PAY, "x").history()
    assert history[2].data == {"cents": 2}
    types = [row.type for row in history]
    assert types == [
        "run.created",
        "stage.retrying",
        "user.order.paid",
        "stage.completed",
        "run.completed",
    ]


async def test_one_attempt_publishes_so_many_events_and_no_more() -> None:
    bench = Bench(CHATTY)
    bench.start(CHATTY(EVENTS_MAX))
    body = bench.body()
    bench.settle(body, await bench.run(body))
    history = bench.engine.sync.handle(CHATTY, "x").history(limit=2_000)
    assert len(history) == EVENTS_MAX + 3
    assert history[1].data == {"data": 0}
    bench.start(CHATTY(EVENTS_MAX + 1), "y")
    body = bench.body()
    outcome = await bench.run(body)

    assert isinstance(outcome, Failed)
    assert outcome.failure.code == InvalidEventError.code
