"""The port for large values and files, which are stored outside the store's rows."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Final, Protocol, runtime_checkable

from holdfast.ports.errors import InvalidKeyError
from holdfast.ports.structs import frozen

BLOB_KEY_MAX: Final = 900
"""The most characters of a key."""
_PART: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@=+-]{0,199}", re.ASCII)


class BlobStore(Protocol):
    """A store of bytes by key, each written once.

    A key is parts joined by `/`; its last part is the lower-case hex sha256 of the bytes, and every read is checked
    against it. An implementation

    - is safe to use from several threads and processes at once;
    - raises InvalidKeyError for a malformed key, and does nothing;
    - raises UnavailableError if the storage can't be reached or is full.
    """

    def put(self, key: str, data: bytes, /) -> None:
        """Store `data` durably. An existing key is left as it is.

        InvalidKeyError if the key is malformed or does not end in the hash of `data`.
        """
        ...

    def get(self, key: str, /) -> bytes:
        """Return the bytes. BlobMissingError if the key does not exist; BlobCorruptError if the hash does not match."""
        ...

    def exists(self, key: str, /) -> bool:
        """Return whether a blob with this key exists."""
        ...

    def delete(self, key: str, /) -> None:
        """Delete a blob. Does nothing if the key does not exist."""
        ...

    def list(self, prefix: str, /) -> Iterator[str]:
        """Yield the keys that start with `prefix`, ascending."""
        ...


@frozen(kw_only=True)
class UploadAddress:
    """Where bytes are sent with a PUT, and the headers that the request must have exactly as they are."""

    url: str
    headers: tuple[tuple[str, str], ...]


@runtime_checkable
class AddressingBlobStore(BlobStore, Protocol):
    """A BlobStore whose blobs can be read and written by URLs, for a while and without other credentials.

    - Both methods are local: they create a signed URL without a call of the storage.
    - Both return None if the store can't sign as it is configured.
    - InvalidKeyError for a malformed key.
    """

    def download_url(self, key: str, lifetime: timedelta, /) -> str | None:
        """Return a URL whose content are the bytes of this key, for this long. A missing key is a 403 or 404."""
        ...

    def upload_address(self, key: str, size: int, lifetime: timedelta, /) -> UploadAddress | None:
        """Return where to send the bytes of this key, for this long.

        The storage refuses bytes of another length, or with another hash than the one in the key. An existing key is
        left as it is: the answer may be 412 then.
        """
        ...


def is_blob_key_part(text: str) -> bool:
    """Return whether a text may stand between the `/` of a key."""
    return _PART.fullmatch(text) is not None


def is_blob_key(text: str) -> bool:
    """Return whether `check_blob_key` accepts a text."""
    try:
        check_blob_key(text)
    except InvalidKeyError:
        return False
    return True


def check_blob_key(key: str) -> None:
    """Raise InvalidKeyError unless `key` is parts of allowed characters, none of them `.` or `..`, ending in a hash."""
    parts = key.split("/")
    if len(key) > BLOB_KEY_MAX or not all(map(is_blob_key_part, parts)):
        raise InvalidKeyError(
            f"{key[:200]!r} is not a blob key: parts of A-Z a-z 0-9 _ . @ = + - joined by /"
        )
    if not re.fullmatch(r"[0-9a-f]{64}", parts[-1]):
        raise InvalidKeyError(f"{key[:200]!r} is not a blob key: its last part must be a sha256 in hex")
