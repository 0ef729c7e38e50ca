"""Stores on both databases."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.adapters.sql.persistence import SqlPersistence
from tests.integration.sql.proxy import Proxy


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The URL of a file that is not there yet."""
    return f"sqlite:///{tmp_path}/holdfast.db"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.service)])
def url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database of each kind."""
    found: str = request.getfixturevalue(
        f"{request.param}_url" if request.param == "sqlite" else "postgres_database"
    )
    return found


@pytest.fixture
def open_store() -> Iterator[Callable[..., SqlPersistence]]:
    """Opens stores and closes them in the end."""
    opened: list[SqlPersistence] = []

    def open_one(url: str, **options: object) -> SqlPersistence:
        opened.append(SqlPersistence(url, **options))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(
    url: str, open_store: Callable[..., SqlPersistence], new_sqlite: Callable[[Path], str]
) -> SqlPersistence:
    """A store with tables and no rows, of each kind."""
    if url.startswith("sqlite"):
        new_sqlite(Path(url.removeprefix("sqlite:///")))
    store = open_store(url)
    store.setup()
    return store


@pytest.fixture
def proxy(postgres_database: str) -> Iterator[Proxy]:
    """A proxy before an empty PostgreSQL database."""
    with Proxy(postgres_database) as proxy:
        yield proxy
