"""Conformance of the blob stores."""

from itertools import count
from pathlib import Path

import pytest
from typing_extensions import override

from holdfast.adapters.files.blobs import FileBlobStore
from holdfast.ports.blobs import BlobStore
from holdfast.testing.blobs import MemoryBlobStore
from holdfast.testing.conformance.blobs import BlobStoreContract


class TestMemoryBlobStore(BlobStoreContract):
    """In memory."""

    @override
    def make_blob_store(self) -> BlobStore:
        return MemoryBlobStore()

    @override
    def damage(self, store: BlobStore, key: str, data: bytes) -> None:
        assert isinstance(store, MemoryBlobStore)
        store.damage(key, data)


class TestFileBlobStore(BlobStoreContract):
    """In files."""

    @pytest.fixture(autouse=True)
    def own_root(self, tmp_path: Path) -> None:
        self.path = tmp_path
        self.numbers = count()

    @override
    def make_blob_store(self) -> BlobStore:
        self.root = self.path / str(next(self.numbers))
        return FileBlobStore(self.root, fsync=lambda _: None)

    @override
    def damage(self, store: BlobStore, key: str, data: bytes) -> None:
        folder, _, name = key.rpartition("/")
        path = self.root / folder / f".{name}"
        assert path.is_file()
        path.write_bytes(data)
