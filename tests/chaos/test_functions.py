"""Durable functions that use every feature and lose their workers repeatedly: each has its result, once."""

import random
import signal
import threading
import time

import pytest

from holdfast.errors import RunFailedError
from tests.chaos.figures import pick, report
from tests.chaos.fork_server import Process
from tests.chaos.functions import (
    COINS,
    Purse,
    approval,
    coins,
    purchase,
    saving,
    survey,
    surveyed,
    withdrawal,
)
from tests.chaos.site import Site

pytestmark = pytest.mark.chaos

RUNS = pick(short=5, full=60)
KILLS = pick(short=14, full=200)
WORKERS = 3
WIDTH = 5
PUT = 100
PUTS = 5


def test_functions_with_all_there_is_give_the_same_whoever_is_killed(site: Site) -> None:
    draw = random.Random(5)
    workers = [_worker(site, number) for number in range(WORKERS)]
    surveys = [site.start(survey(WIDTH)) for _ in range(RUNS)]
    approved = {site.start(purchase(number)): number for number in range(RUNS)}
    refused = [site.start(purchase(number)) for number in range(RUNS)]
    savings = [site.start(saving()) for _ in range(RUNS)]
    replies: dict[str, int] = {}
    others = [
        threading.Thread(target=_save, args=(site, run, replies, random.Random(run))) for run in savings
    ]
    others.append(threading.Thread(target=_decide, args=(site, approved, refused)))
    for other in others:
        other.start()
    for kill in range(KILLS):
        time.sleep(draw.uniform(0.1, 0.5))
        at = draw.randrange(WORKERS)
        workers[at].kill()
        assert workers[at].wait() == -signal.SIGKILL, workers[at].log
        workers[at] = _worker(site, WORKERS + kill)
    for other in others:
        other.join()
    site.until_done(60)

    assert [site.result(run) for run in surveys] == [surveyed(WIDTH)] * RUNS
    assert {run: site.result(run) for run in approved} == {
        run: f"receipt {number}" for run, number in approved.items()
    }
    for run in refused:
        with pytest.raises(RunFailedError, match="not approved: too dear"):
            site.result(run)
    in_all = sum(range(COINS)) + PUT * PUTS
    assert [site.result(run) for run in savings] == [in_all] * RUNS
    assert replies == dict.fromkeys(savings, in_all)
    assert _paid_back(site) == set(refused)
    audit = site.audit()
    report(f"kills: {KILLS}, {audit}")
    assert audit.lost >= KILLS / 4, "those that were killed did nothing"


def _worker(site: Site, number: int) -> Process:
    return site.worker(f"worker-{number}", concurrency=6, work_seconds=0.05, lease=1.0)


def _decide(site: Site, approved: dict[str, int], refused: list[str]) -> None:
    for run in approved:
        site.engine.handle(purchase, run).signal(approval(True))
    for run in refused:
        site.engine.handle(purchase, run).signal(withdrawal("too dear"))


def _save(site: Site, run: str, replies: dict[str, int], draw: random.Random) -> None:
    """Send coins, each of them twice, with concurrent updates of the purse; close it at the end."""
    handle = site.engine.handle(saving, run)
    puts = threading.Thread(target=_put, args=(site, run))
    puts.start()
    for number in range(COINS):
        for _ in range(2):
            handle.signal(coins(number), idempotency_key=f"{run} coin {number}")
        time.sleep(draw.uniform(0.0, 0.3))
    puts.join()
    while site.run(run).generation <= COINS // 3:
        time.sleep(0.05)
    replies[run] = handle.update(Purse.close(), timeout=60)


def _put(site: Site, run: str) -> None:
    for number in range(PUTS):
        site.engine.handle(saving, run).update(
            Purse.put(PUT), idempotency_key=f"{run} put {number}", timeout=60
        )


def _paid_back(site: Site) -> set[str]:
    """Return the runs that refunded their payment."""
    return {entry.run for entry in site.book.entries() if entry.stage.startswith("purchase/undo")}
