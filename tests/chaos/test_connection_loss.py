"""Connections are cut around commits, repeatedly, while workers work and a client starts runs."""

import random
import threading
import time

import pytest

from holdfast.hosts.client.engine import Engine
from tests.chaos.figures import pick, report
from tests.chaos.programs import CHAIN, WORKFLOWS
from tests.chaos.site import OpenSite, Site
from tests.integration.sql.proxy import Mode, Proxy

pytestmark = [pytest.mark.chaos, pytest.mark.service]

CUTS = pick(short=40, full=500)
"""The number of commits that are cut off after they reached the server, and before."""
ACTIVE_MIN = 20
HOW: tuple[Mode, Mode] = ("cut after commit", "cut before commit")
SECONDS_MAX = pick(short=120.0, full=900.0)


def test_commits_whose_answers_are_lost_happen_once(postgres_database: str, open_site: OpenSite) -> None:
    draw = random.Random(3)
    with Proxy(postgres_database) as proxy:
        site = open_site(postgres_database)
        runs: dict[str, int] = {}
        over = threading.Event()
        client = threading.Thread(target=start_runs, args=(proxy.url, site, runs, over))
        client.start()
        workers = [
            site.worker(f"worker-{n}", url=proxy.url, concurrency=3, work_seconds=0.02, lease=10.0)
            for n in range(2)
        ]
        site.until_started(5)
        began = time.monotonic()
        try:
            while left := still_to_cut(proxy):
                assert time.monotonic() - began < SECONDS_MAX, f"too few commits: {proxy.fired}"
                how = draw.choice(left)
                so_far = proxy.fired[how]
                proxy.fail(how)
                site.until(lambda: proxy.fired[how] > so_far, "a commit to cut", 60)  # noqa: B023
                time.sleep(draw.uniform(0.0, 0.05))
        finally:
            proxy.heal()
            over.set()
            client.join()
        cut = dict(proxy.fired)
        site.until_done(60)

    assert [worker.code for worker in workers] == [None] * 2
    assert {run: site.result(run) for run in runs} == {run: number + 5 for run, number in runs.items()}
    audit = site.audit()
    report(
        f"{cut}, runs: {audit.runs}, bodies: {audit.starts}, begun again: {audit.repeats}, attempts lost: {audit.lost}"
    )
    assert min(cut[how] for how in HOW) >= CUTS
    assert audit.runs == len(runs), "a run was started twice"
    assert (audit.repeats, audit.lost) == (0, 0)


def still_to_cut(proxy: Proxy) -> list[Mode]:
    return [how for how in HOW if proxy.fired[how] < CUTS]


def start_runs(url: str, site: Site, runs: dict[str, int], over: threading.Event) -> None:
    """Keep starting runs over connections that are cut; each is acknowledged once."""
    number = 0
    with Engine.open(url, workflows=list(WORKFLOWS.values())).sync as engine:
        while not over.is_set():
            for _ in range(max(0, ACTIVE_MIN - site.active())):
                runs[engine.start(CHAIN(number)).id] = number
                number += 1
            over.wait(0.05)
