"""Removal of runs with their blobs: one, many, or by age."""

import logging
from datetime import timedelta
from typing import Any

import pytest
from typing_extensions import override

from holdfast.hosts.maintenance import retention
from holdfast.hosts.maintenance.tick import PRUNE_INTERVAL, Maintenance
from holdfast.hosts.serverless.host import ServerlessHost
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.kernel.commands import SessionOpen
from holdfast.ports.errors import (
    InvalidArgumentError,
    InvalidFilterError,
    RemoveRefusedError,
    RunNotFoundError,
)
from holdfast.testing.blobs import MemoryBlobStore
from tests.unit.hosts.attempt_harness import Bench

LARGE = 100_000
DAY = timedelta(days=1)

pytestmark = pytest.mark.anyio


@stage
async def widen(ctx: StageContext[None], text: str) -> str:
    ctx.artifacts.put("report", b"r" * LARGE)
    return text * 2


WIDE = Pipeline("wide", input=str).pipe(widen)
PARENT = Pipeline("parent", input=list[str]).map(stage(WIDE))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def _bench(blobs: MemoryBlobStore, *ids: str) -> Bench:
    bench = Bench(WIDE, PARENT, blobs=blobs)
    for id_ in ids:
        bench.start(WIDE(id_ * LARGE), id=id_)
    await bench.drain()
    return bench


def _owners(blobs: MemoryBlobStore) -> set[str]:
    return {key.split("/")[1] for key in blobs.list("")}


async def test_a_run_goes_with_its_blobs_and_leaves_those_of_others() -> None:
    blobs = MemoryBlobStore()
    bench = await _bench(blobs, "a")
    others = list(blobs.list(""))
    bench.start(WIDE("b" * LARGE), id="b")
    await bench.drain()
    assert len(list(blobs.list(""))) == 2 * len(others) == 6  # what it got, what it gave, and its artifact

    assert bench.engine.sync.handle(WIDE, "b").remove()
    assert list(blobs.list("")) == others
    assert bench.engine.sync.handle(WIDE, "a").result() == "a" * 2 * LARGE
    with pytest.raises(RunNotFoundError):
        bench.engine.sync.handle(WIDE, "b").info()


async def test_what_was_got_under_an_idempotency_key_stays() -> None:
    """Another start with the key may be about to refer to it."""
    blobs = MemoryBlobStore()
    bench = Bench(WIDE, blobs=blobs)
    bench.engine.sync.start(WIDE("a" * LARGE), id="a", idempotency_key="k")
    await bench.drain()
    bench.engine.sync.handle(WIDE, "a").remove()

    assert len(_owners(blobs)) == 1


async def test_children_keep_what_they_got_from_a_parent_that_is_removed() -> None:
    """And the parent keeps the results of removed children."""
    blobs = MemoryBlobStore()
    bench = Bench(WIDE, PARENT, blobs=blobs)
    bench.start(PARENT(["p" * LARGE, "p" * LARGE]), id="p")
    await bench.drain()
    bench.client.deliver_child_results()
    engine = bench.engine.sync

    engine.handle(WIDE, "p/wide/0").remove()
    assert engine.handle(PARENT, "p").result() == ["p" * 2 * LARGE] * 2
    engine.handle(PARENT, "p").remove()
    again = engine.handle(WIDE, "p/wide/1")
    again.rerun_from()
    await bench.drain()
    assert again.result() == "p" * 2 * LARGE

    again.remove()
    assert list(blobs.list("")) == []


class _NoDeletes(MemoryBlobStore):
    @override
    def delete(self, key: str, /) -> None:
        raise OSError("read only")


async def test_a_run_is_removed_though_its_blobs_can_not_be(caplog: pytest.LogCaptureFixture) -> None:
    bench = await _bench(_NoDeletes(), "a")
    with caplog.at_level(logging.WARNING, "holdfast"):
        assert bench.engine.sync.handle(WIDE, "a").remove()

    assert "could not be deleted: read only" in caplog.text
    assert list(bench.engine.sync.runs()) == []


async def test_many_are_removed_and_those_that_are_under_way_are_not() -> None:
    bench = await _bench(MemoryBlobStore(), "a", "b")
    bench.start(WIDE("c"), id="c")

    result = bench.engine.sync.remove_all()
    assert (result.changed, result.refused) == (2, 0)
    assert [info.id for info in bench.engine.sync.runs()] == ["c"]
    with pytest.raises(InvalidFilterError, match="to remove a run, it must be"):
        bench.engine.sync.remove_all(status="running")
    with pytest.raises(RemoveRefusedError, match="it is running"):
        bench.engine.sync.handle(WIDE, "c").remove()


