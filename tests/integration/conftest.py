"""Databases for the tests of several folders."""

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=[pytest.mark.service, pytest.mark.other_store])]
)
def database_url(request: pytest.FixtureRequest, tmp_path: Path, new_sqlite: Callable[[Path], str]) -> str:
    """The URL of a database of each kind; on PostgreSQL the one that the folder's tests share."""
    if request.param == "postgres":
        found: str = request.getfixturevalue("shared_database")
        return found
    return new_sqlite(tmp_path / "holdfast.db")
