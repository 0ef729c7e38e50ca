"""Workers that were taken for lost: steps that they start late do not count, those started before do."""

from datetime import timedelta

import anyio
import pytest

from holdfast.hosts.functions import driver
from holdfast.hosts.functions.loader import FRESH_SECONDS
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.step_context import step_context
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.authoring.workflow_context import workflow_context
from holdfast.kernel.commands import (
    AttemptReport,
    Completed,
    JobHeartbeat,
    JobRelease,
    JobWakeDue,
    LeaseReapStale,
    Outcome,
    RunTerminate,
    SessionOpen,
    SessionReap,
)
from holdfast.ports.queries.runs import RunsByKey
from holdfast.ports.records.job import JobKind
from holdfast.ports.records.run import RunStatus
from tests.integration.hosts.polling import until
from tests.unit.hosts.attempt_harness import HOUR, Bench

pytestmark = pytest.mark.anyio
DONE: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    DONE.clear()


@step(retry=Retry(attempts=2, wait=timedelta()))
async def charge(order: str) -> str:
    DONE.append(order)
    if order == "slow":
        await anyio.sleep_forever()
    return f"receipt of {order}"


@workflow
async def pays(order: str) -> str:
    return await charge(order)


def wake(bench: Bench, after: timedelta) -> None:
    """Let time pass, and queue due jobs."""
    bench.clock.advance(after)
    bench.engine.kernel.dispatch(JobWakeDue())


def lost(bench: Bench) -> None:
    """Take the worker with the claim for lost; the next claim is another worker's."""
    bench.clock.advance(timedelta(hours=2))
    bench.engine.kernel.dispatch(SessionReap(grace=0))
    assert bench.engine.kernel.dispatch(LeaseReapStale()).freed == 1
    bench.session = bench.engine.kernel.dispatch(SessionOpen(host="next", lease=HOUR)).session


async def test_who_was_taken_for_lost_before_it_looked_begins_no_step() -> None:
    bench = Bench(pays)
    bench.start(pays("a"))
    late = bench.body()
    lost(bench)

    outcome = await bench.run(late)
    assert DONE == []
    assert bench.settle(late, outcome).status == "fenced"
    assert isinstance(await bench.run(bench.body()), Completed)
    assert DONE == ["a"]


async def test_a_step_that_is_under_way_is_not_begun_beside_by_who_comes_late() -> None:
    """The driver has counted the attempts it found: attempts that others start later would not be counted."""
    bench = Bench(pays)
    bench.start(pays("slow"))
    late = bench.body()
    lost(bench)
    held = bench.body()
    async with anyio.create_task_group() as group:
        group.start_soon(bench.run, held)
        await until(lambda: bool(DONE))
        assert bench.settle(late, await bench.run(late)).status == "fenced"
        group.cancel_scope.cancel()
    assert DONE == ["slow"]


@step(retry=Retry(attempts=2, wait=timedelta(milliseconds=300), jitter=0))
async def weigh(order: str) -> str:
    DONE.append(order)
    if len(DONE) == 1:
        raise ConnectionError("not yet")
    return f"weight of {order}"


@workflow
async def weighs(order: str) -> str:
    return await weigh(order)


async def test_a_retry_that_waited_begins_only_under_a_lease_that_holds() -> None:
    """The next worker has not counted an attempt that was not due when it took over."""
    bench = Bench(weighs)
    bench.start(weighs("a"))
    late = bench.body()
    outcomes: list[Outcome] = []

    async def run() -> None:
        outcomes.append(await bench.run(late))

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await until(lambda: bench.row().last_row == 2)
        lost(bench)

    assert DONE == ["a"]
    assert bench.settle(late, outcomes[0]).status == "fenced"
    assert isinstance(await bench.run(bench.body()), Completed)
    assert DONE == ["a", "a"]


@step
async def hold() -> None:
    DONE.append("held")
    if len(DONE) == 2:
        await anyio.sleep_forever()


@workflow
async def pays_and_holds(order: str) -> None:
    await charge(order)
    await hold()


async def test_nor_by_who_has_given_it_back() -> None:
    """The release does not mark it as lost, but others may have recorded rows that it did not read."""
    bench = Bench(pays_and_holds)
    bench.start(pays_and_holds("a"))
    late = bench.body()
    attempt = late.attempt
    bench.engine.kernel.dispatch(JobRelease(job=attempt.job, epoch=attempt.epoch))
    bench.clock.advance(timedelta(seconds=FRESH_SECONDS))
    held = bench.body()
    async with anyio.create_task_group() as group:
        group.start_soon(bench.run, held)
        await until(lambda: len(DONE) == 2)
        assert bench.settle(late, await bench.run(late)).status == "fenced"
        group.cancel_scope.cancel()
    assert DONE == ["a", "held"]


