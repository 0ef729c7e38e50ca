"""Some seeds, in which all goes wrong that can, and all ends well."""

from collections import Counter

from holdfast.testing.simulation import Exit, simulate_seed
from tests.simulation.chain import chain


def test_all_ends_well_whatever_goes_wrong() -> None:
    fired: Counter[str] = Counter()
    for seed in range(1, 31):
        outcome = simulate_seed(seed, chain)
        fired.update(one.kind for one in outcome.fired)

        assert outcome.exit is Exit.FINE, (seed, outcome.found)
        assert outcome.points >= 600
        assert outcome.runs == 4

    assert fired["crash"] >= 30
    assert fired["lost_answer"] >= 30
