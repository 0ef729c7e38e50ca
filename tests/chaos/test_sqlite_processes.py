"""Eight processes on one SQLite file, one killed twice a second, while the disk fills up."""

import random
import signal
import sqlite3
import threading
import time

import pytest

from holdfast.ports.errors import StorageFullError, UnavailableError
from tests.chaos.disks import SmallDisk
from tests.chaos.figures import pick, report
from tests.chaos.fork_server import Process
from tests.chaos.programs import CHAIN
from tests.chaos.site import OpenSite, Site

pytestmark = pytest.mark.chaos

PROCESSES = 8
COMMITS = pick(short=1_500, full=50_000)
KILLS_MIN = pick(short=10, full=100)
FILLS = pick(short=2, full=10)
EVERY = 0.5
ACTIVE_MIN = 60
SECONDS_MAX = pick(short=120.0, full=1_200.0)


def fill_over_and_over(
    site: Site, disk: SmallDisk, full: list[str], also: dict[str, int], over: threading.Event
) -> None:
    """Fill the disk repeatedly while work continues, and free space when a client got an error."""
    client = site.client(deadline=1.0)
    for fill in range(FILLS):
        while site.book.commits() < COMMITS * (fill + 1) // (FILLS + 1) and not over.is_set():
            time.sleep(0.02)
        told = None
        disk.fill()
        until = time.monotonic() + 30
        while told is None and time.monotonic() < until:
            try:
                also[client.start(CHAIN(fill)).id] = fill
            except StorageFullError as error:
                told = str(error)
            except UnavailableError:
                continue  # others kept the file locked
            disk.fill()  # a log that was cut has left room
        time.sleep(0.7)
        disk.make_room()
        if told is not None:
            full.append(told)


def test_a_sqlite_file_survives_kills_and_a_full_disk(small_disk: SmallDisk, open_site: OpenSite) -> None:
    site = open_site(f"sqlite:///{small_disk.path}/holdfast.db")
    draw = random.Random(11)
    names = iter(range(10_000))

    def another() -> Process:
        return site.worker(f"worker-{next(names)}", concurrency=4, work_seconds=0.03)

    workers = [another() for _ in range(PROCESSES)]
    killed = 0
    full: list[str] = []
    also: dict[str, int] = {}
    over = threading.Event()
    filler = threading.Thread(target=fill_over_and_over, args=(site, small_disk, full, also, over))
    began = time.monotonic()
    with site.busy(ACTIVE_MIN) as runs:
        site.until_started(PROCESSES)
        filler.start()
        try:
            while site.book.commits() < COMMITS or killed < KILLS_MIN or filler.is_alive():
                assert time.monotonic() - began < SECONDS_MAX, (
                    f"{site.book.commits()} commits in all this time"
                )
                time.sleep(EVERY)
                at = draw.randrange(PROCESSES)
                workers[at].kill()
                assert workers[at].wait() == -signal.SIGKILL, workers[at].log
                workers[at] = another()
                killed += 1
        finally:
            over.set()
            filler.join()
    seconds = time.monotonic() - began
    site.until_done(60)

    assert [worker.code for worker in workers] == [None] * PROCESSES
    runs |= also
    assert {run: site.result(run) for run in runs} == {run: number + 5 for run, number in runs.items()}
    audit = site.audit()
    report(
        f"commits: {site.book.commits()}, kills: {killed}, disk full: {len(full)}, runs: {audit.runs}, "
        f"bodies begun again: {audit.repeats}, attempts lost: {audit.lost}, {seconds:.0f} s"
    )
    assert killed >= KILLS_MIN
    assert len(full) == FILLS, "the disk was full, and no client was told"
    assert audit.lost >= killed / 4, "too few were killed while they did something"
    assert audit.runs == len(runs), "what a client was told could not be stored was stored"
    with sqlite3.connect(small_disk.path / "holdfast.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
