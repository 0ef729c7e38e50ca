"""A browser, and a server with runs in every state. Each test has a browser context of its own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from holdfast import Engine
from tests.browser.chromium import found_chromium, opened_browser
from tests.browser.shop import served_shop, shop


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for the tests of a module: while it is open, its event loop is that of the thread."""
    path = found_chromium()
    if path is None:
        pytest.skip("there is no Chromium: install it, or set HOLDFAST_TEST_CHROMIUM")
    with opened_browser(path) as found:
        yield found


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory, new_sqlite: Callable[[Path], str]) -> Iterator[Engine]:
    """An engine of the shop, with a worker."""
    with shop(new_sqlite(tmp_path_factory.mktemp("shop") / "shop.db")) as found:
        yield found


@pytest.fixture(scope="module")
def server(engine: Engine) -> Iterator[str]:
    """The address of its server."""
    with served_shop(engine) as address:
        yield address


@pytest.fixture(scope="module")
def mounted_server(engine: Engine) -> Iterator[str]:
    """The address of its server below `/a/b`."""
    with served_shop(engine, "/a/b") as address:
        yield address
