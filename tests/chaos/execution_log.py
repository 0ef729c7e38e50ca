"""A log of executions: bodies record what they do in files, which survive every crash."""

import json
import os
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import attrs

from holdfast.kernel.authoring.stage_context import StageContext


@attrs.frozen(kw_only=True)
class Entry:
    """An event of an attempt: a body's `start` or `end`, or `told` when it was asked to stop.

    `at` is on the machine's monotonic clock, which all processes share. `is_first` marks the start that had the
    effect, as a service that honours `key` would see it.
    """

    what: str
    run: str
    stage: str
    item: int | None
    epoch: int
    attempt: int
    key: str
    pid: int
    at: float
    is_first: bool = False

    @property
    def work(self) -> tuple[str, str, int | None]:
        """The unit of work: a stage of a run, or an item of it."""
        return (self.run, self.stage, self.item)


class Attempted(Protocol):
    """The identity of an attempt: a StageContext has it for stages, other classes for other work."""

    @property
    def run_id(self) -> str: ...
    @property
    def stage(self) -> str: ...
    @property
    def item(self) -> int | None: ...
    @property
    def epoch(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def idempotency_key(self) -> str: ...


class Book:
    """The execution log: files in a folder. Each process opens its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lines = folder / "book.jsonl"
        self._faults = folder / "faults.jsonl"
        self._effects = folder / "effects"
        self._commits: tuple[int, int] | None = None
        for sub in (self._effects, folder / "commits"):
            sub.mkdir(exist_ok=True)

    def write(self, what: str, ctx: Attempted) -> None:
        """Add an entry. It is in the file when this returns, whatever happens to the process."""
        entry = Entry(
            what=what,
            run=ctx.run_id,
            stage=ctx.stage,
            item=ctx.item,
            epoch=ctx.epoch,
            attempt=ctx.attempt,
            key=ctx.idempotency_key,
            pid=os.getpid(),
            at=time.monotonic(),
            is_first=what == "start" and self._have_effect(ctx.idempotency_key),
        )
        _append(self._lines, attrs.asdict(entry))

    def note_commits(self, commits: int) -> None:
        """Record how many transactions this process has committed."""
        if self._commits is None or self._commits[0] != os.getpid():
            path = self.folder / "commits" / str(os.getpid())
            self._commits = (os.getpid(), os.open(path, os.O_WRONLY | os.O_CREAT))
        os.pwrite(self._commits[1], f"{commits:20}".encode(), 0)

    def commits(self, pid: int | None = None) -> int:
        """Return the number of transactions committed by all processes, dead ones included, or by one."""
        files = (self.folder / "commits").glob("*" if pid is None else str(pid))
        return sum(int(path.read_text() or 0) for path in files)

    def write_fault(self, point: str) -> None:
        """Record that a fault fires now."""
        _append(self._faults, {"point": point, "pid": os.getpid()})

    def entries(self, what: str = "start", run: str | None = None) -> list[Entry]:
        """Return the entries of a kind, of one run or of all, in the order of writing."""
        found = (Entry(**line) for line in _lines(self._lines))
        return [entry for entry in found if entry.what == what and run in {None, entry.run}]

    def faults(self) -> list[str]:
        """Return the points at which faults fired."""
        return [str(line["point"]) for line in _lines(self._faults)]

    def effects(self) -> set[str]:
        """Return the idempotency keys that had an effect."""
        return {path.name for path in self._effects.iterdir()}

    def _have_effect(self, key: str) -> bool:
        """Carry out the effect of a key; return whether this call was the first."""
        try:
            os.close(os.open(self._effects / effect_name(key), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return False
        return True


def effect_name(key: str) -> str:
    """Return the name of the file that stands for the effect of a key."""
    return quote(key, safe="")


def _append(path: Path, data: object) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(file, (json.dumps(data) + "\n").encode())
    finally:
        os.close(file)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Return the complete lines: a concurrent writer may have written part of one more."""
    if path.exists():
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                yield json.loads(line)


# The book of this process ---------------------------------------------------------------------------------------


@attrs.define
class _Open:
    book: Book | None = None
    work_seconds: float = 0.0


_open = _Open()


def keep_book(kept: Book, *, work_seconds: float = 0.0) -> None:
    """Set the log and the least duration of the bodies of this process."""
    _open.book = kept
    _open.work_seconds = work_seconds


def book() -> Book:
    """Return the log of this process."""
    assert _open.book is not None, "keep_book has not been called in this process"
    return _open.book


def work_seconds() -> float:
    """Return the duration of bodies in this process, in seconds."""
    return _open.work_seconds


@contextmanager
def written_down(ctx: StageContext) -> Generator[None]:
    """Record the start of a body and, if it does not raise, its end."""
    book().write("start", ctx)
    yield
    book().write("end", ctx)
