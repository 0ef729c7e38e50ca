"""A real uvicorn in a thread, and readers of its streams."""

import json
import socket
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn
from attrs import frozen


@frozen
class Event:
    """An event as a client of a stream sees it."""

    id: str | None
    type: str
    data: Any


@contextmanager
def served(app: Any) -> Generator[str]:
    """Serve an application, and provide its URL."""
    # Without its protocol, asyncio does not set TCP_NODELAY: each answer would take 40 ms longer.
    with socket.socket(proto=socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(2048)  # a client that connects before the server runs waits for it
        config = uvicorn.Config(app, http="h11", log_config=None, lifespan="off", timeout_graceful_shutdown=3)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def events_in(lines: Iterator[str]) -> Iterator[Event]:
    """Yield the events of a stream's lines, without comments."""
    fields: dict[str, str] = {}
    for line in lines:
        if line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value
        elif not line and "event" in fields:
            yield Event(fields.get("id"), fields["event"], json.loads(fields["data"]))
            fields = {}


@contextmanager
def stream(client: httpx.Client, url: str, last: str | None = None) -> Generator[Iterator[Event]]:
    """Open a stream, and provide its events."""
    headers = {"Accept": "text/event-stream", **({} if last is None else {"Last-Event-ID": last})}
    with client.stream("GET", url, headers=headers) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield events_in(response.iter_lines())
