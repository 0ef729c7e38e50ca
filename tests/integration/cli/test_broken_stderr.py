"""Exit codes do not depend on a closed, broken or full stderr, nor on a database that is down."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest

from tests.integration.sql.proxy import Proxy
from tests.postgres import fresh_database

PROGRAM = """
from holdfast import Engine, workflow

@workflow
async def echo(text: str) -> str:
    return text

engine = Engine.open("sqlite:///runs.db", workflows=[echo])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(PROGRAM)
    return tmp_path


COMMAND = (sys.executable, "-m", "holdfast.hosts.cli.main")


@contextmanager
def _begun(folder: Path, *words: str, stderr: int) -> Generator[subprocess.Popen[bytes]]:
    """Run a command beside the block, and kill it if it has not ended by then."""
    with subprocess.Popen(
        [*COMMAND, *words], cwd=folder, stdout=subprocess.DEVNULL, stderr=stderr
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _run(folder: Path, *words: str) -> bytes:
    """Return the stdout of a command that must succeed."""
    done = subprocess.run([*COMMAND, *words], cwd=folder, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _broken_pipe() -> int:
    """Return the write end of a pipe without a reader."""
    read, write = os.pipe()
    os.close(read)
    return write


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_worker_whose_stderr_is_closed_runs_and_drains(folder: Path, number: signal.Signals) -> None:
    stderr = _broken_pipe()
    with _begun(folder, "worker", "app:engine", "-v", stderr=stderr) as worker:
        os.close(stderr)
        given = _run(folder, "run", "start", "app:engine", "echo", '{"text": "a"}', "--id", "a", "--wait")
        assert given == b'"a"'
        worker.send_signal(number)
        assert worker.wait(60) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [("run", "show", "app:engine", "nobody"), ("worker", "app:nothing"), ("nonsense",)]
)
def test_the_exit_code_does_not_depend_on_stderr(folder: Path, words: tuple[str, ...]) -> None:
    codes: list[int] = []
    for stderr in (subprocess.DEVNULL, _broken_pipe(), os.open("/dev/full", os.O_WRONLY)):
        with _begun(folder, *words, stderr=stderr) as command:
            codes.append(command.wait(60))
    closed = subprocess.run(
        ["sh", "-c", 'exec "$@" 2>&-', "sh", *COMMAND, *words],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )
    assert codes[0] not in (0, 1, 120)
    assert codes == [closed.returncode] * 3


FULL_FOR_A_MOMENT = """
import logging, resource
from holdfast import Engine

log = logging.getLogger("holdfast.shop")
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
log.warning("before")
resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))  # stands for a disk that is full
log.warning("meanwhile")
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
log.warning("after")

engine = Engine.open("memory://")
"""


@pytest.mark.slow
def test_a_log_continues_after_its_disk_was_full(folder: Path) -> None:
    (folder / "full.py").write_text(FULL_FOR_A_MOMENT)
    with (folder / "log").open("wb") as log:
        words = (*COMMAND, "run", "list", "full:engine")
        done = subprocess.run(words, cwd=folder, stderr=log, timeout=60, check=False)
    assert done.returncode == 0
    lines = (folder / "log").read_text().splitlines()
    assert "before" in lines[0]
    assert "after" in lines[-2]


@pytest.mark.slow
@pytest.mark.service
@pytest.mark.parametrize("away", ["blackhole", "refuse"])
def test_a_worker_exits_soon_after_its_grace_if_its_database_is_away(
    folder: Path, postgres_url: str, away: Literal["blackhole", "refuse"]
) -> None:
    with fresh_database(postgres_url) as url, Proxy(url) as proxy:
        (folder / "app.py").write_text(SLOW.format(url=proxy.url))
        options = ("worker", "app:engine", "--drain-grace", "3")
        with _begun(folder, *options, stderr=subprocess.DEVNULL) as worker:
            _run(folder, "run", "start", "app:engine", "waits", "{}")
            while not (folder / "reached").exists():
                time.sleep(0.05)
            proxy.fail(away, times=10_000)
            proxy.cut()
            worker.send_signal(signal.SIGTERM)
            # Three seconds of grace, and two more: without a bound it took ten, or half a minute.
            assert worker.wait(9) == 0
        proxy.heal()


SLOW = """
import asyncio
from pathlib import Path
from typing import Literal
from holdfast import Engine, step, workflow

@step
async def wait() -> None:
    Path("reached").touch()
    await asyncio.sleep(3600)

@workflow
async def waits() -> None:
    await wait()

engine = Engine.open({url!r}, workflows=[waits])
"""
