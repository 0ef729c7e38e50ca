"""Limits within each other on every store: with workers and threads, children, schedules, and what people read."""

import contextlib
import threading
import time
from datetime import timedelta

import attrs
import pytest

from holdfast import Concurrency, Schedule, start_child
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.inspection.run_info import RunInfo
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.functions import sleep, workflow
from holdfast.kernel.calendars.specs import Every
from holdfast.kernel.invariants import check
from holdfast.ports.errors import InvalidCommandError, RunNotFoundError
from holdfast.ports.records.job import JobState
from holdfast.ports.records.run import RunStatus
from holdfast.ports.searches import SlotPlace, UsedSlots, Waiting
from holdfast.testing.snapshots import snapshot_of
from tests.integration.hosts.conftest import OpenEngine

SOON = timedelta(minutes=2)
ALL = Concurrency("all", limit=4)
NESTED = Concurrency(by="user", limit=1, within=Concurrency(by="tenant", limit=2, within=ALL))


@workflow(concurrency=NESTED)
async def waits(number: int) -> int:
    await sleep(3_600)
    return number


@workflow(concurrency=NESTED)
async def quick(number: int) -> int:
    return number


@workflow
async def parent(number: int) -> int:
    child = await start_child(quick(number), id="child")
    return await child.result()


def who(tenant: str, user: str) -> dict[str, str]:
    return {"tenant": tenant, "user": user}


def the_child(engine: Engine) -> RunInfo:
    """Wait for the child run to be stored."""
    for _ in range(1_000):
        with contextlib.suppress(RunNotFoundError):
            return engine.sync.handle(quick, "child").info()
        time.sleep(0.01)
    raise AssertionError("the child run was never started")


def wait_until_parked(engine: Engine, run_id: str) -> None:
    """Wait until the function of a run waits and its worker has stored that."""
    for _ in range(1_000):
        found = snapshot_of(engine.core.stores.persistence, [engine.core.namespace])
        (run,) = (one for one in found.runs.values() if one.id == run_id)
        if any(job.state is JobState.SLEEPING for job in found.jobs.get(run.key, {}).values()):
            return
        time.sleep(0.01)
    raise AssertionError("the function never waited")


def used(engine: Engine, *keys: str) -> list[int]:
    places = [SlotPlace(engine.core.namespace, key) for key in keys]
    found = engine.core.stores.persistence.transact(lambda tx: tx.find(UsedSlots(Waiting.RUNS, places)))
    return [found[place] for place in places]


def sound(engine: Engine) -> bool:
    return check(snapshot_of(engine.core.stores.persistence, [engine.core.namespace])) == []


@pytest.mark.slow
def test_no_level_is_ever_over_its_limit_whatever_many_threads_do(open_engine: OpenEngine) -> None:
    """Four threads start and end runs of the same tenants; a fifth looks meanwhile. In the end every level is full."""
    engine = open_engine(waits)
    engine.core.connect()
    keys = ["all", "all :: tenant/0", "all :: tenant/1", "all :: tenant/2"]
    over: list[list[int]] = []
    done = threading.Event()

    def starts(thread: int) -> None:
        for number in range(8):
            mine = who(str((thread + number) % 3), str(number % 2))
            run = engine.sync.start(waits(number), id=f"{thread}-{number}", attributes=mine)
            if number % 2:
                run.terminate()

    def looks() -> None:
        while not done.is_set():
            counts = used(engine, *keys)
            if any(found > most for found, most in zip(counts, (4, 2, 2, 2), strict=True)):
                over.append(counts)
            time.sleep(0.002)

    threads = [threading.Thread(target=starts, args=(thread,)) for thread in range(4)]
    looker = threading.Thread(target=looks)
    for one in (looker, *threads):
        one.start()
    for one in threads:
        one.join()
    done.set()
    looker.join()

    assert over == []
    assert sound(engine)
    assert (
        used(engine, "all") == [4] or sum(used(engine, *keys[1:])) == 3
    )  # each tenant has one user that is even


