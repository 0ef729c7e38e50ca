"""Fixtures and settings of all tests: a PostgreSQL server, Hypothesis profiles, garbage collection."""

import gc
import os
import shutil
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.hosts.worker.gc_tuning import YOUNG_MAX
from tests.postgres import PrivatePostgres, fresh_database, plain_url

# A busy machine is no finding. Every day there are few examples; `make test-slow` asks for more of them. hypothesis has
# a profile of its own for CI, which it chooses there by itself.
settings.register_profile("many", deadline=None, max_examples=200)
if not os.environ.get("CI"):
    settings.register_profile("few", deadline=None, max_examples=30)
    settings.load_profile("few")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep what is imported and collected out of the garbage collector's sight: all of it stays until the end.

    To look for garbage among it takes a third of the collecting, and 0.3 s of each `gc.collect()` of a test. And look
    as seldom as a worker does that owns its process: a tenth of what the simulator and the models take was that.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(YOUNG_MAX, *gc.get_threshold()[1:])
        gc.enable()


@pytest.fixture(scope="module", autouse=True)
def _nothing_left_to_look_at() -> Iterator[None]:
    """Keep what a module leaves behind for ever (caches, mappings, reports) out of the garbage collector's sight, too.

    It is half a million objects by the last modules, and a second of each `gc.collect()` of theirs. Garbage is looked
    for before, so that nothing that should have been closed is kept from being noticed.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a server: `postgresql://user@host:port/database`.

    Of HOLDFAST_TEST_POSTGRES_URL if that is set; its user must be allowed to create databases. Otherwise of a server
    that is started for these tests, one for each worker process of pytest-xdist.
    """
    if given := os.environ.get("HOLDFAST_TEST_POSTGRES_URL"):
        yield plain_url(given)
        return
    with PrivatePostgres() as server:
        yield server.url


@pytest.fixture(scope="session")
def new_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], str]:
    """Makes a SQLite file with tables and without rows, and gives its URL: a copy, which is faster than migrations."""
    template = tmp_path_factory.mktemp("template") / "empty.db"
    store = SqlPersistence(f"sqlite:///{template}")
    store.setup()
    store.close()

    def make(path: Path) -> str:
        shutil.copyfile(template, path)
        path.chmod(0o600)
        return f"sqlite:///{path}"

    return make


@pytest.fixture
def postgres_database(postgres_url: str) -> Iterator[str]:
    """The URL of an empty database of the test's own, which is dropped afterwards."""
    with fresh_database(postgres_url) as url:
        yield url


@pytest.fixture(scope="session")
def postgres_template(postgres_url: str) -> Iterator[str]:
    """The URL of a database with tables and without rows, to which nobody is connected."""
    with fresh_database(postgres_url) as url:
        store = SqlPersistence(url)
        store.setup()
        store.close()
        yield url


@pytest.fixture
def postgres_with_tables(postgres_url: str, postgres_template: str) -> Iterator[str]:
    """The URL of a database of the test's own with tables and without rows: a copy, which is faster than migrations."""
    with fresh_database(postgres_url, like=postgres_template) as url:
        yield url
