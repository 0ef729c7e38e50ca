"""Clients that cost little: connections that are kept open, and streams of events."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPConnection
from typing import Any, Final, Self
from urllib.parse import urlsplit

RUNS: Final = "/v1/namespaces/default/runs"


class Client:
    """One connection to the server."""

    def __init__(self, url: str) -> None:
        found = urlsplit(url)
        self._connection = HTTPConnection(found.hostname or "", found.port, timeout=120)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def send(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> bytes:
        """Return the body of an answer. RuntimeError for a problem."""
        content = None if body is None else json.dumps(body)
        sent = {"Content-Type": "application/json", **(headers or {})} if content else dict(headers or {})
        self._connection.request(method, path, content, sent)
        response = self._connection.getresponse()
        answer = response.read()
        if response.status >= 400:
            raise RuntimeError(f"{method} {path}: {response.status} {answer[:300]!r}")
        return answer

    def json(self, method: str, path: str, body: object = None, **options: Any) -> Any:
        """Return the document of an answer."""
        return json.loads(self.send(method, path, body, **options))


def at_once(url: str, clients: int, work: Callable[[Client, int], None], number: int) -> float:
    """Do a piece of work so many times, with so many connections at once, and return the seconds that it took."""
    places = iter(range(number))
    failures: list[Exception] = []

    def run() -> None:
        try:
            with Client(url) as client:
                for place in places:
                    work(client, place)
        except Exception as error:  # noqa: BLE001  # raised again in the caller
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(clients)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    if failures:
        raise failures[0]
    return took


class Streams:
    """Open streams, and when each last got something."""

    def __init__(self, url: str, paths: Sequence[str]) -> None:
        found = urlsplit(url)
        self._host, self._port = found.hostname or "", found.port
        self._paths = paths
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.got = [asyncio.Event() for _ in paths]
        """Set when the stream of a path gets an event."""

    async def open(self) -> None:
        """Open all streams, and wait until each has what there is."""
        for start in range(0, len(self._paths), 50):
            places = range(start, min(start + 50, len(self._paths)))
            await asyncio.gather(*map(self._open_one, places))
        for event in self.got:
            await asyncio.wait_for(event.wait(), 120)

    async def _open_one(self, place: int) -> None:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        self._writers.append(writer)
        lines = (
            f"GET {self._paths[place]} HTTP/1.1",
            f"Host: {self._host}:{self._port}",
            "Accept: text/event-stream",
            "\r\n",
        )
        writer.write("\r\n".join(lines).encode())
        await writer.drain()
        self._tasks.append(asyncio.create_task(self._read(reader, place)))

    async def _read(self, reader: asyncio.StreamReader, place: int) -> None:
        while line := await reader.readline():
            if line.startswith(b"data:"):
                self.got[place].set()

    async def close(self) -> None:
        """Close all streams."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.close()
