"""A fleet on each database."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storms.fleet import Fleet, fleet


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/chaos.db"
    url: str = request.getfixturevalue("postgres_database")
    return url


@pytest.fixture
def ships(store_url: str, tmp_path: Path) -> Iterator[Fleet]:
    """A fleet on SQLite, and one on PostgreSQL."""
    with fleet(store_url, tmp_path) as made:
        yield made
