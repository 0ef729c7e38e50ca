"""A tab of a browser that notes what a page must not do."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page


@contextmanager
def opened_tab(browser: Browser, **settings: Any) -> Generator[Page]:
    """Open a tab in a context of its own. AssertionError at the end if a page complained, or opened a dialog."""
    with noting_tab(browser, **settings) as (page, faults):
        yield page
        assert not faults, "\n".join(faults)


@contextmanager
def noting_tab(browser: Browser, **settings: Any) -> Generator[tuple[Page, list[str]]]:
    """Open a tab in a context of its own, with what its pages complain of: errors, and violations of their policy."""
    context = browser.new_context(**settings)
    context.set_default_timeout(10_000)
    faults: list[str] = []

    def on_console(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:  # the browser writes violations there too
            faults.append(f"{message.type}: {message.text} ({page.url})")

    def on_dialog(dialog: Dialog) -> None:
        faults.append(f"dialog: {dialog.message} ({page.url})")
        dialog.dismiss()

    try:
        page = context.new_page()
        page.on("console", on_console)
        page.on("pageerror", lambda error: faults.append(f"exception: {error} ({page.url})"))
        page.on("dialog", on_dialog)
        yield page, faults
    finally:
        context.close()
