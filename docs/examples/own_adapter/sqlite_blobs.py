"""A blob store of one's own: all blobs in one SQLite file, with nothing but the standard library."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

from holdfast.ports.blobs import check_blob_key
from holdfast.ports.errors import BlobCorruptError, BlobMissingError, InvalidKeyError, UnavailableError


class SqliteBlobStore:
    """A BlobStore for processes of one machine. Every call opens the file, so threads and processes share it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._execute("CREATE TABLE IF NOT EXISTS blobs (key TEXT PRIMARY KEY, data BLOB NOT NULL)")

    def put(self, key: str, data: bytes, /) -> None:
        check_blob_key(key)
        if sha256(data).hexdigest() != key[-64:]:
            raise InvalidKeyError(f"{key!r} does not end in the sha256 of its bytes")
        self._execute("INSERT INTO blobs VALUES (?, ?) ON CONFLICT DO NOTHING", key, data)

    def get(self, key: str, /) -> bytes:
        check_blob_key(key)
        rows = self._execute("SELECT data FROM blobs WHERE key = ?", key)
        if not rows:
            raise BlobMissingError(key)
        data: bytes = rows[0][0]
        if sha256(data).hexdigest() != key[-64:]:
            raise BlobCorruptError(key)
        return data

    def exists(self, key: str, /) -> bool:
        check_blob_key(key)
        return bool(self._execute("SELECT 1 FROM blobs WHERE key = ?", key))

    def delete(self, key: str, /) -> None:
        check_blob_key(key)
        self._execute("DELETE FROM blobs WHERE key = ?", key)

    def list(self, prefix: str, /) -> Iterator[str]:
        after = ""
        query = "SELECT key FROM blobs WHERE key > ? AND substr(key, 1, ?) = ? ORDER BY key LIMIT 500"
        while rows := self._execute(query, after, len(prefix), prefix):
            for (key,) in rows:
                yield key
                after = key

    def _execute(self, statement: str, *values: object) -> Sequence[Any]:
        """Carry out one statement in a transaction of its own, which is on the disk when this returns."""
        try:
            with closing(sqlite3.connect(self._path, timeout=10)) as connection, connection:
                return connection.execute(statement, values).fetchall()
        except sqlite3.OperationalError as error:  # the file is locked, the disk is full
            raise UnavailableError(f"the blobs in {self._path} can't be reached: {error}") from error
