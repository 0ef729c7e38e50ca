"""The questions of somebody's first day, answered from the overview. Each test says how many clicks the answer takes.

The table in docs/howto/dashboard.md has these numbers.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

import attrs
import pytest
from docs.examples.live_demo.shop import Order, export, orders, refund
from playwright.sync_api import Browser, Locator, Page, expect

from holdfast import Engine, SyncRunHandle
from holdfast.client import Actor
from tests.browser.shop import wait_until
from tests.browser.tabs import opened_tab

pytestmark = pytest.mark.slow

FIRST: Final = "/ui/namespaces/default"
PAGE: Final = Path(__file__).parents[2] / "docs" / "howto" / "dashboard.md"
WAIT: Final = 30_000


@attrs.define
class Person:
    """Somebody at the overview, whose clicks are counted."""

    tab: Page
    clicks: int = 0

    def click(self, what: Locator) -> Self:
        """Click on the first of what is found, which must be visible."""
        what.first.click()
        self.clicks += 1
        return self

    def follow(self, name: str | re.Pattern[str]) -> Self:
        """Click on a link."""
        exact = isinstance(name, str)
        return self.click(self.tab.get_by_role("link", name=name, exact=exact))

    def press(self, name: str) -> Self:
        """Click on a button."""
        return self.click(self.tab.get_by_role("button", name=name, exact=True))

    def sees(self, text: str) -> None:
        """Check that a text is visible without a further click."""
        expect(self.tab.locator("main").get_by_text(text).locator("visible=true").first).to_be_visible(
            timeout=WAIT
        )


@pytest.fixture
def person(browser: Browser, server: str) -> Iterator[Person]:
    """A person who has just opened the overview."""
    with opened_tab(browser) as tab:
        tab.goto(f"{server}{FIRST}")
        yield Person(tab)


def test_which_run_failed_and_why(person: Person) -> None:
    person.follow("order-2")
    person.sees("there are no unicorns")
    assert person.clicks == _clicks("Which run failed, and why?")


def test_why_a_run_waits(person: Person) -> None:
    person.follow("export-february")
    person.sees("concurrency")
    assert person.clicks == _clicks("Why does this one wait?")


def test_what_is_stuck(person: Person) -> None:
    person.sees("1 run is blocked")
    person.sees("price-1")
    assert person.clicks == _clicks("What is stuck?")


def test_a_failed_run_is_tried_again(person: Person, engine: Engine) -> None:
    run = _failed(engine, "again-1")
    person.tab.reload()
    person.follow("again-1").follow("Rerun…").press("Run again")
    wait_until(lambda: run.info().generation == 2)
    assert person.clicks == _clicks("How do I retry it?")


def test_an_input_is_changed_and_run_again(person: Person, engine: Engine) -> None:
    _failed(engine, "again-2")
    person.tab.reload()
    person.follow("again-2").follow("Duplicate and edit…")
    person.tab.get_by_label("items").first.fill('["tea"]')
    person.tab.get_by_text("Options", exact=True).first.click()  # to name it, so that this test finds it
    person.tab.get_by_label("Run id").first.fill("edited")
    person.press("Start")
    wait_until(lambda: any(one.id == "edited" for one in engine.sync.runs(limit=20)))
    assert engine.sync.handle(orders, "edited").input(Order) == Order("bob", ["tea"])
    assert person.clicks == _clicks("How do I change its input, and run it again?")


def test_a_run_is_approved(person: Person, engine: Engine) -> None:
    person.follow("Runs").follow("refund-1").follow("Send a message…")
    person.tab.locator("select:visible").first.select_option(label="yes")
    person.tab.locator("input[type=text]:visible").first.fill("ann")
    person.press("Send")
    run = engine.sync.handle(refund, "refund-1")
    wait_until(lambda: run.info().status.value == "completed")
    assert person.clicks == _clicks("How do I approve it?")


def test_how_long_a_queue_waits(person: Person) -> None:
    person.follow("Queues")
    person.sees("Oldest waits")
    assert person.clicks == _clicks("What is the delay of this queue?")


def test_who_cancelled_a_run(person: Person, engine: Engine) -> None:
    run = engine.sync.handle(export, "export-march")
    run.cancel(reason="not needed", actor=Actor(kind="user", id="zoe"))
    wait_until(lambda: run.info().status.value == "cancelled")
    person.follow("Runs").follow("export-march")
    person.sees("zoe")
    assert person.clicks == _clicks("Who cancelled it?")


def test_what_a_step_got(person: Person) -> None:
    person.follow("Runs").follow("letter-1").follow("Steps")
    person.click(person.tab.get_by_text("arguments", exact=True))
    person.sees("letter 1")
    assert person.clicks == _clicks("What did this step get?")


def test_what_a_run_cost(person: Person) -> None:
    person.follow("Runs").follow("letter-1").follow("Values")
    person.sees("0.0014")
    assert person.clicks == _clicks("What did it cost?")


def _failed(engine: Engine, id: str) -> SyncRunHandle[str]:
    """Start a run that fails, and wait until it has."""
    run = engine.sync.start(orders(Order("bob", ["unicorn"])), id=id)
    wait_until(lambda: run.info().status.value == "failed")
    return run


def _clicks(question: str) -> int:
    """Return how many clicks the page says that a question takes."""
    rows = [line.split("|") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    found = [int(row[2]) for row in rows if row[1].strip() == question]
    assert found, f"add the question {question!r} to {PAGE.name}"
    return found[0]
