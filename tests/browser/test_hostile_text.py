"""Texts of users stay texts: on every page, in every place where users can put one."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page

from holdfast import Engine, GiveUp, Worker, step, workflow
from holdfast.errors import HoldfastError
from holdfast.hosts.http.operations import Operation
from tests.browser.hostile_texts import BIDIRECTIONAL, HOSTILE
from tests.browser.shop import PAGES, served_shop, wait_until
from tests.browser.tabs import noting_tab, opened_tab

pytestmark = pytest.mark.slow

FOUND: Final = """() => {
  const all = [...document.querySelectorAll('*')];
  const isForeign = (one) => ['IMG', 'IFRAME', 'OBJECT', 'EMBED', 'BASE', 'STYLE', 'VIDEO', 'MATH', 'TEMPLATE']
    .includes(one.tagName.toUpperCase());
  return {
    foreign: all.filter(isForeign).map((one) => one.outerHTML.slice(0, 200)),
    scripts: document.querySelectorAll('script').length,
    handlers: all.filter((one) => Element.prototype.getAttributeNames.call(one).some((name) => name.startsWith('on')))
      .map((one) => one.outerHTML.slice(0, 200)),
    addresses: [...document.querySelectorAll('[href], [src], form')]
      .flatMap((one) => ['href', 'src', 'action'].map((name) => Element.prototype.getAttribute.call(one, name))
        .filter(Boolean).map((text) => new URL(text, location).href)),
  };
}"""


@step
def repeat(text: str) -> str:
    raise GiveUp(text[:10_000])


@workflow
async def fail(text: str) -> str:
    return await repeat(text)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory, new_sqlite: Callable[[Path], str]) -> Iterator[Engine]:
    """An engine with a run for each text: as its id where it may be one, its input, attribute, error and reason."""
    engine = Engine.open(new_sqlite(tmp_path_factory.mktemp("hostile") / "shop.db"), workflows=[fail])
    with engine.sync as sync:
        for number, text in enumerate(HOSTILE):
            attributes = {"text": text[:60].replace("\x00", "")}
            run = None
            for name in (text, f"run-{number}"):
                with suppress(HoldfastError):  # not every text may be an id
                    run = sync.start(fail(text), id=name, attributes=attributes)
                    break
            assert run is not None, text[:50]
        with Worker(engine):
            wait_until(lambda: all(one.status.value == "failed" for one in sync.runs()), 60)
        yield engine


def check(tab: Page, server: str) -> None:
    found = tab.evaluate(FOUND)
    assert found["foreign"] == []
    assert found["handlers"] == []
    assert found["scripts"] == 1
    assert [one for one in found["addresses"] if not one.startswith(server)] == []
    text = tab.content()
    assert not set(text) & set(BIDIRECTIONAL)


@pytest.mark.parametrize("operation", PAGES, ids=lambda one: one.name)
def test_no_text_becomes_markup(browser: Browser, hostile: Engine, operation: Operation) -> None:
    ids = [one.id for one in hostile.sync.runs()]
    assert len(ids) == len(HOSTILE)
    with served_shop(hostile) as server, noting_tab(browser) as (tab, faults):
        for path in addresses_of(operation, hostile):
            tab.goto(f"{server}{path}")
            check(tab, server)
        faults[:] = [one for one in faults if "404" not in one]  # a page of what this store does not have
        assert not faults, "\n".join(faults)


def test_live_pages_stay_safe(browser: Browser, hostile: Engine) -> None:
    """What the script puts into the page comes from the same text."""
    with served_shop(hostile) as server, opened_tab(browser) as tab:
        tab.goto(f"{server}/ui/namespaces/default")
        tab.wait_for_timeout(500)
        hostile.sync.start(fail("x"), id="<img src=x onerror=alert(2)>")
        tab.locator("[data-region=active] a", has_text="alert(2)").wait_for()
        check(tab, server)


def addresses_of(operation: Operation, engine: Engine) -> Iterator[str]:
    """Yield the addresses of a page for all runs; other names are hostile texts themselves."""
    runs = [one.id for one in engine.sync.runs()] if "{run_id}" in operation.path else [""]
    for number, run_id in enumerate(runs):
        segments = [_filled(one, run_id, HOSTILE[number % 40]) for one in operation.path.split("/")]
        yield "/".join(segments) + ("?action=cancel&workflow=fail" if operation.name == "page.bulk" else "")


def _filled(segment: str, run_id: str, other: str) -> str:
    names = {"{namespace}": "default", "{run_id}": run_id, "{name}": other if run_id else "fail"}
    return quote(names.get(segment, other), safe="") if segment.startswith("{") else segment
