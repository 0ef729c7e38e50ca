"""Addresses of large inputs and outputs of tasks: of the blob store if it signs URLs, else of this server.

A worker never names a blob. It gets the URL of an input, and a reference for an output: the token of its task, the hash
and the length of the bytes, and an instant, as one opaque text. The server derives the blob's key from them, so a
reference reaches nothing but what this attempt may write, and needs no signature of its own: the token is checked
against principal, namespace, session and epoch, as always.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import attrs

from holdfast.hosts.http.json_input import parse_body
from holdfast.hosts.http.operations import Text
from holdfast.hosts.http.problems import HttpError
from holdfast.hosts.http.remote_tasks import AuthorisedTask
from holdfast.hosts.http.task_outcomes import owner_of
from holdfast.hosts.http.task_tokens import TaskToken
from holdfast.hosts.remote.connection import content_digest
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.rules.leases import attempt_of
from holdfast.kernel.values import MAX_VALUE_BYTES
from holdfast.ports.blobs import AddressingBlobStore
from holdfast.ports.clock import micros
from holdfast.ports.errors import BlobMissingError, LeaseLostError
from holdfast.ports.records.values import Micros, Payload

ADDRESS_LIFETIME: Final = timedelta(minutes=15)
"""For how long an address can be used."""
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_MICROSECOND: Final = timedelta(microseconds=1)


def input_url(core: Core, token: TaskToken, blob: str | None) -> str:
    """Return the URL of a large input; relative to that of the namespace if this server has to send it."""
    blobs = core.stores.blobs
    if blob is not None and isinstance(blobs, AddressingBlobStore):
        url = blobs.download_url(blob, ADDRESS_LIFETIME)
        if url is not None:
            return url
    return f"tasks/{token.text}/input"


def input_of(core: Core, task: AuthorisedTask) -> Text:
    """Return the input of a task that its worker holds, whatever its size. LeaseLostError."""
    if task.job is None:
        raise LeaseLostError
    (work,) = core.inputs.load((attempt_of(task.job),), lambda _: True)
    if work.error is not None:
        raise work.error
    data = work.input.encode()
    return Text(data, "application/json", headers=(("Content-Digest", content_digest(data)),))


@attrs.frozen(kw_only=True)
class OutputReference:
    """An output that a worker sends, or has sent, to the blob store."""

    token: TaskToken
    sha256: str
    size: int
    expires_at: Micros

    @property
    def text(self) -> str:
        """The reference as workers see it."""
        data = f"{self.expires_at} {self.size} {self.sha256} {self.token.text}".encode()
        return urlsafe_b64encode(data).decode().rstrip("=")


def reference_from(text: str, token: TaskToken) -> OutputReference:
    """Return the reference that a text is, of this task. HttpError if it is another text."""
    try:
        data = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        expires_at, size, sha256, _ = data.decode("ascii").split(" ")
        found = OutputReference(token=token, sha256=sha256, size=int(size), expires_at=int(expires_at))
    except ValueError:
        found = None
    if found is None or found.text != text or not is_hash(found.sha256):
        raise HttpError("invalid_request", "$.reference: it is not one that the server made for this task")
    return found


def is_hash(text: str) -> bool:
    """Return whether a text is a SHA-256 in hex."""
    return _HASH.fullmatch(text) is not None


@attrs.frozen(kw_only=True)
class NewUpload:
    """Where a worker sends an output."""

    reference: OutputReference
    url: str
    headers: Sequence[tuple[str, str]]


def new_upload(core: Core, task: AuthorisedTask, sha256: str, size: int) -> NewUpload | None:
    """Return where to send an output; None if the blob store has no addresses. LeaseLostError."""
    if task.job is None:
        raise LeaseLostError
    blobs = core.stores.blobs
    if not isinstance(blobs, AddressingBlobStore):
        return None
    address = blobs.upload_address(owner_of(core, task.token).key(sha256), size, ADDRESS_LIFETIME)
    if address is None:
        return None
    expires_at = micros(core.clock.now()) + ADDRESS_LIFETIME // _MICROSECOND
    reference = OutputReference(token=task.token, sha256=sha256, size=size, expires_at=expires_at)
    return NewUpload(reference=reference, url=address.url, headers=address.headers)


@attrs.frozen
class SentOutput:
    """An output that a worker has sent to the blob store."""

    payload: Payload
    text: str | None
    """Its JSON text; None if the attempt has ended, and the outcome is only repeated."""


def sent_output(core: Core, task: AuthorisedTask, text: str) -> SentOutput:
    """Return the output of a reference. HttpError if it was not sent, has expired, or has another length."""
    reference = reference_from(text, task.token)
    key = owner_of(core, task.token).key(reference.sha256)
    if task.job is None:  # the outcome may be stored already: the command decides
        return SentOutput(Payload(blob=key), None)
    if reference.expires_at < micros(core.clock.now()):
        raise HttpError("invalid_request", "$.reference: it has expired; ask for another one")
    blobs = core.stores.blobs
    if blobs is None:
        raise HttpError("invalid_request", "$.reference: the engine has no blob store")
    try:
        data = blobs.get(key)  # checked against its hash
    except BlobMissingError:
        raise HttpError("invalid_request", "$.reference: nothing was sent to its URL") from None
    if len(data) != reference.size or len(data) > MAX_VALUE_BYTES:
        raise HttpError("invalid_request", "$.reference: the bytes have another length")
    parse_body(data)
    return SentOutput(Payload(blob=key), data.decode())
