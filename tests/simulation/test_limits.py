"""Operators change limits and pause queues under random faults: nothing exceeds what is in force, and all ends."""

from collections import Counter

import pytest

from holdfast.kernel.invariants import limit_checks
from holdfast.testing.simulation import Exit, simulate_seed
from holdfast.testing.simulation.batches import simulate_seeds
from holdfast.testing.simulation.limit_workload import draw_changed_limits
from holdfast.testing.simulation.store_kinds import stores
from tests.sizes import sized

SEEDS = sized(5, 100)
ENOUGH = sized(2, 50)


@pytest.mark.slow
@pytest.mark.sized
def test_limits_change_under_faults_and_everything_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Counter[str]()
    changed = limit_checks.is_changed

    def counting(*arguments: object) -> bool:
        found = changed(*arguments)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        seen[f"changed: {found}"] += 1
        return found

    monkeypatch.setattr(limit_checks, "is_changed", counting)
    for outcome in simulate_seeds(range(1, SEEDS + 1), "memory", workload="limits"):
        assert outcome.exit is Exit.FINE, (outcome.seed, outcome.found)
    assert seen["changed: True"] >= ENOUGH, "hardly anything was admitted under a changed limit"


@pytest.mark.slow
def test_a_seed_gives_the_same_trace_on_both_stores() -> None:
    with stores("memory") as memory, stores("sqlite") as sqlite:
        one, other = (
            simulate_seed(3, draw_changed_limits, store=store, wastes_nothing=False)
            for store in (memory, sqlite)
        )
    assert one.exit is Exit.FINE
    assert one.trace == other.trace
