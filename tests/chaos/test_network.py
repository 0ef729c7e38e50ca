"""A bad network between workers and their database: every fault that the proxy can inject."""

import random
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

import attrs
import pytest

from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.adapters.sql.postgresql.connection import ANSWER_SECONDS
from holdfast.adapters.sql.postgresql.settings import CONNECT_SECONDS_MIN
from holdfast.ports.errors import UnavailableError
from holdfast.ports.queries.store import CountAll
from tests.chaos.figures import pick, report
from tests.chaos.site import OpenSite, Site
from tests.integration.sql.proxy import Proxy

pytestmark = [pytest.mark.chaos, pytest.mark.service]

DEADLINE = 4.0
OVERTIME = CONNECT_SECONDS_MIN + 0.5
BACK_WITHIN = 5.0
ACTIVE_MIN = 20
WORKERS, CONCURRENCY = 2, 4
LEASE = 60.0
"""Longer than any fault, so that no worker is taken for dead and no body starts twice."""


@attrs.define
class Calls:
    """The calls of a client: how long each took, and how many failed."""

    seconds: list[float] = attrs.field(factory=list[float])
    failed: int = 0

    @property
    def longest(self) -> float:
        return max(self.seconds, default=0.0)


@contextmanager
def calling(url: str) -> Generator[Calls]:
    """Query the database repeatedly within the block, with a deadline of a few seconds."""
    calls = Calls()
    over = threading.Event()
    store = SqlPersistence(url, deadline=DEADLINE)

    def call() -> None:
        while not over.is_set():
            began = time.monotonic()
            try:
                store.read(CountAll("default"))
            except UnavailableError:
                calls.failed += 1
            calls.seconds.append(time.monotonic() - began)
            over.wait(0.05)

    caller = threading.Thread(target=call)
    caller.start()
    try:
        yield calls
    finally:
        over.set()
        caller.join()
        store.close()


def work_through(proxy: Proxy, site: Site) -> Callable[[], int]:
    """Start two workers behind the proxy. Return a function that counts the bodies they have started."""
    for number in range(WORKERS):
        site.worker(f"far-{number}", url=proxy.url, concurrency=CONCURRENCY, work_seconds=0.02, lease=LEASE)
    site.until_started(4)
    return lambda: len(site.book.entries())


def until_work_goes_on(site: Site, count: Callable[[], int]) -> float:
    """Wait until bodies start that were claimed after now; return the seconds that took."""
    began, so_far = time.monotonic(), count()
    site.until(lambda: count() > so_far + WORKERS * CONCURRENCY, "work goes on", 60)
    return time.monotonic() - began


def test_half_open_connections_are_given_up_and_work_goes_on(
    postgres_database: str, open_site: OpenSite
) -> None:
    """The connections stay open, but nothing gets through, as with a firewall that has dropped its state."""
    with Proxy(postgres_database) as proxy:
        site = open_site(postgres_database)
        with site.busy(ACTIVE_MIN) as runs, calling(proxy.url) as calls:
            count = work_through(proxy, site)
            took = [strand(proxy, site, count) for _ in range(pick(short=1, full=20))]
        site.until_done(60)

    assert {run: site.result(run) for run in runs} == {run: number + 5 for run, number in runs.items()}
    audit = site.audit()
    report(
        f"connections stranded: {proxy.fired['strand']}, work went on after {max(took):.1f} s at most, "
        f"longest call with a deadline of {DEADLINE:.0f} s: {calls.longest:.1f} s, {audit}"
    )
    assert proxy.fired["swallowed"] >= len(took), "nobody used what was stranded"
    assert max(took) <= ANSWER_SECONDS + BACK_WITHIN
    assert calls.longest <= DEADLINE + OVERTIME
    assert (audit.repeats, audit.lost) == (0, 0)


def strand(proxy: Proxy, site: Site, count: Callable[[], int]) -> float:
    proxy.strand()
    return until_work_goes_on(site, count)


