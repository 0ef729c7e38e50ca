"""A transport of hints by LISTEN/NOTIFY, on connections of its own to the server itself: a pooler would lose them.

Announced hints reach the receivers of this object at once. For other processes a hint is sent at once if none was
sent just before; otherwise hints are collected for a few milliseconds and sent together: every NOTIFY is a
transaction, and committing one takes a lock that all notifying transactions of the server share. After a lost
connection, a receiver gets a hint that something may have changed.
"""

import contextlib
import random
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, Final, cast

import psycopg

from holdfast.adapters.sql.hint_queue import Inbox
from holdfast.adapters.sql.postgresql.settings import CONNECT_SECONDS, connect, connection_settings
from holdfast.adapters.sql.postgresql.watchdog import Watchdog, hang_up
from holdfast.ports.errors import HoldfastError
from holdfast.ports.json import compact, parse
from holdfast.ports.process_forks import leave_alone, renew_in_forks
from holdfast.ports.transport import Delivery, Hint, HistoryGrew, JobHint, RunEnded

CHANNEL: Final = "holdfast"
COLLECT_SECONDS: Final = 0.005
LIVENESS_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 5.0
RECONNECT_SECONDS_MIN: Final = 0.05
RECONNECT_SECONDS_MAX: Final = 2.0
OUTBOX_MAX: Final = 10_000
MESSAGE_BYTES_MAX: Final = 7_500
"""The server limits a notification to less than 8,000 bytes."""
MESSAGES_MAX: Final = 20
"""The most notifications per transaction. Hints beyond that are dropped: with so many, receivers look anyway."""


