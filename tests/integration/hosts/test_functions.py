"""Workers drive durable functions, on every store."""

import asyncio
import re
from collections.abc import Awaitable, Sequence
from concurrent.futures import Future
from datetime import datetime, timedelta
from typing import Any

import anyio
import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.functions import Workflow, now, sleep, uuid4, workflow
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.step_context import step_context
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.commands import Command, EventAppend, JobRecord
from holdfast.kernel.invariants import check
from holdfast.ports.errors import RunFailedError
from holdfast.ports.records.run import RunStatus
from holdfast.testing.snapshots import snapshot_of
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.polling import until
from tests.poll_intervals import rest_at_once

SOON = timedelta(minutes=2)

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick")]


@pytest.fixture
def anyio_backend() -> str:
    """One backend is enough: workers are tested on both elsewhere."""
    return "asyncio"


class DeclinedError(Exception):
    """The bank declined."""


DONE: list[str] = []
TROUBLE: list[Exception] = []


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    DONE.clear()
    TROUBLE.clear()


@step(retry=Retry(attempts=3, wait=timedelta(milliseconds=20)))
async def charge(order: str, *, currency: str = "EUR") -> str:
    context = step_context()
    DONE.append(f"{context.step} {order} {currency} {context.attempt} {context.idempotency_key}")
    if TROUBLE:
        raise TROUBLE.pop()
    return f"receipt of {order}"


@step
def pack(order: str) -> list[str]:
    DONE.append(f"pack {order}")
    return [order]


@workflow
async def fulfil(order: str, *, express: bool = False) -> dict[str, object]:
    receipt = await charge(order, currency="USD")
    one, other = await asyncio.gather(pack(order), pack(receipt))
    if not express:
        await asyncio.sleep(0.05)
    return {"packed": [*one, *other], "at": now().isoformat(), "id": str(uuid4())}


def types_of(run: SyncRunHandle[Any]) -> list[str]:
    return [event.type for event in run.history()]


def sound(engine: Engine) -> None:
    assert check(snapshot_of(engine.core.stores.persistence, [engine.core.namespace])) == []


async def test_a_function_is_driven_to_its_end(open_engine: OpenEngine) -> None:
    engine = open_engine(fulfil)
    async with Worker(engine):
        run = await engine.start(fulfil("a-1", express=True), id="x")
        with anyio.fail_after(SOON.seconds):
            result = await run.result()
    assert result["packed"] == ["a-1", "receipt of a-1"]
    handle = engine.sync.handle(fulfil, "x")
    assert types_of(handle) == [
        "run.created",
        *3 * ["step.completed"],
        "stage.completed",
        "run.completed",
    ]
    (first,) = [one for one in DONE if one.startswith("charge")]
    assert first.startswith("charge a-1 USD 1 ")
    assert first.endswith("/fulfil/1")
    sound(engine)


async def test_what_a_step_raises_is_tried_again_and_recorded(open_engine: OpenEngine) -> None:
    TROUBLE.extend([ValueError("later"), ValueError("not yet")])
    engine = open_engine(fulfil)
    async with Worker(engine):
        run = await engine.start(fulfil("a-1"), id="x")
        with anyio.fail_after(SOON.seconds):
            await run.result()
    assert types_of(engine.sync.handle(fulfil, "x"))[:4] == [
        "run.created",
        "step.retrying",
        "step.retrying",
        "step.completed",
    ]
    tries = [one.split() for one in DONE if one.startswith("charge")]
    assert [one[3] for one in tries] == ["1", "2", "3"]
    assert len({one[4] for one in tries}) == 1
    sound(engine)


@workflow
async def careful(order: str) -> str:
    try:
        return await charge(order)
    except DeclinedError as error:
        return f"declined: {error}"


async def test_an_error_comes_back_as_itself(open_engine: OpenEngine) -> None:
    TROUBLE.extend([DeclinedError("no funds")] * 3)
    engine = open_engine(careful)
    async with Worker(engine):
        with anyio.fail_after(SOON.seconds):
            assert await engine.run(careful("a-1")) == "declined: no funds"


async def test_what_a_function_raises_fails_its_run(open_engine: OpenEngine) -> None:
    TROUBLE.extend([DeclinedError("no funds")] * 3)
    engine = open_engine(fulfil)
    async with Worker(engine):
        with anyio.fail_after(SOON.seconds), pytest.raises(RunFailedError, match="no funds"):
            await engine.run(fulfil("a-1"))
    sound(engine)


@workflow
async def patient(seconds: float) -> list[str]:
    before = now()
    await sleep(timedelta(seconds=seconds))
    after = now()
    await pack("slept")
    return [before.isoformat(), after.isoformat()]


