"""A list of many runs in a browser: filters, pages, bounded counts, and new runs, on PostgreSQL."""

from collections.abc import Iterator
from typing import Final

import pytest
from playwright.sync_api import Browser, expect

from holdfast import Engine, workflow
from tests.benchmarks.server.rows import FAILED_EVERY, fill
from tests.browser.shop import NAMESPACE, served_shop
from tests.browser.tabs import opened_tab
from tests.postgres import fresh_database
from tests.sizes import sized

pytestmark = [pytest.mark.slow, pytest.mark.sized, pytest.mark.service]

RUNS: Final = sized(20_000, 1_000_000)
COUNTED: Final = 1_000
"""Where a page stops to count."""
PAGE: Final = f"/ui/namespaces/{NAMESPACE}/runs"


@workflow
async def order(number: int) -> int:
    return number


@pytest.fixture(scope="module")
def engine(postgres_url: str) -> Iterator[Engine]:
    """An engine with many runs, one each millisecond, the newest of which is `bulk-1`."""
    with fresh_database(postgres_url) as url:
        opened = Engine.open(url, workflows=[order])
        with opened.sync as sync:
            assert not list(sync.runs(limit=1))  # so that the tables are there
            fill(url, runs=RUNS, jobs=100)
            yield opened


@pytest.fixture(scope="module")
def server(engine: Engine) -> Iterator[str]:
    with served_shop(engine) as address:
        yield address


def test_pages_of_many_runs_follow_each_other(browser: Browser, server: str) -> None:
    with opened_tab(browser) as tab:
        tab.goto(f"{server}{PAGE}")
        expect(tab.locator("[data-region=count]")).to_contain_text(f"{COUNTED:,}+ runs")
        rows = tab.locator("[data-region=rows] tbody tr")
        expect(rows).to_have_count(50)
        expect(rows.first).to_contain_text("bulk-1")
        tab.get_by_role("link", name="Older", exact=True).click()
        expect(rows.first).to_contain_text("bulk-51")
        tab.get_by_role("link", name="Newest", exact=True).click()
        expect(rows.first).to_contain_text("bulk-1")


def test_many_runs_are_filtered_by_forms(browser: Browser, server: str) -> None:
    with opened_tab(browser, java_script_enabled=False) as tab:
        tab.goto(f"{server}{PAGE}")
        tab.get_by_label("Status").select_option("failed")
        tab.get_by_label("Attribute").first.fill("tenant=t-0")
        tab.get_by_role("button", name="Filter", exact=True).click()
        rows = tab.locator("[data-region=rows] tbody tr")
        expect(rows.first).to_contain_text("bulk-1000")
        expect(rows.first).to_contain_text("failed")
        assert rows.count() == min(50, RUNS // 1_000)  # each thousandth run, all of which have failed
        assert 1_000 % FAILED_EVERY == 0


def test_what_would_take_long_is_looked_for_among_the_newest(browser: Browser, server: str) -> None:
    with opened_tab(browser) as tab:
        tab.goto(f"{server}{PAGE}?attribute=half%3D1&status=failed")
        count = tab.locator("[data-region=count]")
        expect(count).to_contain_text("0 runs")
        if RUNS == 1_000_000:  # with fewer, all are looked through in time
            expect(count).to_contain_text("of the newest 10,000")
            tab.get_by_role("link", name="Older", exact=True).click()
            expect(count).to_contain_text("of the next 10,000")


def test_new_runs_are_offered_and_no_row_moves(browser: Browser, server: str, engine: Engine) -> None:
    with opened_tab(browser) as tab:
        tab.goto(f"{server}{PAGE}")
        expect(tab.locator("#live")).to_have_attribute("data-state", "live")
        for number in range(12):
            engine.sync.start(order(number), id=f"new-{number}")
        offer = tab.get_by_role("button", name="12 new")
        expect(offer).to_be_visible(timeout=10_000)
        rows = tab.locator("[data-region=rows] tbody tr")
        expect(rows.first).to_contain_text("bulk-1")
        offer.click()
        expect(rows.first).to_contain_text("new-11")
