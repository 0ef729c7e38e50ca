"""Random workloads under random faults: invariants hold, everything ends, and no work is wasted."""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable

import pytest

from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import Run
from holdfast.testing.simulation import Exit, FaultKind, SeedOutcome, simulate_seed
from holdfast.testing.simulation.batches import simulate_seeds
from holdfast.testing.simulation.regression_seeds import REGRESSION_SEEDS
from holdfast.testing.simulation.state_records import ARROWS, Arrow, StateRecords
from holdfast.testing.simulation.step_records import StepRecords
from holdfast.testing.simulation.store_kinds import stores
from holdfast.testing.simulation.workload import draw_workload
from tests.sizes import sized

SEEDS = sized(30, 60)
FIRST = 93
"""The first of so many seeds that have every fault and every transition often enough."""
ENOUGH = sized(8, 20)
RARELY = {
    FaultKind.REFUSED: sized(2, 5),
    FaultKind.BLOB_FAILS: sized(6, 15),
    FaultKind.BLOB_MISSING: sized(2, 4),
    FaultKind.BLOB_CORRUPT: sized(2, 4),
    FaultKind.SINK_FAILS: sized(4, 20),
    FaultKind.SINK_REFUSES: sized(1, 3),
}
"""How often a kind must fire at least in so many seeds, where that is not ENOUGH: most seeds have few blobs."""
OF_BLOBS = frozenset({FaultKind.BLOB_MISSING, FaultKind.BLOB_CORRUPT, FaultKind.BLOB_FAILS})


NOT_SIMULATED = {
    *(arrow for arrow in ARROWS if "blocked" in arrow or (arrow[2] is None and arrow[0] != "a job")),
    ("a run", None, "paused"),
    ("a run", None, "cancelling"),
}
"""In a workload nobody removes runs, changes code, or stops a function that continues as new.

Each of these arrows has a test of its own, of the kernel or of the promises of stores.
"""
RARE: set[Arrow] = {
    ("a job", "queued", "limited"),
    ("a job", "limited", "paused"),
    ("a job", "limited", None),
    ("a job", "paused", "limited"),
    ("a job", "paused", "sleeping"),
    ("a job", None, "paused"),
    ("a run", "paused", "failed"),
    ("a run", "paused", "completed"),
    ("a run", "cancelling", "completed"),
    ("a stream", "ready", "dead_lettered"),
    ("a stream", "dead_lettered", "ready"),
}
"""What many seeds take, and few may not."""
RAREST: set[Arrow] = {("a job", "queued", "limited")}
"""What hundreds of seeds may not take: a queued job meets the full window of a rate limit. The kernel tests it."""
WITH_DEAD_LETTERS = (788, 792)
"""Seeds with a sink that refuses one event again and again. Hundreds of others have none."""


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Counter[Arrow]:
    """The transitions of states that the simulations of a test have taken."""
    total = Counter[Arrow]()

    def start(states: StateRecords) -> None:
        states.taken = total

    monkeypatch.setattr(StateRecords, "__init__", start)
    return total


def _fine(outcomes: list[SeedOutcome]) -> None:
    for outcome in outcomes:
        assert outcome.exit is Exit.FINE, (outcome.seed, outcome.found)


@pytest.mark.slow
def test_a_few_seeds_end_well() -> None:
    _fine(simulate_seeds(range(1, 5), "memory"))


@pytest.mark.slow
def test_all_ends_well_whatever_goes_wrong(monkeypatch: pytest.MonkeyPatch, taken: Counter[Arrow]) -> None:
    forked, kept = StepRecords.forked, Counter[str]()

    def count(steps: StepRecords, run: Run, history: Iterable[HistoryRow]) -> None:
        kept["forks"] += bool(run.kept_rows)
        kept["of forks"] += len(run.kept_rows) > 1
        forked(steps, run, history)

    monkeypatch.setattr(StepRecords, "forked", count)
    outcomes = simulate_seeds(range(FIRST, FIRST + SEEDS), "memory")

    _fine(outcomes)
    assert kept["forks"] >= ENOUGH, f"functions were run again from the middle {kept['forks']} times"
    assert kept["of forks"] >= ENOUGH // 4, f"what keeps rows was run again {kept['of forks']} times"
    assert min(outcome.points for outcome in outcomes) >= 600
    fired = Counter(one.kind for outcome in outcomes for one in outcome.fired)
    rare = {kind: fired[kind] for kind in FaultKind if fired[kind] < RARELY.get(kind, ENOUGH)}
    assert not rare, f"these faults fired too rarely to test anything: {rare}"
    with_blob_faults = sum(any(one.kind in OF_BLOBS for one in outcome.fired) for outcome in outcomes)
    assert with_blob_faults >= SEEDS // 4, f"{with_blob_faults} seeds had trouble with blobs; half have blobs"
    without = {kind for kind in FaultKind if all(any(one.kind is kind for one in o.fired) for o in outcomes)}
    assert not without, f"no seed is without these: {without}"
    unseen = ARROWS - NOT_SIMULATED - RARE - taken.keys()
    assert not unseen, f"no run, job, session or stream took these transitions: {unseen}"
    assert taken.keys() <= ARROWS


@pytest.mark.slow
def test_seeds_that_once_found_something_find_nothing_more() -> None:
    _fine(simulate_seeds(list(REGRESSION_SEEDS), "memory"))


@pytest.mark.slow
def test_sqlite_gives_the_same_trace_as_memory() -> None:
    """K1: the store that keeps rows in a file does what the one in memory does, change for change."""
    with stores("memory") as memory, stores("sqlite") as sqlite:
        for seed in range(1, 5):
            one = simulate_seed(seed, draw_workload, store=memory, wastes_nothing=False)
            other = simulate_seed(seed, draw_workload, store=sqlite, wastes_nothing=False)

            assert one.exit is other.exit is Exit.FINE
            assert one.trace == other.trace
            assert one.hash == other.hash


@pytest.mark.slow
def test_many_seeds_end_well_and_take_every_transition_of_the_tables(taken: Counter[Arrow]) -> None:
    _fine(simulate_seeds([*range(61, 361), *WITH_DEAD_LETTERS], "memory"))
    assert ARROWS - NOT_SIMULATED - taken.keys() <= RAREST
    assert taken.keys() <= ARROWS - NOT_SIMULATED


@pytest.mark.slow
def test_all_ends_well_on_sqlite() -> None:
    _fine(simulate_seeds(range(20_001, 20_051), "sqlite"))


@pytest.mark.slow
def test_several_processes_simulate_as_the_command_line_says() -> None:
    words = [sys.executable, "-m", "holdfast.testing.simulation", "--seeds", "4", "--jobs", "2", "--no-kept"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == Exit.FINE, done.stderr
    assert done.stdout.startswith("4 seeds of runs on memory")
