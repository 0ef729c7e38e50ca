"""A world is freed once its seed has been simulated."""

import gc
import weakref
from random import Random

import pytest

from holdfast.testing.simulation.scenarios import Scenario, Sizes
from holdfast.testing.simulation.seeds import simulate_seed
from holdfast.testing.simulation.workloads import WORKLOADS


@pytest.mark.parametrize("workload", ["runs", "messages"])
def test_a_world_is_freed(workload: str) -> None:
    scenarios = list[weakref.ref[Scenario]]()

    def draw(random: Random) -> tuple[Scenario, Sizes]:
        scenario, sizes = WORKLOADS[workload](random)
        scenarios.append(weakref.ref(scenario))
        return scenario, sizes

    for seed in range(4):
        simulate_seed(seed, draw, wastes_nothing=False)
    gc.collect()
    # The last seed's loops are forgotten with the next one.
    assert sum(scenario() is not None for scenario in scenarios) <= 1