@pytest.mark.slow
def test_a_worker_brings_all_runs_to_their_end(open_engine: OpenEngine) -> None:
    engine = open_engine(quick)
    runs = [
        engine.sync.start(quick(number), attributes=who(str(number % 3), str(number % 2)))
        for number in range(24)
    ]
    with Worker(engine):
        assert [run.result(timeout=SOON) for run in runs] == list(range(24))
    assert sound(engine)


def test_why_names_each_full_level_who_holds_it_and_the_place_in_line(open_engine: OpenEngine) -> None:
    engine = open_engine(waits)
    for name in ("a ann", "a bob", "a cid", "b ann", "c ann", "d ann"):
        engine.sync.start(waits(1), id=name, attributes=who(*name.split()))

    def reasons(name: str) -> list[str]:
        return [one.text for one in engine.sync.handle(waits, name).why()]

    (last,) = reasons("d ann")
    assert "at most 4 of the runs with the concurrency key 'all' run" in last
    assert last.endswith("1 run is before it.")
    outermost, tenant = reasons("a cid")
    assert "the concurrency key 'all' run at a time, and a slot is held by 'a ann' since" in outermost
    assert "at most 2 of the runs with the concurrency key 'all :: tenant/a' run at a time" in tenant
    assert "held by 'a ann' since" in tenant
    assert "'a bob' since" in tenant
    assert tenant.endswith("It is the next.")

    engine.sync.limits.set("run:all", slots=9, reason="a bigger machine")
    (still,) = reasons("a cid")
    assert "'all :: tenant/a'" in still
    engine.sync.limits.set("run:all :: tenant/a", slots=0)
    assert "The limit of run:all :: tenant/a is 0, set" in reasons("a cid")[0]
    assert "the plan says 2" in reasons("a cid")[0]


def test_every_level_is_listed_and_can_be_changed(open_engine: OpenEngine) -> None:
    engine = open_engine(waits)
    for name in ("a ann", "a bob", "a cid", "b ann"):
        engine.sync.start(waits(1), id=name, attributes=who(*name.split()))
    limits = engine.sync.limits
    listed = {one.name: (one.slots, one.under_way, one.waiting) for one in limits.list()}
    assert listed == {
        "run:all": (4, 3, 1),
        "run:all :: tenant/a": (2, 2, 1),
        "run:all :: tenant/a :: user/cid": (1, 0, 1),
    }
    limits.set("run:all :: tenant/a", slots=3)
    assert engine.sync.handle(waits, "a cid").info().status is RunStatus.RUNNING
    found = limits.get("run:all :: tenant/a")
    assert (found.slots, found.planned_slots, found.under_way, found.is_set) == (3, 2, 3, True)
    info = engine.sync.handle(waits, "a cid").info()
    assert (info.concurrency_key, info.concurrency_limit) == ("all :: tenant/a :: user/cid", 1)


def test_children_obey_the_limits_around_by_the_attributes_of_their_parent(open_engine: OpenEngine) -> None:
    engine = open_engine(waits, quick, parent)
    holder = engine.sync.start(waits(1), attributes=who("a", "ann"))
    run = engine.sync.start(parent(7), attributes=who("a", "ann"))
    with Worker(engine):
        child = the_child(engine)
        assert (child.concurrency_key, child.status) == ("all :: tenant/a :: user/ann", RunStatus.PENDING)
        wait_until_parked(engine, holder.id)
        holder.terminate()
        assert run.result(timeout=SOON) == 7


def test_a_schedule_starts_runs_under_levels(open_engine: OpenEngine) -> None:
    engine = open_engine(waits)
    nightly = Schedule(
        "nightly", waits(1), when=Every(timedelta(hours=1)), overlap="allow", attributes=who("a", "x")
    )
    handle = engine.sync.create_schedule(nightly)
    started = [handle.trigger().run_id for _ in range(2)]
    found = [engine.sync.handle(waits, run_id or "").info() for run_id in started]
    assert [one.concurrency_key for one in found] == ["all :: tenant/a :: user/x"] * 2
    assert [one.status for one in found] == [RunStatus.RUNNING, RunStatus.PENDING]
    with pytest.raises(InvalidCommandError, match="can't be combined with the concurrency of the workflow"):
        engine.sync.create_schedule(attrs.evolve(nightly, name="queued", overlap="queue"))
