"""A database takes a folder and a line of registration: one that tests add this way is complete."""

import shutil
import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest
from typing_extensions import override

from holdfast import Engine, Pipeline, Worker, stage
from holdfast.adapters.sql import databases
from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.hosts.wiring.stores import open_stores
from holdfast.ports.errors import InvalidUrlError
from holdfast.ports.persistence import Persistence
from holdfast.testing.conformance.persistence import PersistenceContract
from holdfast.testing.conformance.persistence.case import PersistenceCase
from holdfast.testing.conformance.persistence.claims import Claims
from holdfast.testing.conformance.persistence.conflicts import Conflicts
from holdfast.testing.conformance.persistence.slots import Slots
from tests.conformance.pauses import draw_short_pause
from tests.conformance.third_database.connection import taken


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(databases, "REGISTERED", (*databases.REGISTERED, "tests.conformance.third_database"))
        yield


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with empty tables, for copies."""
    path = tmp_path_factory.mktemp("third") / "empty"
    store = SqlPersistence(f"third:///{path}", random=draw_short_pause)
    store.setup()
    store.close()
    return path


class ThirdStores(PersistenceCase):
    """Stores in files."""

    serial = True

    @pytest.fixture(autouse=True)
    def own_folder(self, tmp_path: Path, empty: Path) -> None:
        self.folder = tmp_path
        self.empty = empty
        self.numbers = count()

    @override
    def make_persistence(self) -> Persistence:
        self.path = self.folder / f"{next(self.numbers)}"
        shutil.copyfile(self.empty, self.path)
        return SqlPersistence(f"third:///{self.path}", random=draw_short_pause)

    @override
    def open_again(self, store: Persistence) -> Persistence | None:
        return SqlPersistence(f"third:///{self.path}", random=draw_short_pause)


class TestThirdPersistence(ThirdStores, Claims, Conflicts, Slots):
    """What differs most between databases. The whole contract is tested in the slow part."""


@pytest.mark.slow
class TestAllOfThirdPersistence(ThirdStores, PersistenceContract):
    """The whole contract."""


@stage
def double(number: int) -> int:
    return 2 * number


@pytest.mark.anyio
async def test_a_pipeline_runs_in_it_by_its_own_ways(tmp_path: Path) -> None:
    before = dict(taken)
    doubled = Pipeline("doubled", input=int).pipe(double)
    async with Engine.open(f"third:///{tmp_path}/third", workflows=[doubled]) as engine, Worker(engine):
        run = await engine.start(doubled(21))
        assert await run.result(timeout=timedelta(seconds=30)) == 42

    assert all(taken[name] > before[name] for name in taken)


def test_large_values_go_beside_its_file(tmp_path: Path) -> None:
    stores = open_stores(f"third:///{tmp_path}/third")

    assert stores.file == tmp_path / "third"
    assert stores.blobs is not None


def test_it_is_among_the_forms_of_urls() -> None:
    with pytest.raises(InvalidUrlError, match="host/database or third:///path/to/file"):
        open_stores("fourth:///file")


def test_its_indexes_have_no_conditions(empty: Path) -> None:
    connection = sqlite3.connect(empty)
    found = connection.execute("SELECT sql FROM sqlite_master WHERE sql LIKE 'CREATE%INDEX%'").fetchall()
    connection.close()

    assert len(found) > 20
    assert not any("WHERE" in sql for (sql,) in found)
