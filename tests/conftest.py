"""Fixtures and settings of all tests: a PostgreSQL server, Hypothesis profiles, garbage collection."""

import gc
import os
import shutil
import signal
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import settings

from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.hosts.worker.garbage_collection import YOUNG_MAX
from tests.postgres import PrivatePostgres, fresh_database, plain_url


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing with a signal."""


# A shell lets its background jobs ignore SIGINT, and nohup SIGHUP. The processes that tests start would ignore it too,
# as a signal that is ignored stays so in them. One that has a handler does not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, _ignore)

# A busy machine is no finding. Every day there are few examples; `make test-full` asks for more of them. hypothesis has
# a profile of its own for CI, which it chooses there by itself.
settings.register_profile("many", deadline=None, max_examples=100)
if not os.environ.get("CI"):
    settings.register_profile("few", deadline=None, max_examples=20)
    settings.load_profile("few")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep imported and collected modules out of the garbage collector: they stay until the end.

    Traversing them takes a third of the collection time and 0.3 s of each `gc.collect()` in a test. Collections are
    also made as rare as in a worker that owns its process: they took a tenth of the simulator's time.
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
    """Freeze what a module leaves behind for ever (caches, mappings, reports), out of the garbage collector's reach.

    By the last modules it would be half a million objects and a second of each `gc.collect()`. Garbage is collected
    first, so that unclosed resources are still noticed.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a server: `postgresql://user@host:port/database`.

    It is HOLDFAST_TEST_POSTGRES_URL if set; its user must be allowed to create databases. Otherwise each process of
    pytest-xdist starts a server for the tests.
    """
    if given := os.environ.get("HOLDFAST_TEST_POSTGRES_URL"):
        yield plain_url(given)
        return
    with PrivatePostgres() as server:
        yield server.url


@pytest.fixture(scope="session")
def new_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], str]:
    """Creates SQLite files with empty tables, and returns their URLs: copies, which are faster than migrations."""
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
    """The URL of an empty database for one test, which is dropped at the end."""
    with fresh_database(postgres_url) as url:
        yield url


@pytest.fixture(scope="session")
def postgres_template(postgres_url: str) -> Iterator[str]:
    """The URL of a database with empty tables, for copies: no client is connected to it."""
    with fresh_database(postgres_url) as url:
        store = SqlPersistence(url)
        store.setup()
        store.close()
        yield url


@pytest.fixture
def postgres_with_tables(postgres_url: str, postgres_template: str) -> Iterator[str]:
    """The URL of a database with empty tables for one test: a copy, which is faster than migrations."""
    with fresh_database(postgres_url, like=postgres_template) as url:
        yield url
