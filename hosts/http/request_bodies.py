"""The body and the conditions of a request, as they were sent: sizes, media types, hashes, keys, generations."""

import contextlib
import re
from typing import Final

import anyio
from starlette.requests import ClientDisconnect, Request

from holdfast.hosts.http.json_input import (
    is_fit,
    parse_body,
    parse_form,
)
from holdfast.hosts.http.operations import (
    Nothing,
    Operation,
)
from holdfast.hosts.http.problems import HttpError
from holdfast.hosts.http.remote_tasks import KEY_PREFIX
from holdfast.hosts.http.request_forms import SentForm, is_form
from holdfast.hosts.remote.connection import content_digest

BODY_MAX: Final = 1_048_576
"""The largest body of a request, in bytes."""
BODY_SECONDS: Final = 30.0
"""How long a client may take to send the body of a request."""
DISCARDED_MAX: Final = 33_554_432
"""How much of a refused body the server reads before it answers, in bytes: twice the largest that it ever takes."""
DISCARD_SECONDS: Final = 10.0
"""How long a client may take to send a refused body."""
_GENERATION: Final = re.compile(r'"?g(\d{1,9})"?')
_DIGEST: Final = re.compile(r"(?:^|,)\s*sha-256=")


def check_framing(request: Request) -> None:
    """Raise HttpError if a body has a length and chunks: a proxy may see its end elsewhere than this server."""
    if "content-length" in request.headers and "transfer-encoding" in request.headers:
        raise HttpError(
            "invalid_request", "a body has a length or chunks, not both", headers={"Connection": "close"}
        )


async def body_of(
    operation: Operation, request: Request, body_max: int
) -> tuple[object, dict[str, str] | None]:
    """Return the JSON data of the body, an empty object for an empty one; and the fields if it is a form."""
    length, most = request.headers.get("content-length", "0"), max(body_max, operation.body_max)
    if length.isdigit() and int(length) > most:
        raise _too_large(most)
    data = bytearray()
    with anyio.move_on_after(BODY_SECONDS) as waiting:
        async for chunk in request.stream():
            data += chunk
            if len(data) > most:
                raise _too_large(most)
    if waiting.cancelled_caught:
        raise HttpError(
            "too_slow", f"a body is sent within {BODY_SECONDS:g} seconds", headers={"Connection": "close"}
        )
    _check_digest(request.headers.get("content-digest"), data)
    if not data:
        return {}, None
    media_type, _, parameters = request.headers.get("content-type", "").lower().partition(";")
    has_form = operation.takes_form and is_form(request)
    if not has_form and operation.body is Nothing and operation.method in {"GET", "DELETE"}:
        raise HttpError("invalid_request", f"{operation.name} takes no body")
    if not has_form and media_type.strip() != "application/json":
        raise HttpError("unsupported_media_type", "send JSON with `Content-Type: application/json`")
    if parameters.strip() not in {"", "charset=utf-8"}:
        raise HttpError("unsupported_media_type", "send UTF-8, which needs no `charset`")
    return ({}, parse_form(bytes(data))) if has_form else (parse_body(bytes(data)), None)


async def discard_body(request: Request) -> None:
    """Read what is left of a refused body, so that the client reads the answer.

    The server closes the connection after an answer that came before the end of the body. If bytes have not been
    read then, the system resets the connection, and the client may lose the answer (RFC 9112, section 9.6). No more
    than DISCARDED_MAX bytes are read, for DISCARD_SECONDS. A client that has sent `Expect: 100-continue` sends no body.
    """
    length = request.headers.get("content-length", "")
    if "expect" in request.headers or (length.isdigit() and int(length) > DISCARDED_MAX):
        return
    read = 0
    consumed = RuntimeError  # Starlette raises it if the body was read to its end
    with anyio.move_on_after(DISCARD_SECONDS), contextlib.suppress(ClientDisconnect, consumed):
        async for chunk in request.stream():
            read += len(chunk)
            if read > DISCARDED_MAX:
                break


def conditions_of(
    operation: Operation, request: Request, form: SentForm | None
) -> tuple[str | None, int | None]:
    """Return the idempotency key and the generation that the headers, or the fields of a form, name."""
    key, wanted = _utf8(request.headers.get("idempotency-key")), request.headers.get("if-match")
    if form is not None:
        key, wanted = key or form.idempotency_key, wanted or form.generation
    if key is not None and not operation.idempotent:
        raise HttpError("invalid_request", f"{operation.name} takes no Idempotency-Key")
    if key is not None and not (is_fit(key) and 1 <= len(key) <= 255):
        raise HttpError(
            "invalid_request", "Idempotency-Key has 1 to 255 characters, none of them a control character"
        )
    if key is not None and key.startswith(KEY_PREFIX):
        raise HttpError("invalid_request", f"an Idempotency-Key does not begin with {KEY_PREFIX}")
    if wanted is None:
        return key, None
    if not operation.if_match:
        raise HttpError("invalid_request", f"{operation.name} takes no If-Match")
    found = _GENERATION.fullmatch(wanted.strip())
    if found is None:
        raise HttpError("invalid_request", 'If-Match names a generation: If-Match: "g1"')
    return key, int(found[1])


def _utf8(header: str | None) -> str | None:
    """Return the text of a header that clients send as UTF-8. Starlette reads its bytes as Latin-1."""
    if header is None or header.isascii():
        return header
    try:
        return header.encode("latin-1").decode()
    except UnicodeDecodeError:
        return header


def _too_large(most: int) -> HttpError:
    return HttpError("too_large", f"a body has at most {most:,} bytes", headers={"Connection": "close"})


def _check_digest(header: str | None, data: bytes | bytearray) -> None:
    """Raise HttpError if a body does not have the SHA-256 in its `Content-Digest`. Other hashes are not checked."""
    found = None if header is None else _DIGEST.search(header)
    if header is not None and found is not None and content_digest(bytes(data)) not in header:
        raise HttpError("invalid_request", "the body does not have the hash in Content-Digest")