@workflow
async def forgets(order: str) -> str:
    charge(order)  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
    return "forgot"


async def test_a_call_that_is_never_awaited_is_not_done_and_told_of(
    open_engine: OpenEngine, caplog: pytest.LogCaptureFixture
) -> None:
    engine = open_engine(forgets)
    async with Worker(engine):
        assert await engine.run(forgets("a"), id="x") == "forgot"
    assert not DONE
    (said,) = [one.message for one in caplog.records if one.name == "holdfast.functions"]
    assert said.startswith("run x of forgets: step 'charge' (")
    assert "test_functions.py" in said
    assert said.endswith("was called but never awaited, so it did not run")


@pytest.mark.slow
async def test_a_function_that_sleeps_is_parked_and_wakes_no_sooner(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest_at_once(monkeypatch)
    engine = open_engine(patient)
    run = engine.sync.start(patient(0.8), id="x")
    async with Worker(engine):
        await until(lambda: bool(sleeping(engine)))
        with anyio.fail_after(SOON.seconds):
            before, after = await engine.handle(patient, "x").result()
    slept = datetime.fromisoformat(after) - datetime.fromisoformat(before)
    assert timedelta(seconds=0.8) <= slept < timedelta(seconds=10)
    assert types_of(run) == [
        "run.created",
        "clock.read",
        "timer.fired",
        "step.completed",
        "stage.completed",
        "run.completed",
    ]
    sound(engine)


def sleeping(engine: Engine) -> list[object]:
    jobs = snapshot_of(engine.core.stores.persistence, [engine.core.namespace]).jobs
    return [job for of_run in jobs.values() for job in of_run.values() if job.state == "sleeping"]


@workflow
async def two_steps(order: str) -> list[str]:
    first = await pack(order)
    await sleep(timedelta(seconds=1.5))
    return [*first, *await pack("second")]


@pytest.mark.slow
async def test_another_worker_goes_on_from_the_history(open_engine: OpenEngine) -> None:
    engine = open_engine(two_steps)
    engine.sync.start(two_steps("first"), id="x")
    async with Worker(engine):
        await until(lambda: bool(sleeping(engine)))
    async with Worker(engine):
        with anyio.fail_after(SOON.seconds):
            assert await engine.handle(two_steps, "x").result() == ["first", "second"]
    assert DONE == ["pack first", "pack second"]
    sound(engine)


def rewritten(name: str) -> Workflow[[str], list[str]]:
    @workflow(name=name)
    async def other(order: str) -> list[str]:
        await charge(order)
        return await pack("never")

    return other


@pytest.mark.slow
async def test_code_that_asks_for_something_else_blocks_the_run_until_it_is_mended(
    open_engine: OpenEngine, url: str
) -> None:
    if url.startswith("memory:"):
        pytest.skip("what is in memory can't be opened by other code")
    engine = open_engine(two_steps)
    engine.sync.start(two_steps("first"), id="x")
    async with Worker(engine):
        await until(lambda: bool(sleeping(engine)))
    changed = open_engine(rewritten("two_steps"))
    handle = changed.sync.handle(two_steps, "x")
    async with Worker(changed):
        await until(lambda: handle.info().status is RunStatus.BLOCKED)
    blocked = [event for event in handle.history() if event.type == "run.blocked"]
    assert "step 'pack'" in str(blocked[0].data)
    assert "step 'charge'" in str(blocked[0].data)
    assert not any(one.startswith("charge") for one in DONE if "never" in one)
    sound(changed)
    mended = open_engine(two_steps)
    async with Worker(mended):  # and nobody resumes it
        with anyio.fail_after(SOON.seconds):
            assert await mended.handle(two_steps, "x").result() == ["first", "second"]
    sound(mended)


@workflow
async def waits_for_nothing() -> None:
    await asyncio.Event().wait()


@workflow
async def never_rests() -> None:
    while True:  # noqa: ASYNC110
        await asyncio.sleep(0)


@pytest.mark.slow
@pytest.mark.parametrize(("wrong", "code"), [(waits_for_nothing, "stuck"), (never_rests, "workflow_stalled")])
async def test_a_function_that_never_gets_on_is_blocked_and_its_neighbours_are_not(
    open_engine: OpenEngine, wrong: Workflow[[], None], code: str
) -> None:
    engine = open_engine(wrong, fulfil)
    run = engine.sync.start(wrong(), id="x")
    async with Worker(engine):
        with anyio.fail_after(SOON.seconds):
            await engine.run(fulfil("a-1"))
        await until(lambda: run.info().status is RunStatus.BLOCKED)
    assert f'"code": "{code}"' in str(run.history()[-1].data) or code in str(run.history()[-1].data)
    sound(engine)


async def hands_on(waits: Awaitable[None]) -> None:
    await waits


@workflow
async def waits_for_a_thread() -> None:
    await hands_on(asyncio.wrap_future(Future[None]()))


@workflow
async def waits_in_tasks() -> None:
    await asyncio.gather(*(asyncio.Event().wait() for _ in range(5)))


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        (waits_for_nothing, r"at test_functions.py:\d+ in waits_for_nothing: an asyncio.Event"),
        (
            waits_for_a_thread,
            r"at test_functions.py:\d+ in waits_for_a_thread, test_functions.py:\d+ in hands_on: .* make that a step",
        ),
        (waits_in_tasks, r"at test_functions.py:\d+ in waits_in_tasks: an"),
    ],
)
async def test_a_function_that_waits_for_nothing_says_where(
    open_engine: OpenEngine, wrong: Workflow[[], None], where: str
) -> None:
    engine = open_engine(wrong)
    run = engine.sync.start(wrong(), id="x")
    async with Worker(engine):
        await until(lambda: run.info().status is RunStatus.BLOCKED)
    assert re.search(where, run.why()[0].text)


