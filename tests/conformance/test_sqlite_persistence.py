"""Conformance of the SQLite store."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from typing_extensions import override

from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.ports.persistence import Persistence
from holdfast.testing.conformance.persistence import PersistenceContract
from tests.conformance.pauses import draw_short_pause


def _opened(path: Path) -> SqlPersistence:
    return SqlPersistence(f"sqlite:///{path}", random=draw_short_pause)


class TestSqlitePersistence(PersistenceContract):
    """In a file."""

    serial = True

    @pytest.fixture(autouse=True)
    def own_folder(self, tmp_path: Path, new_sqlite: Callable[[Path], str]) -> None:
        self.folder = tmp_path
        self.new_sqlite = new_sqlite
        self.numbers = count()

    @override
    def make_persistence(self) -> Persistence:
        self.path = self.folder / f"{next(self.numbers)}.db"
        self.new_sqlite(self.path)
        return _opened(self.path)

    @override
    def open_again(self, store: Persistence) -> Persistence | None:
        return _opened(self.path)


class TestSetupOfSqlite:
    """What the contract can't see, because its stores are copies."""

    @pytest.mark.slow
    def test_several_stores_set_up_a_new_file_at_once(self, tmp_path: Path) -> None:
        from holdfast.ports.queries.store import SchemaVersion
        from holdfast.testing.conformance.threads import in_threads

        def set_up(_: int) -> str | None:
            store = _opened(tmp_path / "new.db")
            try:
                store.setup()
                return store.read(SchemaVersion())
            finally:
                store.close()

        versions = in_threads(4, set_up)

        assert len(set(versions)) == 1
        assert versions[0]
