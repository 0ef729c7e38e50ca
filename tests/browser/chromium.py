"""The browser of the tests: Chromium, as it is installed on the machine."""

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from playwright.sync_api import Browser, sync_playwright

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
FLAGS: Final = (
    "--no-sandbox",  # root has no sandbox, and the pages are of this repository
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def found_chromium() -> str | None:
    """Return the path of the browser: HOLDFAST_TEST_CHROMIUM if set. None if there is none."""
    if given := os.environ.get("HOLDFAST_TEST_CHROMIUM"):
        return given
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def opened_browser(path: str) -> Generator[Browser]:
    """Start a browser without a window, and stop it at the end of the block."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, headless=True, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()
