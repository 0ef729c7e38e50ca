"""Measures Python's standard library with a durable pipeline, and kills its own worker on the way.

python docs/examples/stdlib_report/demo.py [--output FOLDER] [--limit FILES]
"""

import argparse
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import warnings
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # so that this file can be run by its path

from docs.examples.stdlib_report.model import Library
from docs.examples.stdlib_report.pipeline import stdlib_report
from docs.examples.stdlib_report.screen import Screen
from docs.examples.stdlib_report.worker import CONCURRENCY

from holdfast import Engine, SyncRunHandle, Worker
from holdfast.client import RunEvent

ROOT = Path(__file__).resolve().parents[3]
KILL_AT = 1 / 3
PATIENCE = 120.0
"""Seconds after which the demo gives up."""


@attrs.define
class History:
    """What happened to a run: numbered rows, read as they are added. None of them ever changes."""

    run: SyncRunHandle[object]
    rows: list[RunEvent] = attrs.field(factory=list[RunEvent])

    def read_on(self) -> None:
        """Read what is new."""
        while new := self.run.history(after=len(self.rows)):
            self.rows.extend(new)

    def count(self, kind: str, stage: str | None = None) -> int:
        """Count rows of a kind, of one stage or of all."""
        return sum(row.type == kind and stage in (None, row.stage) for row in self.rows)

    @property
    def files(self) -> int:
        """How many files there are to measure; 0 as long as that is not known."""
        expanded = [row.data for row in self.rows if row.type == "stage.expanded"]
        return int(str(expanded[0]["items"])) if expanded else 0

    @property
    def results(self) -> set[tuple[str | None, int | None]]:
        """The stages and items that have a result."""
        return {(row.stage, row.item) for row in self.rows if row.type == "stage.completed"}

    @property
    def is_over(self) -> bool:
        """Whether the run has ended."""
        return bool(self.rows) and self.rows[-1].type.startswith("run.") and len(self.rows) > 1


@attrs.frozen
class Started:
    """One line of the log that every body adds a line to when it starts."""

    stage: str
    item: str
    attempt: int
    process: int


@attrs.frozen
class Demo:
    """One demonstration: where it writes, and what it measures."""

    folder: Path
    library: Library
    screen: Screen = attrs.field(factory=Screen)

    def run(self) -> int:
        """Do it all. Return the exit code."""
        self._clear()
        say, event = self.screen.say, self.screen.event
        say("Holdfast measures the standard library of this Python, and kills its own worker on the way.\n")
        with Engine.open(self._url, workflows=[stdlib_report]).sync as engine:
            run = engine.start(stdlib_report(self.library), id="stdlib-report")
            history = History(run)
            event(f"run {run.id!r} is stored in {_shown(self.folder / 'demo.db')}")
            with self._worker("worker 1") as first:
                self._watch(history, first, KILL_AT)
                os.kill(first.pid, signal.SIGKILL)
                first.wait()
                history.read_on()
                settled = history.count("stage.completed", "analyse")
                event(
                    f"kill -9 {first.pid}: worker 1 is gone, {settled} of {history.files} files are measured"
                )
            with self._worker("worker 2") as second:
                self._watch(history, second, 1)
                event(f"the run is over; {history.count('stage.lost')} jobs were taken back from worker 1")
                second.terminate()
                drained = second.wait() == 0
            page = run.result()
        report = self.folder / "report.html"
        report.write_text(page, encoding="utf-8")
        event("measuring once more, in memory, with nothing killed, to compare")
        same = _undisturbed(self.library) == page
        event("done\n")
        good = self._tell(history, first.pid, page, same=same) and drained
        say(f"\n  The report: {report.resolve().as_uri()}")
        return 0 if good else 1

    @property
    def _url(self) -> str:
        return f"sqlite:///{(self.folder / 'demo.db').resolve()}"

    @property
    def _log(self) -> Path:
        return self.folder / "bodies.log"

    def _clear(self) -> None:
        """Make an empty folder that git does not see."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        (self.folder / ".gitignore").write_text("*\n")
        self._log.touch()

    @contextmanager
    def _worker(self, name: str) -> "Generator[subprocess.Popen[bytes]]":
        """Start a worker as a process of its own; leave none behind."""
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "HOLDFAST_DEMO_LOG": str(self._log.resolve()), "PYTHONPATH": path}
        command = [sys.executable, "-m", "docs.examples.stdlib_report.worker", self._url]
        with subprocess.Popen(command, env=environment) as worker:
            self.screen.event(f"{name} is process {worker.pid}")
            try:
                yield worker
            finally:
                worker.kill()

    def _watch(self, history: History, worker: "subprocess.Popen[bytes]", until: float) -> None:
        """Show progress until this share of the files is measured; all of them: until the run is over."""
        deadline = time.monotonic() + PATIENCE
        while True:
            history.read_on()
            done, files = history.count("stage.completed", "analyse"), history.files
            if files:
                self.screen.progress("measuring", done, files)
            if history.is_over or (until < 1 and files and done >= files * until):
                return
            if worker.poll() is not None:
                raise RuntimeError(f"the worker ended by itself, with exit code {worker.returncode}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"the run is not over after {PATIENCE:.0f} s; see {self.folder}")
            time.sleep(0.05)

    def _tell(self, history: History, killed: int, page: str, *, same: bool) -> bool:
        """Print what was measured. Return whether it is as promised."""
        started = [_started(line) for line in self._log.read_text().splitlines()]
        bodies = Counter((one.stage, one.item) for one in started)
        repeated = {place for place, count in bodies.items() if count > 1}
        cut_short = {(one.stage, one.item) for one in started if one.process == killed}
        failed = {(row.stage, str(row.item)) for row in history.rows if row.type == "stage.retrying"}
        needless = repeated - cut_short - failed
        stored = history.count("stage.completed")
        expected = history.files + 4
        checks = {
            "every stage and file has exactly one result": stored == len(history.results) == expected,
            "only what the killed worker had under way was repeated": not needless
            and len(repeated - failed) <= CONCURRENCY,
            "the report equals that of a run without a kill, byte for byte": same,
        }
        say = self.screen.say
        say(f"  stage bodies to run       {expected:>5}   ({history.files} files, and 4 other stages)")
        say(f"  stage bodies that ran     {len(started):>5}")
        again = len(started) - len(bodies)
        say(f"  of these, repeated        {again:>5}   (up to {CONCURRENCY} were under way at the kill)")
        say(f"  results stored            {stored:>5}")
        say(f"  report                    {len(page):>5}   characters, sha256 {_sha256(page)[:16]}\n")
        for what, holds in checks.items():
            say(f"  {'yes' if holds else 'NO '}  {what}")
        return all(checks.values())


def _undisturbed(library: Library) -> str:
    """Return the report of a run in memory, with a worker in a thread of this process."""
    with (
        Engine.open("memory://", workflows=[stdlib_report]).sync as engine,
        Worker(engine, concurrency=CONCURRENCY),
    ):
        return engine.run(stdlib_report(library))


def _started(line: str) -> Started:
    stage, item, attempt, process = line.split()
    return Started(stage, item, int(attempt), int(process))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _shown(path: Path) -> str:
    """Return a path as short as it can be said from here."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo with these arguments. Return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path.cwd() / "demo-output", metavar="FOLDER")
    parser.add_argument(
        "--limit", type=int, default=0, metavar="FILES", help="measure only the first so many files"
    )
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")  # what the compiler thinks of the sources is not what the demo is about
    library = Library(root=sysconfig.get_path("stdlib"), limit=options.limit)
    return Demo(options.output, library).run()


if __name__ == "__main__":
    sys.exit(main())
