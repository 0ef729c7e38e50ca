"""Simulation of several seeds in one process. Not in `__main__`, which worker processes cannot import."""

from collections.abc import Sequence

import attrs

from holdfast.testing.simulation.seeds import Exit, SeedOutcome, simulate_seed
from holdfast.testing.simulation.store_kinds import stores
from holdfast.testing.simulation.workloads import RUNS, WORKLOADS, has_faultless_phase

FAULTLESS_EVERY = 4
"""Every fourth seed is simulated again without faults: wasted work shows up in few seeds."""


def simulate_seeds(
    seeds: Sequence[int], store: str, *, workload: str = RUNS, trace: bool = False
) -> list[SeedOutcome]:
    """Simulate seeds of a random workload, one of `WORKLOADS`."""
    outcomes: list[SeedOutcome] = []
    with stores(store) as make:
        for seed in seeds:
            wastes_nothing = seed % FAULTLESS_EVERY == 0 and has_faultless_phase(workload)
            outcome = simulate_seed(seed, WORKLOADS[workload], store=make, wastes_nothing=wastes_nothing)
            if outcome.exit is Exit.FINE and not trace:
                outcome = attrs.evolve(outcome, trace=())
            outcomes.append(outcome)
    return outcomes
