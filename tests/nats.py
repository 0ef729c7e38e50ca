"""A real NATS server for the tests: started where `nats-server` is installed, or an existing one."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest

VARIABLE: Final = "HOLDFAST_TEST_NATS_URL"
HERE: Final = "nats://127.0.0.1:4222"
_START_SECONDS_MAX: Final = 20.0


class PrivateNats:
    """A server that keeps its port and its files when it is killed and restarted."""

    def __init__(self, program: str, folder: Path, options: Sequence[str]) -> None:
        self._program = program
        self._options = options
        self._folder = folder
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self._port = int(found.getsockname()[1])
        self.url = f"nats://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        options = [*self._options, "-a", "127.0.0.1", "-p", str(self._port), "-sd", str(self._folder)]
        self._process = subprocess.Popen(
            [self._program, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until = time.monotonic() + _START_SECONDS_MAX
        while not _answers(self.url):
            assert self._process.poll() is None, "nats-server has ended"
            assert time.monotonic() < until, "nats-server does not answer"
            time.sleep(0.02)

    def kill(self) -> None:
        """Kill the server like a crash."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


@contextlib.contextmanager
def private_nats(*options: str) -> Generator[PrivateNats]:
    """A private server, with JetStream unless options say otherwise; skips the test where none is installed."""
    program = shutil.which("nats-server")
    if program is None:
        pytest.skip("no nats-server is installed, and this test stops and starts one")
    with tempfile.TemporaryDirectory(prefix="holdfast-nats-") as folder:
        server = PrivateNats(program, Path(folder), options or ["-js"])
        server.start()
        try:
            yield server
        finally:
            server.kill()


@contextlib.contextmanager
def any_nats() -> Generator[str]:
    """The URL of a server: from HOLDFAST_TEST_NATS_URL, a private one, or the one of this machine."""
    if url := os.environ.get(VARIABLE):
        yield url
    elif shutil.which("nats-server") is not None:
        with private_nats() as server:
            yield server.url
    elif _answers(HERE):
        yield HERE
    else:
        pytest.skip(f"no NATS server: install nats-server, or set {VARIABLE}")


def _answers(url: str) -> bool:
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname, parts.port or 4222), 1) as connection:
            return connection.recv(4) == b"INFO"
    except OSError:
        return False
