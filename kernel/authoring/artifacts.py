"""`ctx.artifacts`: named blobs that stages store beside their output."""

from functools import partial
from typing import Final, Protocol

import attrs

from holdfast.kernel.authoring.threads import InThread

BYTES: Final = "application/octet-stream"


class Artifacts(Protocol):
    """The artifacts of a run, as `ctx.artifacts`. The methods block: async stages use `ctx.aio.artifacts`."""

    def put(self, name: str, data: bytes, /, *, content_type: str = BYTES) -> None:
        """Store bytes under a name, for this attempt. The artifact is listed once the attempt has completed.

        A later artifact of the same name replaces it. Names of other attempts and other stages are separate.

        Raises:
            NoBlobStoreError: This process has no blob store.
            InvalidCommandError: The name or the content type is empty or longer than 200 characters, or the attempt has
                stored more than 1,000 artifacts.
        """
        ...

    def get(self, name: str, /, *, stage: str | None = None, item: int | None = None) -> bytes:
        """Return the bytes of an artifact of this attempt, or of an earlier stage of the run.

        Raises:
            ArtifactMissingError: No artifact has this name, or several have it: then pass `stage` or `item`.
            BlobMissingError: The bytes no longer exist.
            BlobCorruptError: The bytes have changed since they were stored.
            NoBlobStoreError: This process has no blob store.
        """
        ...


@attrs.frozen
class AsyncArtifacts:
    """`Artifacts` with async methods, as `ctx.aio.artifacts`."""

    _artifacts: Artifacts
    _runtime: InThread

    async def put(self, name: str, data: bytes, /, *, content_type: str = BYTES) -> None:
        """See `Artifacts.put`."""
        await self._runtime.in_thread(partial(self._artifacts.put, name, data, content_type=content_type))

    async def get(self, name: str, /, *, stage: str | None = None, item: int | None = None) -> bytes:
        """See `Artifacts.get`."""
        return await self._runtime.in_thread(partial(self._artifacts.get, name, stage=stage, item=item))
