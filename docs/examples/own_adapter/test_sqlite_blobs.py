"""Every promise of a blob store, as tests of this one; and a run that uses it."""

import sqlite3
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest
from sqlite_blobs import SqliteBlobStore
from typing_extensions import override

from holdfast import Engine, Pipeline, Worker, stage
from holdfast.ports.blobs import BlobStore
from holdfast.testing.conformance.blobs import BlobStoreContract


class TestSqliteBlobStore(BlobStoreContract):
    @pytest.fixture(autouse=True)
    def own_folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path
        self.numbers = count()

    @override
    def make_blob_store(self) -> BlobStore:
        self.path = self.folder / f"{next(self.numbers)}.db"
        return SqliteBlobStore(self.path)

    @override
    def damage(self, store: BlobStore, key: str, data: bytes) -> None:
        with sqlite3.connect(self.path) as connection:
            connection.execute("UPDATE blobs SET data = ? WHERE key = ?", (data, key))
        connection.close()


@stage
def write(pages: int) -> str:
    return "All work and no play. " * 100 * pages


@stage
def measure(text: str) -> int:
    return len(text)


def test_runs_keep_large_values_in_it(tmp_path: Path) -> None:
    book = Pipeline("book", input=int).pipe(write).pipe(measure)
    blobs = SqliteBlobStore(tmp_path / "blobs.db")
    with (
        Engine.open("memory://", workflows=[book], blobs=blobs).sync as engine,
        Worker(engine, poll_interval=0.05),
    ):
        assert engine.start(book(300)).result(timeout=timedelta(seconds=60)) == 660_000
    assert len(list(blobs.list("default/"))) == 1
