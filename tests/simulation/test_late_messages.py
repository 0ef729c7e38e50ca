"""Functions that end while messages arrive, in the simulator: every fate of a message occurs."""

from collections import Counter
from random import Random
from typing import Final

import pytest

from holdfast.testing.simulation import Exit, draw_workload, simulate_seed

HAPPENS: Final = (
    "start.received",
    "channel.closed",
    "function.began",
    '"again":',
    '"inbox":',
    '"start":',
)
"""What must happen in so many seeds: else nothing is tested of it."""


@pytest.mark.slow
def test_letters_come_to_all_ends_that_they_can_come_to() -> None:
    seeds = [
        seed
        for seed in range(1, 80)
        if any(one.name == "box" for one in draw_workload(Random(f"{seed}/scenario"))[0].workflows)
    ]
    assert len(seeds) > 8
    happened: Counter[str] = Counter()
    for seed in seeds:
        outcome = simulate_seed(seed, draw_workload, wastes_nothing=False)
        assert outcome.exit is Exit.FINE, (seed, outcome.found)
        happened.update(what for line in outcome.trace for what in HAPPENS if what in line)
        if all(happened[what] for what in HAPPENS):
            break
    assert not [what for what in HAPPENS if not happened[what]], happened
