"""Random gathered starts under random faults: none is lost, and each is in exactly one run."""

from collections import Counter

import pytest

from holdfast.kernel.history import events
from holdfast.testing.simulation import Exit, simulate_seed
from holdfast.testing.simulation.batches import simulate_seeds
from holdfast.testing.simulation.gathering_workload import draw_gathering
from holdfast.testing.simulation.store_kinds import stores
from tests.sizes import sized

SEEDS = sized(8, 150)


@pytest.mark.slow
@pytest.mark.sized
def test_each_start_is_in_one_run_whatever_goes_wrong() -> None:
    for outcome in simulate_seeds(range(1, SEEDS + 1), "memory", workload="gathering"):
        assert outcome.exit is Exit.FINE, (outcome.seed, outcome.found)


@pytest.mark.slow
def test_a_seed_gives_the_same_trace_on_both_stores() -> None:
    with stores("memory") as memory, stores("sqlite") as sqlite:
        one, again, other = (
            simulate_seed(3, draw_gathering, store=store) for store in (memory, memory, sqlite)
        )
    assert one.exit is Exit.FINE
    assert one.trace == again.trace == other.trace


@pytest.mark.slow
def test_starts_join_runs_in_the_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workload tests something: most runs are made of several starts."""
    seen = Counter[int]()
    made = events.RunGathered.__init__

    def counting(event: events.RunGathered, *args: object, **fields: object) -> None:
        made(event, *args, **fields)  # type: ignore[arg-type]
        seen[event.start] += 1

    monkeypatch.setattr(events.RunGathered, "__init__", counting)
    for outcome in simulate_seeds(range(1, 4), "memory", workload="gathering"):
        assert outcome.exit is Exit.FINE
    assert sum(seen.values()) > 20
    assert max(seen) >= 4
