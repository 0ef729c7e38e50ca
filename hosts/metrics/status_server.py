"""An HTTP server of a worker for what watches it: `/metrics` for Prometheus, `/health` and `/livez` for a platform."""

import json
import socket
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import attrs
from typing_extensions import override

from holdfast.hosts.metrics.metrics import Exposition

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

_TEXT: Final = "text/plain; charset=utf-8"


@attrs.frozen
class Health:
    """The health of a worker, or of several processes of one."""

    is_well: bool
    """Whether it can do its work."""
    is_alive: bool
    """Whether it may become well without a restart: whether its code runs, whatever the store does."""
    document: Mapping[str, object]
    """What is to be known about it, as JSON."""


@contextmanager
def served_status(
    host: str,
    port: int,
    expose: Callable[[str], Exposition],
    health: Callable[[], Health],
) -> Generator[str]:
    """Serve metrics and health to everybody at an address, without TLS; provide the URL of the metrics.

    Args:
        host: The address.
        port: The port; 0 for any free one.
        expose: Returns the metrics in the format that the header `Accept` of a scrape prefers.
        health: Returns the health of the worker.

    Raises:
        OSError: The address can't be had.
    """

    def answer(environment: "WSGIEnvironment", start: "StartResponse") -> Iterable[bytes]:
        match environment.get("PATH_INFO"):
            case "/metrics" | "/":
                shown = expose(str(environment.get("HTTP_ACCEPT", "")))
                start("200 OK", [("Content-Type", shown.media_type)])
                return [shown.content]
            case "/health" | "/livez" as path:
                found = health()
                is_good = found.is_well if path == "/health" else found.is_alive
                status = "200 OK" if is_good else "503 Service Unavailable"
                start(status, [("Content-Type", "application/json"), ("Cache-Control", "no-store")])
                return [json.dumps(found.document).encode() + b"\n"]
            case _:
                start("404 Not Found", [("Content-Type", _TEXT)])
                return [b"there are /metrics, /health and /livez\n"]

    kind = _StatusServer6 if ":" in host else _StatusServer
    server = make_server(host, port, answer, kind, _QuietHandler)
    thread = threading.Thread(target=server.serve_forever, name="holdfast-status", daemon=True)
    thread.start()
    try:
        shown = f"[{host}]" if ":" in host else host
        yield f"http://{shown}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _StatusServer(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _StatusServer6(_StatusServer):
    address_family = socket.AF_INET6


class _QuietHandler(WSGIRequestHandler):
    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a scrape is no event."""
