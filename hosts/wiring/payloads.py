"""Values on their way to and from the store: inline where they are small, in a blob where they are not."""

import hashlib
from collections.abc import Iterable
from typing import Final

from holdfast.ports.blobs import BlobStore
from holdfast.ports.errors import NoBlobStoreError
from holdfast.ports.records import Payload
from holdfast.ports.structs import frozen

DIGEST_LENGTH: Final = 64
INLINE_MAX: Final = 64 * 1024
"""How many characters of a value's text are kept in the store's row itself, where there is a blob store."""


@frozen(kw_only=True)
class Place:
    """Whose value it is: blobs are never shared between attempts."""

    namespace: str
    run: str
    stage: str
    epoch: int

    def key(self, sha256: str) -> str:
        """Return the key of this attempt's blob with this hash."""
        return f"{self.namespace}/{self.run}/{self.stage}/{self.epoch}/{sha256}"


class Payloads:
    """Puts values away and gets them back. Without a blob store every value is kept inline."""

    def __init__(self, blobs: BlobStore | None) -> None:
        self.blobs = blobs

    def stay_inline(self, text: str) -> bool:
        """Whether `put` keeps a value's text in the store's row itself."""
        return self.blobs is None or len(text) <= INLINE_MAX

    def put(self, text: str, place: Place, *, inline_max: int = INLINE_MAX) -> Payload:
        """Return the payload to store for a value's text; a large one is durable in the blob store by then."""
        if self.blobs is None or len(text) <= inline_max:
            return Payload(inline=text)
        data = text.encode()
        key = place.key(hashlib.sha256(data).hexdigest())
        self.blobs.put(key, data)
        return Payload(blob=key)

    def forget(self, namespace: str, runs: Iterable[str], inputs: Iterable[str]) -> None:
        """Delete the blobs of runs that are no more, by the keys of these, and of what they got.

        What was got under an idempotency key stays: another start with that key may just be about to refer to it.
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
        """Return a value's text. BlobMissingError, BlobCorruptError."""
        if payload.inline is not None:
            return payload.inline
        assert payload.blob is not None  # a payload has one of the two
        if self.blobs is None:
            raise NoBlobStoreError(payload.blob)
        return self.blobs.get(payload.blob).decode()
