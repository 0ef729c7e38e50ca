"""Poison steps and the steps beside them: which fail, after how many losses, on every store."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import anyio
import pytest
from anyio import CapacityLimiter

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.execution.attempt_runner import AttemptRunner
from holdfast.hosts.execution.bodies import Body
from holdfast.hosts.functions.function_runners import FUNCTION_RUNNERS
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.step_context import step_context
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.commands import (
    Attempt,
    JobClaim,
    JobWakeDue,
    LeaseReapStale,
    SessionClose,
    SessionOpen,
    combine_pass_over,
)
from holdfast.kernel.invariants import check
from holdfast.ports.errors import StepLostError
from holdfast.ports.records.job import JobKind
from holdfast.ports.searches import QueueClaim
from holdfast.testing.snapshots import snapshot_of
from tests.integration.hosts.conftest import OpenEngine

pytestmark = pytest.mark.anyio

SOON = 120
STARTS: list[tuple[str, int, int]] = []
"""The starts of the steps under test: name, number, attempt."""
DYING: list[anyio.Event] = []
"""The event that a poison step sets when it kills its worker."""


@pytest.fixture
def anyio_backend() -> str:
    """One backend is enough: workers are tested on both elsewhere."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _nothing_started() -> None:
    STARTS.clear()
    DYING.clear()


async def die() -> None:
    DYING[-1].set()
    await anyio.sleep_forever()


def started(name: str, number: int = 0) -> int:
    STARTS.append((name, number, step_context().attempt))
    return sum(one[:2] == (name, number) for one in STARTS)


def starts(name: str) -> Counter[int]:
    return Counter(number for one, number, _ in STARTS if one == name)


class Workers:
    """Workers one after the other: each works until idle, or is killed and loses its jobs."""

    def __init__(self, engine: Engine, concurrency: int = 20) -> None:
        self._core = engine.core
        self._core.connect()
        self._concurrency = concurrency
        self.deaths = 0

    async def work(self) -> None:
        """Work until nothing is left."""
        with anyio.fail_after(SOON):
            while await self._live():
                pass

    async def _live(self) -> bool:
        core, did = self._core, False
        opened = core.kernel.dispatch(SessionOpen(namespace=core.namespace, host="here", lease=600_000_000))
        held: list[Attempt] = []
        runner, threads = AttemptRunner(core, FUNCTION_RUNNERS), CapacityLimiter(100)
        ended = [anyio.Event()]
        DYING.append(anyio.Event())

        async def run(body: Body) -> None:
            core.kernel.dispatch(await runner.run(body, threads))
            held.remove(body.attempt)
            ended[0].set()

        async def watch(dying: anyio.Event) -> None:
            await dying.wait()
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(watch, DYING[-1])
            while True:
                attempts = self.claim(opened.session, held)
                did = did or bool(attempts)
                held += attempts
                for body in runner.prepare(attempts)[0]:
                    group.start_soon(run, body)
                if not held:
                    break
                await ended[0].wait()
                ended[0] = anyio.Event()
            group.cancel_scope.cancel()
        self.deaths += DYING[-1].is_set()
        core.kernel.dispatch(SessionClose(namespace=core.namespace, session=opened.session))
        core.kernel.dispatch(LeaseReapStale(namespace=core.namespace))
        return did

    def claim(self, session: str, held: Sequence[Attempt]) -> tuple[Attempt, ...]:
        core = self._core
        limit = self._concurrency - len(held)
        if limit < 1:
            return ()
        core.kernel.dispatch(JobWakeDue(namespace=core.namespace))
        lanes = (QueueClaim(queue="default", definitions=core.registry.definitions, limit=limit),)
        claim = JobClaim(
            namespace=core.namespace,
            session=session,
            queue_claims=lanes,
            limit=limit,
            pass_over=combine_pass_over(held),
        )
        return core.kernel.dispatch(claim).attempts


AGAIN = timedelta(0)


@step(retry=Retry(attempts=6, wait=AGAIN))
async def kills() -> None:
    started("kills")
    await anyio.sleep(0.01)
    await die()


@step(retry=Retry(attempts=2, wait=AGAIN))
async def innocent(number: int) -> int:
    started("innocent", number)
    await anyio.sleep(0.03)
    return number


@workflow
async def bad() -> None:
    await kills()


@workflow
async def good(number: int) -> int:
    return await innocent(number)


@pytest.mark.slow
async def test_a_step_that_kills_is_given_up_after_its_tries_and_takes_nobody_along(
    open_engine: OpenEngine,
) -> None:
    engine = open_engine(bad, good)
    poison = await engine.start(bad(), id="bad")
    runs = [await engine.start(good(number), id=f"good-{number}") for number in range(10)]
    workers = Workers(engine)
    await workers.work()

    assert [await run.result() for run in runs] == list(range(10))
    assert workers.deaths == starts("kills").total() == 6
    assert [attempt for name, _, attempt in STARTS if name == "kills"] == [1, 2, 3, 4, 5, 6]
    assert max(starts("innocent").values()) <= 4, "two losses in company, one more beside a stranger"
    with pytest.raises(Exception, match="StepLostError"):
        await poison.result()
    tries = [one.data for one in engine.sync.handle(bad, "bad").history() if one.type == "step.retrying"]
    assert [(one["attempt"], one["lost_attempts"]) for one in tries] == [(n, n) for n in range(1, 6)]
    assert check(snapshot_of(engine.core.stores.persistence)) == []


