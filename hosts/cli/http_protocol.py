"""The HTTP protocol of `holdfast serve`: that of uvicorn, by httptools where it is installed, with bounded requests.

h11 refuses a head that is too large, httptools does not: whatever a client sends as headers, trailers or sizes of
chunks would stay in memory until they end.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from typing_extensions import override

HEAD_MAX: Final = 65_536
"""How many bytes a client may send without a byte of a body, or the end of a request: the bound of h11."""

if TYPE_CHECKING:
    pass


def http_protocol() -> "type[asyncio.Protocol] | str":
    """Return the protocol for the settings of uvicorn."""
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    except ModuleNotFoundError:  # uvicorn needs no httptools
        return "h11"

    class BoundedProtocol(HttpToolsProtocol):
        """Refuses a request with a head that is too large."""

        _unread = 0
        """Bytes received since the end of the last request, or since the last byte of a body."""

        @override
        def data_received(self, data: bytes) -> None:
            self._unread += len(data)
            super().data_received(data)
            if self._unread > HEAD_MAX and not self.transport.is_closing():
                self.send_400_response("The head of the request is too large.")

        @override
        def on_body(self, body: bytes) -> None:
            self._unread = 0
            super().on_body(body)

        @override
        def on_message_complete(self) -> None:
            self._unread = 0
            super().on_message_complete()

    return BoundedProtocol
