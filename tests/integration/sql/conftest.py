"""Stores on both databases."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.adapters.sql.persistence import SqlPersistence
from tests.integration.sql.proxy import Proxy


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The URL of a file that does not exist yet."""
    return f"sqlite:///{tmp_path}/holdfast.db"


@pytest.fixture
def sqlite_with_tables(tmp_path: Path, new_sqlite: Callable[[Path], str]) -> str:
    """The URL of a file with empty tables."""
    return new_sqlite(tmp_path / "holdfast.db")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.service)])
def url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database of each kind; with tables for a test that takes a `store`, too."""
    names = {
        "sqlite": ("sqlite_url", "sqlite_with_tables"),
        "postgres": ("postgres_database", "postgres_with_tables"),
    }
    found: str = request.getfixturevalue(names[request.param]["store" in request.fixturenames])
    return found


@pytest.fixture
def open_store() -> Iterator[Callable[..., SqlPersistence]]:
    """Opens stores, and closes them at the end."""
    opened: list[SqlPersistence] = []

    def open_one(url: str, **options: object) -> SqlPersistence:
        opened.append(SqlPersistence(url, **options))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(url: str, open_store: Callable[..., SqlPersistence]) -> SqlPersistence:
    """A store with empty tables, of each kind."""
    return open_store(url)


@pytest.fixture
def proxy(postgres_database: str) -> Iterator[Proxy]:
    """A proxy in front of an empty PostgreSQL database."""
    with Proxy(postgres_database) as proxy:
        yield proxy