@workflow
async def both(number: int) -> list[str]:
    async def came_to(one: int) -> str:
        try:
            if one:
                return str(await innocent(one))
            await kills()
        except StepLostError:
            return "lost"
        return "never"

    return list(await asyncio.gather(*(came_to(one) for one in range(number))))


@pytest.mark.slow
async def test_of_steps_at_once_only_the_one_that_kills_is_given_up(open_engine: OpenEngine) -> None:
    """Lost steps start one at a time, though the function called them concurrently."""
    engine = open_engine(both)
    run = await engine.start(both(5), id="x")
    workers = Workers(engine)
    await workers.work()

    assert await run.result() == ["lost", "1", "2", "3", "4"]
    assert starts("kills").total() == workers.deaths
    history = engine.sync.handle(both, "x").history()
    assert {one.data["call"] for one in history if one.type == "step.started"}, (
        "it is recorded who begins again"
    )
    assert check(snapshot_of(engine.core.stores.persistence)) == []


@step(retry=Retry(attempts=2, wait=AGAIN))
async def unlucky(number: int) -> int:
    times = started("unlucky", number)
    if times <= 3:
        await die()
    if times == 4:
        raise ValueError("it was its own fault, once")
    return number


@workflow
async def patient(number: int) -> int:
    return await unlucky(number)


@pytest.mark.slow
@pytest.mark.parametrize("runs", [1, 3])
async def test_a_node_that_dies_three_times_uses_up_no_tries(open_engine: OpenEngine, runs: int) -> None:
    engine = open_engine(patient)
    handles = [await engine.start(patient(number), id=f"x{number}") for number in range(runs)]
    await Workers(engine).work()

    assert [await run.result() for run in handles] == list(range(runs))
    if runs == 1:
        assert [attempt for _, _, attempt in STARTS] == [1, 2, 3, 4, 5]


@step(retry=Retry(attempts=1))
async def once() -> None:
    started("once")
    await die()


@workflow
async def begins_once() -> str:
    try:
        await once()
    except StepLostError as error:
        return error.code
    return ""


async def test_what_may_be_tried_once_never_begins_twice(open_engine: OpenEngine) -> None:
    engine = open_engine(begins_once)
    run = await engine.start(begins_once(), id="x")
    await Workers(engine).work()

    assert await run.result() == "step_lost"
    assert starts("once").total() == 1


@step
async def book(number: int) -> int:
    return number


@book.compensate
@step(retry=Retry(attempts=2, wait=AGAIN))
async def undo(number: int) -> None:
    if started("undo", number) <= number:
        await die()


@workflow
async def saga(number: int) -> None:
    await book(number)
    raise ValueError("no")


async def test_a_compensation_that_was_lost_with_its_worker_goes_on(open_engine: OpenEngine) -> None:
    engine = open_engine(saga)
    await engine.start(saga(3), id="x")
    workers = Workers(engine)
    await workers.work()

    assert workers.deaths == 3
    assert (await engine.handle(saga, "x").info()).status == "failed"


async def test_a_compensation_that_kills_blocks_its_run_and_is_resumed(open_engine: OpenEngine) -> None:
    engine = open_engine(saga)
    await engine.start(saga(5), id="x")
    workers = Workers(engine)
    await workers.work()
    handle = engine.handle(saga, "x")

    assert (workers.deaths, (await handle.info()).status) == (5, "blocked")
    (blocked,) = [one for one in engine.sync.handle(saga, "x").history() if one.type == "run.blocked"]
    assert blocked.data["code"] == "compensation_failed"
    assert "lost with its worker 5 times" in str(blocked.data["message"])
    await handle.resume()
    await workers.work()
    assert (await handle.info()).status == "failed"


@pytest.mark.slow
async def test_a_function_is_no_suspect_any_more_once_what_was_lost_has_ended(
    open_engine: OpenEngine,
) -> None:
    """Otherwise a worker that drives it for long would claim no other lost job."""

    @workflow
    async def goes_on() -> int:
        await unlucky(1)
        return await innocent(1)

    engine = open_engine(goes_on)
    run = await engine.start(goes_on(), id="x")
    seen: list[tuple[int, int]] = []
    workers = Workers(engine)
    claim = workers.claim

    def watched(session: str, held: Sequence[Attempt]) -> tuple[Attempt, ...]:
        attempts = claim(session, held)
        seen.extend(
            (one.lost_attempts, starts("innocent").total())
            for one in attempts
            if one.kind is JobKind.WORKFLOW
        )
        return attempts

    workers.claim = watched  # type: ignore[method-assign]
    await workers.work()

    assert await run.result() == 1
    assert seen[:4] == [(0, 0), (1, 0), (2, 0), (3, 0)]
    assert seen[-1] == (0, 0), "it is claimed once more, as any other, before it goes on"
