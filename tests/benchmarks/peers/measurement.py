"""Has a program of a peer do its work, and measures what that costs beside it."""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Generator, Iterator
from typing import IO, Final, cast

import attrs

from tests.benchmarks.peers.environments import program_of, python_of
from tests.benchmarks.peers.rows import Row
from tests.benchmarks.processes import children_of, cpu_seconds
from tests.benchmarks.sites import Site

_SECONDS_MAX: Final = 600


class PeerFailedError(Exception):
    """A program has not done its work. What it said of that is the text."""


@attrs.frozen(kw_only=True)
class Taken:
    """One measurement of a peer.

    Attributes:
        items: How many were done.
        seconds: In how many seconds.
        latencies: How many each took, where that is what is measured.
        more: Other figures, by name.
        curve: How a figure went, from the beginning of the work to its end.
        python_ms, server_ms: Processor time for each item, of the program and its workers, and of the server.
        wal_bytes, writes, statements: For each item; `writes` are transactions that wrote something. None: not known.
        bytes: How large the tables and their indexes are in the end, for each item that is or was there.
    """

    items: int
    seconds: float
    latencies: tuple[float, ...]
    more: dict[str, float]
    curve: tuple[float, ...]
    python_ms: float
    server_ms: float | None
    wal_bytes: float | None
    writes: float | None
    statements: float | None
    bytes: float


def take(peer: str, row: Row, site: Site) -> Taken:
    """Do the work of a row once. PeerFailedError."""
    command = [
        str(python_of(peer)),
        str(program_of(peer)),
        row.workload,
        site.url,
        json.dumps(row.sizes_for(peer)),
    ]
    with tempfile.TemporaryFile("w+") as said, _running(command, said) as process:
        _expect(process, said)
        spent, python = site.spent(), _cpu(process.pid)
        _go_on(process)
        outcome = cast("dict[str, object]", json.loads(_expect(process, said)))
        python, used = _cpu(process.pid) - python, site.spent()
        _go_on(process)
        if process.wait(_SECONDS_MAX):
            raise PeerFailedError(_tail(said))
    items = cast("int", outcome["items"])

    def each(first: float | None, last: float | None, factor: float = 1.0) -> float | None:
        return None if first is None or last is None else (last - first) * factor / items

    return Taken(
        items=items,
        seconds=cast("float", outcome["seconds"]),
        latencies=tuple(cast("list[float]", outcome["latencies"])),
        more=cast("dict[str, float]", outcome["more"]),
        curve=tuple(cast("list[float]", outcome["curve"])),
        python_ms=python * 1_000 / items,
        server_ms=each(spent.server_cpu, used.server_cpu, 1_000),
        wal_bytes=each(spent.wal_bytes, used.wal_bytes),
        writes=each(spent.writes, used.writes),
        statements=each(spent.statements, used.statements),
        bytes=site.size() / (items + row.finished),
    )


@contextlib.contextmanager
def _running(command: list[str], said: IO[str]) -> Generator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    environment.pop("PYTHONPATH", None)
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=said,
        text=True,
        env=environment,
        start_new_session=True,
    ) as process:
        timer = threading.Timer(_SECONDS_MAX, process.kill)
        timer.start()
        try:
            yield process
        finally:
            timer.cancel()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _expect(process: subprocess.Popen[str], said: IO[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        process.wait()
        raise PeerFailedError(_tail(said))
    return line


def _go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def _tail(said: IO[str]) -> str:
    said.seek(0)
    return "".join(said.readlines()[-15:]) or "it said nothing"


def _cpu(pid: int) -> float:
    return sum(map(cpu_seconds, (pid, *_below(pid))))


def _below(pid: int) -> Iterator[int]:
    for child in children_of(pid):
        yield child
        yield from _below(child)
