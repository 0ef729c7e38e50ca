"""A hundred thousand events while flushers are killed: none is lost, and those of each run arrive in order."""

import multiprocessing
import random
import time
from datetime import UTC, datetime
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.events.delivery import EVENTS_AT_ONCE
from holdfast.ports.changes import Change, Insert
from holdfast.ports.persistence import Persistence
from holdfast.ports.queries.outbox import SinksWithDueStreams
from holdfast.ports.records.values import Micros
from holdfast.testing.conformance.builders import NAMESPACE, a_row, a_run
from tests.chaos.figures import report
from tests.chaos.flusher_process import NAME, flush_for_ever

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

RUNS, ROWS = 1_000, 100
FLUSHERS = 3
LINE = 28
"""The least number of bytes of an event's line."""
EVENTS_A_KILL = 16_000
KILLS_MIN = 5
FAILURES_MIN = 3
AGAIN_MAX = 0.03
SECONDS_MAX = 120.0


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.service)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/runs.db"
    found: str = request.getfixturevalue("postgres_database")
    return found


def fill(store: Persistence) -> None:
    for start in range(0, RUNS, 100):
        changes: list[Change] = []
        for number in range(start, start + 100):
            run = a_run(number, last_row=ROWS)
            changes += [Insert(run), *(Insert(a_row(run.key, row)) for row in range(1, ROWS + 1))]
        store.transact(lambda tx, changes=changes: tx.apply(changes))  # type: ignore[misc]


def everything_is_delivered(store: Persistence, heard: Path) -> bool:
    """Return whether the file has a line for each event, and no stream has work left, now or later."""
    much_later: Micros = 2**62
    if not heard.exists() or heard.stat().st_size < RUNS * ROWS * LINE:
        return False
    return not store.read(SinksWithDueStreams(NAMESPACE, (NAME,), much_later))


def test_killed_flushers_lose_nothing_and_keep_the_order(url: str, tmp_path: Path) -> None:
    store = SqlPersistence(url)
    store.setup()
    fill(store)
    engine = Engine.open(url)
    engine.sync.register_sink(NAME, since=datetime(2020, 1, 1, tzinfo=UTC))
    heard = tmp_path / "heard"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.chaos.flusher_process", "holdfast.adapters.sql.persistence"])
    draw = random.Random(58)
    flushers: list[ForkServerProcess] = []
    kills, due = 0, EVENTS_A_KILL * LINE
    began = time.monotonic()
    try:
        while not everything_is_delivered(store, heard):
            assert time.monotonic() - began < SECONDS_MAX, "it took too long"
            while len(flushers) < FLUSHERS:
                flusher = context.Process(target=flush_for_ever, args=(url, str(heard)), daemon=True)
                flusher.start()
                flushers.append(flusher)
            time.sleep(draw.uniform(0.4, 1.0))
            if heard.exists() and heard.stat().st_size < due:
                continue  # a slow machine must not have more killed than a fast one
            due += EVENTS_A_KILL * LINE
            victim = flushers.pop(draw.randrange(len(flushers)))
            victim.kill()
            victim.join()
            kills += 1
    finally:
        for flusher in flushers:
            flusher.kill()
            flusher.join()
        engine.core.close()
        store.close()
    seconds = time.monotonic() - began

    first: dict[str, list[int]] = {}
    lines = 0
    for line in heard.read_text().splitlines():
        run, _, number = line.partition(" ")
        lines += 1
        numbers = first.setdefault(run, [])
        if int(number) > (numbers[-1] if numbers else 0):
            numbers.append(int(number))
    assert len(first) == RUNS
    assert all(numbers == list(range(1, ROWS + 1)) for numbers in first.values())
    failures = Path(f"{heard}.failures").stat().st_size
    again = lines / (RUNS * ROWS) - 1
    report(
        f"events: {RUNS * ROWS}, kills: {kills}, failures: {failures}, again: {again:.2%}, {seconds:.1f} s"
    )
    assert kills >= KILLS_MIN, "too few were killed to tell anything"
    assert failures >= FAILURES_MIN, "the sink failed too seldom"
    assert again <= AGAIN_MAX
    assert lines - RUNS * ROWS <= kills * EVENTS_AT_ONCE, "more came again than the calls that were under way"
