"""Random runs that update each other under random faults: each update is stored once, and replied once."""

from collections import Counter
from collections.abc import Iterator

import pytest

from holdfast.kernel.history import events
from holdfast.ports.working_set import Tables
from holdfast.testing.simulation import Exit, simulate_seed, update_workload
from holdfast.testing.simulation.batches import simulate_seeds
from holdfast.testing.simulation.store_kinds import stores
from holdfast.testing.simulation.update_workload import draw_updates
from tests.sizes import sized

SEEDS = sized(20, 300)
FIRST = 1


@pytest.mark.slow
@pytest.mark.sized
def test_each_update_is_replied_once_whatever_goes_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """And updates meet all fates: carried out, failed, rejected, lost, refused, and handed on to a generation."""
    seen = Counter[str]()
    check = update_workload.update_violations

    def counting(tables: Tables) -> Iterator[str]:
        for row in (row for rows in tables.history.values() for row in rows):
            match events.event_of(row):
                case events.UpdateSent(code=code):
                    seen[code or "stored"] += 1
                case events.UpdateReplied(outcome=outcome):
                    seen[outcome] += 1
                case events.UpdateReceived(again=int()):
                    seen["again"] += 1
                case _:
                    pass
        return check(tables)

    monkeypatch.setattr(update_workload, "update_violations", counting)
    for outcome in simulate_seeds(range(FIRST, FIRST + SEEDS), "memory", workload="updates"):
        assert outcome.exit is Exit.FINE, (outcome.seed, outcome.found)
    assert seen["stored"] > 50
    fates = ("completed", "failed", "rejected", "lost", "run_not_found", "update_refused", "again")
    assert min(seen[fate] for fate in fates) >= 1, seen


@pytest.mark.slow
def test_a_seed_gives_the_same_trace_on_both_stores() -> None:
    with stores("memory") as memory, stores("sqlite") as sqlite:
        one, again, other = (
            simulate_seed(3, draw_updates, store=store) for store in (memory, memory, sqlite)
        )
    assert one.exit is Exit.FINE
    assert one.trace == again.trace == other.trace
