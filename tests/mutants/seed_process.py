"""The process that simulates seeds with a mutant's code and prints the result as a line of JSON.

Its arguments are the folder of the code, the workload, the invariants that may break, separated by commas, and the
seeds. The faultless phase, half of the work, runs only for W1.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import holdfast
from holdfast.testing.simulation import Exit, SeedOutcome, simulate_seed
from holdfast.testing.simulation.workloads import WORKLOADS, has_faultless_phase


def main(folder: str, workload: str, invariants: Sequence[str], seeds: Sequence[int]) -> None:
    """Simulate seeds until one fails."""
    where = Path(holdfast.__file__).parent.parent
    if where.resolve() != Path(folder).resolve():
        raise SystemExit(f"the code comes from {where}, and was to come from {folder}")
    wastes_nothing = "W1" in invariants and has_faultless_phase(workload)
    for number, seed in enumerate(seeds, 1):
        outcome = simulate_seed(seed, WORKLOADS[workload], wastes_nothing=wastes_nothing)
        if outcome.exit is not Exit.FINE:
            _say(seed, number, _invariant(outcome), outcome.found[0])
            return
    _say(None, len(seeds), "", "")


def _invariant(outcome: SeedOutcome) -> str:
    """Return the violated invariant: the first word of a violation, or L1 for a stuck run."""
    match outcome.exit:
        case Exit.STUCK:
            return "L1"
        case Exit.BROKEN:
            return outcome.found[0].split(" ", 1)[0]
        case _:
            return outcome.exit.name.lower()


def _say(seed: int | None, seeds: int, invariant: str, found: str) -> None:
    print(json.dumps({"seed": seed, "seeds": seeds, "invariant": invariant, "found": found}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3].split(","), [int(seed) for seed in sys.argv[4:]])
