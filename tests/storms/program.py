"""The program whose processes are killed: `python -m tests.storms.program URL FOLDER [options]` runs a worker.

Every body writes a line to `FOLDER/bodies.log` before it works, by one append, so what ran is known whoever dies.
"""

import argparse
import logging
import os
import signal
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeVar

import anyio
import attrs

from holdfast import Engine, Pipeline, Retry, StageContext, Worker, stage
from holdfast.hosts.stores import Stores, open_stores
from holdfast.ports.changes import AppendHistory, Change, UpdateJob
from holdfast.ports.persistence import Persistence, Query, Transaction
from holdfast.ports.records import STAGE_COMPLETED, JobState

R = TypeVar("R")

FOLDER: Final = "HOLDFAST_CHAOS_FOLDER"
PHASES: Final = ("claimed", "settling", "settled")
quickly: Final = Retry(attempts=5, wait=timedelta(milliseconds=50))
poison_attempts: Final = 3


def folder() -> Path:
    return Path(os.environ[FOLDER])


def log_body(ctx: StageContext[None]) -> None:
    """Write down that a body runs: its effect key, its epoch, its attempt and its process."""
    line = f"{ctx.idempotency_key} {ctx.epoch} {ctx.attempt} {os.getpid()}\n"
    descriptor = os.open(folder() / "bodies.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


@stage(retry=quickly)
async def first(ctx: StageContext, number: int) -> int:
    log_body(ctx)
    await anyio.sleep(0.01)
    return number + 1


@stage(retry=quickly)
def second(ctx: StageContext, number: int) -> int:
    log_body(ctx)
    return number * 2


@stage(retry=quickly)
async def third(ctx: StageContext, number: int) -> int:
    log_body(ctx)
    return number + 1


chain = Pipeline("chain", input=int).pipe(first).pipe(second).pipe(third)
"""Gives 2 (n + 1) + 1."""


@stage(retry=quickly)
async def dawdle(ctx: StageContext, seconds: float) -> str:
    log_body(ctx)
    await anyio.sleep(seconds)
    return "rested"


slow = Pipeline("slow", input=float).pipe(dawdle)


@stage(retry=quickly)
def toil(ctx: StageContext, seconds: float) -> str:
    """Sync, and looks whether it is to stop."""
    log_body(ctx)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if ctx.cancelled:
            (folder() / "toil-was-told").touch()
            ctx.check_cancelled()
        time.sleep(0.01)
    return "toiled"


hard = Pipeline("hard", input=float).pipe(toil)


@stage(retry=Retry(attempts=poison_attempts, wait=timedelta(milliseconds=10)))
async def drink(ctx: StageContext, after: float) -> str:
    """Kill the process."""
    log_body(ctx)
    await anyio.sleep(after)
    os._exit(9)


poison = Pipeline("poison", input=float).pipe(drink)


@stage(retry=quickly)
async def hog(ctx: StageContext, seconds: float) -> str:
    """Block the event loop, as no async body should."""
    log_body(ctx)
    time.sleep(seconds)  # noqa: ASYNC251  # this is the fault
    return "hogged"


hogging = Pipeline("hogging", input=float).pipe(hog)

WORKFLOWS: Final = (chain, slow, hard, poison, hogging)


@attrs.define
class KilledAt:
    """A store whose process dies in the n-th transaction of a phase.

    Right after a claim was stored (`claimed`), before results are stored (`settling`), or after they are (`settled`).
    """

    inner: Persistence
    phase: str
    number: int

    def setup(self) -> None:
        self.inner.setup()

    def transact(self, work: Callable[[Transaction], R], /) -> R:
        seen: list[Change] = []

        def watched(tx: Transaction) -> R:
            return work(_Watched(tx, seen))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

        if self.phase == "settling":
            # What it is about to store is known only by deciding it; so decide, roll back, and die.
            self._rehearse(work, seen)
            self._die_if(_settles(seen))
            seen.clear()
        result = self.inner.transact(watched)
        self._die_if(_claims(seen) if self.phase == "claimed" else self.phase == "settled" and _settles(seen))
        return result

    def read(self, query: Query[R], /) -> R:
        return self.inner.read(query)

    def prune(self, before: int, /) -> int:
        return self.inner.prune(before)

    def close(self) -> None:
        self.inner.close()

    def _rehearse(self, work: Callable[[Transaction], object], seen: list[Change]) -> None:
        def rehearsal(tx: Transaction) -> None:
            work(_Watched(tx, seen, writes=False))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

        self.inner.transact(rehearsal)

    def _die_if(self, happened: bool) -> None:
        if happened:
            self.number -= 1
            if self.number == 0:
                os.kill(os.getpid(), signal.SIGKILL)


class _Watched:
    """A transaction that remembers what is written."""

    def __init__(self, tx: Transaction, seen: list[Change], *, writes: bool = True) -> None:
        self._tx = tx
        self._seen = seen
        self._writes = writes

    def apply(self, changes: Sequence[Change], /) -> None:
        self._seen[:] = changes
        if self._writes:
            self._tx.apply(changes)

    def __getattr__(self, name: str) -> object:
        return getattr(self._tx, name)


def _claims(changes: Sequence[Change]) -> bool:
    return any(isinstance(change, UpdateJob) and change.job.state is JobState.LEASED for change in changes)


def _settles(changes: Sequence[Change]) -> bool:
    return any(isinstance(change, AppendHistory) and change.row.type == STAGE_COMPLETED for change in changes)


def stores(url: str, phase: str | None = None, number: int = 1) -> Stores:
    """Open the stores of a URL, to die in the n-th transaction of a phase if one is given."""
    opened = open_stores(url)
    if phase is None:
        return opened
    return attrs.evolve(opened, persistence=KilledAt(opened.persistence, phase, number))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("folder")
    parser.add_argument("--lease", type=float, default=1.5)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--grace", type=float, default=5.0)
    parser.add_argument("--die", choices=PHASES)
    parser.add_argument("--number", type=int, default=1)
    parser.add_argument("--only", help="the one workflow that this worker knows")
    given = parser.parse_args()
    os.environ[FOLDER] = given.folder
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    workflows = [workflow for workflow in WORKFLOWS if given.only in (None, workflow.name)]
    engine = Engine.on(stores(given.url, given.die, given.number), workflows=workflows)
    worker = Worker(
        engine,
        concurrency=given.concurrency,
        lease=given.lease,
        poll_interval=0.2,
        drain_grace=given.grace,
    )
    worker.run()
    stats = worker.stats()
    (Path(given.folder) / f"stats-{os.getpid()}").write_text(
        f"{stats.fenced} {stats.settled} {stats.released}"
    )


if __name__ == "__main__":
    main()
