"""Stores and people for tests of pages."""

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import Engine
from tests.integration.http.pages.form_person import Person


@pytest.fixture
def url(tmp_path: Path, new_sqlite: Callable[[Path], str]) -> str:
    """One store is enough: that rows are stored alike is in the conformance suite."""
    return new_sqlite(tmp_path / "holdfast.db")


@pytest.fixture
def person(engine: Engine) -> Person:
    """A person who may do everything."""
    return Person(engine)
