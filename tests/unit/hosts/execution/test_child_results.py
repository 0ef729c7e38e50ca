"""Maintenance delivers results to parents and closes the children of ended runs, page by page."""

from collections.abc import Callable
from typing import TypeVar

import pytest
from attrs import evolve
from typing_extensions import override

from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.hosts.execution import child_results
from holdfast.hosts.execution.bodies import Body
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.commands import RunRerunFrom
from holdfast.ports.changes import Insert, Update
from holdfast.ports.errors import UnavailableError
from holdfast.ports.json import parse
from holdfast.ports.persistence import Query
from holdfast.ports.queries.runs import PendingDeliveries, RunsByKey
from holdfast.ports.records.job import JobKind, JobState
from holdfast.ports.records.run import ClosePolicy, RunStatus
from holdfast.testing.blobs import MemoryBlobStore
from holdfast.testing.conformance.builders import a_job, a_key, a_run
from tests.unit.hosts.attempt_harness import Bench, CountingPersistence
from tests.unit.hosts.wiring.test_input_loader import SIMPLE

R = TypeVar("R")

LARGE = 100_000


@stage
def widen(number: int) -> str:
    return str(number) * LARGE


@stage
def left(number: int) -> int:
    return number + 1


@stage
def right(number: int) -> int:
    return number + 2


WIDENS = Pipeline("widens", input=int).pipe(widen)
TWO = Pipeline("two", input=int).parallel(left, right)
WIDE_PARENT = Pipeline("wide-parent", input=int).pipe(stage(WIDENS))
TWO_PARENT = Pipeline("two-parent", input=int).pipe(stage(TWO))


async def _run_next(bench: Bench, name: str) -> Body:
    """Run the body of the only job of this stage, and settle it."""
    (body,) = [body for body in bench.prepare() if body.attempt.node == name]
    bench.settle(body, await bench.run(body))
    return body


@pytest.mark.anyio
@pytest.mark.parametrize("loss", ["missing", "corrupt"])
async def test_a_stage_fails_whose_child_has_lost_what_it_gave(loss: str) -> None:
    blobs = MemoryBlobStore()
    bench = Bench(WIDENS, WIDE_PARENT, blobs=blobs)
    bench.start(WIDE_PARENT(7))
    await _run_next(bench, "widens")
    await _run_next(bench, "widen")
    (key,) = blobs.list("")
    if loss == "missing":
        blobs.delete(key)
    else:
        blobs.damage(key, b"something else")

    bench.client.deliver_child_results()
    error = parse(bench.row().error or "")
    assert (bench.row().status, error["stage"], error["code"]) == ("failed", "widens", f"blob_{loss}")
    assert "'x/widens' completed; its result is lost" in error["message"]


class _AwayBlobs(MemoryBlobStore):
    """Blobs of which some are temporarily unreadable."""

    def __init__(self) -> None:
        super().__init__()
        self.away: set[str] = set()

    @override
    def get(self, key: str, /) -> bytes:
        if key in self.away:
            raise OSError("the disk is away")
        return super().get(key)


