"""Documents that clients watch: a read is made once for all who watch the same, at most once a second.

One thread of the process makes all of these reads, one after the other, so they never use more than one connection to
the store. A client that watches has no queue: it gets the newest version when it is ready for it, and none in between.
"""

import logging
import math
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import cached_property
from typing import Final

import anyio
import attrs

from holdfast.hosts.execution.event_loops import caller_into_loop
from holdfast.hosts.execution.threads import in_thread
from holdfast.hosts.http.answers import etag_of, matches
from holdfast.hosts.http.live_reads import OpenReads, frame, frames
from holdfast.hosts.http.operations import EventReader
from holdfast.hosts.http.problems import HttpError
from holdfast.ports.errors import UnavailableError
from holdfast.ports.records.run import Run

READ_SECONDS: Final = 1.0
"""How old a document may be that is watched, unless there are many of them."""
READS_PER_SECOND: Final = 10.0
"""How many documents are read in a second, at most. If more are watched, each is read more rarely."""
RUN_SECONDS: Final = 15.0
"""How often the document of a run is read though its history has not grown, if it is the only one that is watched."""
RUN_SHARE_SECONDS: Final = 5.0
"""Seconds between two such reads, of all runs together."""
LOAD_MAX: Final = 0.1
"""The share of its time for which a document may be read. One that takes 0.5 s is read every 5 s."""
CHANGED: Final = "changed"
"""The type of the events of a document."""

Grown = Callable[[], "Future[Run] | None"]
"""Returns a future that ends when the run of a document has more rows; None if it has ended."""

_log = logging.getLogger("holdfast.http")


@attrs.frozen(kw_only=True)
class DocumentEvent:
    """An event of a document: the whole document."""

    id: str
    """Its ETag, without `W/` and quotes."""
    data: object
    """The document."""
    type: str = CHANGED


@attrs.define(eq=False, slots=False)  # with a cached property
class Version:
    """A version of a document."""

    reply: object
    etag: str

    @property
    def id(self) -> str:
        """The id of its event."""
        return id_of(self.etag)

    @cached_property
    def frame(self) -> str:
        """The text of its event, written once for all who get it."""
        return frame(DocumentEvent(id=self.id, data=self.reply))


def id_of(etag: str) -> str:
    """Return the id of the event of a document with this ETag."""
    return etag.strip().removeprefix('W/"').removesuffix('"')


class Watcher:
    """One client that watches a document, in an event loop. It is a `Source` of a stream too."""

    def __init__(self, shared: "SharedReads", seen: str | None = None) -> None:
        """`seen` is the id of the version that the client has."""
        self.document: _Document | None = None
        self._shared = shared
        self.seen = seen
        self._in_loop = caller_into_loop()
        self._woken = anyio.Event()
        self._was_due = False

    @property
    def is_over(self) -> bool:
        """False: a document has no end."""
        return False

    def wake(self) -> None:
        """Note that there may be a newer version. From any thread."""
        woken = self._woken
        self._in_loop(woken.set)

    @property
    def newest(self) -> Version:
        """The newest version. Raises what the last read raised."""
        document = self.document
        if document is None or document.newest is None:
            raise HttpError("shutting_down", "the document is not watched any more: try again")
        if document.error is not None:
            raise document.error
        return document.newest

    async def next(self, seconds: float) -> str:
        """Return the event of a version that the client does not have, after a wait; "" if none comes in time."""
        if not self._has_changed():
            self._woken = anyio.Event()
            if not self._has_changed():
                with anyio.move_on_after(seconds):
                    await self._woken.wait()
        if not self._has_changed():
            return ""
        version = self.newest
        self.seen = version.id
        return version.frame

    async def until_other(self, known: str | None, seconds: float, reads: OpenReads) -> object:
        """Return the document once it has another ETag than `known`; the newest one if that does not come in time."""
        with reads.opened() as scope:
            scope.deadline = anyio.current_time() + seconds
            while matches(known, self.newest.etag):
                self._woken = anyio.Event()
                if matches(known, self.newest.etag):
                    await self._woken.wait()
        return self.newest.reply

    async def until_due(self, seconds: float) -> bool:
        """Wait until a document that is a truth value is true. Return whether it was, in time.

        It may be up to a second old. So if it is true again at once, the next read is waited for.
        """
        with anyio.move_on_after(seconds):
            if self._was_due:
                self._was_due = False
                await anyio.sleep(READ_SECONDS)
            while not self.newest.reply:
                self._woken = anyio.Event()
                if not self.newest.reply:
                    await self._woken.wait()
            self._was_due = True
            return True
        return False

    async def until_changed(self, seconds: float) -> bool:
        """Wait until there is a version that was not there at the last call. Return whether there is, in time."""
        return await self.next(seconds) != ""

    def _has_changed(self) -> bool:
        return self.newest.id != self.seen

    def close(self) -> None:
        """Watch nothing any more."""
        self._shared.leave(self)


class PolledSource:
    """The events that a reader finds whenever some are due (see `Operation.is_due`)."""

    def __init__(self, reader: EventReader, watcher: Watcher) -> None:
        self._reader = reader
        self._watcher = watcher

    @property
    def is_over(self) -> bool:
        """Whether no events follow."""
        return self._reader.is_over

    async def next(self, seconds: float) -> str:
        """Return the next events, after a wait; "" if none come in time."""
        if self.is_over or not await self._watcher.until_due(seconds):
            return ""
        return frames(await in_thread(self._reader.read))

    def close(self) -> None:
        """Wait for nothing any more."""
        self._watcher.close()


