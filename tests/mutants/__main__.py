"""The command that hunts mutants and prints a table. Exits with 1 if one survives.

    make mutants [ONLY=name,name] [SEEDS=500] [JOBS=2] [WRITE=1]

With WRITE the table replaces the one in docs/explanation/how-we-know.md.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.mutants.catalogue import BY_NAME, MUTANTS
from tests.mutants.hunt import SEEDS_MAX, Hunt, failing_anyway, hunt
from tests.mutants.mutant import Mutant
from tests.mutants.table import summary, table, write


def main() -> int:
    """Hunt the selected mutants."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--only", default="", help="names, separated by commas")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, help="how many seeds a mutant may survive")
    parser.add_argument("--jobs", type=int, default=2, help="how many are hunted at once")
    parser.add_argument("--write", action="store_true", help="put the table into the docs")
    asked = parser.parse_args()
    started = time.monotonic()
    hunts = _hunt_all(_named(asked.only), asked.seeds, asked.jobs)
    found = [(one.mutant.workload, one.seed) for one in hunts if one.seed is not None]
    wrong = [
        (workload, *failure)
        for workload in sorted({name for name, _ in found})
        for failure in failing_anyway((seed for name, seed in found if name == workload), workload).items()
    ]
    print()
    print(table(hunts))
    print()
    print(summary(hunts, time.monotonic() - started))
    for workload, seed, violation in wrong:
        print(f"seed {seed} of {workload} fails without a mutant too, so it proves nothing: {violation}")
    alive = [one.mutant.name for one in hunts if not one.is_killed]
    if alive:
        print(f"not killed: {', '.join(alive)}")
    if asked.write:
        write(hunts, time.monotonic() - started)
    return 1 if alive or wrong else 0


def _named(only: str) -> Sequence[Mutant]:
    names = [name for name in only.split(",") if name]
    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        raise SystemExit(f"there is no mutant {', '.join(unknown)}; there are: {', '.join(BY_NAME)}")
    return [BY_NAME[name] for name in names] or MUTANTS


def _hunt_all(mutants: Sequence[Mutant], seeds: int, jobs: int) -> list[Hunt]:
    def one(mutant: Mutant) -> Hunt:
        found = hunt(mutant, seeds=seeds)
        how = (
            f"seed {found.seed}: {found.found[:150]}" if found.seed is not None else f"survives {seeds} seeds"
        )
        print(f"{mutant.name}: {how} ({found.seconds:.0f} s)", flush=True)
        return found

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(one, mutants))


if __name__ == "__main__":
    sys.exit(main())