async def test_of_a_run_that_has_ended_nothing_is_begun() -> None:
    bench = Bench(pays)
    bench.start(pays("a"))
    late = bench.body()
    bench.engine.kernel.dispatch(RunTerminate(run_id="x"))
    bench.clock.advance(timedelta(seconds=FRESH_SECONDS))

    assert bench.settle(late, await bench.run(late)).status == "fenced"
    assert DONE == []


@pytest.mark.parametrize(("late", "times"), [(False, 0), (True, 1)])
async def test_whether_a_function_is_new_is_asked_again_only_of_who_comes_late(
    late: bool, times: int
) -> None:
    bench = Bench(pays)
    bench.start(pays("a"))
    body = bench.body()
    bench.store.asked.clear()
    if late:
        bench.clock.advance(timedelta(seconds=FRESH_SECONDS))

    assert isinstance(await bench.run(body), Completed)
    assert [type(query) for query in bench.store.asked].count(RunsByKey) == times


@step(queue="gpu", retry=Retry(attempts=5, wait=timedelta()))
async def embed(text: str) -> int:
    DONE.append(text)
    if len(DONE) < 5:
        raise RuntimeError("no room")
    return len(text)


@workflow
async def embeds(text: str) -> int:
    return await embed(text)


async def test_claims_of_a_step_in_a_queue_say_nothing_of_those_of_its_function() -> None:
    """The step's fifth claim ends before the function's second starts."""
    bench = Bench(embeds)
    bench.start(embeds("abc"))
    drives = 0
    while bodies := bench.prepare():
        for body in bodies:
            drives += body.attempt.kind is JobKind.WORKFLOW
            bench.settle(body, await bench.run(body))

    (run,) = bench.engine.sync.runs()
    assert (run.status, len(DONE), drives) == (RunStatus.COMPLETED, 5, 2)


@step(retry=Retry(attempts=3, wait=timedelta(minutes=1)))
async def ask(order: str) -> str:
    tried = step_context().attempt
    DONE.append(f"try {tried}")
    if tried == 1:
        raise ConnectionError("nobody answers")
    if tried == 2:
        await anyio.sleep_forever()
    return f"answer to {order}"


@workflow
async def asks(order: str) -> str:
    return await ask(order)


async def test_a_try_that_was_lost_counts_for_whoever_has_a_clock_that_is_behind() -> None:
    """By that clock the attempt's time has not come. It had come, or the attempt could not have been lost."""
    bench = Bench(asks)
    bench.start(asks("a"))
    first = bench.body()
    bench.settle(first, await bench.run(first))
    wake(bench, timedelta(minutes=2))
    held = bench.body()
    async with anyio.create_task_group() as group:
        group.start_soon(bench.run, held)
        await until(lambda: len(DONE) == 2)
        lost(bench)
        group.cancel_scope.cancel()

    bench.clock.jump(-timedelta(hours=3))
    behind = bench.body()
    assert isinstance(await bench.run(behind), Completed)
    assert DONE == ["try 1", "try 2", "try 3"]


@workflow
async def logs_and_pays(order: str) -> str:
    ctx = workflow_context()
    ctx.log("begun")
    ctx.publish("order.begun")
    receipt = await charge("quick")
    ctx.log("paid")
    ctx.publish("order.paid", receipt)
    ctx.annotate("receipt", receipt)
    ctx.ai.record(topic="t", model="m")
    return await charge(order)


async def reported(bench: Bench) -> tuple[list[str], list[str], int, int]:
    run = bench.engine.sync.handle(logs_and_pays, "x")
    lines = [line.message for line in run.logs()]
    published = [row.type for row in run.history() if row.type.startswith("user.")]
    return lines, published, len(list(run.annotations())), len(list(run.ai_calls()))


async def test_what_a_lost_driver_has_reported_is_stored_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second driver executes the turn again that the first was in, stored or not."""
    monkeypatch.setattr(driver, "PUBLISH_WITHIN", 0)
    monkeypatch.setattr(driver, "OUTPUT_WITHIN", 0)
    bench = Bench(logs_and_pays)
    bench.start(logs_and_pays("slow"))
    async with anyio.create_task_group() as group:
        group.start_soon(bench.run, bench.body())
        await until(lambda: len(list(bench.engine.sync.handle(logs_and_pays, "x").logs())) == 2)
        group.cancel_scope.cancel()
    first = await reported(bench)
    for _ in range(2):
        lost(bench)
        body = bench.body()
        async with anyio.create_task_group() as group:
            group.start_soon(bench.run, body)
            await until(lambda: DONE.count("slow") > 1)
            bench.engine.kernel.dispatch(
                JobHeartbeat(
                    attempts=(
                        AttemptReport(
                            job=body.attempt.job, epoch=body.attempt.epoch, outputs=body.runtime.take_all()
                        ),
                    )
                )
            )
            group.cancel_scope.cancel()
        DONE[:] = ["slow"]

    assert first == (["begun", "paid"], ["user.order.begun", "user.order.paid"], 1, 1)
    assert await reported(bench) == first
