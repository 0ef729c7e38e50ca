"""The doctor on a store that changes during the scan: findings of one snapshot count, others are rechecked."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar, cast

import attrs
import pytest

from holdfast.adapters.memory.persistence import MemoryPersistence
from holdfast.adapters.memory.transport import MemoryTransport
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.maintenance.doctor.doctor import examine
from holdfast.hosts.maintenance.doctor.scan import StoreReader
from holdfast.hosts.wiring.stores import Stores
from holdfast.kernel.commands import (
    ChildRunStarted,
    Completed,
    JobClaim,
    JobWakeDue,
    MapExpanded,
    Outcome,
    RunCreate,
    RunDeliver,
)
from holdfast.ports.changes import DeleteJobs, Update
from holdfast.ports.json import parse
from holdfast.ports.persistence import Persistence, Query, Transaction
from holdfast.ports.queries.audit import (
    HistoriesOf,
    OrphanedRows,
    SlotsOver,
    SlotsOverLimit,
    WholeRun,
    WholeRuns,
)
from holdfast.ports.queries.runs import PendingDeliveries
from holdfast.ports.records.job import JobKind
from holdfast.ports.records.values import Payload
from holdfast.ports.searches import SlotPlace
from holdfast.testing.ids import SeededIds
from tests.unit.kernel.world import World, child, each, failed, payload, pipeline, settling, stage

R = TypeVar("R")


class _Moving:
    """A store in which something happens before each query, or whose first answer of a kind is replaced."""

    def __init__(
        self,
        inner: MemoryPersistence,
        between: Callable[[], object] = lambda: None,
        first: dict[type, object] | None = None,
    ) -> None:
        self.inner = inner
        self._between = between
        self._first = first or {}
        self.asked: list[object] = []

    def read(self, query: Query[R], /) -> R:
        self.asked.append(query)
        self._between()
        answer = self._first.pop(type(query), None)
        return self.inner.read(query) if answer is None else cast("R", answer)

    def transact(self, work: Callable[[Transaction], R], /) -> R:
        return self.inner.transact(work)

    def setup(self) -> None:
        self.inner.setup()

    def prune(self, before: int, /) -> int:
        return self.inner.prune(before)

    def close(self) -> None:
        self.inner.close()


def _examined(world: World, store: Persistence, **options: Any) -> set[str]:
    stores = Stores(
        persistence=store,
        transport=MemoryTransport(),
        blobs=None,
        clock=world.clock,
        ids=SeededIds(clock=world.clock),
    )
    return set(examine(Engine.on(stores).client, **options).found)


def _busy() -> tuple[World, Callable[[], None]]:
    """A world, and a function that advances its runs by one step: failures, retries, completed stages and items."""
    world = World(
        pipeline(each("m", limit=2), stage("b"), child("k"), stage("z")), pipeline(stage("c"), workflow="c")
    )
    session = world.open(lease=10**12)
    counts = {"step": 0}

    def step() -> None:
        counts["step"] += 1
        world.clock.advance(timedelta(seconds=1))
        do = world.kernel.dispatch
        do(JobWakeDue())
        for attempt in do(JobClaim(session=session, queue_claims=world.lanes(), limit=2)).attempts:
            if counts["step"] % 3 == 0 and attempt.attempt < attempt.max_attempts:
                outcome: Outcome = failed()
            elif attempt.kind is JobKind.EXPAND_MAP:
                outcome = MapExpanded(items=tuple(map(payload, range(4))))
            elif attempt.kind is JobKind.CHILD:
                outcome = ChildRunStarted(
                    run_id=f"{attempt.run}-k", workflow="c", version="1", input=payload(0)
                )
            else:
                outcome = Completed(output=payload(1))
            do(settling(attempt, outcome))
        for job in world.store.read(PendingDeliveries()):
            parent = parse(job.input)
            do(RunDeliver(job=job.key.text, parent=parent, output=payload(1)))
        if counts["step"] % 4 == 0:
            do(RunCreate(workflow="w", id=f"r{counts['step']}", input=payload(0)))

    world.create()
    return world, step


@pytest.mark.slow
def test_a_run_that_goes_on_while_it_is_read_is_judged_as_it_was() -> None:
    """Its jobs are read with its row in one snapshot, and its history only up to that row."""
    world, step = _busy()
    seen = 0
    for _ in range(40):
        examiner = StoreReader(_Moving(world.store, step))
        for page in examiner.pages():
            for part in examiner.parts(page.runs):
                local = [
                    one for one in part.violations(late_before=None) if "no job will deliver" not in one.what
                ]
                assert [str(one) for one in local] == []
                seen += len(part.snapshot.history)
    assert seen > 50


@pytest.mark.slow
def test_what_is_in_motion_is_not_told() -> None:
    world, step = _busy()
    for _ in range(20):
        assert _examined(world, _Moving(world.store, step)) == set()


def test_rows_that_the_run_does_not_count_are_none_that_were_added_meanwhile() -> None:
    world = World(pipeline(stage("a")))
    world.create()
    world.do(settling(world.claim_one(world.open()), failed()))
    world.store.transact(lambda tx: tx.apply([Update(attrs.evolve(world.run(), last_row=1))]))

    assert _examined(world, world.store) == {"O1"}


def test_what_is_seen_once_is_not_told() -> None:
    world = World(pipeline(stage("a")))
    world.create()
    place = SlotPlace("default", "k")
    first = {
        WholeRuns: (WholeRun(world.run(), ()),),
        OrphanedRows: (("gone", "jobs"),),
        SlotsOverLimit: (SlotsOver(place, 2, 1),),
    }
    store = _Moving(world.store, first=dict(first))

    assert _examined(world, store) == set()
    for kind in first:
        assert sum(isinstance(query, kind) for query in store.asked) >= 2, kind


def test_the_blobs_of_a_run_that_was_removed_meanwhile_are_missed_by_nobody() -> None:
    """They are deleted after its rows: a scan that read the rows before finds neither."""
    world = World(pipeline(stage("a")))
    world.create()
    run, (row,) = world.run(), world.history()
    spilled = attrs.evolve(row, payload=Payload(blob="a/b"))
    first: dict[type, object] = {WholeRuns: (WholeRun(run, tuple(world.jobs())),), HistoriesOf: (spilled,)}

    assert _examined(world, _Moving(world.store, first=dict(first)), blobs=True) == {"B1"}
    assert _examined(world, _Moving(MemoryPersistence(), first=dict(first)), blobs=True) == set()


def test_what_is_seen_twice_is_told() -> None:
    world = World(pipeline(stage("a")))
    world.create()
    world.put(DeleteJobs(world.run().key))

    assert _examined(world, world.store) == {"S7"}


@pytest.mark.parametrize("repair", [False, True])
def test_a_run_that_can_not_be_read_keeps_nobody_from_the_others(repair: bool) -> None:
    world = World(pipeline(stage("a")))
    world.create("x")
    world.create("y")
    world.put(Update(attrs.evolve(world.run("x"), progress="[")), DeleteJobs(world.run("y").key))

    assert _examined(world, world.store, repair=repair) == {"unreadable", "S7"}
    assert _examined(world, world.store) == ({"unreadable"} if repair else {"unreadable", "S7"})
