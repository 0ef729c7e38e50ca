"""What holds for every page of the dashboard, in a real browser."""

from importlib import import_module
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from docs.examples.live_demo.shop import report
from playwright.sync_api import Browser, Response

from holdfast import Engine
from holdfast.hosts.http.operations import Operation
from holdfast.hosts.http.pages.overview import STRIP_MAX
from tests.browser.shop import PAGES, paths_of
from tests.browser.tabs import opened_tab
from tests.sizes import only_full

pytestmark = pytest.mark.slow

AXE: Final[Any] = import_module("axe_playwright_python.sync_playwright")  # it has no types
FIRST: Final = "/ui/namespaces/default"
ASSET_MAX: Final = 16_000
FIRST_MAX: Final = 60_000

every_page = pytest.mark.parametrize("operation", PAGES, ids=lambda one: one.name)


@every_page
@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=only_full)])
def test_a_page_is_accessible(browser: Browser, server: str, operation: Operation, theme: Any) -> None:
    # The checker puts a script of its own into the page, which the policy of the page would refuse.
    with opened_tab(browser, color_scheme=theme, bypass_csp=True) as tab:
        for path in paths_of(operation):
            tab.goto(f"{server}{path}")
            found = AXE.Axe().run(tab)
            assert found.violations_count == 0, f"{path}\n{found.generate_report()}"


@every_page
def test_a_page_breaks_no_rule_of_its_policy(browser: Browser, server: str, operation: Operation) -> None:
    with opened_tab(browser) as tab:
        for path in paths_of(operation):
            response = tab.goto(f"{server}{path}")
            assert response is not None
            assert response.status == 200, path
            assert "require-trusted-types-for 'script'" in response.headers["content-security-policy"]
            tab.wait_for_function("document.querySelector('#clock')?.hidden !== true")


@every_page
def test_a_page_fits_a_telephone(browser: Browser, server: str, operation: Operation) -> None:
    with opened_tab(browser, viewport={"width": 360, "height": 640}) as tab:
        for path in paths_of(operation):
            tab.goto(f"{server}{path}")
            width = tab.evaluate("document.documentElement.scrollWidth")
            assert width <= 360, f"{path} is {width} px wide"


@every_page
def test_the_first_key_leads_to_the_content(browser: Browser, server: str, operation: Operation) -> None:
    with opened_tab(browser) as tab:
        for path in paths_of(operation):
            tab.goto(f"{server}{path}")
            tab.keyboard.press("Tab")
            assert tab.evaluate("document.activeElement.className") == "skip", path
            tab.keyboard.press("Enter")
            assert tab.evaluate("document.activeElement.id") == "main", path


@every_page
def test_a_page_needs_no_script(browser: Browser, server: str, operation: Operation) -> None:
    with opened_tab(browser, java_script_enabled=False) as tab:
        for path in paths_of(operation):
            tab.goto(f"{server}{path}")
            assert tab.title().endswith(" · Holdfast")
            assert tab.locator("h1").count() == 1
            assert tab.locator("h1").is_visible()


@every_page
def test_all_addresses_of_a_page_are_below_its_mount(
    browser: Browser, mounted_server: str, operation: Operation
) -> None:
    with opened_tab(browser) as tab:
        outside: list[str] = []

        def note(address: str) -> None:
            if not address.startswith(f"{mounted_server}/"):
                outside.append(address)

        tab.on("request", lambda request: note(request.url))
        for path in paths_of(operation):
            tab.goto(f"{mounted_server}{path}")
            for address in tab.evaluate(
                "[...document.querySelectorAll('[href], [src], form, [data-watch]')]"
                ".flatMap((one) => ['href', 'src', 'action', 'data-watch'].map((name) => one.getAttribute(name)))"
                ".filter(Boolean).map((text) => new URL(text, location).href)"
            ):
                note(address)
        assert outside == []


def test_the_first_page_is_small(browser: Browser, engine: Engine, server: str) -> None:
    """Its assets too: a page is read over slow lines. There are more runs than it shows."""
    engine.sync.start_all(report("today") for _ in range(STRIP_MAX))
    answers: list[Response] = []
    with opened_tab(browser) as tab:

        def note(answer: Response) -> None:
            answers.append(answer)

        tab.on("response", note)
        tab.goto(f"{server}{FIRST}")
        tab.wait_for_load_state("load")
        assert tab.locator(".mark").count() == STRIP_MAX
        sizes = {
            path: len(one.body())
            for one in answers
            if (path := urlsplit(one.url).path).startswith("/ui/static/") or one.url == f"{server}{FIRST}"
        }
    by_kind = {path.rpartition(".")[2]: size for path, size in sizes.items()}
    assert by_kind["js"] < ASSET_MAX
    assert by_kind["css"] < ASSET_MAX
    assert sum(sizes.values()) < FIRST_MAX, sizes