async def test_those_that_ended_lately_are_kept() -> None:
    bench = await _bench(MemoryBlobStore(), "a")
    bench.clock.advance(DAY)
    bench.start(WIDE("b"), id="b")
    await bench.drain()
    lately = bench.clock.now() - timedelta(hours=1)

    assert [info.id for info in bench.engine.sync.runs(ended_before=lately)] == ["a"]
    assert (await bench.engine.remove_all(ended_before=lately)).changed == 1
    assert [info.id for info in bench.engine.sync.runs()] == ["b"]


async def test_maintenance_removes_what_is_kept_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some in each tick, oldest first, and at once again; then it pauses."""
    monkeypatch.setattr(retention, "AT_ONCE", 2)
    monkeypatch.setattr(retention, "PAGES_MAX", 2)
    bench = await _bench(MemoryBlobStore(), *map(str, range(7)))
    bench.clock.advance(10 * DAY)
    bench.start(WIDE("young"), id="young")
    await bench.drain()
    maintenance = Maintenance(bench.core, lease=30, retention=timedelta(days=9))

    assert maintenance.prune()
    assert sorted(info.id for info in bench.engine.sync.runs()) == ["4", "5", "6", "young"]
    assert not maintenance.prune()
    assert [info.id for info in bench.engine.sync.runs()] == ["young"]
    bench.clock.advance(10 * DAY)
    assert not maintenance.prune()
    assert list(bench.engine.sync.runs()) == []


async def test_runs_expire_in_a_process_that_does_not_lead_maintenance() -> None:
    """One process leads for all namespaces; the setting is that of a process of its own."""
    bench = await _bench(MemoryBlobStore(), "old")
    bench.clock.advance(10 * DAY)
    leader = Maintenance(bench.core, lease=30)
    other = Maintenance(bench.core, lease=30, retention=timedelta(days=9))

    one, another = (
        bench.core.kernel.dispatch(SessionOpen(host=host, lease=60_000_000)).session for host in ("a", "b")
    )

    leader.sweep(one)
    assert [info.id for info in bench.engine.sync.runs()] == ["old"]
    other.sweep(another)

    assert list(bench.engine.sync.runs()) == []


async def test_a_run_is_kept_from_its_end_on_and_not_from_its_creation() -> None:
    """A run that took a year is kept as long as one that took a second."""
    bench = Bench(WIDE, blobs=MemoryBlobStore())
    bench.start(WIDE("slow"), id="slow")
    bench.clock.advance(400 * DAY)
    await bench.drain()
    retention = timedelta(days=9)
    bench.clock.advance(retention)

    Maintenance(bench.core, lease=30, retention=retention).prune()
    assert [info.id for info in bench.engine.sync.runs()] == ["slow"]
    bench.clock.advance(timedelta(seconds=1))
    Maintenance(bench.core, lease=30, retention=retention).prune()
    assert list(bench.engine.sync.runs()) == []


async def test_what_can_not_be_removed_yet_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "AT_ONCE", 1)
    bench = Bench(WIDE, PARENT, blobs=MemoryBlobStore())
    bench.engine.sync.register_sink("audit", since=bench.clock.now())
    for id_ in ("a", "b"):
        bench.start(WIDE(id_), id=id_)
    await bench.drain()
    bench.engine.sync.remove_sink("audit")
    bench.start(PARENT(["c"]), id="p")
    await bench.drain()  # the parent is not told of the end of its child
    bench.clock.advance(2 * DAY)
    Maintenance(bench.core, lease=30, retention=timedelta(days=1)).prune()

    assert sorted(info.id for info in bench.engine.sync.runs()) == ["p", "p/wide/0"]


async def test_without_retention_nothing_is_removed() -> None:
    bench = await _bench(MemoryBlobStore(), "a")
    bench.clock.advance(10_000 * DAY)
    assert not Maintenance(bench.core, lease=30).prune()
    bench.clock.advance(timedelta(seconds=PRUNE_INTERVAL))

    assert [info.id for info in bench.engine.sync.runs()] == ["a"]


@pytest.mark.parametrize("host", [Worker, ServerlessHost])
@pytest.mark.parametrize("retention", ["30d", 30, timedelta(minutes=59)])
async def test_a_retention_that_can_not_be_meant_is_refused(host: Any, retention: object) -> None:
    with pytest.raises(InvalidArgumentError, match=r"retention is .*, of at least 3,600 seconds"):
        host(Bench(WIDE).engine, retention=retention)
