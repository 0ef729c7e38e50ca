"""Workers submit and poll external work, on every store."""

import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import anyio
import attrs
import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.external import NotReady, Suspended, completed, suspend
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.kernel.invariants import check
from holdfast.ports.errors import GiveUp, NothingToWakeError, RunFailedError
from holdfast.testing.snapshots import snapshot_of
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.polling import until

SOON = timedelta(minutes=2)
OFTEN = timedelta(milliseconds=20)
NEVER = timedelta(days=1)

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick")]


@pytest.fixture
def anyio_backend() -> str:
    """One backend is enough: workers are tested on both elsewhere."""
    return "asyncio"


@attrs.frozen
class Ticket:
    key: str
    number: int


class Service:
    """An external service; it records submitted and finished work."""

    def __init__(self, check_after: timedelta = OFTEN) -> None:
        submitted: list[str] = []
        asked: Counter[int] = Counter()
        done: dict[int, int] = {}
        self.submitted, self.asked, self.done = submitted, asked, done

        @stage.external
        def hand_on(ctx: StageContext, number: int) -> Suspended[Ticket, int]:
            submitted.append(ctx.idempotency_key)
            if number < 0:
                return completed(number)
            return suspend(Ticket(ctx.idempotency_key, number), check_after=check_after, key=f"job-{number}")

        @hand_on.check
        def handed_on(ctx: StageContext, ticket: Ticket) -> int | NotReady:
            assert ctx.idempotency_key == ticket.key
            asked[ticket.number] += 1
            return done[ticket.number] if ticket.number in done else NotReady()

        self.stage = handed_on
        self.pipeline = Pipeline("w", input=int).pipe(handed_on)
        self.mapped = Pipeline("mapped", input=list[int]).map(handed_on)


def types_of(run: SyncRunHandle[Any]) -> list[str]:
    return [event.type for event in run.history()]


async def until_suspended(run: SyncRunHandle[Any], times: int = 1) -> None:
    await until(lambda: types_of(run).count("stage.suspended") == times)


def sound(engine: Engine) -> None:
    assert check(snapshot_of(engine.core.stores.persistence, [engine.core.namespace])) == []


async def test_work_is_handed_on_once_and_asked_about_until_it_is_done(open_engine: OpenEngine) -> None:
    service = Service()
    engine = open_engine(service.pipeline)
    run = engine.sync.start(service.pipeline(4), id="x")
    async with Worker(engine):
        await until(lambda: service.asked[4] >= 3)
        service.done[4] = 16
        assert await engine.handle(service.pipeline, "x").result(timeout=SOON) == 16

    assert len(service.submitted) == 1
    # However often it was asked about: that leaves nothing in the history.
    assert types_of(run) == ["run.created", "stage.suspended", "stage.completed", "run.completed"]
    sound(engine)


async def test_what_is_done_already_is_not_waited_for(open_engine: OpenEngine) -> None:
    service = Service()
    engine = open_engine(service.pipeline)
    async with Worker(engine):
        assert await engine.run(service.pipeline(-1), id="x") == -1

    assert not service.asked
    assert "stage.suspended" not in types_of(engine.sync.handle(service.pipeline, "x"))


@pytest.mark.slow
async def test_nobody_is_needed_while_it_waits_and_another_worker_asks(
    url: str, open_engine: OpenEngine
) -> None:
    service = Service(check_after=timedelta(seconds=1))
    engine = open_engine(service.pipeline)
    run = engine.sync.start(service.pipeline(4), id="x")
    async with Worker(engine):
        await until_suspended(run)
    assert not service.asked
    assert run.info().ended_at is None
    service.done[4] = 5

    other = engine if url == "memory://" else open_engine(service.pipeline)
    async with Worker(other):
        assert await other.handle(service.pipeline, "x").result(timeout=SOON) == 5
    assert len(service.submitted) == 1
    assert service.asked == {4: 1}


