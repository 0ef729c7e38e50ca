"""What was simulated is freed."""

import gc
import weakref
from random import Random

import pytest

from holdfast import step, workflow
from holdfast.testing import simulate
from holdfast.testing.simulation.scenarios import Scenario, Sizes
from holdfast.testing.simulation.seeds import simulate_seed
from holdfast.testing.simulation.workloads import WORKLOADS
from holdfast.testing.trials import SimulatedCluster


@step
async def add(number: int) -> int:
    return number + 1


@workflow
async def adds(number: int) -> int:
    return await add(number)


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


def test_the_cluster_of_a_simulated_workflow_is_freed() -> None:
    simulate(adds(1), seeds=5)
    gc.collect()
    assert sum(isinstance(one, SimulatedCluster) for one in gc.get_objects()) <= 1