class StateSource:
    """The events that a reader finds whenever a state has changed (see `Operation.stream_state`)."""

    def __init__(self, reader: EventReader, watcher: Watcher) -> None:
        self._reader = reader
        self._watcher = watcher
        self._has_more = True
        """Whether the last read found something, so that there may be more than it returned."""

    @property
    def is_over(self) -> bool:
        """Whether no events follow."""
        return self._reader.is_over

    async def next(self, seconds: float) -> str:
        """Return the next events, after a wait; "" if none come in time."""
        if self.is_over or not (self._has_more or await self._watcher.until_changed(seconds)):
            return ""
        events = await in_thread(self._reader.read)
        self._has_more = bool(events)
        return frames(events)

    def close(self) -> None:
        """Wait for nothing any more."""
        self._watcher.close()


@attrs.define(eq=False)
class _Document:
    """A document that is watched."""

    key: str
    read: Callable[[], object]
    grown: Grown | None
    is_polled: bool
    due_at: float
    reading: threading.Lock = attrs.field(factory=threading.Lock)
    watchers: set[Watcher] = attrs.field(factory=set[Watcher])
    newest: Version | None = None
    error: Exception | None = None
    read_at: float = -math.inf
    rows: "Future[Run] | None" = None


class SharedReads:
    """The documents that are watched in a process."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._documents: dict[str, _Document] = {}
        self._thread: threading.Thread | None = None

    @property
    def number(self) -> int:
        """How many documents are watched."""
        return len(self._documents)

    def watch(
        self,
        watcher: Watcher,
        key: str,
        read: Callable[[], object],
        grown: Grown | None = None,
        *,
        is_polled: bool = True,
    ) -> None:
        """Let a watcher watch the document with a key. Blocks until it has been read; raises what the read raises.

        Documents with the same key are the same: the other arguments are used if nobody watches it yet. It is read when
        `grown` says so, and if `is_polled` once a second, otherwise rarely.
        """
        with self._changed:
            document = self._documents.get(key)
            if document is None:
                document = _Document(key, read, grown, is_polled, math.inf)
                self._documents[key] = document
            document.watchers.add(watcher)
        watcher.document, began = document, self._monotonic()
        with document.reading:
            # What the client has may be newer than what was read before it asked.
            differs = watcher.seen is not None and watcher.seen != (document.newest and document.newest.id)
            if began - document.read_at >= READ_SECONDS or (differs and document.read_at < began):
                self._read(document)
        if document.error is not None:
            raise document.error
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="holdfast-shared-reads", daemon=True)
                self._thread.start()
            self._changed.notify()

    def leave(self, watcher: Watcher) -> None:
        """Remove a watcher. A document without watchers is not read again."""
        document, watcher.document = watcher.document, None
        if document is None:
            return
        with self._changed:
            document.watchers.discard(watcher)
            if not document.watchers:
                if self._documents.get(document.key) is document:
                    del self._documents[document.key]
                self._changed.notify()
        if not document.watchers and document.rows is not None:
            document.rows.cancel()

    def _run(self) -> None:
        while (document := self._wait_for_due()) is not None:
            with document.reading:
                self._read(document)

    def _wait_for_due(self) -> _Document | None:
        """Return the document that is due first, once it is; None if none is watched, at the end of the thread."""
        with self._changed:
            while self._documents:
                document = min(self._documents.values(), key=lambda one: one.due_at)
                wait = document.due_at - self._monotonic()
                if wait <= 0:
                    document.due_at = math.inf
                    return document
                self._changed.wait(min(wait, RUN_SECONDS))
            self._thread = None
            return None

    def _read(self, document: _Document) -> None:
        """Read a document, and wake its watchers if it has changed or can't be read any more."""
        began, known = self._monotonic(), document.newest
        try:
            # The wait begins before the read: a row that is stored in between makes the document due again.
            self._await_rows(document)
            reply = document.read()
            version = Version(reply, etag_of(reply))
        except UnavailableError as error:
            _log.info("a document that is watched could not be read: %s", error)
            if document.newest is None:
                document.error = error
        except Exception as error:  # noqa: BLE001  # its watchers get it, as if each had read
            document.error = error
        else:
            document.error = None
            if document.newest is None or document.newest.etag != version.etag:
                document.newest = version
        document.read_at = self._monotonic()
        with self._changed:
            document.due_at = min(document.due_at, began + self._seconds(document, document.read_at - began))
            watchers = tuple(document.watchers)
        if document.newest is not known or document.error is not None:
            for watcher in watchers:
                watcher.wake()

    def _await_rows(self, document: _Document) -> None:
        if document.grown is None:
            return
        if document.rows is not None:
            document.rows.cancel()
        document.rows = rows = document.grown()
        with self._changed:
            is_watched = bool(document.watchers)
        if rows is not None and not is_watched:  # the last watcher has left meanwhile
            rows.cancel()
        elif rows is not None:
            rows.add_done_callback(lambda done: None if done.cancelled() else self._hasten(document))

    def _hasten(self, document: _Document) -> None:
        with self._changed:
            document.due_at = self._monotonic()
            self._changed.notify()

    def _seconds(self, document: _Document, took: float) -> float:
        """Return after how long a document is read again."""
        polled = sum(one.is_polled for one in self._documents.values())
        if document.is_polled:
            usual = max(READ_SECONDS, polled / READS_PER_SECOND)
        else:
            usual = max(RUN_SECONDS, (len(self._documents) - polled) * RUN_SHARE_SECONDS)
        return max(usual, took / LOAD_MAX)
