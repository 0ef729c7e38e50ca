"""The simulator finds planted bugs."""

import pytest

from holdfast.testing.simulation import Exit, simulate_seed
from holdfast.testing.simulation.workload import draw_workload
from tests.mutants.catalogue import BY_NAME
from tests.mutants.hunt import hunt
from tests.mutants.mutant import Mutant

CANARY = "child-failure-not-delivered"
CANARY_SEEDS = 30
"""More seeds than it takes; if they do not find it, the simulator has lost the ability to."""

SAMPLE = (
    "heartbeat-ignores-epoch",
    "rerun-keeps-output-of-its-stage",
    "rerun-keeps-old-generation-active",
    "delivered-before-sent",
    "refused-event-skipped",
)
FIRST = {"heartbeat-ignores-epoch": 190}
"""The seed from which a bug is hunted, where those before it only take time."""


@pytest.mark.slow
def test_a_subtle_bug_is_found_and_the_code_as_it_is_has_none_with_that_seed() -> None:
    found = hunt(BY_NAME[CANARY], seeds=CANARY_SEEDS)

    assert found.is_killed, found
    assert found.seed is not None
    assert simulate_seed(found.seed, draw_workload).exit is Exit.FINE


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [BY_NAME[name] for name in SAMPLE], ids=lambda mutant: mutant.name)
def test_some_bugs_are_found_within_500_seeds(mutant: Mutant) -> None:
    found = hunt(mutant, first=FIRST.get(mutant.name, 1))

    assert found.is_killed, found
