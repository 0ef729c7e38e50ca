"""A blob store in memory."""

from collections.abc import Iterator
from hashlib import sha256
from threading import Lock

from holdfast.ports.blobs import check_blob_key
from holdfast.ports.errors import BlobCorruptError, BlobMissingError, InvalidKeyError


class MemoryBlobStore:
    """A BlobStore that keeps blobs in a dictionary of this process."""

    def __init__(self) -> None:
        """Create an empty store."""
        self._lock = Lock()
        self._blobs: dict[str, bytes] = {}

    def put(self, key: str, data: bytes, /) -> None:
        """Store bytes. An existing key keeps its bytes. Raises InvalidKeyError if the key is malformed."""
        check_blob_key(key)
        if sha256(data).hexdigest() != key[-64:]:
            raise InvalidKeyError(f"{key!r} does not end in the sha256 of its bytes")
        with self._lock:
            self._blobs.setdefault(key, bytes(data))

    def get(self, key: str, /) -> bytes:
        """Return the bytes. Raises BlobMissingError, or BlobCorruptError if they do not match their hash."""
        check_blob_key(key)
        with self._lock:
            data = self._blobs.get(key)
        if data is None:
            raise BlobMissingError(key)
        if sha256(data).hexdigest() != key[-64:]:
            raise BlobCorruptError(key)
        return data

    def exists(self, key: str, /) -> bool:
        """Return whether the key has a blob."""
        check_blob_key(key)
        with self._lock:
            return key in self._blobs

    def delete(self, key: str, /) -> None:
        """Delete a blob. A missing key is not an error."""
        check_blob_key(key)
        with self._lock:
            self._blobs.pop(key, None)

    def list(self, prefix: str, /) -> Iterator[str]:
        """Yield the keys that start with `prefix`, ascending: a snapshot taken at the first one."""
        with self._lock:
            keys = sorted(key for key in self._blobs if key.startswith(prefix))
        yield from keys

    def damage(self, key: str, data: bytes) -> None:
        """Replace the bytes of a blob, as a failing disk might. Raises BlobMissingError."""
        with self._lock:
            if key not in self._blobs:
                raise BlobMissingError(key)
            self._blobs[key] = bytes(data)
