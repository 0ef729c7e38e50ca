"""Runs with long histories and large maps in a browser, and two browsers on one store."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, Page, expect

from holdfast import Channel, Engine, Pipeline, Worker, stage, step, workflow
from tests.browser.shop import NAMESPACE, served_shop
from tests.browser.tabs import opened_tab
from tests.sizes import sized

pytestmark = [pytest.mark.slow, pytest.mark.sized]

ROWS: Final = sized(1_500, 50_000)
ITEMS: Final = sized(1_500, 10_000)
RUNS: Final = f"/ui/namespaces/{NAMESPACE}/runs"
SHOWN_MS: Final = 20_000
BARS: Final = "svg.timeline > a:has(text)"

go_on = Channel("go-on", int)


@step
async def count(number: int) -> int:
    return number


@workflow
async def counts(number: int) -> int:
    for at in range(number):
        await count(at)
    return number


@workflow
async def waits(number: int) -> int:
    return await go_on.receive() + number


@stage
def numbers(number: int) -> list[int]:
    return list(range(number))


@stage
def double(number: int) -> int:
    return 2 * number


doubled = Pipeline("doubled", input=int).pipe(numbers).map(double)
WORKFLOWS: Final = (counts, waits, doubled)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, new_sqlite: Callable[[Path], str]) -> str:
    """The URL of the store."""
    return new_sqlite(tmp_path_factory.mktemp("large") / "large.db")


@pytest.fixture(scope="module")
def engine(store: str) -> Iterator[Engine]:
    """An engine with a long run, a large map and a run that waits."""
    opened = Engine.open(store, workflows=WORKFLOWS)
    with opened.sync as sync, Worker(opened, concurrency=8):
        long, mapped = sync.start(counts(ROWS), id="long"), sync.start(doubled(ITEMS), id="mapped")
        sync.start(waits(1), id="waiting")
        long.result(timeout=3_600)
        mapped.result(timeout=3_600)
        yield opened


def bars(tab: Page) -> int:
    return tab.locator(BARS).count()


def test_a_long_run_opens_and_its_first_step_can_be_reached(browser: Browser, server: str) -> None:
    with opened_tab(browser) as tab:
        tab.goto(f"{server}{RUNS}/long")
        expect(tab.locator("h1")).to_contain_text("long")
        tab.get_by_role("link", name="Steps").click()
        expect(tab.locator("[data-region=tab]")).to_contain_text(f"of {ROWS + 3:,}")
        newest = tab.locator("tbody tr").count()
        tab.get_by_role("link", name="Older").click()
        expect(tab.get_by_role("link", name="Newer")).to_be_visible()
        tab.get_by_label("Row, 1 to").fill("150")
        tab.get_by_role("button", name="Go to row").click()
        expect(tab.locator("#call-1")).to_be_visible()
        assert 100 < newest <= 200


def test_a_timeline_of_a_large_map_is_zoomed_by_links(browser: Browser, server: str) -> None:
    with opened_tab(browser, java_script_enabled=False) as tab:
        tab.goto(f"{server}{RUNS}/mapped?tab=timeline")
        assert bars(tab) == 2
        tab.get_by_role("link", name="Items of double").click()
        assert bars(tab) == 500
        first = tab.locator(BARS).last.text_content()
        tab.get_by_role("link", name="The next bars").click()
        assert tab.locator(BARS).last.text_content() != first
        before = tab.url
        tab.get_by_role("link", name="Zoom in").click()
        assert tab.url != before
        assert 0 < bars(tab) <= 500
        tab.get_by_role("link", name="Zoom out").click()
        tab.get_by_role("link", name="Earlier").click()
        tab.get_by_role("link", name="Later").click()
        assert 0 < bars(tab) <= 500
        tab.get_by_role("link", name="Without zoom").click()
        assert bars(tab) == 2


def test_a_section_of_the_axis_is_shown_alone(browser: Browser, server: str) -> None:
    with opened_tab(browser) as tab:
        tab.goto(f"{server}{RUNS}/long?tab=timeline&from=0")
        assert bars(tab) == 500
        tab.locator("svg.timeline > a:has(.section)").nth(1).click()
        tab.wait_for_url("**from=**to=**")
        assert 0 < bars(tab) <= 500
        expect(tab.locator("#live")).to_have_attribute("data-state", "live")


def test_two_browsers_see_what_the_other_changes(browser: Browser, store: str, engine: Engine) -> None:
    """Each has a server of its own: only the store connects them."""
    other = Engine.open(store, workflows=WORKFLOWS)
    with (
        other.sync,
        served_shop(engine) as here,
        served_shop(other) as there,
        opened_tab(browser) as ann,
        opened_tab(browser) as bob,
    ):
        for tab, server in ((ann, here), (bob, there)):
            tab.goto(f"{server}{RUNS}/waiting")
            expect(tab.locator("#live")).to_have_attribute("data-state", "live", timeout=SHOWN_MS)
        ann.get_by_role("button", name="Pause", exact=True).click()
        status = "[data-region=head] .badge"
        expect(bob.locator(status)).to_have_text("paused", timeout=SHOWN_MS)
        bob.reload()
        bob.get_by_role("button", name="Resume").click()
        expect(ann.locator(status)).to_have_text("running", timeout=SHOWN_MS)
