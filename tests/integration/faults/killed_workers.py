"""Worker processes that are killed with SIGKILL, one after the other, and replaced."""

import subprocess
import sys
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Self

PROCESSES = 2


class KilledWorkers:
    """Two processes of a program, which gets the URL of a store and a namespace as arguments.

    Leaving the block kills them.
    """

    def __init__(self, program: str, url: str, namespace: str) -> None:
        self._command = [sys.executable, "-c", program, url, namespace]
        self._running: list[subprocess.Popen[bytes]] = []
        self.kills = 0
        """How many were killed before the work was done."""

    def __enter__(self) -> Self:
        self._running = [self._started() for _ in range(PROCESSES)]
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._running:
            worker.kill()
            worker.wait()

    def kill_until(self, is_done: Callable[[], bool], *, most: int, seconds_between: float) -> None:
        """Kill and replace a worker again and again, up to `most` times, until the work is done."""
        for index in cycle(range(PROCESSES)):
            time.sleep(seconds_between)
            if is_done():
                return
            if self.kills < most:
                self._running[index].kill()
                self._running[index].wait()
                self.kills += 1
                self._running[index] = self._started()

    def _started(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(self._command, cwd=Path(__file__).parents[3], stderr=subprocess.DEVNULL)
