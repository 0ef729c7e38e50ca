"""Forms of updates in a browser without a script, on a server that lacks the code of the workflow."""

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, expect

from holdfast import Engine, Worker, workflow
from tests.browser.shop import wait_until
from tests.browser.tabs import noting_tab, opened_tab
from tests.integration.http.pages.form_programs import stocked, urgent

pytestmark = pytest.mark.slow

AXE: Final[Any] = import_module("axe_playwright_python.sync_playwright")  # it has no types
RUNS: Final = "/ui/namespaces/default/runs"
FORMS: Final = "section:has(h3:text-is('Shelf.put'))"


@workflow
async def other() -> None:
    """Another workflow: what the server has the code of."""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory, new_sqlite: Callable[[Path], str]) -> Iterator[Engine]:
    """An engine without the code of a run that takes updates, beside a worker that has it."""
    store = new_sqlite(tmp_path_factory.mktemp("shelf") / "shelf.db")
    opened, bare = Engine.open(store, workflows=[stocked]), Engine.open(store, workflows=[other])
    with opened.sync as sync, Worker(opened), bare.sync:
        sync.start(stocked(), id="shelf")
        sync.start(stocked(), id="sent")
        yield bare


def test_an_update_is_sent_by_its_form(browser: Browser, server: str, engine: Engine) -> None:
    handle = engine.sync.handle(stocked, "sent")
    with opened_tab(browser, java_script_enabled=False) as tab:
        tab.goto(f"{server}{RUNS}/sent/signal")
        form = tab.locator(FORMS).locator("form").first
        form.get_by_label("title").fill("Emma")
        form.get_by_label("copies").fill("2")
        form.get_by_label("size").select_option(label="large")
        form.get_by_role("button", name="Send").click()
        expect(tab).to_have_url(f"{server}{RUNS}/sent")
    wait_until(lambda: "update.completed" in {one.type for one in handle.history()})
    found = [one.payload for one in handle.history() if one.type == "update.received"]
    assert [one.value for one in found if one is not None] == [
        {"title": "Emma", "copies": 2, "size": "large"},
    ]
    handle.signal(urgent(True))
    assert handle.result(timeout=30) == ["Emma", "Emma"]


def test_what_does_not_fit_is_refused_with_its_place(browser: Browser, server: str) -> None:
    with noting_tab(browser, java_script_enabled=False) as (tab, faults):
        tab.goto(f"{server}{RUNS}/shelf/signal")
        section = tab.locator(FORMS)
        section.locator("summary").click()
        section.get_by_label("The whole value as JSON").fill('{"title": 1}')
        section.get_by_role("button", name="Send").last.click()
        expect(tab.locator("main")).to_contain_text("expected string, got integer")
        assert all("400" in one for one in faults)  # the browser notes each answer that is an error


def test_the_forms_are_accessible_and_fit_a_telephone(browser: Browser, server: str) -> None:
    # The checker puts a script of its own into the page, which the policy of the page would refuse.
    with opened_tab(browser, bypass_csp=True, viewport={"width": 360, "height": 640}) as tab:
        tab.goto(f"{server}{RUNS}/shelf/signal")
        expect(tab.locator(FORMS)).to_be_visible()
        found = AXE.Axe().run(tab)
        assert found.violations_count == 0, found.generate_report()
        assert tab.evaluate("document.documentElement.scrollWidth") <= 360
