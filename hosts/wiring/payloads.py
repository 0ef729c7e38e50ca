"""Payloads: values stored inline in a row if they are small, and in a blob otherwise."""

import hashlib
from collections.abc import Iterable
from typing import Final

from holdfast.ports.blobs import BlobStore
from holdfast.ports.errors import NoBlobStoreError
from holdfast.ports.records.values import Payload
from holdfast.ports.structs import frozen

DIGEST_LENGTH: Final = 64
"""The length of the hash in the blob key of an input with an idempotency key."""
INLINE_MAX: Final = 64 * 1024
"""The maximum length of a value stored in the row itself, in characters, if there is a blob store."""


@frozen(kw_only=True)
class BlobOwner:
    """The owner of a blob. Attempts never share blobs."""

    namespace: str
    run: str
    stage: str
    epoch: int

    def key(self, sha256: str) -> str:
        """Return the key of a blob with this hash."""
        return f"{self.namespace}/{self.run}/{self.stage}/{self.epoch}/{sha256}"


class Payloads:
    """Stores and loads values. Without a blob store all values are inline."""

    def __init__(self, blobs: BlobStore | None) -> None:
        self.blobs = blobs

    def stay_inline(self, text: str) -> bool:
        """Whether `put` keeps this text inline."""
        return self.blobs is None or len(text) <= INLINE_MAX

    def put(self, text: str, place: BlobOwner, *, inline_max: int = INLINE_MAX) -> Payload:
        """Return the payload for a text. A large one is durable in the blob store when this returns."""
        if self.blobs is None or len(text) <= inline_max:
            return Payload(inline=text)
        data = text.encode()
        key = place.key(hashlib.sha256(data).hexdigest())
        self.blobs.put(key, data)
        return Payload(blob=key)

    def delete_blobs(self, namespace: str, runs: Iterable[str], inputs: Iterable[str]) -> None:
        """Delete the blobs of removed runs, by run key, and of their inputs, by blob key.

        Inputs stored under an idempotency key stay, as another start with this key may be about to refer to them.
        """
        blobs = self.blobs
        if blobs is None:
            return
        for run in runs:
            for key in list(blobs.list(f"{namespace}/{run}/")):
                blobs.delete(key)
        for key in inputs:
            if len(key.split("/")[1]) != DIGEST_LENGTH:
                blobs.delete(key)

    def get(self, payload: Payload) -> str:
        """Return the text of a payload. Raises BlobMissingError, BlobCorruptError or NoBlobStoreError."""
        if payload.inline is not None:
            return payload.inline
        assert payload.blob is not None  # a payload has one of the two
        if self.blobs is None:
            raise NoBlobStoreError(payload.blob)
        return self.blobs.get(payload.blob).decode()
