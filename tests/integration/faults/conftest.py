"""Fixtures shared with tests/chaos."""

from pathlib import Path

import pytest

from tests.chaos.site import fork_server, open_site, postgres_site, site, sqlite_site

__all__ = ["fork_server", "open_site", "postgres_site", "site", "sqlite_site"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run these with the other process tests, not in the default suite: they wait for real time."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("chaos")
