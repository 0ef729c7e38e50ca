"""Receives hints from the transport for a whole process: wakes its workers and resolves waits for runs."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Final, Protocol, TypeAlias

import attrs

from holdfast.ports.changes import Change, DeleteRun, Update
from holdfast.ports.errors import HoldfastError
from holdfast.ports.persistence import Persistence
from holdfast.ports.queries.runs import RunsByKey
from holdfast.ports.records.run import TERMINAL, Run
from holdfast.ports.transport import (
    Delivery,
    HistoryGrew,
    JobHint,
    JobTransport,
    RunEnded,
    delivers_run_hints,
)

POLL_FLOOR: Final = 1.0
"""Seconds after which the runs waited for are read from the store, even without hints."""

_AT_ONCE: Final = 0.005
IDLE_PAUSE: Final = 0.1
"""Seconds to pause if the transport returns at once without hints."""
_HINTS_AT_ONCE: Final = 200
_WAITED_AT_ONCE: Final = 1_000

RunsCallback: TypeAlias = Callable[[frozenset[str], frozenset[str]], None]
"""Takes the keys of the runs that have ended, and of those whose histories grew, both according to hints."""

_log = logging.getLogger("holdfast.listener")


class HintListener(Protocol):
    """Notifies workers of jobs, and callers of the ends of runs."""

    @property
    def waiting(self) -> int:
        """The number of runs waited for."""
        ...

    def when_ended(self, run: str, /) -> "Future[Run]":
        """Return a future of the run's row, resolved when the run with this key has ended. Cancel it to unsubscribe."""
        ...

    def when_past(self, run: str, row: int, /) -> "Future[Run]":
        """Return a future of the run's row, resolved when its history has passed this row or the run has ended."""
        ...

    def add_worker(
        self,
        wake: Callable[[], None],
        notify: RunsCallback = lambda _, __: None,
        /,
        *,
        queues: frozenset[str] | None = None,
    ) -> None:
        """Register a worker: `wake` is called when there may be jobs, `notify` with the runs of hints about runs.

        With `queues`, hints about jobs of other queues do not wake it. Both may be called from any thread.
        """
        ...

    def remove_worker(self, wake: Callable[[], None], /) -> None:
        """Unregister the worker with this `wake`."""
        ...

    def close(self) -> None:
        """Stop; outstanding futures are cancelled."""
        ...


