"""Long histories are marked, and beyond the limit their functions start only cleanup."""

import logging
from datetime import timedelta

import anyio
import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.calls import Call
from holdfast.kernel.authoring.functions import sleep, workflow
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.history import limits
from holdfast.kernel.invariants import check
from holdfast.ports.errors import RunCancelledError
from holdfast.ports.records.run import RunStatus
from holdfast.testing.snapshots import snapshot_of
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.polling import until

SOON = 120

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick", "short")]


@pytest.fixture
def anyio_backend() -> str:
    """One backend is enough: workers are tested on both elsewhere."""
    return "asyncio"


@pytest.fixture
def url() -> str:
    """One store is enough: the rules are the same on all."""
    return "memory://"


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six rows make a history long, ten full."""
    monkeypatch.setattr(limits, "ROWS_LONG", 6)
    monkeypatch.setattr(limits, "ROWS_MAX", 10)
    monkeypatch.setattr(limits, "ROWS_MORE", 4)


UNDONE: list[int] = []


@step
def one(number: int) -> int:
    return number


@one.compensate
def undo(number: int) -> None:
    UNDONE.append(number)


@workflow
async def chain(length: int) -> int:
    for number in range(length):
        await one(number)
    return length


@workflow
async def ticks(times: int) -> None:
    for _ in range(times):
        await sleep(timedelta(milliseconds=1))


def types_of(run: SyncRunHandle[object]) -> list[str]:
    return [event.type for event in run.history()]


def sound(engine: Engine) -> None:
    assert check(snapshot_of(engine.core.stores.persistence, [engine.core.namespace])) == []


async def test_a_history_that_gets_long_is_marked_once(
    open_engine: OpenEngine, caplog: pytest.LogCaptureFixture
) -> None:
    engine = open_engine(chain)
    with caplog.at_level(logging.WARNING, "holdfast.functions"):
        async with Worker(engine):
            with anyio.fail_after(SOON):
                assert await engine.run(chain(6), id="x") == 6
    types = types_of(engine.sync.handle(chain, "x"))
    assert types.count("run.history_long") == 1
    assert types.index("run.history_long") == 6, "it comes right after the row that made it long"
    (warning,) = [one.getMessage() for one in caplog.records if "history" in one.getMessage()]
    assert warning == "the history of run 'x' has 7 rows of at most 10: each wake-up reads all of them"
    sound(engine)


@pytest.mark.parametrize("call", [chain(30), ticks(30)], ids=["steps", "timers"])
async def test_a_full_history_blocks_the_run_and_each_resume_gives_it_some_more(
    open_engine: OpenEngine, call: Call[int | None]
) -> None:
    engine = open_engine(chain, ticks)
    handle = engine.sync.start(call)
    async with Worker(engine):
        await until(lambda: handle.info().status is RunStatus.BLOCKED)
        blocked = handle.history()[-1]
        assert blocked.data["code"] == "history_full"
        assert "the history has 10 rows" in str(blocked.data["message"])
        assert blocked.number == 11
        handle.resume()
        await until(lambda: handle.info().status is RunStatus.BLOCKED)
        assert handle.history()[-1].number == 15
    sound(engine)


async def test_a_run_whose_history_is_full_still_takes_back_what_it_did(open_engine: OpenEngine) -> None:
    UNDONE.clear()
    engine = open_engine(chain)
    run = engine.sync.start(chain(30), id="x")
    async with Worker(engine):
        await until(lambda: run.info().status is RunStatus.BLOCKED)
        run.cancel()
        with anyio.fail_after(SOON), pytest.raises(RunCancelledError):
            await engine.handle(chain, "x").result()
    assert len(UNDONE) >= 7
    sound(engine)
