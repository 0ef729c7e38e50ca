"""Waits and streams: answers that come later, without a thread that waits for them.

Both wait for a hint that the history of a run grew, and then read. Hints may be lost: the listener reads all runs that
are waited for once a second, with one query. A stream has no buffer: its place is the number of the last row that was
sent, so nothing is lost or repeated, however slow the reader is.
"""

import logging
from collections.abc import Awaitable, Callable, Generator, Iterable
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, NoReturn, Protocol, TypeVar

import anyio
from anyio import CancelScope
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from holdfast.hosts.execution.event_loops import caller_into_loop, resolved
from holdfast.hosts.execution.threads import in_thread, result_in_thread
from holdfast.hosts.http.operations import Hint, Invocation, Operation, RowReader, ServerEvent, Wait
from holdfast.hosts.http.problems import HttpError
from holdfast.hosts.http.remote_tasks import queues_of
from holdfast.hosts.inspection.json_form import json_form
from holdfast.hosts.inspection.run_info import find_run
from holdfast.hosts.wiring.caller_reads import CallerReads
from holdfast.hosts.wiring.hint_listener import HintListener
from holdfast.ports.errors import HoldfastError, RunNotFoundError, UnavailableError
from holdfast.ports.json import compact
from holdfast.ports.records.run import TERMINAL, Run

OPEN_MAX: Final = 2_000
"""How many waits and streams may be open in one process."""
PING_SECONDS: Final = 15.0
"""After how long a stream without events sends a comment."""
CLAIM_SECONDS: Final = 2.0
"""How often a waiting claim looks for tasks without a hint."""
CHECK_SECONDS: Final = 1.5
"""How often the principal of a wait or stream is checked. With the time for which keys are cached, below 5 seconds."""
LEAVE_SECONDS: Final = 0.05
"""After how long it is watched whether the client of a read leaves."""
SEND_SECONDS: Final = 30.0
"""How long a reader may take to accept what is sent, before its stream is closed."""

T = TypeVar("T")

_log = logging.getLogger("holdfast.http")


class OpenReads:
    """The waits and streams that are open."""

    def __init__(self) -> None:
        self._ends: dict[CancelScope, Callable[[], None]] = {}
        """Functions that end them, from any thread."""
        self._is_stopping = False

    @property
    def number(self) -> int:
        """How many are open."""
        return len(self._ends)

    @property
    def has_capacity(self) -> bool:
        """Whether one more may be opened."""
        return not self._is_stopping and len(self._ends) < OPEN_MAX

    def check(self) -> None:
        """Raise HttpError if there are too many, or if the server stops."""
        if self._is_stopping:
            raise HttpError("shutting_down", "the server is shutting down: try again")
        if len(self._ends) >= OPEN_MAX:
            raise HttpError("too_many_streams", f"{OPEN_MAX:,} waits and streams are open: try again later")

    @contextmanager
    def opened(self) -> Generator[CancelScope]:
        """Provide a cancel scope that ends when the server stops."""
        in_loop = caller_into_loop()
        with CancelScope() as scope:
            self._ends[scope] = lambda: in_loop(scope.cancel)
            if self._is_stopping:
                scope.cancel()
            try:
                yield scope
            finally:
                del self._ends[scope]

    def stop(self) -> None:
        """End all of them, and refuse new ones. From any thread."""
        self._is_stopping = True
        for end in tuple(self._ends.values()):
            end()


async def while_connected(call: Callable[[], T], receive: Receive, reads: CallerReads) -> T:
    """Run a call that only reads in a thread, and return its result. If the client leaves, the store stops its reads.

    A call that changes something runs to its end instead, as nobody could say whether it was stored.
    """
    found: list[T] = []
    async with anyio.create_task_group() as group:

        async def leave() -> None:
            await anyio.sleep(LEAVE_SECONDS)  # most reads have ended by then
            await disconnected(receive)
            await abandoned(reads)

        group.start_soon(leave)
        found.append(await in_thread(call))
        group.cancel_scope.cancel()
    return found[0]