def test_a_network_that_swallows_everything_for_a_while_costs_only_that_while(
    postgres_database: str, open_site: OpenSite
) -> None:
    with Proxy(postgres_database) as proxy:
        site = open_site(postgres_database)
        took: list[float] = []
        with site.busy(ACTIVE_MIN) as runs, calling(proxy.url) as calls:
            count = work_through(proxy, site)
            for _ in range(pick(short=1, full=5)):
                proxy.fail("blackhole")
                time.sleep(pick(short=6.0, full=30.0))
                proxy.heal()
                took.append(until_work_goes_on(site, count))
        site.until_done(60)

    assert {run: site.result(run) for run in runs} == {run: number + 5 for run, number in runs.items()}
    audit = site.audit()
    report(
        f"swallowed: {proxy.fired['swallowed']}, work went on after {max(took):.1f} s at most, failed calls: "
        f"{calls.failed}, longest with a deadline of {DEADLINE:.0f} s: {calls.longest:.1f} s, {audit}"
    )
    assert calls.failed >= len(took), "nothing failed"
    assert max(took) <= ANSWER_SECONDS + BACK_WITHIN
    assert calls.longest <= DEADLINE + OVERTIME
    assert audit.repeats == 0
    # Longer than calls go on trying: what a claim got whose answer never came was not begun, and is given back.
    assert audit.lost <= len(took) * WORKERS * CONCURRENCY


def test_connections_that_are_reset_all_the_time_lose_and_double_nothing(
    postgres_database: str, open_site: OpenSite
) -> None:
    draw = random.Random(8)
    resets = pick(short=30, full=500)
    with Proxy(postgres_database) as proxy:
        site = open_site(postgres_database)
        with site.busy(ACTIVE_MIN) as runs, calling(proxy.url) as calls:
            count = work_through(proxy, site)
            for _ in range(resets):
                time.sleep(draw.uniform(0.02, 0.3))
                proxy.reset()
            took = until_work_goes_on(site, count)
        site.until_done(60)

    assert {run: site.result(run) for run in runs} == {run: number + 5 for run, number in runs.items()}
    audit = site.audit()
    report(
        f"resets: {resets}, of connections: {proxy.fired['reset']}, work went on after {took:.1f} s, "
        f"longest call: {calls.longest:.1f} s, {audit}"
    )
    assert proxy.fired["reset"] >= resets, "there was hardly anything to reset"
    assert took <= BACK_WITHIN
    assert calls.longest <= DEADLINE + OVERTIME
    assert (audit.repeats, audit.lost) == (0, 0)


def test_a_slow_network_is_slow_and_nothing_else(postgres_database: str, open_site: OpenSite) -> None:
    """Every response comes half a second late."""
    seconds = pick(short=10.0, full=60.0)
    with Proxy(postgres_database) as proxy:
        site = open_site(postgres_database)
        with site.busy(ACTIVE_MIN) as runs, calling(proxy.url) as calls:
            count = work_through(proxy, site)
            so_far = count()
            proxy.fail("delay")
            time.sleep(seconds)
            done = count() - so_far
            proxy.heal()
            took = until_work_goes_on(site, count)
        site.until_done(60)

    assert {run: site.result(run) for run in runs} == {run: number + 5 for run, number in runs.items()}
    audit = site.audit()
    report(
        f"answers delayed: {proxy.fired['delay']}, bodies meanwhile: {done}, after it work went on in {took:.1f} s, "
        f"longest call: {calls.longest:.1f} s, failed: {calls.failed}, {audit}"
    )
    assert proxy.fired["delay"] >= 2 * seconds
    assert done >= seconds / 10, "nothing was done"
    assert calls.failed == 0
    assert took <= BACK_WITHIN
    assert (audit.repeats, audit.lost) == (0, 0)


def test_a_byte_a_second_fails_calls_in_time_and_costs_only_that_while(
    postgres_database: str, open_site: OpenSite
) -> None:
    with Proxy(postgres_database) as proxy:
        site = open_site(postgres_database)
        with site.busy(ACTIVE_MIN) as runs, calling(proxy.url) as calls:
            count = work_through(proxy, site)
            proxy.fail("trickle")
            time.sleep(pick(short=6.0, full=60.0))
            proxy.heal()
            took = until_work_goes_on(site, count)
        site.until_done(60)

    assert {run: site.result(run) for run in runs} == {run: number + 5 for run, number in runs.items()}
    audit = site.audit()
    report(
        f"bytes that came alone: {proxy.fired['trickle']}, work went on after {took:.1f} s, failed calls: "
        f"{calls.failed}, longest with a deadline of {DEADLINE:.0f} s: {calls.longest:.1f} s, {audit}"
    )
    assert proxy.fired["trickle"] >= 10
    assert calls.failed >= 1
    assert took <= ANSWER_SECONDS + BACK_WITHIN
    assert calls.longest <= DEADLINE + OVERTIME
    assert (audit.repeats, audit.lost) == (0, 0)