@pytest.mark.parametrize("how", ["key", "stage", "name"])
async def test_who_knows_that_it_is_done_has_it_checked_at_once(open_engine: OpenEngine, how: str) -> None:
    service = Service(check_after=NEVER)
    engine = open_engine(service.pipeline)
    run = engine.sync.start(service.pipeline(4), id="x")
    async with Worker(engine):
        await until_suspended(run)
        service.done[4] = 5
        handle = engine.handle(service.pipeline, "x")
        if how == "key":
            answer = await engine.wake("job-4")
        else:
            answer = await handle.wake(service.stage if how == "stage" else "hand_on")
        assert (answer.woken, answer.early) == (1, 0)
        assert await handle.result(timeout=SOON) == 5

    assert service.asked == {4: 1}
    with pytest.raises(NothingToWakeError):
        engine.sync.wake("job-4")
    with pytest.raises(NothingToWakeError):
        run.wake("hand_on")
    sound(engine)


async def test_one_item_of_a_map_is_woken_or_all(open_engine: OpenEngine) -> None:
    service = Service(check_after=NEVER)
    engine = open_engine(service.mapped)
    run = engine.sync.start(service.mapped([1, 2, 3]), id="x")
    async with Worker(engine):
        await until_suspended(run, 3)
        service.done.update({1: 0, 2: 10, 3: 20})
        assert run.wake(service.stage, item=1).woken == 1
        await until(lambda: sum(service.asked.values()) == 1)
        await until(lambda: types_of(run).count("stage.completed") == 1)
        assert run.wake(service.stage).woken == 2
        assert await engine.handle(service.mapped, "x").result(timeout=SOON) == [0, 10, 20]

    assert service.asked == {1: 1, 2: 1, 3: 1}
    assert len(set(service.submitted)) == len(service.submitted) == 3