class ThreadedHintListener:
    """A thread that receives hints until it is closed. It starts at the first use, if `starts`."""

    def __init__(
        self,
        persistence: Persistence,
        transport: JobTransport,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        starts: bool = True,
    ) -> None:
        self._persistence = persistence
        self._transport = transport
        self._monotonic = monotonic
        self._starts = starts
        self.renew()

    def renew(self) -> None:
        """Reset the state, without waits. A forked child calls this: the waiting callers exist only in its parent."""
        self._looked_at = self._monotonic()
        self._lock = threading.Lock()
        self._waiting: dict[str, list[_Waiting]] = {}
        self._workers: dict[Callable[[], None], _Listening] = {}
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._is_deaf = False

    @property
    def waiting(self) -> int:
        """The number of runs waited for."""
        with self._lock:
            return len(self._waiting)

    @property
    def is_closed(self) -> bool:
        """Whether it is closed, and was not renewed since."""
        return self._closed.is_set()

    def when_ended(self, run: str) -> "Future[Run]":
        """Return a future of the run's row, resolved when the run with this key has ended. Cancel it to unsubscribe."""
        return self._wait(run, _Waiting())

    def when_past(self, run: str, row: int) -> "Future[Run]":
        """Return a future of the run's row, resolved when its history has passed this row or the run has ended."""
        return self._wait(run, _Waiting(row))

    def note(self, changes: Iterable[Change]) -> None:
        """Resolve the waits that are over after changes that this process has committed, without a read.

        What other processes commit is read when a hint about it arrives, or within a second.
        """
        if not self._waiting:
            return
        runs: dict[str, Run] = {}
        for change in changes:
            if isinstance(change, Update) and isinstance(change.record, Run):
                runs[change.record.key] = change.record
            elif isinstance(change, DeleteRun):
                runs.pop(change.run, None)
        for key, run in runs.items():
            if key in self._waiting:
                self._resolve(run)

    def _wait(self, run: str, waiting: "_Waiting") -> "Future[Run]":
        with self._lock:
            if self._closed.is_set():
                waiting.future.cancel()
            else:
                self._waiting.setdefault(run, []).append(waiting)
        self._start()
        return waiting.future

    def add_worker(
        self,
        wake: Callable[[], None],
        notify: RunsCallback = lambda _, __: None,
        *,
        queues: frozenset[str] | None = None,
    ) -> None:
        """Register a worker: `wake` is called when there may be jobs, `notify` with the runs of hints about runs.

        With `queues`, hints about jobs of other queues do not wake it. Both are called in the listener's thread.
        """
        with self._lock:
            self._workers[wake] = _Listening(notify, queues)
        self._start()

    def remove_worker(self, wake: Callable[[], None]) -> None:
        """Unregister the worker with this `wake`."""
        with self._lock:
            self._workers.pop(wake, None)

    def close(self) -> None:
        """Stop the thread and close the transport; outstanding futures are cancelled."""
        self.stop()
        self._transport.close()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5.0)

    def stop(self) -> None:
        """Stop the thread with the next hint, or within a second; outstanding futures are cancelled."""
        with self._lock:
            self._closed.set()
            waiting = [one.future for several in self._waiting.values() for one in several]
            self._waiting.clear()
        for future in waiting:
            future.cancel()

    def _start(self) -> None:
        with self._lock:
            if self._starts and self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._listen, name="holdfast-listener", daemon=True)
                self._thread.start()

    def _listen(self) -> None:
        closed = self._closed  # a listener that is reopened has another one
        while not closed.is_set():
            if pause := self.listen_once():
                closed.wait(pause)

    def listen_once(self) -> float:
        """Receive the next hints and pass them on. Return how many seconds to pause before the next call."""
        try:
            deliveries, pause = self._receive()
            if self._closed.is_set():
                return 0.0
            self._notify_workers(deliveries)
            if not deliveries or self._monotonic() - self._looked_at >= POLL_FLOOR:
                # Hints may be lost, so the store is read regularly however many arrive.
                self._look()
                self._looked_at = self._monotonic()
            elif any(not isinstance(delivery.hint, JobHint) for delivery in deliveries):
                self._look(deliveries)
            for delivery in deliveries:
                self._transport.ack(delivery.receipt)
        except HoldfastError as error:
            _log.warning("could not query for ended runs: %s", error)
            return POLL_FLOOR
        except Exception:  # noqa: BLE001  # a bug must not leave callers waiting for ever
            _log.exception("could not query for ended runs")
            return POLL_FLOOR
        return pause

    def _receive(self) -> tuple[Sequence[Delivery], float]:
        """Return the next hints, and how many seconds to pause.

        If the transport fails, there are no hints, and the store is polled instead. Without a local worker nothing is
        received from a transport that carries only job hints, as those belong to other processes.
        """
        called_at = self._monotonic()
        with self._lock:
            if not self._workers and not delivers_run_hints(self._transport):
                return (), POLL_FLOOR
        try:
            deliveries = self._transport.receive(_HINTS_AT_ONCE, POLL_FLOOR)
        except HoldfastError as error:
            if not self._is_deaf:
                _log.warning("no hints arrive, the store is polled instead: %s", error)
            self._is_deaf = True
            return (), POLL_FLOOR
        except Exception:  # noqa: BLE001  # a bug must not leave callers waiting for ever
            _log.exception("could not receive hints from the transport")
            return (), POLL_FLOOR
        if self._is_deaf:
            _log.info("hints arrive from the transport again")
        self._is_deaf = False
        # A transport that returns at once, because it was closed for instance, must not cause a busy loop.
        return deliveries, IDLE_PAUSE if not deliveries and self._monotonic() - called_at < _AT_ONCE else 0.0

    def _notify_workers(self, deliveries: Sequence[Delivery]) -> None:
        ended, grew = _runs_in(deliveries)
        queues = _queues_in(deliveries)
        with self._lock:
            workers = list(self._workers.items())
        for wake, listening in workers:
            if listening.serves(queues):
                wake()
            if ended or grew:
                listening.notify(ended, grew)

    def _look(self, deliveries: Sequence[Delivery] = ()) -> None:
        """Resolve the waits that are over, with one query for all of their runs."""
        ended, grew = _runs_in(deliveries)
        everything = not deliveries or any(delivery.hint is None for delivery in deliveries)
        with self._lock:
            for key in list(self._waiting):
                self._waiting[key] = [one for one in self._waiting[key] if not one.future.cancelled()]
                if not self._waiting[key]:
                    del self._waiting[key]
            keys = [
                key
                for key, several in self._waiting.items()
                if everything
                or key in ended
                or (key in grew and any(one.past is not None for one in several))
            ]
        for start in range(0, len(keys), _WAITED_AT_ONCE):
            for run in self._persistence.read(RunsByKey(tuple(keys[start : start + _WAITED_AT_ONCE]))):
                self._resolve(run)

    def _resolve(self, run: Run) -> None:
        with self._lock:
            several = self._waiting.pop(run.key, [])
            if left := [one for one in several if not one.is_for(run)]:
                self._waiting[run.key] = left
        for one in several:
            if one.is_for(run) and one.future.set_running_or_notify_cancel():
                one.future.set_result(run)


def _runs_in(deliveries: Sequence[Delivery]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the runs that have ended and the runs whose histories grew, according to hints."""
    hints = [delivery.hint for delivery in deliveries]
    ended = frozenset(hint.run for hint in hints if isinstance(hint, RunEnded))
    return ended, frozenset(hint.run for hint in hints if isinstance(hint, HistoryGrew))


def _queues_in(deliveries: Sequence[Delivery]) -> frozenset[str] | None:
    """Return the queues in which there may be jobs, according to hints; None if it may be any."""
    queues: set[str] = set()
    for delivery in deliveries:
        match delivery.hint:
            case JobHint(queue=queue) if queue:
                queues.add(queue)
            case JobHint() | None:  # a carrier does not know the queue, or only that something has changed
                return None
            case _:
                pass
    return frozenset(queues)


@attrs.frozen
class _Listening:
    """The callback of a worker for runs, and the queues whose jobs wake it."""

    notify: RunsCallback
    queues: frozenset[str] | None

    def serves(self, queues: frozenset[str] | None) -> bool:
        """Whether there may be jobs for it."""
        if queues is None or self.queues is None:
            return queues is None or bool(queues)
        return not self.queues.isdisjoint(queues)


@attrs.frozen(eq=False)
class _Waiting:
    """A wait for a run to end, or for its history to pass a row."""

    past: int | None = None
    future: "Future[Run]" = attrs.field(factory=Future[Run])

    def is_for(self, run: Run) -> bool:
        """Whether the wait is over."""
        return run.status in TERMINAL or (self.past is not None and run.last_row > self.past)