@pytest.mark.anyio
async def test_ends_that_can_not_be_told_yet_hold_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many they are, and though the others come later."""
    monkeypatch.setattr(child_results, "AT_ONCE", 2)
    blobs = _AwayBlobs()
    bench = Bench(WIDENS, WIDE_PARENT, blobs=blobs)
    for number in range(1, 6):
        bench.start(WIDE_PARENT(number), id=f"r{number}")
    for stage_name in ("widens", "widen"):
        bodies = [body for body in bench.prepare() if body.attempt.node == stage_name]
        for body in bodies:
            bench.settle(body, await bench.run(body))
    keys = {key: blobs.get(key)[1:2].decode() for key in blobs.list("")}
    blobs.away = {key for key, number in keys.items() if number in "1234"}

    bench.client.deliver_child_results()
    assert [bench.row(f"r{number}").status for number in range(1, 6)] == [*["running"] * 4, "completed"]

    blobs.away = set()
    bench.client.deliver_child_results()
    assert [bench.row(f"r{number}").status for number in range(1, 6)] == ["completed"] * 5


@pytest.mark.anyio
@pytest.mark.parametrize(
    "damage", ["{", "{}", '{"error":null,"key":"k","outcome":"completed","row":"x","sender":"s"}']
)
async def test_a_delivery_that_can_not_be_read_holds_up_no_other(damage: str) -> None:
    bench = Bench(WIDENS, WIDE_PARENT, blobs=MemoryBlobStore())
    for run_id in ("a", "b"):
        bench.start(WIDE_PARENT(1), id=run_id)
    for node in ("widens", "widen"):
        bodies = [body for body in bench.prepare() if body.attempt.node == node]
        for body in bodies:
            bench.settle(body, await bench.run(body))
    store = bench.core.stores.persistence
    child = bench.row("a/widens").key
    (job,) = (one for one in store.read(PendingDeliveries(10)) if one.run == child)
    store.transact(lambda tx: tx.apply([Update(evolve(job, input=damage))]))

    bench.client.deliver_child_results()
    assert [bench.row(run_id).status for run_id in ("a", "b")] == ["running", "completed"]


class _NobodyIsTold(CountingPersistence):
    """A store whose query for pending deliveries fails."""

    @override
    def read(self, query: Query[R], /) -> R:
        if isinstance(query, PendingDeliveries):
            raise UnavailableError("it is away")
        return super().read(query)


def _cancel_all(engine: SyncEngine) -> None:
    assert engine.cancel_all(workflow="two-parent").changed == 1


_ENDS: list[Callable[[SyncEngine], object]] = [
    lambda engine: engine.handle(TWO_PARENT, "x").cancel(),
    lambda engine: engine.handle(TWO_PARENT, "x").terminate(),
    lambda engine: engine.handle(TWO_PARENT, "x").rerun_from(),
    lambda engine: engine.start(TWO_PARENT(1), id="x", if_active="terminate"),
    _cancel_all,
]


@pytest.mark.anyio
@pytest.mark.parametrize("end", _ENDS)
async def test_whatever_ends_a_run_closes_its_children_at_once(end: Callable[[SyncEngine], object]) -> None:
    """Without waiting for maintenance."""
    bench = Bench(TWO, TWO_PARENT)
    bench.start(TWO_PARENT(10))
    await _run_next(bench, "two")
    end(bench.engine.sync)

    assert bench.row("x/two").status == "cancelled"


@pytest.mark.anyio
@pytest.mark.parametrize("end", _ENDS)
async def test_what_is_done_is_done_though_nobody_can_be_told(end: Callable[[SyncEngine], object]) -> None:
    bench = Bench(TWO, TWO_PARENT, persistence=_NobodyIsTold())
    bench.start(TWO_PARENT(10))
    await _run_next(bench, "two")
    key = bench.row().key
    end(bench.engine.sync)

    (run,) = bench.core.stores.persistence.read(RunsByKey((key,)))
    assert (run.status, bench.row("x/two").status) == ("cancelled", "running")


@pytest.mark.anyio
async def test_a_child_that_was_run_again_gives_what_its_generations_gave_together() -> None:
    bench = Bench(TWO, TWO_PARENT)
    bench.start(TWO_PARENT(10))
    await _run_next(bench, "two")
    await _run_next(bench, "left")
    bench.engine.kernel.dispatch(RunRerunFrom(run_id="x/two"))
    await _run_next(bench, "right")

    bench.client.deliver_child_results()
    assert bench.engine.sync.handle(TWO_PARENT, "x").result() == (11, 12)


@pytest.mark.parametrize("widths", [(0, 0), (1, 0, 2), (3, 3), (7, 1, 0, 4), (1,) * 8])
@pytest.mark.parametrize("policy", [ClosePolicy.CANCEL, ClosePolicy.TERMINATE])
def test_the_children_of_many_runs_are_closed_some_at_a_time(
    monkeypatch: pytest.MonkeyPatch, widths: tuple[int, ...], policy: ClosePolicy
) -> None:
    """Three at once, of any runs; at the end no delivery is pending."""
    monkeypatch.setattr(child_results, "CHILDREN_AT_ONCE", 3)
    bench = Bench(SIMPLE)
    plan = SIMPLE.plan().fingerprint
    bench.start(SIMPLE(1))  # its plan is stored with it
    for number, width in enumerate(widths, 1):
        parent = a_run(number, status=RunStatus.COMPLETED, children=width, plan=plan)
        owed = a_job(number, 9, kind=JobKind.DELIVER, state=JobState.PENDING_DELIVERY, input="null")
        children = [
            a_run(
                100 * number + child,
                parent=f"{parent.key}.{1 + child}",
                close_policy=policy,
                plan=plan,
                open_jobs=1,
                last_job=1,
            )
            for child in range(width)
        ]
        jobs = [Insert(a_job(child.key)) for child in children]
        changes = [Insert(parent), Insert(owed), *map(Insert, children), *jobs]
        bench.store.transact(lambda tx, changes=changes: tx.apply(changes))  # type: ignore[misc]

    bench.client.deliver_child_results()

    keys = [a_key(100 * number + child) for number, width in enumerate(widths, 1) for child in range(width)]
    assert [run.status for run in bench.store.read(RunsByKey(tuple(keys)))] == [RunStatus.CANCELLED] * len(
        keys
    )
    assert bench.store.read(PendingDeliveries()) == ()
