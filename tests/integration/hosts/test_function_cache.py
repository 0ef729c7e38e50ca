"""The function cache: waiting functions resume from memory, with the same results at lower cost."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.functions import driver
from holdfast.hosts.serverless.host import ServerlessHost
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.functions import sleep, workflow
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.functions.machine import in_memory
from holdfast.kernel.invariants import check
from holdfast.ports.records.run import RunStatus
from holdfast.testing.snapshots import snapshot_of
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.polling import until

SOON = 120
MESSAGES = 4

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick")]

go = Channel("go", int)
BEGUN: list[str] = []
"""The runs whose functions were called, once for each call: after the first only a replay calls them."""
EFFECTS: list[str] = []


@pytest.fixture
def anyio_backend() -> str:
    """One backend is enough: workers are tested on both elsewhere."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _nothing_yet() -> Iterator[None]:
    BEGUN.clear()
    EFFECTS.clear()
    before = in_memory()
    yield
    assert in_memory() == before, "who ends takes out of memory what it kept there"


@step
async def add(number: int) -> int:
    return number + 1


@step
async def refund(name: str) -> None:
    EFFECTS.append(name)


@workflow
async def sums(name: str) -> int:
    BEGUN.append(name)
    total = 0
    try:
        for _ in range(MESSAGES):
            total = await add(total + await go.receive())
    finally:
        if total < 0:
            await refund(name)
    return total


@workflow
async def tidy(name: str) -> None:
    """Waits in tasks and in a generator, and would pay money back wherever it is closed."""
    BEGUN.append(name)

    async def numbers() -> AsyncIterator[int]:
        try:
            while True:
                yield await go.receive()
        finally:
            await refund(name)

    async def one() -> None:
        try:
            await sleep(86_400)
        finally:
            await refund(name)

    unawaited = add(1)
    async with asyncio.TaskGroup() as group:
        group.create_task(one())
        async for _ in numbers():
            pass
    await unawaited


def driven(host: ServerlessHost) -> int:
    """Drive everything until nothing is due; return the number of driven jobs."""
    return host.process_available_jobs(max_jobs=10).processed


def sound(engine: Engine) -> None:
    assert check(snapshot_of(engine.core.stores.persistence, [engine.core.namespace])) == []


@pytest.mark.parametrize(("size", "begun"), [(0, MESSAGES + 1), (5, 1)])
def test_a_function_that_is_kept_is_called_once(open_engine: OpenEngine, size: int, begun: int) -> None:
    engine = open_engine(sums)
    host = ServerlessHost(engine, function_cache=size)
    run = engine.sync.start(sums("x"), id="x")
    assert driven(host) == 1
    for number in range(MESSAGES):
        run.signal(go(number))
        assert driven(host) == 1
    assert run.result() == sum(range(MESSAGES)) + MESSAGES
    assert ["x"] * begun == BEGUN
    sound(engine)


def test_whoever_comes_back_to_it_after_another_has_driven_it_replays(open_engine: OpenEngine) -> None:
    engine = open_engine(sums)
    hosts = [ServerlessHost(engine, function_cache=5) for _ in range(2)]
    run = engine.sync.start(sums("x"), id="x")
    assert driven(hosts[0]) == 1
    for number, host in enumerate([1, 0, 0, 1]):
        run.signal(go(number))
        assert driven(hosts[host]) == 1
    assert run.result() == sum(range(MESSAGES)) + MESSAGES
    # The other, the first again, the first goes on, and the other again.
    assert len(BEGUN) == 4
    sound(engine)


def test_a_run_that_was_cancelled_or_paused_meanwhile_goes_on_from_memory_too(
    open_engine: OpenEngine,
) -> None:
    engine = open_engine(sums)
    host = ServerlessHost(engine, function_cache=5)
    run = engine.sync.start(sums("x"), id="x")
    assert driven(host) == 1
    run.pause()
    run.signal(go(5))
    assert driven(host) == 0
    run.resume()
    assert driven(host) == 1
    run.cancel()
    assert driven(host) == 1
    assert run.info().status is RunStatus.CANCELLED
    assert BEGUN == ["x"]
    sound(engine)


@pytest.mark.slow
def test_another_generation_of_a_run_is_another_function(open_engine: OpenEngine) -> None:
    engine = open_engine(sums)
    host = ServerlessHost(engine, function_cache=5)
    run = engine.sync.start(sums("x"), id="x")
    assert driven(host) == 1
    run.signal(go(100))
    assert driven(host) == 1
    run.terminate()
    run = engine.sync.start(sums("x"), id="x", if_ended="rerun")
    assert driven(host) == 1
    for number in range(MESSAGES):
        run.signal(go(number))
        assert driven(host) == 1
    assert run.result() == sum(range(MESSAGES)) + MESSAGES
    assert len(BEGUN) == 2
    sound(engine)


