"""Fixtures of the chaos tests."""

import pytest

from tests.chaos.figures import reported
from tests.chaos.site import fork_server, open_site, postgres_site, server, site, small_disk, sqlite_site

__all__ = ["fork_server", "open_site", "postgres_site", "server", "site", "small_disk", "sqlite_site"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures that the tests reported."""
    if lines := reported():
        terminalreporter.section("what chaos has counted")
        for line in lines:
            terminalreporter.write_line(line)
