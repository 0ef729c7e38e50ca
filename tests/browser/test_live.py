"""Pages that change while they are open, and what the script adds to them."""

import threading
import time
from typing import Any, Final

import pytest
import uvicorn
from docs.examples.live_demo.shop import refund
from playwright.sync_api import Browser, Page, expect

from holdfast import Engine
from holdfast.http import asgi_app
from tests.browser.shop import wait_until
from tests.browser.tabs import noting_tab, opened_tab

pytestmark = pytest.mark.slow

OVERVIEW: Final = "/ui/namespaces/default"
SHOWN_SECONDS: Final = 5
"""How long a change may take until it is shown. It takes about one, but machines of tests are busy."""


class Server:
    """A server on one port, which can be stopped and started again."""

    def __init__(self, engine: Engine) -> None:
        self.app: Any = asgi_app(engine)
        self._port = 0
        self.start()

    @property
    def address(self) -> str:
        return f"http://localhost:{self._port}"

    @property
    def number_of_streams(self) -> int:
        return int(self.app.open_reads)

    def start(self) -> None:
        config = uvicorn.Config(
            self.app,
            http="h11",
            port=self._port,
            log_config=None,
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run)
        self._thread.start()
        wait_until(lambda: self._server.started)
        self._port = self._server.servers[0].sockets[0].getsockname()[1]

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()


def open_live(tab: Page, address: str) -> None:
    tab.goto(address)
    expect(tab.locator("#live")).to_have_attribute("data-state", "live")


def test_a_new_run_is_shown_without_a_reload(browser: Browser, server: str, engine: Engine) -> None:
    with opened_tab(browser) as tab:
        open_live(tab, f"{server}{OVERVIEW}")
        tab.evaluate("globalThis.isTheSame = true")
        tab.wait_for_timeout(1_500)  # the reads of the opening are over
        engine.sync.start(refund(5), id="shown-live")
        began = time.monotonic()
        row = tab.locator("[data-region=active] a", has_text="shown-live")
        expect(row).to_be_visible(timeout=SHOWN_SECONDS * 1_000)
        print(f"shown after {time.monotonic() - began:.2f} s")
        assert tab.evaluate("globalThis.isTheSame")


def test_a_lost_connection_is_shown_and_made_again(browser: Browser, engine: Engine) -> None:
    server = Server(engine)
    try:
        with noting_tab(browser) as (tab, faults):
            open_live(tab, f"{server.address}{OVERVIEW}")
            server.stop()
            expect(tab.locator("#live")).to_have_text("Connection lost")
            engine.sync.start(refund(5), id="meanwhile")
            server.app = asgi_app(engine)
            server.start()
            expect(tab.locator("#live")).to_have_text("Live", timeout=20_000)
            expect(tab.locator("[data-region=active] a", has_text="meanwhile")).to_be_visible()
            assert all("ERR_" in one for one in faults), faults  # of the connection, and of nothing else
    finally:
        server.stop()


def test_a_hidden_tab_holds_no_stream(browser: Browser, engine: Engine) -> None:
    server = Server(engine)
    try:
        with opened_tab(browser) as tab:
            open_live(tab, f"{server.address}{OVERVIEW}")
            wait_until(lambda: server.number_of_streams == 1)
            hide(tab, is_hidden=True)
            wait_until(lambda: server.number_of_streams == 0)
            hide(tab, is_hidden=False)
            wait_until(lambda: server.number_of_streams == 1)
            tab.locator("#live").click()
            expect(tab.locator("#live")).to_have_text("Paused")
            wait_until(lambda: server.number_of_streams == 0)
            tab.locator("#live").click()
            wait_until(lambda: server.number_of_streams == 1)
    finally:
        server.stop()


