"""Blobs in memory."""

from collections.abc import Iterator
from hashlib import sha256
from threading import Lock

from holdfast.ports.blobs import check_blob_key
from holdfast.ports.errors import BlobCorruptError, BlobMissingError, InvalidKeyError


class MemoryBlobStore:
    """A BlobStore that keeps blobs in a dictionary and forgets them with the process."""

    def __init__(self) -> None:
        """Be empty."""
        self._lock = Lock()
        self._blobs: dict[str, bytes] = {}

    def put(self, key: str, data: bytes, /) -> None:
        """Store bytes. A key that is there already is left as it is; InvalidKeyError if it is malformed."""
        check_blob_key(key)
        if sha256(data).hexdigest() != key[-64:]:
            raise InvalidKeyError(f"{key!r} does not end in the sha256 of its bytes")
        with self._lock:
            self._blobs.setdefault(key, bytes(data))

    def get(self, key: str, /) -> bytes:
        """Return the bytes. BlobMissingError if there are none; BlobCorruptError if they do not match their hash."""
        check_blob_key(key)
        with self._lock:
            data = self._blobs.get(key)
        if data is None:
            raise BlobMissingError(key)
        if sha256(data).hexdigest() != key[-64:]:
            raise BlobCorruptError(key)
        return data

    def exists(self, key: str, /) -> bool:
        """Return whether there is a blob of this key."""
        check_blob_key(key)
        with self._lock:
            return key in self._blobs

    def delete(self, key: str, /) -> None:
        """Take a blob away; nothing happens if there is none."""
        check_blob_key(key)
        with self._lock:
            self._blobs.pop(key, None)

    def list(self, prefix: str, /) -> Iterator[str]:
        """Yield the keys that start with `prefix`, ascending: those there were when the first was asked for."""
        with self._lock:
            keys = sorted(key for key in self._blobs if key.startswith(prefix))
        yield from keys

    def damage(self, key: str, data: bytes) -> None:
        """Put other bytes in the place of a blob, as a failing disk might. BlobMissingError if there is none."""
        with self._lock:
            if key not in self._blobs:
                raise BlobMissingError(key)
            self._blobs[key] = bytes(data)