@workflow
async def two_packs(order: str) -> list[str]:
    return [*await pack(order), *await pack("second")]


async def test_what_can_not_be_recorded_blocks_its_run_and_no_other(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine(two_packs, fulfil)
    kernel = engine.core.kernel
    dispatch_many = kernel.dispatch_many

    def refuses(commands: Sequence[Command[Any]]) -> list[Any]:
        recorded = [one.records[0] for one in commands if isinstance(one, JobRecord)]
        if any(isinstance(one, EventAppend) and getattr(one.event, "step", "") == "pack" for one in recorded):
            raise RuntimeError("a bug")
        return dispatch_many(commands)

    run = engine.sync.start(two_packs("first"), id="x")
    monkeypatch.setattr(kernel, "dispatch_many", refuses)
    async with Worker(engine):
        await until(lambda: run.info().status is RunStatus.BLOCKED)
        monkeypatch.setattr(kernel, "dispatch_many", dispatch_many)
        with anyio.fail_after(SOON.seconds):
            await engine.run(fulfil("a-1"))
            await engine.handle(two_packs, "x").resume()
            assert await engine.handle(two_packs, "x").result() == ["first", "second"]
    (blocked,) = [event for event in run.history() if event.type == "run.blocked"]
    assert "RuntimeError: a bug" in str(blocked.data)
    sound(engine)


async def test_a_run_that_is_terminated_stops_its_steps(open_engine: OpenEngine) -> None:
    started, stopped = anyio.Event(), anyio.Event()

    @step
    async def hold() -> None:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()

    @workflow
    async def holds() -> None:
        await hold()

    engine = open_engine(holds)
    async with Worker(engine):
        run = await engine.start(holds(), id="x")
        with anyio.fail_after(SOON.seconds):
            await started.wait()
            await run.terminate()
            await stopped.wait()
    assert engine.sync.handle(holds, "x").info().status is RunStatus.CANCELLED
    sound(engine)


async def test_a_paused_run_starts_no_more_steps(open_engine: OpenEngine) -> None:
    reached, go_on = anyio.Event(), anyio.Event()

    @step
    async def first() -> None:
        reached.set()
        await go_on.wait()

    @workflow
    async def pausing() -> list[str]:
        await first()
        return await pack("after")

    engine = open_engine(pausing)
    async with Worker(engine):
        run = await engine.start(pausing(), id="x")
        with anyio.fail_after(SOON.seconds):
            await reached.wait()
            await run.pause()
            go_on.set()
            await until(lambda: bool(held(engine)))
            assert DONE == []
            await run.resume()
            assert await run.result() == ["after"]
    sound(engine)


def held(engine: Engine) -> list[object]:
    jobs = snapshot_of(engine.core.stores.persistence, [engine.core.namespace]).jobs
    return [job for of_run in jobs.values() for job in of_run.values() if job.state == "paused"]


@pytest.mark.slow
async def test_many_runs_are_recorded_together(open_engine: OpenEngine) -> None:
    @workflow
    async def chain(steps: int) -> int:
        for number in range(steps):
            await pack(str(number))
        return steps

    engine = open_engine(chain)
    async with Worker(engine, concurrency=50):
        with anyio.fail_after(SOON.seconds):
            runs = [await engine.start(chain(10)) for _ in range(50)]
            assert [await run.result() for run in runs] == [10] * 50
    assert len(DONE) == 500
    sound(engine)
