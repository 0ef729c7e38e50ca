"""The hunt of one mutant: seed after seed in a process that imports the copy with the bug."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypedDict, cast

import attrs

from tests.mutants.mutant import ROOT, Mutant, plant

SEEDS_MAX: Final = 500


@attrs.frozen(kw_only=True)
class Hunt:
    """The result of a hunt.

    Attributes:
        mutant: The mutant.
        seeds: The number of simulated seeds.
        seed: The seed that found it; None if it survived.
        invariant: The violated invariant.
        found: The description of the violation.
        seconds: The time that the seeds took.
    """

    mutant: Mutant
    seeds: int
    seed: int | None
    invariant: str
    found: str
    seconds: float

    @property
    def is_killed(self) -> bool:
        """Whether one of the expected invariants caught the bug."""
        return self.seed is not None and self.invariant in self.mutant.caught_by


class _Answer(TypedDict):
    seed: int | None
    seeds: int
    invariant: str
    found: str


def hunt(mutant: Mutant, *, seeds: int = SEEDS_MAX, first: int = 1) -> Hunt:
    """Simulate seeds with the bug, up to the one that finds it."""
    with TemporaryDirectory(prefix="holdfast-mutant-") as folder:
        plant(mutant, Path(folder))
        started = time.monotonic()
        answer = _answer_of_seeds(
            range(first, first + seeds), Path(folder), mutant.workload, mutant.caught_by
        )
        return Hunt(
            mutant=mutant,
            seeds=answer["seeds"],
            seed=answer["seed"],
            invariant=answer["invariant"],
            found=answer["found"],
            seconds=time.monotonic() - started,
        )


def failing_anyway(seeds: Iterable[int], workload: str = "runs") -> dict[int, str]:
    """Return the seeds among these that fail without the bug, with the failures: they must not find a mutant."""
    wrong: dict[int, str] = {}
    left = sorted(set(seeds))
    while left:
        answer = _answer_of_seeds(left, ROOT / "src", workload, ("W1",))
        if answer["seed"] is None:
            break
        wrong[answer["seed"]] = answer["found"]
        left = left[answer["seeds"] :]
    return wrong


def _answer_of_seeds(seeds: Sequence[int], folder: Path, workload: str, invariants: Sequence[str]) -> _Answer:
    """Simulate seeds with the package in a folder, up to the first that fails; return the result of that process."""
    command = [
        sys.executable,
        "-m",
        "tests.mutants.seed_process",
        str(folder),
        workload,
        ",".join(invariants),
    ]
    done = subprocess.run(
        [*command, *map(str, seeds)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the hunter ended with {done.returncode}:\n{done.stderr}")
    return cast("_Answer", json.loads(done.stdout))
