"""The command that hunts the second list with the fast tests. Exits with 1 on an unexplained survivor.

make mutants-tests [ONLY=name,name] [JOBS=2]
"""

import argparse
import sys
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

from tests.mutants.by_tests.catalogue import BY_NAME, MUTANTS, SURVIVORS
from tests.mutants.by_tests.hunt import Checkout, TestHunt
from tests.mutants.mutant import Mutant
from tests.postgres import PrivatePostgres


def main() -> int:
    """Hunt the selected mutants."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.by_tests")
    parser.add_argument("--only", default="", help="names, separated by commas; others are left out")
    parser.add_argument("--jobs", type=int, default=2, help="how many are hunted at once")
    asked = parser.parse_args()
    names = [name for name in asked.only.split(",") if name]
    mutants = [BY_NAME[name] for name in names if name in BY_NAME] if names else MUTANTS
    started = time.monotonic()
    hunts = hunt_all(mutants, asked.jobs)
    alive = [one.mutant.name for one in hunts if not one.is_killed]
    unexplained = [name for name in alive if name not in SURVIVORS]
    print(
        f"{len(hunts) - len(alive)} of {len(hunts)} caught in {(time.monotonic() - started) / 60:.1f} minutes"
    )
    for name in alive:
        print(f"survives: {name}: {SURVIVORS.get(name, 'not explained')}")
    return 1 if unexplained else 0


def hunt_all(mutants: Sequence[Mutant], jobs: int) -> list[TestHunt]:
    """Hunt mutants, several at once, each in a copy of the checkout; results are in order."""
    free: SimpleQueue[Checkout] = SimpleQueue()

    def one(mutant: Mutant) -> TestHunt:
        checkout = free.get()
        try:
            found = checkout.hunt(mutant)
        finally:
            free.put(checkout)
        print(f"{mutant.name}: {found.caught or 'survives'} ({found.seconds:.0f} s)", flush=True)
        return found

    with _checkouts(jobs) as checkouts:
        for checkout in checkouts:
            free.put(checkout)
        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(one, mutants))


@contextmanager
def _checkouts(number: int) -> Generator[list[Checkout]]:
    with PrivatePostgres() as server, TemporaryDirectory(prefix="holdfast-mutants-") as folder:
        yield [Checkout(Path(folder) / str(one), server.url) for one in range(number)]


if __name__ == "__main__":
    sys.exit(main())