async def test_what_is_woken_while_it_is_handed_on_is_checked_as_soon_as_it_is(
    open_engine: OpenEngine,
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    @stage.external
    def hand_on(ctx: StageContext, number: int) -> Suspended[int, int]:
        begun.set()
        assert go_on.wait(20)
        return suspend(number, check_after=NEVER)

    @hand_on.check
    async def handed_on(ctx: StageContext, number: int) -> int | NotReady:
        return number

    pipeline = Pipeline("w", input=int).pipe(handed_on)
    engine = open_engine(pipeline)
    run = engine.sync.start(pipeline(4), id="x")
    async with Worker(engine):
        await until(begun.is_set)
        answer = run.wake("hand_on")
        go_on.set()
        assert (answer.woken, answer.early) == (0, 1)
        assert await engine.handle(pipeline, "x").result(timeout=SOON) == 4


async def test_a_check_that_fails_is_made_again_and_what_it_raised_can_be_read(
    open_engine: OpenEngine,
) -> None:
    asked: list[int] = []

    @stage.external
    async def hand_on(ctx: StageContext, number: int) -> Suspended[int, int]:
        return suspend(number, check_after=OFTEN)

    @hand_on.check(retry=Retry(attempts=2, wait=timedelta(0)))
    def handed_on(ctx: StageContext, number: int) -> int | NotReady:
        asked.append(number)
        if len(asked) < 6:
            raise ConnectionError(f"busy {len(asked)}")
        return number

    pipeline = Pipeline("w", input=int).pipe(handed_on)
    engine = open_engine(pipeline)
    async with Worker(engine):
        # It fails more often than its retry allows: that only makes it rarer.
        assert await engine.run(pipeline(4), id="x") == 4
    run = engine.sync.handle(pipeline, "x")

    assert types_of(run) == ["run.created", "stage.suspended", "stage.completed", "run.completed"]
    lines = list(run.logs())
    assert [line.message for line in lines] == [
        f"the check failed: ConnectionError: busy {number}" for number in range(1, 6)
    ]
    assert {line.stage for line in lines} == {"hand_on"}
    sound(engine)


@pytest.mark.slow
async def test_a_check_that_takes_too_long_is_made_again_and_that_can_be_read(
    open_engine: OpenEngine,
) -> None:
    asked: list[int] = []

    @stage.external
    async def hand_on(ctx: StageContext, number: int) -> Suspended[int, int]:
        return suspend(number, check_after=OFTEN)

    @hand_on.check(timeout=timedelta(milliseconds=50))
    async def handed_on(ctx: StageContext, number: int) -> int | NotReady:
        asked.append(number)
        if len(asked) == 1:
            await anyio.sleep(60)
        return number

    pipeline = Pipeline("w", input=int).pipe(handed_on)
    engine = open_engine(pipeline)
    async with Worker(engine):
        assert await engine.run(pipeline(4), id="x") == 4

    (line,) = engine.sync.handle(pipeline, "x").logs()
    assert "the check failed: TimeoutError: the attempt took longer than" in line.message


def checked_by(answer: object, *, state: object = 3) -> Pipeline[int, int]:
    """A pipeline whose check returns or raises this."""

    @stage.external
    def hand_on(ctx: StageContext, number: int) -> Suspended[int, int]:
        return suspend(cast("Any", state), check_after=OFTEN)

    @hand_on.check
    def handed_on(ctx: StageContext, number: int) -> int | NotReady:
        if isinstance(answer, Exception):
            raise answer
        return cast("int", answer)

    return Pipeline("w", input=int).pipe(handed_on)


@pytest.mark.parametrize(
    ("pipeline", "problem"),
    [
        (checked_by("done"), "hand_on.*"),
        (checked_by(None), "hand_on.*"),
        (checked_by(suspend(3, check_after=OFTEN)), "hand_on.*"),
        (checked_by(4, state="no number"), "hand_on.*"),
        (checked_by(GiveUp("the service lost it")), "the service lost it"),
    ],
    ids=["another type", "nothing", "suspended again", "state of another type", "gives up"],
)
async def test_what_can_not_be_right_fails_the_stage(
    open_engine: OpenEngine, pipeline: Pipeline[int, int], problem: str
) -> None:
    engine = open_engine(pipeline)
    async with Worker(engine):
        with pytest.raises(RunFailedError, match=problem):
            await engine.run(pipeline(4), id="x")

    assert types_of(engine.sync.handle(pipeline, "x")).count("stage.failed") == 1
    sound(engine)


@pytest.mark.parametrize("given", [5, None, NotReady()])
async def test_a_body_that_neither_suspends_nor_finishes_fails(open_engine: OpenEngine, given: Any) -> None:
    @stage.external
    def hand_on(ctx: StageContext, number: int) -> Suspended[int, int]:
        return cast("Suspended[int, int]", given)

    @hand_on.check
    def handed_on(ctx: StageContext, number: int) -> int | NotReady:
        return number

    pipeline = Pipeline("w", input=int).pipe(handed_on)
    engine = open_engine(pipeline)
    async with Worker(engine):
        with pytest.raises(RunFailedError, match=r"expected suspend\(\.\.\.\) or completed\(\.\.\.\), got"):
            await engine.run(pipeline(4))


async def test_work_that_is_not_done_in_time_fails_the_stage(open_engine: OpenEngine) -> None:
    asked: list[int] = []

    @stage.external
    def hand_on(ctx: StageContext, number: int) -> Suspended[int, int]:
        until = datetime.now(UTC) + timedelta(milliseconds=200)
        return suspend(number, check_after=NEVER, give_up_at=until)

    @hand_on.check
    def handed_on(ctx: StageContext, number: int) -> int | NotReady:
        asked.append(number)
        return NotReady()

    pipeline = Pipeline("w", input=int).pipe(handed_on)
    engine = open_engine(pipeline)
    async with Worker(engine):
        with pytest.raises(RunFailedError, match="the external work was not done in time"):
            await engine.run(pipeline(4))
    assert asked == [4]
    sound(engine)


async def test_a_run_that_is_cancelled_is_asked_about_no_more(open_engine: OpenEngine) -> None:
    service = Service(check_after=NEVER)
    engine = open_engine(service.pipeline)
    run = engine.sync.start(service.pipeline(4), id="x")
    async with Worker(engine):
        await until_suspended(run)
        run.cancel()
        await until(lambda: run.info().status == "cancelled")
        with pytest.raises(NothingToWakeError):
            engine.sync.wake("job-4")
    assert not service.asked
    sound(engine)
