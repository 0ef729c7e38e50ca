"""Answers as responses: documents with their ETag, texts and downloads, as their principal may see them."""

from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Send

from holdfast.hosts.http.answers import (
    document,
    etag_of,
    json_text,
    matches,
)
from holdfast.hosts.http.download_responses import DownloadResponse
from holdfast.hosts.http.downloads import Download
from holdfast.hosts.http.live_reads import (
    EventStream,
)
from holdfast.hosts.http.operations import (
    Invocation,
    Operation,
    Redirect,
    Text,
    Wait,
)
from holdfast.hosts.http.request_forms import PAGES
from holdfast.hosts.http.user_values import without_user_values
from holdfast.ports.records.run import TERMINAL

_CHUNK: Final = 64 * 1024


def shown(invocation: Invocation[Any, Any], reply: Any) -> Any:
    """Return an answer as its principal may see it."""
    return reply if invocation.sees_values() else without_user_values(reply)


def answers_wait(
    operation: Operation, invocation: Invocation[Any, Any], known: str | None, reply: Any
) -> bool:
    """Return whether an answer has what the request waits for."""
    match operation.wait:
        case Wait.END:
            return reply.status in TERMINAL
        case Wait.ROWS:
            return bool(reply.items)
        case Wait.TASKS:
            return bool(reply.tasks)
        case Wait.REPLY:
            return bool(reply.is_done)
        case _:
            return not matches(known, etag_of(shown(invocation, reply)))


def document_response(
    operation: Operation,
    invocation: Invocation[Any, Any],
    reply: Any,
    known: str | None,
    applied: dict[str, str],
) -> Response:
    """Return the response with an answer and the cookies of its handler: 304 if the client has the answer.

    Args:
        operation: What was carried out.
        invocation: The request.
        reply: The answer.
        known: The header `If-None-Match`.
        applied: Headers about the wait.
    """
    response = _response(operation, invocation, reply, known, applied)
    for cookie in invocation.answer_cookies:
        response.headers.append("Set-Cookie", cookie)
    return response


def _response(
    operation: Operation,
    invocation: Invocation[Any, Any],
    reply: Any,
    known: str | None,
    applied: dict[str, str],
) -> Response:
    if invocation.is_form and not isinstance(reply, Text):
        target = f"{invocation.root}{_path_after_form(operation, invocation, reply)}"
        return Response(status_code=303, headers={"Location": target})
    if isinstance(reply, Download):
        etag = f'"{reply.sha256}"'
        if matches(known, etag):
            return Response(status_code=304, headers={"ETag": etag})
        return DownloadResponse(reply, {"ETag": etag})
    if isinstance(reply, Text):
        return _text_response(reply)
    if isinstance(reply, Redirect):
        target = reply.address if reply.is_elsewhere else f"{invocation.root}{reply.address}"
        return Response(status_code=303, headers={"Location": target})
    visible, headers, status = shown(invocation, reply), dict(applied), 200
    text = None if visible is None else json_text(visible)
    if operation.method == "GET" and visible is not None:
        headers["ETag"] = etag = etag_of(visible, text)
        if matches(known, etag):
            return Response(status_code=304, headers=headers)
    if operation.location is not None and (place := operation.location(invocation, reply)) is not None:
        status, headers["Location"] = 201, f"{invocation.root}{place}"
    return document(text, status=status, headers=headers)


def _path_after_form(operation: Operation, invocation: Invocation[Any, Any], reply: Any) -> str:
    """Return the path for a browser after a form: that of the form, or else the page of the new object."""
    if operation.form is not None:
        return operation.form(invocation)
    if invocation.return_to is not None:
        return invocation.return_to
    place = None if operation.location is None else operation.location(invocation, reply)
    return PAGES if place is None else f"{PAGES}{place.removeprefix('/v1')}"


def _text_response(reply: Text) -> Response:
    """Return a text; a long one in chunks, so that the server sends it as fast as the client reads."""
    headers, content = dict(reply.headers), reply.content
    if len(content) <= _CHUNK:
        return Response(content, media_type=reply.media_type, headers=headers)
    chunks = (content[start : start + _CHUNK] for start in range(0, len(content), _CHUNK))
    headers["Content-Length"] = str(len(content))
    return StreamingResponse(_each(chunks), media_type=reply.media_type, headers=headers)


async def _each(chunks: Iterable[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


def root_of(request: Request) -> str:
    """Return the path under which the server is mounted."""
    return str(request.scope.get("root_path", "")).rstrip("/")


async def respond(response: Response, request: Request, send: Send) -> None:
    """Send a response; without its body for HEAD."""
    if request.method == "HEAD" and isinstance(response, StreamingResponse):
        response.body_iterator = _each(())
    elif request.method == "HEAD" and not isinstance(response, EventStream | DownloadResponse):
        response.body = b""
    await response(request.scope, request.receive, send)