class PostgresTransport:
    """See `JobTransport`. The threads and connections for sending and for receiving start on first use."""

    def __init__(
        self, url: str, *, channel: str = CHANNEL, liveness_seconds: float = LIVENESS_SECONDS
    ) -> None:
        """Use the server's URL. Only transports on the same channel of the same database exchange hints.

        An idle connection is checked every `liveness_seconds`.
        """
        if not (channel.isascii() and channel.isidentifier() and len(channel) < 64):
            raise ValueError(f"{channel!r} is not a channel name: use letters, digits and _")
        self._url = url
        self._settings = connection_settings(url, session_settings=False)
        self._channel = channel
        self._liveness = liveness_seconds
        self._inbox = Inbox()
        self._watchdog = Watchdog(ANSWER_SECONDS)
        self._connections: set[psycopg.Connection[Any]] = set()
        self.renew()
        renew_in_forks(self)

    def renew(self) -> None:
        """Reset to the state of a new object. In a forked child, threads and connections belong to the parent."""
        leave_alone(*self._connections)
        self._inbox.renew()
        self._watchdog.renew()
        self._lock = threading.Condition()
        self._outbox: list[Hint] = []
        self._own_backend: int | None = None
        self._stop = threading.Event()
        self._threads: dict[str, threading.Thread] = {}
        self._connections = set()

    def reopen(self) -> None:
        """See `Reopenable`."""
        if self._stop.is_set():
            self.renew()

    def announce(self, hints: Sequence[Hint], /) -> None:
        """See `JobTransport.announce`."""
        if not hints or self._stop.is_set():
            return
        if "listener" in self._threads:
            self._inbox.put(hints)
        with self._lock:
            self._outbox.extend(hints[: max(OUTBOX_MAX - len(self._outbox), 0)])
            self._start("sender", self._send)
            self._lock.notify_all()

    def receive(self, limit: int, wait: float, /) -> Sequence[Delivery]:
        """See `JobTransport.receive`."""
        if "listener" not in self._threads and not self._stop.is_set():
            with self._lock:
                self._start("listener", self._listen)
        return self._inbox.take(limit, wait)

    def ack(self, receipt: str, /) -> None:
        """See `JobTransport.ack`."""
        self._inbox.ack(receipt)

    def retry(self, receipt: str, delay: float, /) -> None:
        """See `JobTransport.retry`."""
        self._inbox.retry(receipt, delay)

    def extend(self, receipt: str, by: float, /) -> None:
        """See `JobTransport.extend`. Does nothing: deliveries are repeated only on request."""

    def close(self) -> None:
        """See `JobTransport.close`. Waits a moment for hints that are not sent yet."""
        self._inbox.close()
        self._stop.set()
        with self._lock:
            self._lock.notify_all()
        sender = self._threads.get("sender")
        if sender is not None:
            sender.join(1.0)
        for connection in tuple(self._connections):
            hang_up(connection)
        for thread in self._threads.values():
            thread.join(ANSWER_SECONDS)
        self._watchdog.close()

    def _start(self, name: str, target: Callable[[threading.Event], None]) -> None:
        if name not in self._threads and not self._stop.is_set():
            # The event is passed as an argument, because a reopened transport has a new one.
            self._threads[name] = threading.Thread(
                target=target, args=(self._stop,), name=f"holdfast-{name}", daemon=True
            )
            self._threads[name].start()

    def _send(self, stop: threading.Event) -> None:
        for connection in self._connected(stop):
            self._own_backend = connection.info.backend_pid
            sent_at = 0.0
            with contextlib.suppress(psycopg.Error):
                while True:
                    with self._lock:
                        while not self._outbox and not stop.is_set():
                            self._lock.wait()
                    stop.wait(max(0.0, sent_at + COLLECT_SECONDS - time.monotonic()))
                    sent_at = time.monotonic()
                    with self._lock:
                        hints, self._outbox = self._outbox, []
                    if not hints and stop.is_set():
                        return
                    self._notify(connection, hints)

    def _notify(self, connection: psycopg.Connection[Any], hints: Sequence[Hint]) -> None:
        messages = list(messages_of(hints))[:MESSAGES_MAX]
        with self._answering(connection):
            # As JSON: psycopg escapes each quote of a text in an array by a call.
            connection.execute(
                "SELECT pg_notify(%(channel)s, message) FROM json_array_elements_text(%(messages)s) AS message",
                {"channel": self._channel, "messages": compact(messages)},
            )

    def _listen(self, stop: threading.Event) -> None:
        is_first = True
        for connection in self._connected(stop):
            with contextlib.suppress(psycopg.Error):
                with self._answering(connection):
                    connection.execute(f"LISTEN {self._channel}".encode())
                if not is_first:
                    self._inbox.put([None])
                is_first = False
                while not stop.is_set():
                    for notice in connection.notifies(timeout=self._liveness):
                        if notice.pid != self._own_backend:
                            self._inbox.put(hints_in(notice.payload))
                    with self._answering(connection):
                        connection.execute("SELECT 1")

    def _connected(self, stop: threading.Event) -> Iterator[psycopg.Connection[Any]]:
        """Yield a connection, and a new one whenever it is lost, until `stop` is set."""
        pause = RECONNECT_SECONDS_MIN
        while not stop.is_set():
            try:
                connection = connect(self._url, self._settings, CONNECT_SECONDS, autocommit=True)
            except HoldfastError:
                pause = min(pause * 2, RECONNECT_SECONDS_MAX)
            else:
                pause = RECONNECT_SECONDS_MIN
                self._connections.add(connection)
                try:
                    yield connection
                finally:
                    self._connections.discard(connection)
                    connection.close()
            # Random, so that after a restart of the server not all clients reconnect at once.
            stop.wait(pause * (0.5 + random.random()))  # noqa: S311

    @contextlib.contextmanager
    def _answering(self, connection: psycopg.Connection[Any]) -> Generator[None]:
        self._watchdog.enter(connection)
        try:
            yield
        finally:
            self._watchdog.leave(connection)


def messages_of(hints: Iterable[Hint]) -> Iterator[str]:
    """Yield notifications, each a JSON list within the limit. Equal hints are sent once."""
    parts: list[str] = []
    size = 2
    for part in dict.fromkeys(map(_part, hints)):
        if len(part) + 3 > MESSAGE_BYTES_MAX:
            continue
        if size + len(part) + 1 > MESSAGE_BYTES_MAX:
            yield f"[{','.join(parts)}]"
            parts, size = [], 2
        parts.append(part)
        size += len(part) + 1
    if parts:
        yield f"[{','.join(parts)}]"


def hints_in(message: str) -> Sequence[Hint | None]:
    """Return the hints in a notification; if it can't be parsed, None, for an unknown change."""
    try:
        return [_hint(part) for part in cast("list[list[object]]", parse(message))]
    except (ValueError, TypeError):
        return [None]


def _part(hint: Hint) -> str:
    match hint:
        case JobHint(job=job, epoch=epoch, queue=queue):
            return compact([job, epoch, queue])
        case RunEnded(run=run) | HistoryGrew(run=run):
            return compact([hint.tag, run])


def _hint(part: Sequence[object]) -> Hint | None:
    match part:
        case [str(job), int(epoch), str(queue)]:
            return JobHint(job=job, epoch=epoch, queue=queue)
        case [RunEnded.tag, str(run)]:
            return RunEnded(run=run)
        case [HistoryGrew.tag, str(run)]:
            return HistoryGrew(run=run)
        case _:
            return None
