"""A transport of httpx that carries requests to a server, and loses answers on the way back."""

from collections.abc import Iterator

import httpx
from typing_extensions import override


class LossyTransport(httpx.BaseTransport):
    """Loses the answers of the next `lost` requests after they were carried out, and cuts each stream short.

    `cut_after` is the number of pieces after which a stream is cut; None: never. `keys` has the idempotency key of each
    request, and `places` the `Last-Event-ID` of each stream.
    """

    def __init__(self, *, lost: int = 0, cut_after: int | None = None) -> None:
        self._transport = httpx.HTTPTransport()
        self.lost = lost
        self.cut_after = cut_after
        self.keys: list[str | None] = []
        self.places: list[str | None] = []

    @override
    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.keys.append(request.headers.get("idempotency-key"))
        response = self._transport.handle_request(request)
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            self.places.append(request.headers.get("last-event-id"))
            if self.cut_after is None:
                return response
            return httpx.Response(
                response.status_code, headers=response.headers, stream=_Cut(response, self.cut_after)
            )
        if self.lost:
            self.lost -= 1
            response.read()
            response.close()
            raise httpx.ReadError("the connection was lost")
        return response

    @override
    def close(self) -> None:
        self._transport.close()


class _Cut(httpx.SyncByteStream):
    """The first events of a stream, and half of the next one."""

    def __init__(self, response: httpx.Response, events: int) -> None:
        self._response = response
        self._events = events

    @override
    def __iter__(self) -> Iterator[bytes]:
        left = self._events
        for line in self._response.iter_lines():
            yield f"{line}\n".encode()
            if line.startswith("data:"):
                left -= 1
                if left < 0:
                    raise httpx.ReadError("the connection was lost")

    @override
    def close(self) -> None:
        self._response.close()
