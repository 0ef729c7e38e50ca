"""Heartbeats of the inline steps of one durable function: timeouts, and details for the next attempt of each step."""

import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, TypeVar, cast

import anyio
from anyio import CancelScope

from holdfast.hosts.execution.attempt_runtime import AttemptRuntime
from holdfast.hosts.execution.event_loops import caller_into_loop, loop_time
from holdfast.hosts.execution.threads import result_in_thread
from holdfast.ports.clock import Clock
from holdfast.ports.errors import StepLostError
from holdfast.ports.json import compact, parse

R = TypeVar("R")

KEPT_MAX: Final = 64
"""Of how many steps the details are kept; beyond that the oldest are dropped."""
_REPORT_INTERVAL: Final = 1.0
"""Seconds between two writes of the details."""


class Heartbeats:
    """The heartbeat details of the steps of one function that is driven here. Safe from any thread.

    The details of all steps are stored as one heartbeat of the job that drives the function, as for stages.
    """

    def __init__(self, runtime: AttemptRuntime, clock: Clock, *, is_first: bool) -> None:
        """With `is_first` the function was never driven before, so there is nothing to read."""
        self._runtime = runtime
        self._clock = clock
        self._lock = threading.Lock()
        self._loading: anyio.Lock | None = None
        self._is_loaded = is_first
        self._details: dict[str, str] = {}
        self._is_dirty = False
        self._reported_at = -_REPORT_INTERVAL

    async def load(self) -> None:
        """Read the details that earlier attempts stored, once. UnavailableError."""
        self._loading = self._loading or anyio.Lock()
        async with self._loading:
            if self._is_loaded:
                return
            text = await result_in_thread(self._runtime.last_heartbeat)
            left = cast("dict[str, object]", parse(text or "{}"))
            with self._lock:
                self._details = {call: compact(one) for call, one in left.items()} | self._details
            self._is_loaded = True

    def last(self, call: str) -> str | None:
        """Return the latest details of a call as JSON text."""
        with self._lock:
            return self._details.get(call)

    def note(self, call: str, details: str) -> None:
        """Keep the details of a call."""
        with self._lock:
            self._details.pop(call, None)
            self._details[call] = details
            while len(self._details) > KEPT_MAX:
                del self._details[next(iter(self._details))]
            self._is_dirty = True
            if self._clock.monotonic() - self._reported_at >= _REPORT_INTERVAL:
                self._report()

    def forget(self, call: str) -> None:
        """Drop the details of a call that is over."""
        with self._lock:
            self._is_dirty = self._details.pop(call, None) is not None or self._is_dirty

    def flush(self) -> None:
        """Pass on details that were not yet passed on."""
        with self._lock:
            if self._is_dirty:
                self._report()

    def _report(self) -> None:
        self._is_dirty = False
        self._reported_at = self._clock.monotonic()
        self._runtime.heartbeat(compact({call: parse(text) for call, text in self._details.items()}))


class StepHeartbeat:
    """See `HeartbeatSink`. Cancels an attempt whose heartbeats stop for longer than its timeout."""

    def __init__(self, heartbeats: Heartbeats, call: str, timeout: timedelta) -> None:
        self._heartbeats = heartbeats
        self._call = call
        self._timeout = timeout
        self.last = heartbeats.last(call)
        self._scope = CancelScope()
        self._is_over = False
        self._in_loop = caller_into_loop()
        self._time = loop_time()

    def beat(self, details: str, /) -> None:
        """See `HeartbeatSink.beat`. Ignored from a body that was abandoned in its thread."""
        if self._is_over:
            return
        if details != "null":
            self._heartbeats.note(self._call, details)
        self._in_loop(self._extend)

    async def listening(self, step: str, attempt: int, act: Callable[[], Awaitable[R]]) -> R:
        """Run `act`. Cancels it and raises StepLostError if no heartbeat arrives for the timeout."""
        try:
            with self._scope:
                self._extend()
                result = await act()
                self._heartbeats.forget(self._call)
                return result
        finally:
            self._is_over = True
        raise StepLostError(step, attempt, self._timeout)

    def _extend(self) -> None:
        self._scope.deadline = self._time() + self._timeout.total_seconds()
