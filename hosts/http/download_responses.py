"""Responses of bytes: sent in parts, each once the one before was accepted, and not too many at once."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Final
from urllib.parse import quote

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from holdfast.hosts.http.downloads import BYTES, Download, safe_media_type
from holdfast.hosts.http.live_reads import SEND_SECONDS
from holdfast.hosts.http.problems import HttpError

SENDING_MAX: Final = 256 * 1_048_576
"""How many bytes of such answers a process sends at once. One that is being read from the store comes on top."""
_PART: Final = 262_144


class Downloads:
    """How many bytes are being sent."""

    def __init__(self) -> None:
        self._bytes = 0

    def check(self, size: int) -> None:
        """Raise HttpError if so many more would be too many."""
        if self._bytes + size > SENDING_MAX and self._bytes:
            raise HttpError("too_many_streams", "too many large values are being sent: try again later")

    @contextmanager
    def counted(self, size: int) -> Generator[None]:
        """Count bytes while they are sent."""
        self._bytes += size
        try:
            yield
        finally:
            self._bytes -= size


class DownloadResponse(Response):
    """Sends bytes in parts, each once the one before was accepted. A reader that does not read is disconnected."""

    def __init__(self, download: Download, headers: Mapping[str, str]) -> None:
        media_type = safe_media_type(download.media_type)
        disposition = "attachment" if media_type == BYTES else "inline"
        given = {
            **headers,
            "Content-Disposition": f"{disposition}; filename*=UTF-8''{quote(download.filename, safe='')}",
            "Content-Length": str(len(download.content)),
            "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
        }
        super().__init__(headers=given)
        self.headers["content-type"] = media_type
        self.content = download.content

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        content = b"" if scope["method"] == "HEAD" else self.content
        with anyio.move_on_after(SEND_SECONDS) as limit:
            for start in range(0, len(content), _PART):
                part = content[start : start + _PART]
                await send({"type": "http.response.body", "body": part, "more_body": True})
                limit.deadline = anyio.current_time() + SEND_SECONDS
            await send({"type": "http.response.body", "body": b""})
