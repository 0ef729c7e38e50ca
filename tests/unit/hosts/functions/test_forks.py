"""Forks of durable functions at every history row end as the run did."""

from typing import Any

import pytest

from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.kernel.authoring.calls import Call
from holdfast.kernel.invariants import check
from holdfast.ports.errors import HoldfastError, RerunRefusedError
from holdfast.ports.json import parse
from holdfast.ports.records.history import HistoryRow
from holdfast.testing import World
from holdfast.testing.ledger import DeterminismChecker
from holdfast.testing.snapshots import snapshot_of
from tests.sizes import sized
from tests.unit.kernel.functions.corpus import CORPUS

ENDS = ("stage.completed", "stage.failed", "run.continued")
LATE = {"cancelled_inside", "first_of", "group_fails", "rescheduled", "waited_for"}
"""Functions that request timers by kept rows: in a fork their time has passed already."""


def ended(run: SyncRunHandle[Any]) -> tuple[str, object]:
    try:
        return "completed", run.result()
    except HoldfastError as error:
        return type(error).__name__, str(error)


def calls(rows: tuple[HistoryRow, ...]) -> dict[str, tuple[str, object]]:
    """Return the final result of each call, by its name."""
    found: dict[str, tuple[str, object]] = {}
    for row in rows:
        if row.type in ("step.completed", "step.failed", "timer.fired"):
            call = str(parse(row.data or "{}")["call"])
            assert call not in found, f"call {call} has two ends"
            found[call] = (row.type, row.payload)
    return found


@pytest.mark.slow
@pytest.mark.sized
@pytest.mark.parametrize("call", CORPUS, ids=[f"{at}-{one.definition.name}" for at, one in enumerate(CORPUS)])
def test_from_each_row_on_it_ends_as_it_did(call: Call[Any]) -> None:
    name, ledger = call.definition.name, DeterminismChecker()
    with ledger.watching(), World() as world:
        forked, refused, row, last = 0, 0, 1, 1
        while row <= last:
            run = world.start(call, id=f"row-{row}")
            usual, before = ended(run), run.export_history()
            last = next(one.number for one in before.rows[1:] if one.type in ENDS)
            try:
                answer = run.rerun_from(row=row)
            except RerunRefusedError:
                refused += 1
            else:
                forked += 1
                again, after = ended(run), run.export_history()
                assert (answer.row, run.history()[0].number) == (row, row)
                assert after.rows[: row - 1] == before.rows[: row - 1]
                assert (after.key == before.key) is (row > 1)
                if name == "clocks":  # it tells the time
                    assert again[0] == usual[0]
                elif name in LATE:
                    assert again[0] in ("completed", "RunFailedError")
                else:
                    assert calls(after.rows) == calls(before.rows), row
                    assert again == usual or (name == "drawn" and row == 1), row
            row += sized(4, 1)
        assert forked >= 1
        assert not refused or name.startswith("saga")
        assert check(snapshot_of(world.store)) == []
        assert ledger.replay(world.engine.core) > 0
    assert ledger.problems == []
