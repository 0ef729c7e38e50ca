"""Workers and commands as processes on one SQLite file: killed, drained, interrupted, watched."""

import json
import os
import pty
import re
import runpy
import select
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import attrs
import pytest

from holdfast import Engine

SHOP = """
import threading
from datetime import timedelta
from pathlib import Path
from holdfast import Engine, Pipeline, Retry, StageContext, stage

HERE = Path(__file__).parent

@stage
def plan(count: int) -> list[int]:
    return list(range(count))

@stage
def double(ctx: StageContext[None], number: int) -> int:
    ctx.progress(1, 2, f"doubling {number}")
    return 2 * number

@stage
def add(numbers: list[int]) -> int:
    return sum(numbers)

@stage(retry=Retry(attempts=3, wait=timedelta()))
def survive(ctx: StageContext[None]) -> str:
    if ctx.attempt == 1:
        with open(HERE / "reached", "w") as reached:  # a FIFO: the test reads it
            reached.write("here")
        threading.Event().wait()
    return f"attempt {ctx.attempt}"

@stage
async def gate() -> str:
    import anyio
    with open(HERE / "reached", "w") as reached:
        reached.write("here")
    while not (HERE / "open").exists():
        await anyio.sleep(0.01)
    return "through"

@stage
async def blocking() -> str:
    import time
    with open(HERE / "reached", "w") as reached:
        reached.write("here")
    while not (HERE / "open").exists():
        time.sleep(0.01)  # the event loop stands still
    return "through"

SUM = Pipeline("sum", input=int).pipe(plan).map(double).pipe(add)
SURVIVE = Pipeline("survive").pipe(survive)
GATE = Pipeline("gate").pipe(gate)
BLOCKING = Pipeline("blocking").pipe(blocking)
engine = Engine.open(f"sqlite:///{HERE}/shop.db", workflows=[SUM, SURVIVE, GATE, BLOCKING])
"""
SECONDS_MAX = 200

pytestmark = pytest.mark.slow


