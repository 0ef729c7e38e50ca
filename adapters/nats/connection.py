"""A connection to NATS for use from any thread. The client needs asyncio, so it runs in a loop on its own thread."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar, cast
from urllib.parse import urlsplit

from nats.aio.client import Client
from nats.aio.subscription import Subscription
from nats.errors import ConnectionClosedError
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, StreamConfig

from holdfast.ports.errors import InvalidUrlError, UnavailableError
from holdfast.ports.process_forks import leave_alone, renew_in_forks
from holdfast.ports.urls import HIDDEN, hide, secrets_of, shown_url

T = TypeVar("T")

CONNECT_WITHIN: Final = 3.0
"""Seconds for connecting to any of the servers."""
_EACH_WITHIN: Final = 1
_CLOSE_WITHIN: Final = 5.0
_CANCEL_AGAIN: Final = 0.1
_CANCELS_MAX: Final = 20
_SCHEMES: Final = frozenset({"nats", "tls", "ws", "wss"})

_log = logging.getLogger("holdfast.nats")


class JetStream(Protocol):
    """The part of the client's JetStream that is used, typed: the client's own types are incomplete."""

    async def publish(
        self, subject: str, payload: bytes, timeout: float | None, *, headers: dict[str, str]
    ) -> object:
        """Publish a message. Returns once a stream has stored it."""
        ...

    async def stream_info(self, name: str) -> object:
        """Return the state of a stream. NotFoundError if it does not exist."""
        ...

    async def add_stream(self, config: StreamConfig) -> object:
        """Create a stream. Does nothing if the same one exists."""
        ...

    async def consumer_info(self, stream: str, consumer: str) -> object:
        """Return the state of a consumer. NotFoundError if it does not exist."""
        ...

    async def add_consumer(self, stream: str, config: ConsumerConfig) -> object:
        """Create a consumer. Does nothing if the same one exists."""
        ...


def jetstream(client: Client) -> JetStream:
    """Return the JetStream of a connection."""
    return cast("JetStream", JetStreamContext(client))


async def subscribed(client: Client, subject: str) -> Subscription:
    """Return a subscription whose messages are read one by one."""
    untyped: Any = client
    subscription: Subscription = await untyped.subscribe(subject)
    return subscription


class NatsConnection:
    """A connection that is opened on first use, and again after it was lost. Safe to use from several threads.

    Calls under way when the connection is lost fail, and none of their messages is sent later. The client's own
    reconnecting would send what it has buffered after messages that were lost, and so in another order.
    """

    def __init__(self, who: str, url: str, credentials: str | None = None) -> None:
        """Parse one URL, or several separated by commas, without connecting. InvalidUrlError."""
        self._servers = [one.strip() for one in url.split(",")]
        self._secrets = secrets_of(url) + [secret for one in self._servers for secret in secrets_of(one)]
        if not all(map(_is_server, self._servers)):
            raise InvalidUrlError(
                f"{who}: {shown_url(url)!r} is not the URL of a NATS server; use nats://host:4222, with user, password"
                " or token escaped by urllib.parse.quote(text, safe='')"
            )
        self._credentials = credentials
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: Client | None = None
        self.renew()
        renew_in_forks(self)

    def renew(self) -> None:
        """Reset to the state of a new object. In a forked child, loop, thread and connection belong to the parent."""
        leave_alone(self._loop, self._client)
        self._lock = threading.Lock()
        self._loop = None
        self._client = None
        self._thread: threading.Thread | None = None
        self._lost: asyncio.Event | None = None
        self._connecting: asyncio.Lock | None = None
        self._under_way: set[asyncio.Task[Any]] = set()
        self._is_closed = False

    @property
    def shown(self) -> str:
        """The servers, without user and password."""
        return ",".join(shown_url(one).replace(f"{HIDDEN}@", "") for one in self._servers)

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    def reopen(self) -> None:
        """Allow use again after `close`."""
        if self._is_closed:
            self.renew()

    def run(self, doing: str, work: Callable[[Client], Awaitable[T]], within: float) -> T:
        """Return the result of `work`. UnavailableError if it fails or exceeds `within` seconds, or after `close`."""
        with self._lock:
            if self._is_closed:
                raise UnavailableError(f"could not {doing}: the connection is closed")
            # Under the lock: a call passed to a stopped loop would never return.
            loop = self._loop or self._start()
            working = asyncio.run_coroutine_threadsafe(self._carried_out(work, within), loop)
        try:
            return working.result()
        except (TimeoutError, NatsError, OSError, CancelledError) as error:
            text = _error_text(error)
            shown = hide(text, self._secrets)
            if shown == text:
                raise UnavailableError(f"could not {doing} at {self.shown}: {shown}") from error
        # Outside the block above: the original error may quote a password, and would become this one's context.
        raise UnavailableError(f"could not {doing} at {self.shown}: {shown}")

    def close(self) -> None:
        """Stop. Calls under way fail. Can be called repeatedly."""
        with self._lock:
            self._is_closed = True
            loop, thread = self._loop, self._thread
            if loop is not None:
                with suppress(RuntimeError):  # the loop has ended already
                    loop.call_soon_threadsafe(loop.stop)
        if thread is not None and thread is not threading.current_thread():
            thread.join(_CLOSE_WITHIN)

    def _start(self) -> asyncio.AbstractEventLoop:
        self._loop = asyncio.new_event_loop()
        self._connecting = asyncio.Lock()
        self._thread = threading.Thread(
            target=self._live, args=(self._loop,), name="holdfast-nats", daemon=True
        )
        self._thread.start()
        return self._loop

    def _live(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.run_until_complete(self._end())
            loop.close()

    async def _end(self) -> None:
        """Release everything that lives in the loop: pending calls first, while the client's own tasks still run."""
        await _ended(self._under_way)
        client, self._client = self._client, None
        if client is not None:
            await _closed(client)
        await _ended(asyncio.all_tasks() - {asyncio.current_task()})

    async def _carried_out(self, work: Callable[[Client], Awaitable[T]], within: float) -> T:
        this = asyncio.current_task()
        assert this is not None
        self._under_way.add(this)
        try:
            if self._is_closed:  # closed since the call was scheduled
                raise ConnectionClosedError
            return await self._answered(work, within)
        finally:
            self._under_way.discard(this)

    async def _answered(self, work: Callable[[Client], Awaitable[T]], within: float) -> T:
        client, lost = await self._connected()
        working = asyncio.ensure_future(work(client))
        working.add_done_callback(_retrieve_error)
        losing = asyncio.ensure_future(lost.wait())
        try:
            await asyncio.wait({working, losing}, timeout=within, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            # The client does not fail calls that wait for an answer on a lost connection.
            raise ConnectionClosedError if lost.is_set() else TimeoutError(f"no answer within {within:g} s")
        finally:
            losing.cancel()
            working.cancel()
            await asyncio.wait({working, losing})

    async def _connected(self) -> tuple[Client, asyncio.Event]:
        assert self._connecting is not None
        async with self._connecting:
            if self._client is None or self._client.is_closed:
                self._lost = asyncio.Event()
                self._client = await self._connect(self._lost)
            assert self._lost is not None
            return self._client, self._lost

    async def _connect(self, lost: asyncio.Event) -> Client:
        client = Client()

        async def when_closed() -> None:
            lost.set()

        try:
            await asyncio.wait_for(
                client.connect(
                    self._servers,
                    name="holdfast",
                    allow_reconnect=False,
                    connect_timeout=_EACH_WITHIN,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    user_credentials=self._credentials,
                    error_cb=_log_error,
                    closed_cb=when_closed,
                ),
                CONNECT_WITHIN,
            )
        except BaseException:
            await _closed(client)
            raise
        return client


def _retrieve_error(working: "asyncio.Future[Any]") -> None:
    """Mark the error of a call as retrieved: it is reported as a lost connection or a timeout already."""
    if not working.cancelled():
        working.exception()


async def _closed(client: Client) -> None:
    """Close a connection. The client may raise errors of any type if the connection is half open."""
    with suppress(Exception):
        await asyncio.wait_for(client.close(), CONNECT_WITHIN)


async def _ended(tasks: Iterable["asyncio.Task[Any] | None"]) -> None:
    """Cancel tasks until they have ended.

    One cancel may not do: until Python 3.12 `wait_for` swallows a cancel that arrives together with its result.
    """
    left = {task for task in tasks if task is not None}
    for _ in range(_CANCELS_MAX):
        if not left:
            return
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_CANCEL_AGAIN)


async def _log_error(error: Exception) -> None:
    """Log an error of the client for debugging. A failed call raises its own."""
    _log.debug("NATS: %s", _error_text(error))


def _is_server(url: str) -> bool:
    if not url.isprintable() or " " in url:
        return False
    try:
        parts = urlsplit(url)
        (parts.hostname or "").encode("idna")  # fails if a label of the name is empty or too long
        is_place = bool(parts.hostname) and parts.port != 0 and parts.path in {"", "/"}
    except ValueError:
        return False
    return is_place and parts.scheme in _SCHEMES and not parts.query and not parts.fragment


def _error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")
