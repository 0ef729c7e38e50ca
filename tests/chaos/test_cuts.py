"""Connections are cut around commits, again and again, while a worker works."""

import random
import time
from collections.abc import Callable

import pytest

from tests.chaos.programs import CHAIN
from tests.chaos.site import Site
from tests.integration.sql.proxy import Mode, Proxy

pytestmark = [pytest.mark.chaos, pytest.mark.service]

RUNS = 30
CUTS_MIN = 20
HOW: tuple[Mode, ...] = ("cut after commit", "cut after commit", "cut before commit")


def test_commits_whose_answers_are_lost_while_a_worker_works_happen_once(
    postgres_database: str, open_site: Callable[[str], Site]
) -> None:
    draw = random.Random(3)
    with Proxy(postgres_database) as proxy:
        site = open_site(postgres_database)
        runs = {site.start(CHAIN(number)): number for number in range(RUNS)}
        site.worker("worker", url=proxy.url, concurrency=3, work_seconds=0.02, lease=3.0)
        site.until_started(5)
        before = proxy.connections
        while site.active():
            proxy.fail(draw.choice(HOW))
            time.sleep(draw.uniform(0.05, 0.15))
        cuts = proxy.connections - before

    assert cuts >= CUTS_MIN
    assert {run: site.result(run) for run in runs} == {run: number + 5 for run, number in runs.items()}
    audit = site.audit()
    assert (audit.repeats, audit.lost) == (0, 0)
    print("cuts", cuts, audit)