def hide(tab: Page, *, is_hidden: bool) -> None:
    """A browser without a window shows all tabs: the page learns otherwise as it would from one."""
    value = "true" if is_hidden else "false"
    tab.evaluate(
        f"Object.defineProperty(document, 'hidden', {{ value: {value}, configurable: true }});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )


def test_a_person_chooses_the_theme(browser: Browser, server: str) -> None:
    with opened_tab(browser) as tab:
        tab.goto(f"{server}{OVERVIEW}")
        themes: list[object] = []
        for _ in range(3):
            tab.locator("#theme").click()
            tab.reload()
            themes.append(tab.evaluate("document.documentElement.dataset.theme ?? null"))
        assert themes == ["dark", "light", None]


def test_a_person_chooses_how_times_are_shown(browser: Browser, server: str) -> None:
    with opened_tab(browser, timezone_id="Asia/Tokyo", locale="en-GB") as tab:
        tab.goto(f"{server}{OVERVIEW}")
        shown = tab.locator("[data-region=failed] time").first
        utc = shown.inner_text()
        assert utc.endswith("Z")
        tab.locator("#clock").click()
        assert "GMT+9" in shown.inner_text()
        tab.reload()
        assert "GMT+9" in shown.inner_text()
        tab.locator("#clock").click()
        assert shown.inner_text().endswith("ago")
        tab.locator("#clock").click()
        assert shown.inner_text().endswith("Z")


def test_keys_lead_to_pages_and_help(browser: Browser, server: str) -> None:
    with opened_tab(browser) as tab:
        tab.goto(f"{server}{OVERVIEW}")
        tab.keyboard.press("?")
        expect(tab.locator("dialog#keys")).to_be_visible()
        tab.keyboard.press("Escape")
        expect(tab.locator("dialog#keys")).to_be_hidden()
        tab.keyboard.press("j")
        assert tab.evaluate("document.activeElement.closest('tbody tr') !== null")
        tab.evaluate(
            "document.querySelector('.top nav li:nth-child(2) a').addEventListener('click', (event) => {"
            " event.preventDefault(); globalThis.went = event.target.getAttribute('href'); })"
        )
        tab.keyboard.press("g")
        tab.keyboard.press("r")
        assert tab.evaluate("globalThis.went") == f"{OVERVIEW}/runs"


def test_what_a_person_has_selected_stays_selected_while_its_row_changes(
    browser: Browser, server: str, engine: Engine
) -> None:
    handle = engine.sync.start(refund(500), id="refund-selected")
    with opened_tab(browser) as tab:
        open_live(tab, f"{server}{OVERVIEW}/runs?id_prefix=refund-selected")
        box = tab.get_by_label("Select refund-selected")
        box.check()
        tab.evaluate("globalThis.isTheSame = true")
        handle.pause()
        expect(tab.locator("[data-region=rows] .badge")).to_have_text("paused", timeout=SHOWN_SECONDS * 1_000)
        expect(box).to_be_checked()
        assert tab.evaluate("globalThis.isTheSame && document.activeElement.type === 'checkbox'")
        tab.get_by_role("button", name="Cancel…").click()
        expect(tab.locator("main")).to_contain_text("the selected run")
        expect(tab.locator("main")).to_contain_text("refund-selected")


VIEWS: Final = f"holdfast.views:{OVERVIEW}/runs"


def test_a_filter_is_saved_under_a_name_found_again_and_removed(browser: Browser, server: str) -> None:
    with noting_tab(browser) as (tab, faults):
        tab.goto(f"{server}{OVERVIEW}/runs?status=failed&workflow=&id_prefix=")
        views = tab.locator(".top nav .views a")
        for name in ("late", "<b>'all' & \"more\"</b>", "late"):
            tab.get_by_label("Name of this view").fill(name)
            tab.get_by_role("button", name="Save view").click()
            expect(tab.locator("output")).to_have_text("Saved in this browser.")
        tab.goto(f"{server}{OVERVIEW}/queues")
        expect(views).to_have_text(["<b>'all' & \"more\"</b>", "late"])
        tab.keyboard.press("g")
        tab.keyboard.press("w")
        expect(tab).to_have_url(f"{server}{OVERVIEW}/workflows")
        views.last.click()
        expect(tab).to_have_url(f"{server}{OVERVIEW}/runs?status=failed")
        expect(views.last).to_have_attribute("aria-current", "true")
        tab.get_by_role("button", name="Remove view").click()
        expect(views).to_have_count(0)
        tab.goto(f"{server}{OVERVIEW}/runs?status=active")
        expect(tab.get_by_role("button", name="Remove view")).to_be_hidden()
        assert faults == []


def test_a_view_that_something_else_has_written_leads_nowhere_else(browser: Browser, server: str) -> None:
    kept = [
        ("null", 0),
        ("{", 0),
        ('{"name": "x"}', 0),
        ('[7, null, {"name": "x"}, {"name": "x", "query": 7}]', 0),
        ('[{"name": "x", "query": "javascript:alert(1)"}, {"name": "y", "query": "//example.com"}]', 2),
    ]
    with noting_tab(browser) as (tab, faults):
        for text, number in kept:
            tab.goto(f"{server}{OVERVIEW}")
            tab.evaluate("([name, text]) => localStorage.setItem(name, text)", [VIEWS, text])
            tab.reload()
            expect(tab.locator("#clock")).to_be_visible()
            views = tab.locator(".top nav .views a")
            expect(views).to_have_count(number)
            for one in views.all():
                address = one.evaluate("(link) => link.href")
                assert address.startswith(f"{server}{OVERVIEW}/runs?")
        assert faults == []


def test_a_browser_that_keeps_nothing_says_so(browser: Browser, server: str) -> None:
    with opened_tab(browser) as tab:
        tab.add_init_script("Storage.prototype.setItem = () => { throw new DOMException('full'); }")
        tab.goto(f"{server}{OVERVIEW}/runs?status=failed")
        tab.get_by_label("Name of this view").fill("late")
        tab.get_by_role("button", name="Save view").click()
        expect(tab.locator("output")).to_contain_text("Use a bookmark.")
        expect(tab.locator(".top nav .views")).to_have_count(0)


def test_what_a_person_has_opened_stays_open(browser: Browser, server: str, engine: Engine) -> None:
    handle = engine.sync.start(refund(500), id="refund-open")
    with opened_tab(browser) as tab:
        open_live(tab, f"{server}{OVERVIEW}/runs/refund-open")
        created = tab.locator("[data-region=tab] tr", has_text="run.created").locator("details").first
        created.locator("summary").click()
        handle.pause()
        expect(tab.locator("[data-region=tab]")).to_contain_text("run.paused")
        expect(created).to_have_attribute("open", "")
