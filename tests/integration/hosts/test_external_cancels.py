"""Workers cancel external work that no run waits for any more, on every store."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import attrs
import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.hosts.serverless.host import ServerlessHost
from holdfast.hosts.worker import store_calls
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.completion_policies import AtLeast
from holdfast.kernel.authoring.decorators import each, stage
from holdfast.kernel.authoring.external import NotReady, Suspended, suspend
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.kernel.invariants import check
from holdfast.ports.errors import GiveUp, RemoveRefusedError, RunFailedError
from holdfast.testing.snapshots import snapshot_of
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.polling import until

OFTEN = timedelta(milliseconds=20)
NEVER = timedelta(days=1)
AT_ONCE = Retry(attempts=3, wait=timedelta(0))

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick")]


@pytest.fixture
def anyio_backend() -> str:
    """One backend is enough: workers are tested on both elsewhere."""
    return "asyncio"


@attrs.frozen
class Ticket:
    key: str
    text: str


class Service:
    """An external service whose work never ends; it records submitted and cancelled work by key."""

    def __init__(
        self,
        *,
        fails: int = 0,
        error: Exception | None = None,
        check_after: timedelta = NEVER,
        patience: timedelta | None = None,
        size: int = 1,
    ) -> None:
        self.submitted: list[str] = []
        self.cancelled: Counter[str] = Counter()
        self.done: set[str] = set()
        self.attempts: list[int] = []
        self.contexts: list[StageContext] = []
        submitted, done = self.submitted, self.done

        @stage.external
        def hand_on(ctx: StageContext, number: int) -> Suspended[Ticket, int]:
            submitted.append(ctx.idempotency_key)
            ends = None if patience is None else datetime.now(UTC) + patience
            ticket = Ticket(ctx.idempotency_key, "x" * size)
            return suspend(ticket, check_after=check_after, key=f"job-{number}", give_up_at=ends)

        @hand_on.check
        def handed_on(ctx: StageContext, ticket: Ticket) -> int | NotReady:
            return 1 if ticket.key in done else NotReady()

        @handed_on.cancel(retry=AT_ONCE)
        async def cancelled(ctx: StageContext, ticket: Ticket) -> None:
            assert (ctx.idempotency_key, len(ticket.text)) == (ticket.key, size)
            self.attempts.append(ctx.attempt)
            self.contexts.append(ctx)
            if ctx.attempt <= fails:
                raise error or ConnectionError(f"busy {ctx.attempt}")
            self.cancelled[ticket.key] += 1

        self.stage = cancelled
        self.pipeline = Pipeline("w", input=int).pipe(cancelled)
        self.mapped = Pipeline("mapped", input=list[int]).pipe(each(cancelled, enough=AtLeast(1)))


def types_of(run: SyncRunHandle[Any]) -> list[str]:
    return [event.type for event in run.history()]


async def until_suspended(run: SyncRunHandle[Any], times: int = 1) -> None:
    await until(lambda: types_of(run).count("stage.suspended") == times)


async def until_paid(run: SyncRunHandle[Any], times: int = 1) -> None:
    def paid() -> int:
        return sum(kind in ("stage.cancelled", "stage.cancel_failed") for kind in types_of(run))

    await until(lambda: paid() == times)


def sound(engine: Engine) -> None:
    assert check(snapshot_of(engine.core.stores.persistence)) == []


async def test_the_work_of_a_cancelled_run_is_cancelled_with_its_state_and_its_key(
    open_engine: OpenEngine,
) -> None:
    service = Service()
    engine = open_engine(service.pipeline)
    run = engine.sync.start(service.pipeline(4), id="x")
    async with Worker(engine):
        await until_suspended(run)
        run.cancel(reason="enough")
        await until_paid(run)

    assert service.cancelled == dict.fromkeys(service.submitted, 1)
    assert types_of(run) == ["run.created", "stage.suspended", "run.cancelled", "stage.cancelled"]
    assert run.info().status == "cancelled"
    assert [reason.code for reason in run.why()] == ["ended"]
    (ctx,) = service.contexts
    assert (ctx.run_id, ctx.stage, ctx.attempt) == ("x", "hand_on", 1)
    assert ctx.deadline is not None  # a minute for the attempt
    sound(engine)


async def test_a_state_that_is_too_large_for_a_row_is_given_whole(open_engine: OpenEngine) -> None:
    service = Service(size=200_000)
    engine = open_engine(service.pipeline)
    run = engine.sync.start(service.pipeline(4), id="x")
    async with Worker(engine):
        await until_suspended(run)
        run.terminate()
        await until_paid(run)

    assert service.cancelled.total() == 1


@pytest.mark.slow
async def test_the_work_of_a_run_past_its_deadline_is_cancelled(open_engine: OpenEngine) -> None:
    service = Service()
    engine = open_engine(service.pipeline)
    run = engine.sync.start(service.pipeline(4), id="x", deadline=timedelta(seconds=2))
    async with Worker(engine):
        await until_paid(run)

    assert (run.info().status, service.cancelled.total()) == ("failed", 1)
    (ctx,) = service.contexts
    assert ctx.deadline is not None
    assert ctx.deadline > datetime.now(UTC)  # what it owes is not bound by the time that the run had
    sound(engine)


async def test_work_that_was_not_done_in_time_is_cancelled(open_engine: OpenEngine) -> None:
    service = Service(patience=timedelta(milliseconds=100), check_after=OFTEN)
    engine = open_engine(service.pipeline)
    run = engine.sync.start(service.pipeline(4), id="x")
    async with Worker(engine):
        with pytest.raises(RunFailedError, match="not done in time"):
            await engine.handle(service.pipeline, "x").result(timeout=timedelta(seconds=20))
        await until_paid(run)

    assert service.cancelled.total() == 1
    sound(engine)


async def test_what_a_map_is_done_without_is_cancelled_and_what_was_done_is_not(
    open_engine: OpenEngine,
) -> None:
    service = Service()
    engine = open_engine(service.mapped)
    run = engine.sync.start(service.mapped([1, 2, 3]), id="x")
    async with Worker(engine):
        await until_suspended(run, 3)
        first = run.info()
        done = next(key for key in service.submitted if key.endswith("/1"))
        service.done.add(done)
        run.wake(service.stage, item=1)
        result = await engine.handle(service.mapped, "x").result(timeout=timedelta(seconds=20))
        await until_paid(run, 2)

    assert first.ended_at is None
    assert (result.results, run.info().status) == ((1,), "completed")
    assert service.cancelled == {key: 1 for key in service.submitted if key != done}
    sound(engine)


async def test_a_rerun_cancels_the_work_of_the_generation_before_and_hands_its_own_on(
    open_engine: OpenEngine,
) -> None:
    service = Service()
    engine = open_engine(service.pipeline)
    run = engine.sync.start(service.pipeline(4), id="x")
    async with Worker(engine):
        await until_suspended(run)
        run.rerun_from()
        await until(lambda: len(service.submitted) == 2)
        await until(lambda: service.cancelled.total() == 1)

    assert service.cancelled == {service.submitted[0]: 1}
    sound(engine)


async def test_the_work_of_a_child_is_cancelled_with_its_parent(open_engine: OpenEngine) -> None:
    service = Service()
    parent = Pipeline("parent", input=int).pipe(stage(service.pipeline))
    engine = open_engine(parent, service.pipeline)
    run = engine.sync.start(parent(4), id="x")
    async with Worker(engine):
        await until(lambda: bool(service.submitted))
        child = engine.sync.handle(service.pipeline, "x/w")
        await until_suspended(child)
        run.cancel()
        await until_paid(child)

    assert (child.info().status, service.cancelled.total()) == ("cancelled", 1)
    sound(engine)


async def test_what_fails_to_cancel_is_tried_again_and_can_be_read(open_engine: OpenEngine) -> None:
    service = Service(fails=2)
    engine = open_engine(service.pipeline)
    run = engine.sync.start(service.pipeline(4), id="x")
    async with Worker(engine):
        await until_suspended(run)
        run.cancel()
        await until_paid(run)

    assert service.attempts == [1, 2, 3]
    assert types_of(run)[-1] == "stage.cancelled"
    assert [line.message for line in run.logs()] == [
        f"the attempt to cancel external work failed: ConnectionError: busy {number}" for number in (1, 2)
    ]
    sound(engine)


@pytest.mark.parametrize(("error", "attempts"), [(None, 3), (GiveUp("it has no such call"), 1)])
async def test_what_can_not_be_cancelled_is_given_up_and_told(
    open_engine: OpenEngine, error: Exception | None, attempts: int
) -> None:
    service = Service(fails=9, error=error)
    engine = open_engine(service.pipeline)
    run = engine.sync.start(service.pipeline(4), id="x")
    async with Worker(engine):
        await until_suspended(run)
        run.cancel()
        await until_paid(run)

    assert len(service.attempts) == attempts
    assert (types_of(run)[-1], run.info().status) == ("stage.cancel_failed", "cancelled")
    ended, left = run.why()
    assert (ended.code, left.code, left.stage) == ("ended", "cleanup_failed", "hand_on")
    assert "'job-4' of stage 'hand_on' could not be cancelled" in left.text
    sound(engine)


async def test_what_takes_too_long_to_cancel_is_tried_again(open_engine: OpenEngine) -> None:
    attempts: list[int] = []

    @stage.external
    async def hand_on(ctx: StageContext, number: int) -> Suspended[int, int]:
        return suspend(number, check_after=NEVER)

    @hand_on.check
    async def handed_on(ctx: StageContext, number: int) -> int | NotReady:
        return NotReady()

    @handed_on.cancel(retry=AT_ONCE, timeout=timedelta(milliseconds=50))
    async def cancelled(ctx: StageContext, number: int) -> None:
        attempts.append(ctx.attempt)
        if ctx.attempt == 1:
            await anyio.sleep(60)

    pipeline = Pipeline("w", input=int).pipe(cancelled)
    engine = open_engine(pipeline)
    run = engine.sync.start(pipeline(4), id="x")
    async with Worker(engine):
        await until_suspended(run)
        run.cancel()
        await until_paid(run)

    assert attempts == [1, 2]
    assert types_of(run)[-1] == "stage.cancelled"


async def test_a_run_is_removed_once_its_work_is_cancelled(open_engine: OpenEngine) -> None:
    service = Service()
    engine = open_engine(service.pipeline)
    run = engine.sync.start(service.pipeline(4), id="x")
    async with Worker(engine):
        await until_suspended(run)
    run.cancel()
    assert [reason.code for reason in run.why()] == ["ended", "external_cancel"]
    with pytest.raises(RemoveRefusedError, match="external work must still be cancelled"):
        run.remove()
    async with Worker(engine):
        await until_paid(run)
    assert run.remove()
    sound(engine)


@pytest.mark.slow
async def test_code_that_has_nothing_to_cancel_with_leaves_it_to_code_that_has(
    url: str, open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both claim to be the same version, as during the deploy that brings the cancel function."""
    monkeypatch.setattr(
        store_calls, "UNKNOWN_CODE_DELAY", 200_000
    )  # nobody need wait for seconds to see that it is due again
    if url == "memory://":
        pytest.skip("this store can't be opened twice")
    service = Service()
    engine = open_engine(service.pipeline)
    run = engine.sync.start(service.pipeline(4), id="x")
    async with Worker(engine):
        await until_suspended(run)
    run.cancel()

    former = Pipeline("w", input=int).pipe(attrs.evolve(service.stage, cancel_body=None))
    async with Worker(open_engine(former)) as lacking:
        await until(lambda: lacking.stats().released > 0)
    assert not service.attempts

    async with Worker(engine):
        with anyio.fail_after(60):
            await until_paid(run)
    assert service.attempts == [1]  # what was given back does not count


async def test_a_function_cancels_what_is_left_as_a_worker_does(open_engine: OpenEngine) -> None:
    service = Service(fails=1)
    engine = open_engine(service.pipeline)
    run = engine.sync.start(service.pipeline(4), id="x")

    def work() -> None:
        host = ServerlessHost(engine)
        host.process_available_jobs(max_jobs=5)
        run.cancel()
        while types_of(run)[-1] != "stage.cancelled":
            host.run_maintenance_tick()
            host.process_available_jobs(max_jobs=5)

    await anyio.to_thread.run_sync(work)
    assert service.attempts == [1, 2]
    sound(engine)
