"""Blocked runs resume by themselves when fitting code is deployed."""

import anyio
import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.functions.upgrade_check import UpgradeCheck, check_run
from holdfast.hosts.maintenance import blocked_runs
from holdfast.hosts.maintenance.blocked_runs import REASON, TIMES_MAX, BlockedRunResumer
from holdfast.hosts.serverless.host import ServerlessHost
from holdfast.hosts.wiring.services import Core
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.functions import Workflow, workflow
from holdfast.kernel.authoring.steps import step
from holdfast.ports.records.run import Run, RunStatus
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.polling import until

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick")]


@pytest.fixture
def anyio_backend() -> str:
    """One backend is enough: workers are tested on both elsewhere."""
    return "asyncio"


@pytest.fixture
def url(database_url: str) -> str:
    """Without the in-memory store, which other code cannot open."""
    return database_url


GO = Channel("go", str)


@step
async def pack(what: str) -> str:
    return what


@step
async def charge(what: str) -> str:
    return what


@workflow
async def sends(what: str) -> str:
    await pack(what)
    await GO.receive()
    return await pack("done")


def otherwise(name: str) -> Workflow[[str], str]:
    @workflow(name=name)
    async def other(what: str) -> str:
        return await charge(what)

    return other


async def blocked(open_engine: OpenEngine) -> Engine:
    """Return an engine whose code does not fit and has blocked a run."""
    engine = open_engine(sends)
    engine.sync.start(sends("a"), id="x")
    async with Worker(engine):
        await until(lambda: engine.sync.handle(sends, "x").row().last_row >= 2)
    engine.sync.handle(sends, "x").signal(GO("now"))
    changed = open_engine(otherwise("sends"))
    async with Worker(changed):
        await until(lambda: status(changed) is RunStatus.BLOCKED)
    return changed


def status(engine: Engine) -> RunStatus:
    return engine.sync.handle(sends, "x").row().status


def rows(engine: Engine) -> list[str]:
    return [event.type for event in engine.sync.handle(sends, "x").history()]


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that receives the ids of runs whose histories are replayed from now on."""
    looks: list[str] = []

    def counting(core: Core, run: Run) -> UpgradeCheck:
        looks.append(run.id)
        return check_run(core, run)

    monkeypatch.setattr(blocked_runs, "check_run", counting)
    return looks


@pytest.mark.slow
async def test_a_worker_with_code_that_fits_has_it_go_on(open_engine: OpenEngine) -> None:
    await blocked(open_engine)
    mended = open_engine(sends)
    async with Worker(mended):
        with anyio.fail_after(60):
            assert await mended.handle(sends, "x").result() == "done"
    (resumed,) = [event for event in mended.sync.handle(sends, "x").history() if event.type == "run.resumed"]
    assert resumed.data == {"reason": REASON}


async def test_a_serverless_host_does_so_too(open_engine: OpenEngine) -> None:
    await blocked(open_engine)
    mended = open_engine(sends)
    ServerlessHost(mended).run_maintenance_tick()
    assert status(mended) is not RunStatus.BLOCKED


async def test_whoever_asks_is_told_that_it_goes_on(open_engine: OpenEngine) -> None:
    changed = await blocked(open_engine)
    assert changed.sync.handle(sends, "x").why()[0].text.endswith("It resumes when fitting code is deployed.")


async def test_code_that_does_not_fit_leaves_it_as_it_is_and_replays_it_once(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = await blocked(open_engine)
    monkeypatch.setattr(blocked_runs, "INTERVAL", 0.0)
    looks = counted(monkeypatch)
    before = rows(changed)
    mender = BlockedRunResumer(changed.core)

    assert [mender.round() for _ in range(3)] == [(), (), ()]
    assert (rows(changed), looks) == (before, ["x"])


async def test_a_round_comes_once_a_minute(open_engine: OpenEngine) -> None:
    changed = await blocked(open_engine)
    assert BlockedRunResumer(changed.core).round() == ()
    mender = BlockedRunResumer(open_engine(sends).core)
    assert mender.round() == ("x",)
    async with Worker(changed):  # an older one, which still runs
        await until(lambda: status(changed) is RunStatus.BLOCKED)
    assert mender.round() == ()


@pytest.mark.slow
async def test_what_is_blocked_again_and_again_is_left_to_people(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = await blocked(open_engine)
    monkeypatch.setattr(blocked_runs, "INTERVAL", 0.0)
    mender = BlockedRunResumer(open_engine(sends).core)
    for _ in range(TIMES_MAX):
        assert mender.round() == ("x",)
        async with Worker(changed):
            await until(lambda: status(changed) is RunStatus.BLOCKED)
    assert mender.round() == ()

    changed.sync.handle(sends, "x").resume(reason="the old workers are gone")
    async with Worker(changed):
        await until(lambda: status(changed) is RunStatus.BLOCKED)
    assert mender.round() == ("x",)


async def test_what_code_can_not_mend_is_left_to_people(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = await blocked(open_engine)
    monkeypatch.setattr(blocked_runs, "RESUMED_BY_CODE", frozenset({"stuck"}))
    assert BlockedRunResumer(open_engine(sends).core).round() == ()
    assert status(changed) is RunStatus.BLOCKED


@pytest.mark.slow
async def test_many_are_looked_at_a_page_at_a_time(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine(sends)
    for number in range(5):
        engine.sync.start(sends("a"), id=str(number))
    async with Worker(engine):
        await until(lambda: all(engine.sync.handle(sends, str(n)).row().last_row >= 2 for n in range(5)))
    for number in range(5):
        engine.sync.handle(sends, str(number)).signal(GO("now"))
    changed = open_engine(otherwise("sends"))
    async with Worker(changed):
        await until(lambda: changed.sync.count(status="blocked")[RunStatus.BLOCKED] == 5)
    monkeypatch.setattr(blocked_runs, "INTERVAL", 0.0)
    monkeypatch.setattr(blocked_runs, "_PAGE", 2)
    looks = counted(monkeypatch)
    unfit, mender = BlockedRunResumer(changed.core), BlockedRunResumer(open_engine(sends).core)

    assert [len(unfit.round()) for _ in range(6)] == [0] * 6
    assert sorted(looks) == list("01234")
    assert sum(len(mender.round()) for _ in range(6)) == 5
