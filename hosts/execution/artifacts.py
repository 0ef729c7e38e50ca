"""Artifacts: stored by attempts, listed and read by clients."""

import hashlib
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Final

import attrs

from holdfast.hosts.wiring.payloads import BlobOwner, Payloads
from holdfast.kernel.authoring.artifacts import BYTES
from holdfast.kernel.commands import ArtifactOutput
from holdfast.ports.attempt_output import Artifact
from holdfast.ports.clock import instant
from holdfast.ports.errors import (
    ArtifactMissingError,
    BlobCorruptError,
    InvalidCommandError,
    NoBlobStoreError,
)
from holdfast.ports.persistence import Persistence
from holdfast.ports.queries.run_output import ArtifactsOf
from holdfast.ports.references import leaves, located, references_from
from holdfast.ports.validation import DATA, TEXT, check, integer

ARTIFACTS_MAX: Final = 1_000
"""How many artifacts an attempt may store."""
_PAGE: Final = 500


@attrs.frozen(kw_only=True)
class ArtifactInfo:
    """A named blob that a stage or step of a run has stored."""

    name: str
    """Its name."""
    stage: str
    """The stage or step that stored it."""
    item: int | None
    """The index of the map item that stored it; None if the stage is not mapped."""
    epoch: int
    """The epoch of the attempt that stored it."""
    at: datetime
    """When it was stored."""
    content_type: str
    """Its media type, such as `text/plain`."""
    size: int
    """Its size in bytes."""
    sha256: str
    """Its hash, 64 hex digits. Every read verifies it."""


@attrs.define(eq=False, repr=False)
class AttemptArtifacts:
    """See `Artifacts`."""

    _run: str
    _kept: str | None
    _place: BlobOwner
    _stage: str
    _persistence: Persistence
    _payloads: Payloads
    put_so_far: dict[str, ArtifactOutput] = attrs.field(factory=dict[str, ArtifactOutput], init=False)
    """The artifacts to be recorded when the attempt is settled, by name."""

    def put(self, name: str, data: bytes, /, *, content_type: str = BYTES) -> None:
        """See `Artifacts.put`."""
        check("put", TEXT, name=name, content_type=content_type)
        check("put", DATA, data=data)
        if self._payloads.blobs is None:
            raise NoBlobStoreError(name)
        sha256 = hashlib.sha256(data).hexdigest()
        key = self._place.key(sha256)
        output = ArtifactOutput(name=name, content_type=content_type, size=len(data), sha256=sha256, blob=key)
        if name not in self.put_so_far and len(self.put_so_far) >= ARTIFACTS_MAX:
            raise InvalidCommandError(f"an attempt can store up to {ARTIFACTS_MAX} artifacts")
        self._payloads.blobs.put(key, data)
        self.put_so_far[name] = output

    def get(self, name: str, /, *, stage: str | None = None, item: int | None = None) -> bytes:
        """See `Artifacts.get`."""
        check_artifact_query("get", name, stage, item)
        own = self.put_so_far.get(name) if stage in {None, self._stage} and item is None else None
        if own is not None:
            return _bytes(self._payloads, own.blob, own.sha256)
        return artifact_bytes(self._persistence, self._payloads, self._run, self._kept, name, stage, item)


def check_artifact_query(where: str, name: object, stage: object, item: object) -> None:
    """Check the arguments of a lookup. Raises InvalidArgumentError."""
    check(where, TEXT, name=name)
    check(where, TEXT.or_none, stage=stage)
    check(where, integer(0).or_none, item=item)


def artifacts_of(
    persistence: Persistence, run: str, kept: str | None, name: str | None = None
) -> Iterator[Artifact]:
    """Yield the artifacts of a run, including those of stages that its last rerun did not run again."""
    yield from _listed(persistence, run, name, lambda _: True)
    elsewhere: dict[str, set[str]] = {}
    for stage, reference in references_from(kept).items():
        for leaf in leaves(reference):
            elsewhere.setdefault(located(run, leaf)[0], set()).add(stage)
    for former, stages in elsewhere.items():
        if former != run:
            yield from _listed(persistence, former, name, stages.__contains__)


def artifact_bytes(
    persistence: Persistence,
    payloads: Payloads,
    run: str,
    kept: str | None,
    name: str,
    stage: str | None,
    item: int | None,
) -> bytes:
    """Return the bytes of the only match. ArtifactMissingError, BlobMissingError, BlobCorruptError."""
    found = [
        artifact
        for artifact in artifacts_of(persistence, run, kept, name)
        if stage in {None, artifact.node} and item in {None, artifact.item}
    ]
    if not found:
        raise ArtifactMissingError(name, "no completed stage of the run has stored it")
    if len(found) > 1:
        stages = ", ".join(sorted({artifact.node for artifact in found}))
        raise ArtifactMissingError(
            name, f"there are {len(found)} of this name: name the stage or item, one of {stages}"
        )
    return _bytes(payloads, found[0].blob, found[0].sha256)


def artifact_info(artifact: Artifact) -> ArtifactInfo:
    """Return the public form of an artifact."""
    return ArtifactInfo(
        name=artifact.name,
        stage=artifact.node,
        item=artifact.item,
        epoch=artifact.epoch,
        at=instant(artifact.at),
        content_type=artifact.content_type,
        size=artifact.size,
        sha256=artifact.sha256,
    )


def _listed(
    persistence: Persistence, run: str, name: str | None, is_of: Callable[[str], bool]
) -> Iterator[Artifact]:
    after: tuple[int, int, str, str] | None = None
    while page := persistence.read(ArtifactsOf(run, name=name, after=after, limit=_PAGE)):
        yield from (artifact for artifact in page if is_of(artifact.node))
        last = page[-1]
        after = (last.job, last.epoch, last.call, last.name)
        if len(page) < _PAGE:
            return


def _bytes(payloads: Payloads, key: str, sha256: str) -> bytes:
    if payloads.blobs is None:
        raise NoBlobStoreError(key)
    data = payloads.blobs.get(key)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise BlobCorruptError(key)
    return data
