"""Results of a soak: samples of a busy system, and whether they stay constant."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
import cattrs

from tests.benchmarks.plots import Band


@attrs.frozen(kw_only=True)
class Beat:
    """A sample.

    Attributes:
        at: Seconds since the beginning.
        ended: Runs that have ended since the sample before, a second.
        open: Runs that are under way.
        p50_ms, p99_ms: From a run's start to its end, of those that ended since the sample before, by the store.
        memory: Megabytes that the worker has in memory.
        files: File descriptors that it has open.
        dead: Rows that nobody needs any more and that vacuum has not removed, of the tables that are written over.
        hot_bytes: Megabytes of those tables and their indexes, but for those of runs, which stay.
    """

    at: float
    ended: float
    open: int
    p50_ms: float
    p99_ms: float
    memory: float
    files: int
    dead: int
    hot_bytes: float


@attrs.frozen(kw_only=True)
class Soaked:
    """A soak: the highest rate of one worker, the used rate, and the samples.

    `held_since` and `held_to` are when a reader held back vacuum.
    """

    said: Sequence[str]
    most: float
    given: float
    held_since: float
    held_to: float
    runs: int
    samples: tuple[Beat, ...]

    def about(self) -> str:
        """Return a summary as text."""
        minutes = self.samples[-1].at / 60
        return (
            f"{'; '.join(self.said)}. One worker ended {self.most:,.0f} runs of one step a second at most; then it was "
            f"given {self.given:,.0f} a second for {minutes:.0f} minutes, {self.runs:,} runs in all. For "
            f"{self.held_to - self.held_since:.0f} seconds a reader held back vacuum. A quarter of the time is "
            "averaged at each end."
        )

    def bands(self, label: str) -> Sequence[Band]:
        """Return the minutes in which the reader was connected."""
        return (Band(since=self.held_since / 60, to=self.held_to / 60, label=label),)

    def series(self) -> Mapping[str, Mapping[str, Sequence[float]]]:
        """Return the series by plot and name. Rates are means of five samples."""
        ended = [one.ended for one in self.samples]
        around = [ended[max(0, place - 2) : place + 3] for place in range(len(ended))]
        return {
            "runs ended, a second": {"": [sum(some) / len(some) for some in around]},
            "latency, ms": {
                "p50": [one.p50_ms for one in self.samples],
                "p99": [one.p99_ms for one in self.samples],
            },
            "memory of the worker, MB": {"": [one.memory for one in self.samples]},
            "file descriptors of the worker": {"": [float(one.files) for one in self.samples]},
            "dead rows of jobs, sessions and leader leases": {"": [float(one.dead) for one in self.samples]},
            "size of jobs, sessions and leader leases, MB": {"": [one.hot_bytes for one in self.samples]},
        }


def save_soak(path: Path, soaked: Soaked) -> None:
    """Write the soak to a file, one line per sample."""
    found = attrs.asdict(soaked)
    samples = ",\n  ".join(json.dumps(one) for one in found.pop("samples"))
    head = ",\n".join(f" {json.dumps(name)}: {json.dumps(value)}" for name, value in found.items())
    path.write_text(f'{{\n{head},\n "samples": [\n  {samples}\n ]\n}}\n')


def load_soak(path: Path) -> Soaked:
    """Read a file of `save_soak`."""
    return cattrs.structure(json.loads(path.read_text()), Soaked)