def test_what_makes_room_gives_no_money_back(
    open_engine: OpenEngine, capfd: pytest.CaptureFixture[str]
) -> None:
    engine = open_engine(tidy)
    host = ServerlessHost(engine, function_cache=1)
    runs = [engine.sync.start(tidy(name), id=name) for name in "ab"]
    before = in_memory()
    for _ in runs:
        assert host.process_available_jobs(max_jobs=1).processed == 1
    assert len(in_memory() - before) == 1
    for run in reversed(runs):
        run.signal(go(1))
        assert driven(host) == 1
    assert len(BEGUN) == 3, "of two one was kept: that which came to rest last"
    for run in runs:
        run.terminate()
    engine.core.close()
    assert EFFECTS == []
    assert capfd.readouterr().err == ""


@pytest.mark.slow
async def test_a_worker_keeps_functions_until_it_ends(open_engine: OpenEngine) -> None:
    engine = open_engine(sums)
    before = in_memory()
    async with Worker(engine):
        run = await engine.start(sums("x"), id="x")
        for number in range(MESSAGES):
            await until(lambda: len(BEGUN) == 1)
            await run.signal(go(number))
        with anyio.fail_after(SOON):
            assert await run.result() == sum(range(MESSAGES)) + MESSAGES
        again = await engine.start(sums("y"), id="y")
        await until(lambda: len(in_memory() - before) == 1)
    assert in_memory() == before
    assert BEGUN == ["x", "y"]
    async with Worker(engine, function_cache=0):
        for number in range(MESSAGES):
            await again.signal(go(number))
        with anyio.fail_after(SOON):
            assert await again.result() == sum(range(MESSAGES)) + MESSAGES


RUNS: list[int] = []


@step(retry=Retry(attempts=3, wait=0.01))
async def fails_at_first() -> None:
    RUNS.append(1)
    if len(RUNS) == 1:
        raise ConnectionError("not yet")


@step
async def takes_long() -> None:
    EFFECTS.append("began")
    await asyncio.sleep(0.5)


@workflow
async def both() -> None:
    await asyncio.gather(takes_long(), fails_at_first())


@pytest.mark.slow
async def test_a_paused_run_with_a_step_under_way_waits_for_it_and_does_nothing_else(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another step of it is due for a retry, which the pause forbids: that must not cause a busy loop."""
    RUNS.clear()
    waits: list[int] = []
    wait = driver._Driver._wait  # pyright: ignore[reportPrivateUsage]

    async def counted(*args: object) -> None:
        waits.append(1)
        await wait(*args)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(driver._Driver, "_wait", counted)  # pyright: ignore[reportPrivateUsage]
    engine = open_engine(both)
    async with Worker(engine):
        run = await engine.start(both())
        await until(lambda: EFFECTS == ["began"])
        await run.pause()
        await until(lambda: not engine.core.run_notifier.is_listened_to)
        assert len(waits) < 50
        await run.resume()
        with anyio.fail_after(SOON):
            await run.result()


SCRIPT = """
import sys
import threading
import time

import anyio
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.worker.worker import Worker
from holdfast.hosts.serverless.host import ServerlessHost
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.functions.machine import in_memory

go = Channel("go", int)

@step
async def refund(name: str) -> None:
    print("refunded", flush=True)

@step
def slow() -> None:
    time.sleep(60)

@workflow
async def waits(name: str) -> None:
    try:
        await (slow() if name == "driven" else go.receive())
    finally:
        await refund(name)

engine = Engine.open("memory://", workflows=[waits])
engine.sync.start(waits("resting"))
if sys.argv[1] == "serverless":
    host = ServerlessHost(engine, function_cache=1)
    host.process_available_jobs(max_jobs=1)
    assert len(in_memory()) == 1
else:
    engine.sync.start(waits("driven"))
    worker = Worker(engine)
    threading.Thread(target=lambda: anyio.run(worker.serve), daemon=True).start()
    while len(in_memory()) < 2 or worker.stats().running > 1:
        time.sleep(0.01)
print("ends", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("host", [pytest.param("serverless", marks=pytest.mark.slow), "worker"])
def test_a_program_that_just_ends_has_no_effects(tmp_path: Path, host: str) -> None:
    script = tmp_path / "ends.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), host]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ends\n", "")
