"""Answers: JSON documents with their ETag, problems, and the headers that every answer has."""

from datetime import timedelta
from hashlib import sha256
from typing import Any, Final, cast
from uuid import uuid4

import attrs
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.hosts.http.problems import MEDIA_TYPE, Problem
from holdfast.hosts.inspection.json_form import json_form
from holdfast.hosts.inspection.run_info import RunInfo
from holdfast.ports.json import compact

SECURITY_HEADERS: Final = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    # With `no-referrer`, browsers hide the origin of forms of the same page, too.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
}
"""The headers of every answer, unless it has its own."""
_SECURITY: Final = tuple((name.encode(), text.encode()) for name, text in SECURITY_HEADERS.items())


def document(text: str | None, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return an answer with the text of a JSON document; without one for None."""
    if text is None:
        return Response(status_code=204, headers=headers)
    return Response(text, status, headers, "application/json")


def json_text(reply: object) -> str:
    """Return the JSON document of a reply."""
    return compact(json_form(reply))


def problem_answer(problem: Problem, headers: dict[str, str] | None = None) -> Response:
    """Return an answer with a problem."""
    found = dict(headers or {})
    if problem.retry_after is not None:
        found["Retry-After"] = str(problem.retry_after)
    if problem.status == 401:
        found["WWW-Authenticate"] = "Bearer"
    return Response(json_text(problem), problem.status, found, MEDIA_TYPE)


def etag_of(reply: object, text: str | None = None) -> str:
    """Return the weak ETag of a document. The time that an active run has taken so far does not count.

    `text` is the document, if it is there already.
    """
    settled = _settled(reply)
    counted = text if text is not None and settled is reply else json_text(settled)
    return f'W/"{sha256(counted.encode()).hexdigest()[:24]}"'


def _settled(reply: object) -> object:
    """Return a reply without the times that active runs have taken; the reply itself if it has none."""
    if isinstance(reply, RunInfo):
        return reply if reply.ended_at is not None else attrs.evolve(reply, duration=timedelta())
    page: Any = reply
    if isinstance(items := getattr(reply, "items", None), tuple):
        found = cast("tuple[object, ...]", items)
        settled = tuple(map(_settled, found))
        if any(one is not other for one, other in zip(settled, found, strict=True)):
            return attrs.evolve(page, items=settled)
    return reply


def matches(header: str | None, etag: str) -> bool:
    """Return whether an `If-None-Match` has this ETag, by the weak comparison of RFC 9110."""
    if header is None:
        return False
    tags = {one.strip().removeprefix("W/") for one in header.split(",")}
    return "*" in tags or etag.removeprefix("W/") in tags


REQUEST_ID: Final = "x-request-id"
"""The header that names a request in answers. The server makes the id, so that those of the audit log are true."""
_REQUEST_ID: Final = REQUEST_ID.encode()
_REQUEST_ID_KEY: Final = "holdfast.request_id"


def request_id_of(scope: Scope) -> str:
    """Return the id of a request."""
    return str(scope[_REQUEST_ID_KEY])


class WithCommonHeaders:
    """An ASGI application whose requests have ids. All answers name theirs, and have the headers above."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        request_id = uuid4().hex

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                known = {name.lower() for name, _ in headers}
                headers += [header for header in _SECURITY if header[0] not in known]
                headers.append((_REQUEST_ID, request_id.encode()))
                message = {**message, "headers": headers}
            await send(message)

        if scope["type"] == "http":
            await self._app({**scope, _REQUEST_ID_KEY: request_id}, receive, send_with_headers)
        else:
            await self._app(scope, receive, send)
