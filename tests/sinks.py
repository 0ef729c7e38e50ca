"""A webhook receiver with scripted responses, and events in the form in which sinks emit them."""

import json
import ssl
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, cast

import attrs
from typing_extensions import override

from holdfast.hosts.wiring.services import Core
from holdfast.kernel.commands import OutboxFlush, OutboxSettle, StreamFailure
from holdfast.kernel.rules.outbox import DEAD_LETTER_AFTER
from holdfast.ports.changes import Update
from holdfast.ports.events import Event
from holdfast.ports.persistence import Transaction
from holdfast.ports.records.outbox import StreamKey
from holdfast.ports.tables import STREAMS

_DATA: Final = ',"data":'


@attrs.frozen
class Answer:
    """The receiver's response. `takes` is whether it keeps the request; with status 0 it hangs up."""

    status: int = 204
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str])
    takes: bool = True
    body: bytes = b""
    waits: float = 0.0


@attrs.frozen
class Request:
    path: str
    headers: Mapping[str, str]
    body: str


class Receiver:
    """A receiver that keeps requests. `answers` is called for each."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.taken: list[Request] = []
        self.answers: Callable[[Request], Answer] = lambda _: Answer()
        self.connections = 0
        self.stopped = threading.Event()
        self.url = ""

    @property
    def events(self) -> list[Event]:
        """The events that it took, in order."""
        return [event for request in self.taken for event in events_in(request.body)]


@contextmanager
def a_receiver(context: ssl.SSLContext | None = None) -> Generator[Receiver]:
    """A receiver, over TLS if there is a context."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        @override
        def setup(self) -> None:
            receiver.connections += 1
            super().setup()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            request = Request(self.path, dict(self.headers), body)
            receiver.requests.append(request)
            answer = receiver.answers(request)
            if answer.takes:
                receiver.taken.append(request)
            if answer.waits:
                receiver.stopped.wait(answer.waits)
            if not answer.status:
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            if answer.status != 204:
                self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        @override
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    scheme = "http" if context is None else "https"
    receiver.url = f"{scheme}://127.0.0.1:{server.server_address[1]}/hook"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.stopped.set()
        server.shutdown()
        server.server_close()


def with_data(text: str) -> list[tuple[dict[str, Any], str]]:
    """Return the JSON objects with `data` in a text, and the text of each `data`."""
    found: list[tuple[dict[str, Any], str]] = []
    decoder = json.JSONDecoder()
    at = text.find("{")
    while at >= 0:
        start = text.index(_DATA, at) + len(_DATA)
        while text[start] == " ":
            start += 1
        _, end = decoder.raw_decode(text, start)
        fields = cast("dict[str, Any]", json.loads(text[at : start - len(_DATA)] + "}"))
        found.append((fields, text[start:end]))
        at = text.find("{", end)
    return found


def events_in(body: str) -> list[Event]:
    """Return the events in CloudEvents."""
    return [
        Event(
            namespace=fields["holdfastnamespace"],
            run_id=fields["subject"],
            run=fields["holdfastrun"],
            number=fields["holdfastnumber"],
            type=fields["type"].removeprefix("holdfast."),
            at=datetime.fromisoformat(fields["time"]),
            data=data,
            workflow=fields["holdfastworkflow"],
            generation=fields["holdfastgeneration"],
            stage=fields.get("holdfaststage"),
            item=fields.get("holdfastitem"),
        )
        for fields, data in with_data(body)
    ]


def events_in_lines(text: str) -> list[Event]:
    """Return the events in the lines of a log."""
    events: list[Event] = []
    for line in text.splitlines():
        ((fields, data),) = with_data(line)
        run, _, number = fields.pop("id").rpartition("/")
        at = datetime.fromisoformat(fields.pop("at"))
        events.append(Event(run=run, number=int(number), at=at, data=data, **fields))
    return events


def dead_letter(core: Core, sink: str, error: str) -> None:
    """Dead-letter the first events of all due streams: the sink refuses them as often as needed."""
    for _ in range(DEAD_LETTER_AFTER):
        leased = core.kernel.dispatch(OutboxFlush(namespace=core.namespace, sink=sink, lease=60_000_000))
        refused = tuple(
            StreamFailure(run=one.run, delivered=0, number=1, error=error, final=True)
            for one in leased.streams
        )
        core.kernel.dispatch(
            OutboxSettle(
                namespace=core.namespace,
                sink=sink,
                registration=leased.registration,
                holder=leased.holder,
                refused=refused,
            )
        )
        keys = [StreamKey(leased.registration, one.run) for one in leased.streams]
        core.stores.persistence.transact(partial(_make_due, keys))


def _make_due(keys: Sequence[StreamKey], tx: Transaction) -> None:
    tx.apply(
        [Update(attrs.evolve(one, due_at=0)) for one in tx.lock(STREAMS, keys) if one.due_at is not None]
    )
