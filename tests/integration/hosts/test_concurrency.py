"""Bounded concurrency keys on every store: what starts do, from many threads and in functions."""

import threading
import time
from datetime import timedelta

import pytest

from holdfast import Concurrency, start_child
from holdfast.errors import ConcurrencyFullError, InvalidCommandError, RunFailedError
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.concurrency import FullName
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.functions import sleep, workflow
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.schedules import Schedule
from holdfast.kernel.calendars.specs import Every
from holdfast.kernel.invariants import check
from holdfast.ports.records.run import RunStatus
from holdfast.ports.searches import OpenRuns, SlotPlace
from holdfast.testing.snapshots import snapshot_of
from tests.integration.hosts.conftest import OpenEngine

SOON = timedelta(minutes=2)


@workflow
async def waits(number: int) -> int:
    await sleep(3_600)
    return number


@workflow(concurrency=Concurrency("one", full="refuse"))
async def alone(number: int) -> int:
    return number


@workflow(name="tenants", concurrency=Concurrency(by="tenant", limit=1, full="replace"))
async def of_tenant() -> None:
    await sleep(3_600)


@workflow
async def tries(number: int) -> str:
    try:
        return str(await alone(number))
    except ConcurrencyFullError as error:
        return str(error)


@workflow
async def starts_bounded(key: str) -> str:
    try:
        child = await start_child(alone(1), concurrency=Concurrency(key, full="refuse"))
    except ConcurrencyFullError as error:
        return f"refused: {error.code}"
    return str(await child.result())


def sound(engine: Engine) -> bool:
    return check(snapshot_of(engine.core.stores.persistence, [engine.core.namespace])) == []


def open_runs(engine: Engine, key: str) -> tuple[int, int]:
    place = SlotPlace(engine.core.namespace, key)
    found = engine.core.stores.persistence.transact(lambda tx: tx.find(OpenRuns([(place, 0)])))
    return (found[place].under_way, found[place].waiting) if place in found else (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("full", "waiting", "most"), [("replace", 1, 3), ("refuse", 2, 4), ("terminate", 0, 2), ("return", 1, 3)]
)
def test_a_key_keeps_its_bound_whatever_many_threads_do(
    open_engine: OpenEngine, full: FullName, waiting: int, most: int
) -> None:
    """Four threads start runs at once; a fifth looks after every few commits."""
    engine = open_engine(waits)
    limit = Concurrency("k", limit=2, waiting=waiting, full=full)
    engine.sync.start(waits(0))  # makes the tables
    refused: list[BaseException] = []
    created: list[str] = []
    over: list[tuple[int, int]] = []
    done = threading.Event()

    def starts(thread: int) -> None:
        for number in range(12):
            try:
                created.append(
                    engine.sync.start(waits(number), id=f"{thread}-{number}", concurrency=limit).id
                )
            except ConcurrencyFullError as error:
                refused.append(error)

    def looks() -> None:
        while not done.is_set():
            counts = open_runs(engine, "k")
            if sum(counts) > most:
                over.append(counts)
            time.sleep(0.002)

    threads = [threading.Thread(target=starts, args=(thread,)) for thread in range(4)]
    looker = threading.Thread(target=looks)
    looker.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    looker.join()

    assert over == []
    assert len(created) + len(refused) == 48
    assert sum(open_runs(engine, "k")) == most
    assert bool(refused) == (full == "refuse")
    assert sound(engine)


def test_a_start_says_whom_it_ended_and_why_says_so(open_engine: OpenEngine) -> None:
    engine = open_engine(of_tenant)
    start = [
        engine.sync.start(of_tenant(), id=name, attributes={"tenant": "ann"}) for name in ("a", "b", "c")
    ]
    engine.sync.start(of_tenant(), id="ben", attributes={"tenant": "ben"})

    (ended,) = start[1].why()
    assert "superseded: run 'c' took its place" in ended.text
    (waits_for,) = start[2].why()
    assert "at most 1 of the runs with the concurrency key 'tenants/tenant/ann'" in waits_for.text
    assert "a slot is held by 'a' since " in waits_for.text
    assert waits_for.text.endswith("It is the next.")
    assert engine.sync.handle(of_tenant, "ben").info().status is RunStatus.RUNNING
    later = [
        engine.sync.start(of_tenant(), id=name, concurrency=Concurrency("tenants/tenant/ann"))
        for name in ("d", "e")
    ]
    assert later[1].why()[0].text.endswith(" 2 runs are before it.")


@pytest.mark.slow
def test_a_child_run_that_is_refused_fails_its_call(open_engine: OpenEngine) -> None:
    engine = open_engine(waits, alone, tries, starts_bounded)
    holder = engine.sync.start(waits(1), concurrency=Concurrency("one"))
    with Worker(engine):
        refused = engine.sync.start(tries(1)).result(timeout=SOON)
        assert "the concurrency key 'one' is full" in refused
        assert engine.sync.start(starts_bounded("own")).result(timeout=SOON) == "1"
        assert engine.sync.start(starts_bounded("one")).result(timeout=SOON) == "refused: concurrency_full"
        holder.terminate()
        assert engine.sync.start(tries(7)).result(timeout=SOON) == "7"
    assert sound(engine)


def test_a_child_stage_that_is_refused_fails(open_engine: OpenEngine) -> None:
    parent = Pipeline("parent", input=int).pipe(stage(alone))
    engine = open_engine(waits, alone, parent)
    engine.sync.start(waits(1), concurrency=Concurrency("one"))
    with Worker(engine), pytest.raises(RunFailedError, match="'one' is full"):
        engine.sync.start(parent(1)).result(timeout=SOON)


def test_a_schedule_skips_the_times_that_are_refused(open_engine: OpenEngine) -> None:
    engine = open_engine(waits, alone)
    holder = engine.sync.start(waits(1), id="holder", concurrency=Concurrency("one"))
    schedule = engine.sync.create_schedule(
        Schedule("often", alone(1), when=Every(timedelta(hours=1)), overlap="allow")
    )
    assert schedule.trigger().skipped_for == holder.id
    holder.terminate()
    assert schedule.trigger().run_id is not None
    with pytest.raises(InvalidCommandError, match="can't be combined with the concurrency of the workflow"):
        engine.sync.create_schedule(
            Schedule("queued", alone(1), when=Every(timedelta(hours=1)), overlap="queue")
        )