async def abandoned(reads: CallerReads) -> None:
    """Stop the reads of a client that has left. Not in one of the threads that such reads may hold all of."""
    if not reads.abandon_unless_reading():
        await result_in_thread(reads.abandon)


async def disconnected(receive: Receive) -> None:
    """Return when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def checked_again(check: Callable[[], Awaitable[None]]) -> NoReturn:
    """Call a check of the principal now and then, until it raises HttpError or HoldfastError.

    A check that can't be made decides nothing: the next one does.
    """
    while True:
        await anyio.sleep(CHECK_SECONDS)
        with suppress(UnavailableError):
            await check()


async def until_settled(
    operation: Operation,
    invocation: Invocation,
    reply: Any,
    is_settled: Callable[[Any], bool],
    seconds: float,
    reads: OpenReads,
) -> Any:
    """Return an answer that has what the request waits for; the newest one if it does not come in time.

    What was done is not answered with an error because the wait failed: a client would do it again.
    """
    reread = operation.reread or partial(read_again, operation)
    core = invocation.engine.core
    run_id: str = invocation.path.get("run_id") or reply.run_id
    generation: int | None = getattr(invocation.query, "generation", None)
    with reads.opened() as scope:
        scope.deadline = anyio.current_time() + seconds
        try:
            while not is_settled(reply):
                # The place is read before the answer: a row that is stored in between ends the wait for it at once.
                run = await in_thread(find_run, core, run_id, generation)
                if operation.wait is not Wait.END or run.status in TERMINAL:
                    reply = await in_thread(reread, invocation, reply)
                if run.status in TERMINAL or is_settled(reply):
                    break
                await _grown(operation, core.listener, run)
        except (UnavailableError, RunNotFoundError):
            if operation.hint is Hint.READS:
                raise
    # A limit or a pause that an operator changes leaves no history row, so nothing ends the wait for it.
    if operation.wait is Wait.CHANGE and not is_settled(reply):
        return await in_thread(reread, invocation, reply)
    return reply


async def _grown(operation: Operation, listener: HintListener, run: Run) -> None:
    """Wait until a run has ended, or has more history rows."""
    ends = operation.wait is Wait.END
    future = listener.when_ended(run.key) if ends else listener.when_past(run.key, run.last_row)
    try:
        await resolved(future)
    finally:
        future.cancel()


async def until_claimed(
    operation: Operation,
    invocation: Invocation,
    reply: Any,
    is_settled: Callable[[Any], bool],
    seconds: float,
    reads: OpenReads,
) -> Any:
    """Return the answer to a claim once it has tasks; the newest one if none comes in time.

    It claims again after each hint about jobs of its queues and, as hints may be lost, every few seconds.
    """
    core = invocation.engine.core
    listener = core.listener
    queues = await in_thread(queues_of, core, invocation.principal, invocation.path["worker"])
    in_loop = caller_into_loop()
    hint = anyio.Event()

    def wake() -> None:
        in_loop(hint.set)

    listener.add_worker(wake, queues=queues)
    try:
        with reads.opened() as scope:
            scope.deadline = anyio.current_time() + seconds
            while not is_settled(reply):
                # A job that is queued during the claim sets the new event.
                hint = anyio.Event()
                reply = await in_thread(read_again, operation, invocation, reply)
                if not is_settled(reply):
                    with anyio.move_on_after(CLAIM_SECONDS):
                        await hint.wait()
    finally:
        listener.remove_worker(wake)
    return reply


def read_again(operation: Operation, invocation: Invocation[Any, Any], _: object) -> Any:
    """Return a newer answer, by calling the handler again."""
    return operation.handler(invocation)


class Source(Protocol):
    """Where the events of a stream come from."""

    @property
    def is_over(self) -> bool:
        """Whether no events follow."""
        ...

    async def next(self, seconds: float) -> str:
        """Return the text of the next events, after a wait for at most so long; "" if it was in vain.

        Raises HttpError or HoldfastError if the stream has to end.
        """
        ...

    def close(self) -> None:
        """Free what it holds."""
        ...


class RowSource:
    """The events that a reader finds whenever the history of its run has grown."""

    def __init__(self, reader: RowReader, listener: HintListener) -> None:
        self._reader = reader
        self._listener = listener
        self._grown: Future[Run] | None = None
        """Ends when the history has passed the place of the reader."""
        self._has_grown = anyio.Event()
        """Set when that has ended. One for all comments meanwhile: a future never forgets its callbacks."""

    @property
    def is_over(self) -> bool:
        """Whether everything has been read."""
        return self._reader.is_over

    async def next(self, seconds: float) -> str:
        """Return the next events.

        The wait begins before the read, so that a row that is stored meanwhile ends it. It outlasts the comments: an
        idle stream reads nothing by itself.
        """
        if self._grown is None:
            self._grown, self._has_grown = self._listener.when_past(*self._reader.place), anyio.Event()
            self._grown.add_done_callback(partial(_set_in, caller_into_loop(), self._has_grown))
            events = await in_thread(self._reader.read)
            if events or self._reader.is_over:
                self.close()
                return frames(events)
        with anyio.move_on_after(seconds):
            await self._has_grown.wait()
        if self._grown.done():
            await resolved(self._grown)  # raises if the engine was closed
            self.close()
        return ""

    def close(self) -> None:
        """Wait for nothing any more."""
        if self._grown is not None:
            self._grown.cancel()
        self._grown = None


class EventStream(Response):
    """An answer of server-sent events, until its source is over, the client leaves, or the server stops."""

    media_type = "text/event-stream"

    def __init__(
        self,
        source: Source,
        first: str,
        reads: OpenReads,
        check: Callable[[], Awaitable[None]],
        reconnect: int,
        store_reads: CallerReads,
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._source = source
        self._first = first
        self._reads = reads
        self._check = check
        self._reconnect = reconnect
        self._store_reads = store_reads

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            if scope["method"] != "HEAD":
                await self._stream(receive, send)
            with anyio.move_on_after(SEND_SECONDS):
                await send({"type": "http.response.body", "body": b""})
        finally:
            self._source.close()

    async def _stream(self, receive: Receive, send: Send) -> None:
        async with anyio.create_task_group() as group:

            async def leave() -> None:
                await disconnected(receive)
                group.cancel_scope.cancel()
                with CancelScope(shield=True):
                    await abandoned(self._store_reads)

            async def check() -> None:
                try:
                    await checked_again(self._check)
                except (HttpError, HoldfastError) as error:
                    _log.info("a stream was closed: %s", error)
                    group.cancel_scope.cancel()

            group.start_soon(leave)
            group.start_soon(check)
            await self._pump(send)
            group.cancel_scope.cancel()

    async def _pump(self, send: Send) -> None:
        try:
            with self._reads.opened() as open_scope:
                await self._send_all(send)
            if open_scope.cancelled_caught:
                _log.info("a stream was closed, as the server stops")
        except TimeoutError:
            _log.info("a stream was closed, as its reader does not read")
        except (HttpError, HoldfastError) as error:
            _log.warning("a stream was closed: %s", error)

    async def _send_all(self, send: Send) -> None:
        await _send(send, f"retry: {self._reconnect}\n\n")
        pinged_at = anyio.current_time()
        text = self._first
        while True:
            if text:
                await _send(send, text)
                pinged_at = anyio.current_time()
            elif self._source.is_over:
                return
            if anyio.current_time() - pinged_at >= PING_SECONDS:
                await _send(send, ": ping\n\n")
                pinged_at = anyio.current_time()
            text = await self._source.next(PING_SECONDS)


def _set_in(in_loop: Callable[[Callable[[], object]], object], event: anyio.Event, _: object) -> None:
    in_loop(event.set)


async def _send(send: Send, text: str) -> None:
    with anyio.fail_after(SEND_SECONDS):
        await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


def frame(event: ServerEvent) -> str:
    """Return the text of an event. Its data are one line, as JSON has no line breaks outside of texts."""
    named = "" if event.id is None else f"id: {event.id}\n"
    return f"{named}event: {event.type}\ndata: {compact(json_form(event.data))}\n\n"


def frames(events: Iterable[ServerEvent]) -> str:
    """Return the text of several events."""
    return "".join(map(frame, events))
