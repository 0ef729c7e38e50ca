"""Starts, kills and audits the processes of `tests.storms.program`."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import attrs

from holdfast import Engine, Pipeline, SyncRunHandle
from holdfast.ports.persistence import JobsOfRun
from holdfast.ports.records import TERMINAL, Job
from holdfast.testing.invariants import check, snapshot_of
from tests.storms.program import WORKFLOWS

ROOT: Final = Path(__file__).resolve().parents[2]


class BodyStart(NamedTuple):
    """One line of the log of bodies."""

    key: str
    epoch: int
    attempt: int
    pid: int


@attrs.define
class Fleet:
    """The processes of one test, and what they leave behind."""

    url: str
    folder: Path
    engine: Engine = attrs.field(init=False)
    processes: list[subprocess.Popen[bytes]] = attrs.field(factory=list[subprocess.Popen[bytes]])

    def __attrs_post_init__(self) -> None:
        self.engine = Engine.open(self.url, workflows=WORKFLOWS)
        self.engine.sync.__enter__()

    def worker(self, *options: str) -> subprocess.Popen[bytes]:
        """Start a worker process."""
        output = (self.folder / f"worker-{len(self.processes)}.log").open("wb")
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.storms.program", self.url, str(self.folder), *options],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=output,
            stderr=output,
        )
        output.close()
        self.processes.append(process)
        return process

    def start(self, workflow: Pipeline[float, str], value: float, run_id: str) -> SyncRunHandle[str]:
        """Start a run."""
        return self.engine.sync.start(workflow(value), id=run_id)

    def started(self) -> list[BodyStart]:
        """Return which bodies have started, in order."""
        log = self.folder / "bodies.log"
        lines = log.read_text().splitlines() if log.exists() else []
        words = (line.split() for line in lines)
        return [BodyStart(key, int(epoch), int(attempt), int(pid)) for key, epoch, attempt, pid in words]

    def repeats(self) -> int:
        """How many bodies ran more than once, and how often in all."""
        counts = Counter(start.key for start in self.started())
        return sum(counts.values()) - len(counts)

    def jobs(self, run_id: str) -> tuple[Job, ...]:
        """Return the live jobs of a run."""
        run = next(run for run in WORKFLOWS)
        row = self.engine.sync.handle(run, run_id).row()
        return self.engine.core.stores.persistence.read(JobsOfRun(row.key))

    def wait_for_ends(self, runs: Iterable[SyncRunHandle[object]], seconds: float) -> None:
        """Wait until these runs have ended, whatever the store goes through meanwhile."""
        wait_until(
            lambda: all(run.row().status in TERMINAL for run in runs), seconds, "the runs have not ended"
        )

    def audit(self) -> None:
        """Check what must hold of every store, and that no body started twice in one epoch."""
        assert check(snapshot_of(self.engine.core.stores.persistence)) == []
        starts = Counter((start.key, start.epoch) for start in self.started())
        assert [start for start, number in starts.items() if number > 1] == []

    def text_of_logs(self) -> str:
        """Return what the workers said."""
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("worker-*.log")))

    def close(self) -> None:
        """End all processes."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
        self.engine.core.close()


@contextmanager
def fleet(url: str, folder: Path) -> Generator[Fleet]:
    """Give a fleet on a store, and end it."""
    made = Fleet(url, folder)
    try:
        yield made
    finally:
        made.close()


def wait_until(happened: Callable[[], bool], seconds: float, otherwise: str) -> None:
    """Wait for something, looking often; fail with `otherwise` if it takes longer than `seconds`."""
    until = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > until:
            raise AssertionError(otherwise)
        time.sleep(0.02)
