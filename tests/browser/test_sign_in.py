"""Signing in and out in a browser, and forms that are refused."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from docs.examples.live_demo.shop import WORKFLOWS, refund
from playwright.sync_api import Browser, expect

from holdfast import Engine
from holdfast.client import Scope
from holdfast.http import Grant, HttpServer, SingleSignOn, Tokens, asgi_app
from tests.browser.shop import mounted, served_shop
from tests.browser.tabs import noting_tab, opened_tab
from tests.integration.http.live import served
from tests.integration.http_auth.provider import CLIENT, SECRET, provider_at_work

pytestmark = pytest.mark.slow

OVERVIEW: Final = "/ui/namespaces/default"


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory, new_sqlite: Callable[[Path], str]) -> Iterator[Engine]:
    """An engine whose store has a key, so that each request needs one."""
    url = new_sqlite(tmp_path_factory.mktemp("locked") / "shop.db")
    engine = Engine.open(url, workflows=WORKFLOWS)
    with engine.sync as sync:
        sync.start(refund(5), id="one")
        yield engine


@pytest.fixture(scope="module")
def key(locked: Engine) -> str:
    text = locked.sync.keys.create("ann", scopes=list(Scope), namespaces=["*"]).text
    assert text is not None
    return text


@pytest.mark.parametrize("mount", ["", "/a/b"])
def test_a_person_signs_in_and_out(browser: Browser, locked: Engine, key: str, mount: str) -> None:
    with served_shop(locked, mount) as server, opened_tab(browser) as tab:
        tab.goto(f"{server}{OVERVIEW}")
        assert tab.url.startswith(f"{server}/ui/sign-in?return_to=")
        tab.get_by_label("API key, or token").fill(key)
        tab.get_by_role("button", name="Sign in").click()
        tab.wait_for_url(f"{server}{OVERVIEW}")
        expect(tab.locator(".person")).to_have_text("ann")
        tab.get_by_role("button", name="Sign out").click()
        tab.wait_for_url(f"{server}/ui/sign-in")
        tab.goto(f"{server}{OVERVIEW}")
        assert "/ui/sign-in" in tab.url


def test_a_page_says_that_its_session_has_ended(browser: Browser, locked: Engine, key: str) -> None:
    with served_shop(locked) as server, noting_tab(browser) as (tab, _):
        tab.goto(f"{server}{OVERVIEW}")
        tab.get_by_label("API key, or token").fill(key)
        tab.get_by_role("button", name="Sign in").click()
        expect(tab.locator("#live")).to_have_text("Live")
        tab.context.clear_cookies()
        locked.sync.start(refund(6))
        expect(tab.locator("#live")).to_have_text("Signed out", timeout=20_000)


def test_a_form_without_its_token_is_refused(browser: Browser, locked: Engine, key: str) -> None:
    with served_shop(locked) as server, noting_tab(browser) as (tab, _):
        tab.goto(f"{server}{OVERVIEW}")
        tab.get_by_label("API key, or token").fill(key)
        tab.get_by_role("button", name="Sign in").click()
        tab.wait_for_url(f"{server}{OVERVIEW}")
        tab.evaluate("document.querySelector('[name=csrf_token]').remove()")
        with tab.expect_navigation() as navigation:
            tab.get_by_role("button", name="Sign out").click()
        assert navigation.value.status == 403
        expect(tab.locator("[role=alert]")).to_be_visible()
        expect(tab.locator(".note")).to_have_text("403 · csrf_failed")


def test_a_form_of_another_site_is_refused(browser: Browser, locked: Engine, key: str) -> None:
    with (
        served_shop(locked) as server,
        served_shop(locked) as other,
        noting_tab(browser, bypass_csp=True) as (tab, _),
    ):
        tab.goto(f"{other}/ui/sign-in")
        tab.evaluate(
            "address => { document.querySelector('form').action = address; }", f"{server}/v1/browser-session"
        )
        tab.get_by_label("API key, or token").fill(key)
        with tab.expect_navigation() as navigation:
            tab.get_by_role("button", name="Sign in").click()
        assert navigation.value.status == 403
        expect(tab.locator(".note")).to_have_text("403 · foreign_origin")


@pytest.mark.parametrize("mount", ["", "/a/b"])
def test_a_person_signs_in_with_a_provider(browser: Browser, locked: Engine, mount: str) -> None:
    apps: list[HttpServer] = []

    async def server_of_its_address(scope: Any, receive: Any, send: Any) -> None:
        if not apps:  # the redirect URL has the port of the server
            settings = SingleSignOn(
                client_id=CLIENT,
                client_secret=SECRET,
                public_url=f"http://localhost:{scope['server'][1]}{mount}",
                name="Example",
            )
            apps.append(asgi_app(locked, tokens=tokens, single_sign_on=settings))
        await apps[0](scope, receive, send)

    with provider_at_work() as provider:
        grants = [Grant.of("groups:shop=read@*")]
        tokens = Tokens(issuer=provider.url, audience="api", grants=grants, subject="email")
        with served(mounted(server_of_its_address, mount)) as address, noting_tab(browser) as (tab, _):
            here = f"{address.replace('127.0.0.1', 'localhost')}{mount}"
            tab.goto(f"{here}{OVERVIEW}")
            tab.get_by_role("link", name="Sign in with Example").click()
            assert tab.url.startswith(f"{provider.url}/authorize")
            tab.get_by_role("link", name="Allow").click()
            tab.wait_for_url(f"{here}{OVERVIEW}")
            expect(tab.locator(".person")).to_have_text("ann@example.com")
            tab.get_by_role("button", name="Sign out").click()
            tab.wait_for_url(f"{here}/ui/sign-in")
            provider.refusal = {"error": "access_denied", "error_description": "not today"}
            tab.get_by_role("link", name="Sign in with Example").click()
            tab.get_by_role("link", name="Allow").click()
            expect(tab.get_by_role("alert")).to_contain_text("not today")
