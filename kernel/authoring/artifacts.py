"""Artifacts as stages put and get them: named blobs that belong to an attempt."""

from functools import partial
from typing import Final, Protocol

import attrs

from holdfast.kernel.authoring.threads import InThread

BYTES: Final = "application/octet-stream"


class StageArtifacts(Protocol):
    """Named blobs of a run. Reading and writing them blocks; async stages await those of `ctx.aio.artifacts`."""

    def put(self, name: str, data: bytes, /, *, content_type: str = BYTES) -> None:
        """Store a file under a name, as this attempt's. It is listed once the attempt has completed, and only then.

        Of several of one name the last counts. Other attempts, and other stages, have names of their own.

        Raises:
            NoBlobStoreError: This process has no blob store.
            InvalidCommandError: The name or the content type is empty, or longer than 200 characters; or the attempt
                has put more than 1,000.
        """
        ...

    def get(self, name: str, /, *, stage: str | None = None, item: int | None = None) -> bytes:
        """Return what was put under a name: by this attempt, or by an earlier stage of the run.

        Raises:
            ArtifactMissingError: There is none, or there are several: then say of which `stage`, or which `item`.
            BlobMissingError: Its bytes are not there any more.
            BlobCorruptError: Its bytes are not those that were put.
            NoBlobStoreError: This process has no blob store.
        """
        ...


@attrs.frozen
class AsyncArtifacts:
    """`StageArtifacts`, to be awaited."""

    _artifacts: StageArtifacts
    _runtime: InThread

    async def put(self, name: str, data: bytes, /, *, content_type: str = BYTES) -> None:
        """See `StageArtifacts.put`."""
        await self._runtime.in_thread(partial(self._artifacts.put, name, data, content_type=content_type))

    async def get(self, name: str, /, *, stage: str | None = None, item: int | None = None) -> bytes:
        """See `StageArtifacts.get`."""
        return await self._runtime.in_thread(partial(self._artifacts.get, name, stage=stage, item=item))
