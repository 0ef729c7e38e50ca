"""Cancel, pause, resume and rerun of many runs, on every store."""

from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import attrs
import pytest

from holdfast.hosts.client.bulk_actions import CANCEL, BulkResult, action_filter, apply_to_all, command_for
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.worker.worker import Worker
from holdfast.ports.errors import InvalidFilterError, RunFailedError
from holdfast.ports.records.run import Run, RunStatus
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.pipelines import FAILING, SIMPLE, TEXT, WIDE

SOON = timedelta(minutes=2)


def started(engine: Engine, *ids: str) -> Engine:
    for name in ids:
        engine.sync.start(SIMPLE(1), id=name)
    return engine


def statuses(engine: Engine) -> dict[str, str]:
    return {run.id: str(run.status) for run in engine.sync.runs()}


def some(counts: dict[RunStatus, int]) -> dict[RunStatus, int]:
    """Return the entries with a count above zero."""
    return {status: number for status, number in counts.items() if number}


def test_runs_are_paused_resumed_and_cancelled_by_filter(open_engine: OpenEngine) -> None:
    engine = started(open_engine(SIMPLE, TEXT), "a", "b")
    engine.sync.start(TEXT("x"), id="t", attributes={"who": "me"})

    assert engine.sync.pause_all(workflow=SIMPLE, reason="look") == BulkResult(changed=2)
    assert engine.sync.pause_all(workflow=SIMPLE) == BulkResult()
    assert statuses(engine) == {"a": "paused", "b": "paused", "t": "running"}
    assert engine.sync.resume_all(limit=1) == BulkResult(changed=1)
    assert statuses(engine) == {"a": "running", "b": "paused", "t": "running"}
    assert engine.sync.cancel_all(attributes={"who": "me"}) == BulkResult(changed=1)
    assert engine.sync.terminate_all(status=["running", "completed"]) == BulkResult(changed=1)
    assert statuses(engine) == {"a": "cancelled", "b": "paused", "t": "cancelled"}
    assert engine.sync.handle(SIMPLE, "b").history()[1].data == {"reason": "look"}


def test_runs_that_are_named_are_changed_whatever_status_the_action_expects(open_engine: OpenEngine) -> None:
    """If the action is possible; an active run is run again only if its status is asked for."""
    engine = started(open_engine(SIMPLE), "a", "b", "c", "d")
    assert engine.sync.cancel_all(ids=["a", "b", "absent"]) == BulkResult(changed=2)
    assert engine.sync.cancel_all(ids=["a"]) == BulkResult()
    assert engine.sync.rerun_all(ids=["a", "c"]) == BulkResult(changed=1)
    assert statuses(engine) == {"a": "running", "b": "cancelled", "c": "running", "d": "running"}
    assert engine.sync.handle(SIMPLE, "c").info().generation == 1
    assert engine.sync.pause_all(ids=iter(["a", "d"])) == BulkResult(changed=2)
    with pytest.raises(InvalidFilterError, match="has no id in it"):
        engine.sync.terminate_all(ids=[])
    assert engine.sync.remove_all(ids={"b", "c"}) == BulkResult(changed=1)


def test_failed_runs_are_run_again(open_engine: OpenEngine) -> None:
    engine = open_engine(FAILING, SIMPLE)
    with Worker(engine):
        runs = [engine.sync.start(FAILING(number), id=f"f{number}") for number in range(3)]
        for run in runs:
            with pytest.raises(RunFailedError):
                run.result(timeout=SOON)
    started(engine, "s")

    assert engine.sync.rerun_all(reason="fixed", until=datetime.now(UTC)) == BulkResult(changed=3)
    # The newest generations have not failed, so to repeat it does nothing.
    assert engine.sync.rerun_all() == BulkResult()
    assert [run.info().generation for run in runs] == [2, 2, 2]
    assert some(engine.sync.count()) == {RunStatus.RUNNING: 4}
    assert some(engine.sync.count(all_generations=True)) == {RunStatus.RUNNING: 4, RunStatus.FAILED: 3}
    result = engine.sync.rerun_all("nowhere", status="running", workflow=FAILING)
    assert (result.changed, result.refused, result.seen) == (0, 3, 3)
    assert [(one.id, one.code) for one in result.refusals] == [(f"f{n}", "rerun_refused") for n in range(3)]


def test_pages_follow_one_another_whatever_becomes_of_their_runs(open_engine: OpenEngine) -> None:
    """A cancelled run is not found again, and runs started meanwhile do not count."""
    engine = started(open_engine(SIMPLE), *(f"r{number}" for number in range(7)))
    action = attrs.evolve(CANCEL, at_once=3)
    which = action_filter(engine.core, action, {}, "cancel all")
    seen: list[int] = []

    def told(so_far: BulkResult) -> None:
        seen.append(so_far.seen)
        started(engine, f"new{len(seen)}")

    assert apply_to_all(engine.client, action, which, command_for(action), on_page=told) == BulkResult(
        changed=7
    )
    assert seen == [3, 6, 7]
    assert statuses(engine) == {
        **{f"r{number}": "cancelled" for number in range(7)},
        **{f"new{number}": "running" for number in (1, 2, 3)},
    }


def test_a_generation_that_came_meanwhile_is_left_alone(open_engine: OpenEngine) -> None:
    engine = started(open_engine(SIMPLE), "a", "b")
    which = action_filter(engine.core, CANCEL, {}, "cancel all")
    cancel = command_for(CANCEL)

    def command(run: Run) -> Any:
        if run.id == "a":
            engine.sync.handle(SIMPLE, "a").rerun_from()
        return cancel(run)

    assert apply_to_all(engine.client, CANCEL, which, command) == BulkResult(changed=1, unchanged=1)
    assert statuses(engine) == {"a": "running", "b": "cancelled"}


def test_the_same_without_blocking_an_event_loop(open_engine: OpenEngine) -> None:
    engine = started(open_engine(SIMPLE), "a", "b")

    async def main() -> list[BulkResult]:
        return [
            await engine.pause_all(status="running", limit=1),
            await engine.resume_all(),
            await engine.rerun_all(SIMPLE.bodies["double"], status="running", reason="again"),
            await engine.terminate_all(limit=1),
            await engine.cancel_all(reason="enough"),
        ]

    assert [result.changed for result in anyio.run(main)] == [1, 1, 2, 1, 1]
    assert statuses(engine) == {"a": "cancelled", "b": "cancelled"}


def test_what_can_not_be_is_refused(open_engine: OpenEngine) -> None:
    engine = started(open_engine(SIMPLE, WIDE), "a")
    sync: Any = engine.sync
    for call, wrong in (
        (sync.cancel_all, {"status": "completed"}),
        (sync.pause_all, {"status": ["failed", "paused"]}),
        (sync.resume_all, {"status": "running"}),
        (sync.rerun_all, {"status": "nonsense"}),
        (sync.terminate_all, {"limit": 0}),
        (sync.cancel_all, {"workflow": ""}),
    ):
        with pytest.raises(InvalidFilterError):
            call(**wrong)
    with pytest.raises(TypeError, match="stauts"):
        sync.cancel_all(stauts="running")
    assert statuses(engine) == {"a": "running"}
