"""A namespace of a server, for async code: what the client and its handles send their requests with."""

import math
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, TypeVar

import attrs
from anyio import sleep

from holdfast.hosts.http.operations import WAIT_SECONDS_MAX
from holdfast.hosts.http_client.answers import document_of
from holdfast.hosts.http_client.connection import Connection
from holdfast.hosts.http_client.requests import request_of
from holdfast.hosts.http_client.streams import Frame

R = TypeVar("R")
Item = TypeVar("Item")

POLL_SECONDS: Final = 0.5
"""The shortest time from one read of a wait to the next."""
PAGE: Final = 100
"""How many items a page of a list has."""


class Server:
    """The operations of a server, in one namespace. Shared by a client and its handles."""

    def __init__(self, connection: Connection, namespace: str) -> None:
        self.connection = connection
        self.namespace = namespace

    async def call(
        self,
        name: str,
        reply: type[R],
        path: Mapping[str, str] | None = None,
        *,
        query: object = None,
        body: object = None,
        key: str | None = None,
        wait: int = 0,
    ) -> R:
        """Carry out an operation, and return its answer, of the class `reply`."""
        request = request_of(name, self._path(path), query=query, body=body, key=key, wait=wait)
        return document_of(request, await self.connection.send(request), reply)

    async def content(
        self, name: str, path: Mapping[str, str] | None = None, *, query: object = None
    ) -> bytes:
        """Return the content of an answer that is not a document."""
        return await self.connection.send(request_of(name, self._path(path), query=query))

    async def pages(
        self, name: str, reply: type[Any], path: Mapping[str, str] | None, query: Any, limit: int | None
    ) -> AsyncIterator[Any]:
        """Yield the items of a list, at most `limit`, page by page. `query` is that of the first page."""
        left = math.inf if limit is None else limit
        while left > 0:
            size = int(min(left, PAGE))
            page: Any = await self.call(name, reply, path, query=attrs.evolve(query, limit=size))
            for item in page.items:
                yield item
            left -= len(page.items)
            if page.next is None:
                return
            query = attrs.evolve(query, after=page.next)

    async def events(self, name: str, path: Mapping[str, str], query: object) -> AsyncIterator[Frame]:
        """Yield the events of a stream. A lost connection continues after the last one."""
        async for frame in self.connection.stream(request_of(name, self._path(path), query=query)):
            yield frame

    def _path(self, path: Mapping[str, str] | None) -> Mapping[str, str]:
        return {"namespace": self.namespace, **(path or {})}


class Waiter:
    """Divides a wait into requests, and sees to it that they do not come too fast."""

    def __init__(self, seconds: float | None) -> None:
        self._until = None if seconds is None else time.monotonic() + seconds
        self._sent_at = -math.inf

    @property
    def seconds_left(self) -> float | None:
        """How much of the wait is left, at least 0; None if it has no limit."""
        return None if self._until is None else max(0.0, self._until - time.monotonic())

    async def next_wait(self) -> int | None:
        """Return for how many seconds the next request waits, perhaps after a pause; None if the time is over."""
        now = time.monotonic()
        left = math.inf if self._until is None else self._until - now
        if self._sent_at > -math.inf and left <= 0:
            return None
        # A server that has too many waits, or that stops, answers at once.
        if (pause := min(self._sent_at + POLL_SECONDS - now, left)) > 0:
            await sleep(pause)
            left -= pause
        self._sent_at = time.monotonic()
        return max(0, int(min(left, WAIT_SECONDS_MAX)))
