"""One connection to NATS for any thread: the client is asyncio's, and lives in a loop on a thread of its own."""

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
"""Seconds that it may take to connect to any of the servers."""
_EACH_WITHIN: Final = 1
_CLOSE_WITHIN: Final = 5.0
_CANCEL_AGAIN: Final = 0.1
_CANCELS_MAX: Final = 20
_SCHEMES: Final = frozenset({"nats", "tls", "ws", "wss"})

_log = logging.getLogger("holdfast.nats")


class JetStream(Protocol):
    """What is used of the client's JetStream, whose own types are partly open."""

    async def publish(
        self, subject: str, payload: bytes, timeout: float | None, *, headers: dict[str, str]
    ) -> object:
        """Publish a message, and return when a stream has stored it."""
        ...

    async def stream_info(self, name: str) -> object:
        """NotFoundError if there is no stream of that name."""
        ...

    async def add_stream(self, config: StreamConfig) -> object:
        """Make a stream; fine if there is the same already."""
        ...

    async def consumer_info(self, stream: str, consumer: str) -> object:
        """NotFoundError if there is no consumer of that name."""
        ...

    async def add_consumer(self, stream: str, config: ConsumerConfig) -> object:
        """Make a consumer; fine if there is the same already."""
        ...


def jetstream(client: Client) -> JetStream:
    """Return the JetStream of a connection."""
    return cast("JetStream", JetStreamContext(client))


async def subscribed(client: Client, subject: str) -> Subscription:
    """Return a subscription, whose messages are asked for one by one."""
    untyped: Any = client
    subscription: Subscription = await untyped.subscribe(subject)
    return subscription


class NatsConnection:
    """Connects when something is to be done, and again when the connection was lost. Safe to use from several threads.

    What was under way when the connection was lost has failed, and nothing of it is sent later: the client's own
    reconnecting would send what it still has, after what was lost on the way, and so in another order.
    """

    def __init__(self, who: str, url: str, credentials: str | None = None) -> None:
        """Take one URL or several with commas between them; nothing is connected yet. InvalidUrlError."""
        self._servers = [one.strip() for one in url.split(",")]
        self._secrets = secrets_of(url) + [secret for one in self._servers for secret in secrets_of(one)]
        if not all(map(_is_server, self._servers)):
            raise InvalidUrlError(
                f"{who}: {shown_url(url)!r} is no server of NATS; use nats://host:4222, with user, password or token"
                " escaped as urllib.parse.quote(text, safe='') does it"
            )
        self._credentials = credentials
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: Client | None = None
        self.renew()
        renew_in_forks(self)

    def renew(self) -> None:
        """Begin anew. In a forked child: the loop, its thread and the connection are the parent's."""
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
        """Let it be used again after `close`."""
        if self._is_closed:
            self.renew()

    def run(self, doing: str, work: Callable[[Client], Awaitable[T]], within: float) -> T:
        """Return what `work` returns. UnavailableError if it fails, takes longer than so many seconds, or is closed."""
        with self._lock:
            if self._is_closed:
                raise UnavailableError(f"could not {doing}: the connection is closed")
            # Under the lock: what is handed to the loop after its end would never be answered.
            loop = self._loop or self._start()
            working = asyncio.run_coroutine_threadsafe(self._carried_out(work, within), loop)
        try:
            return working.result()
        except (TimeoutError, NatsError, OSError, CancelledError) as error:
            text = _error_text(error)
            shown = hide(text, self._secrets)
            if shown == text:
                raise UnavailableError(f"could not {doing} at {self.shown}: {shown}") from error
        # Not in the block above: the error that quotes a password would be the context of this.
        raise UnavailableError(f"could not {doing} at {self.shown}: {shown}")

    def close(self) -> None:
        """Stop; what is under way fails. Harmless when repeated."""
        with self._lock:
            self._is_closed = True
            loop, thread = self._loop, self._thread
            if loop is not None:
                with suppress(RuntimeError):  # it has ended before
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
        """Let go of all that lives in the loop: first of what was asked for, while the client's own tasks live."""
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
            if self._is_closed:  # this was asked for just before
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
            # Nobody else ends those who wait for an answer on a connection that is no more.
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
    """Look at how something failed that is told of as lost or late."""
    if not working.cancelled():
        working.exception()


async def _closed(client: Client) -> None:
    """Close a connection, also one that is half made, at which the client fails in ways of its own."""
    with suppress(Exception):
        await asyncio.wait_for(client.close(), CONNECT_WITHIN)


async def _ended(tasks: Iterable["asyncio.Task[Any] | None"]) -> None:
    """Cancel tasks until they have ended.

    One may live on: until Python 3.12 `wait_for` swallows a cancel that comes together with what it waits for.
    """
    left = {task for task in tasks if task is not None}
    for _ in range(_CANCELS_MAX):
        if not left:
            return
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_CANCEL_AGAIN)


async def _log_error(error: Exception) -> None:
    """What fails is raised where something was to be done; this is for those who look closely."""
    _log.debug("NATS: %s", _error_text(error))


def _is_server(url: str) -> bool:
    if not url.isprintable() or " " in url:
        return False
    try:
        parts = urlsplit(url)
        (parts.hostname or "").encode("idna")  # a part of the name that is empty, or too long
        is_place = bool(parts.hostname) and parts.port != 0 and parts.path in {"", "/"}
    except ValueError:
        return False
    return is_place and parts.scheme in _SCHEMES and not parts.query and not parts.fragment


def _error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")