@attrs.frozen
class Shop:
    """A folder with a module, and commands that run in it."""

    folder: Path

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder}/shop.db"

    def start(self, workflow: str, id: str) -> None:
        """Start a run from this process, which is faster than with a command."""
        module = runpy.run_path(str(self.folder / "shop.py"))
        with cast("Engine", module["engine"]).sync as engine:
            engine.start(module[workflow](), id=id)

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        return {**kept, "HOLDFAST_ENGINE": "shop:engine", "TERM": "xterm-256color", "COLUMNS": "100"}

    def command(self, *arguments: str) -> list[str]:
        # As the script `holdfast`, which does not search the current folder first.
        return [sys.executable, "-P", "-m", "holdfast.hosts.cli.main", *arguments]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )

    def json(self, *arguments: str) -> Any:
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    @contextmanager
    def process(self, *arguments: str) -> Generator[subprocess.Popen[str]]:
        """Run a command beside the block, and kill it at the end if it still runs."""
        with subprocess.Popen(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    @contextmanager
    def worker(self, *options: str) -> Generator[subprocess.Popen[str]]:
        """Run a worker, and wait until it has logged its start."""
        with self.process("worker", "--json", *options) as process:
            assert process.stdout is not None
            started = json.loads(process.stdout.readline())
            assert (started["event"], started["url"]) == ("started", self.url)
            yield process

    def wait_until_reached(self) -> None:
        """Wait until a body has reached the point that it reports."""
        # Opened for both ends, so that opening does not wait for a body that may never come.
        fifo = os.open(self.folder / "reached", os.O_RDWR)
        try:
            assert select.select([fifo], [], [], SECONDS_MAX)[0], "no body got there"
            assert os.read(fifo, 100) == b"here"
        finally:
            os.close(fifo)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    (tmp_path / "shop.py").write_text(SHOP)
    os.mkfifo(tmp_path / "reached")
    return Shop(tmp_path)


def test_a_run_is_started_worked_on_and_waited_for(shop: Shop) -> None:
    with shop.worker("--queue", "default=5", "--concurrency", "7") as worker:
        started = shop.run("run", "start", "sum", "4", "--id", "sum-1", "--wait")
        assert (started.returncode, started.stdout) == (0, "12\n"), started.stderr
        worker.terminate()
        out, err = worker.communicate(timeout=SECONDS_MAX)
    stopped = json.loads(out)
    assert (worker.returncode, stopped["event"], stopped["failed"]) == (0, "stopped", 0)
    assert stopped["settled"] == stopped["started"] == 7  # plan, expand, four times double, add
    messages = [json.loads(line)["message"] for line in err.splitlines()]
    assert "workflows sum@1, survive@1, gate@1, blocking@1; queues default; concurrency 7" in messages[0]
    (stopping,) = messages[1:-1]
    assert stopping.startswith("SIGTERM: draining")


@pytest.mark.slow
def test_a_run_outlives_the_worker_that_was_killed(shop: Shop) -> None:
    with shop.worker("--lease", "1") as worker:
        shop.start("SURVIVE", "hard")
        shop.wait_until_reached()
        (job,) = shop.json("run", "show", "hard")["jobs"]
        assert (job["state"], job["epoch"], job["attempts"]) == ("leased", 1, 1)
        assert job["host"].endswith(f":{worker.pid}")
        worker.send_signal(signal.SIGKILL)
        worker.wait(SECONDS_MAX)
    with shop.worker("--lease", "1"):
        waited = shop.run("run", "wait", "hard", "--timeout", "30")
    assert (waited.returncode, waited.stdout) == (0, '"attempt 2"\n'), waited.stderr
    (stage,) = shop.json("run", "show", "hard")["stages"]
    assert (stage["state"], stage["attempts"], stage["lost_attempts"]) == ("done", 2, 1)


@pytest.mark.slow
def test_a_worker_that_drains_lets_what_runs_end(shop: Shop) -> None:
    with shop.worker() as worker:
        shop.start("GATE", "slow")
        shop.wait_until_reached()
        worker.send_signal(signal.SIGINT)
        assert worker.stderr is not None
        while "draining" not in worker.stderr.readline():
            pass
        (shop.folder / "open").touch()
        out, _ = worker.communicate(timeout=SECONDS_MAX)
    stopped = json.loads(out)
    assert (worker.returncode, stopped["settled"], stopped["failed"], stopped["released"]) == (0, 1, 0, 0)


@pytest.mark.slow
def test_whoever_waits_can_leave(shop: Shop) -> None:
    shop.start("GATE", "later")
    controller, terminal = pty.openpty()
    with subprocess.Popen(
        shop.command("run", "wait", "later"),
        cwd=shop.folder,
        env=shop.environment(),
        stdout=subprocess.PIPE,
        stderr=terminal,
        text=True,
    ) as process:
        os.close(terminal)
        shown = _read_until(controller, "stages")
        process.send_signal(signal.SIGINT)
        shown += _read_until(controller, None)
        out, _ = process.communicate(timeout=SECONDS_MAX)
    os.close(controller)
    assert (process.returncode, out) == (130, "")
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert re.search(r"later gate@1 running ", plain), plain
    assert "0/1" in plain
    assert "stopped waiting for run 'later'; it continues" in plain
    assert "\x1b[?25h" in shown, "the cursor is back"


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_is_no_error(shop: Shop) -> None:
    shop.start("GATE", "some")
    with shop.process("run", "list") as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert process.returncode == 141


def _read_until(controller: int, part: str | None) -> str:
    """Read the output of a terminal up to `part`; to the end of its program if None."""
    shown = ""
    while part is None or part not in shown:
        try:
            read = os.read(controller, 4096)
        except OSError:  # Linux says so when nobody has the other end open
            return shown
        if not read:
            return shown
        shown += read.decode(errors="replace")
    return shown
