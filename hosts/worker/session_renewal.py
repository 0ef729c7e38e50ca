"""Renewal of a worker's session, in a thread of its own that user code on the event loop cannot block."""

import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from math import inf
from typing import Final

from holdfast.hosts.execution.event_loops import caller_into_loop
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.commands import SessionRenew
from holdfast.ports.errors import HoldfastError, SessionLostError

BLOCKED_AFTER: Final = 1.0
"""Seconds without an iteration after which an event loop counts as blocked."""

LOOK_EVERY: Final = 0.25
"""Seconds between two checks of the event loop."""

_log = logging.getLogger("holdfast.worker")


class Renewal:
    """Renews the sessions of a worker every third of their lease, syncs the clock and watches the event loop.

    `lease` is in seconds. `sessions` returns the ids of the sessions, the current one first. If that one is dead,
    `lost` is called, once per session.
    """

    def __init__(
        self, core: Core, *, lease: float, sessions: Callable[[], Sequence[str]], lost: Callable[[], None]
    ) -> None:
        self._core = core
        self._lease = round(lease * 1_000_000)
        self.interval = lease / 3
        """Seconds between two renewals."""
        self._sessions = sessions
        self._lost = lost
        self._known_lost: str | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._in_loop: Callable[[Callable[[], None]], None] | None = None
        self._loop_thread = threading.get_ident()
        self._turned = threading.Event()
        self._turned.set()
        self._checked_at = 0.0
        self._has_warned = False
        self.blocked = 0
        """How often the event loop was found blocked."""

    def watch_loop(self) -> None:
        """Watch the running loop, and make it the target of `in_loop`."""
        self._in_loop = caller_into_loop()
        self._loop_thread = threading.get_ident()

    @property
    def blocked_seconds(self) -> float:
        """For how long the event loop has been blocked; 0.0 up to `BLOCKED_AFTER`. Safe from any thread."""
        if self._turned.is_set() or self._stopped.is_set():
            return 0.0
        seconds = time.monotonic() - self._checked_at
        return seconds if seconds >= BLOCKED_AFTER else 0.0

    def in_loop(self, call: Callable[[], None]) -> None:
        """Schedule a call on the loop without waiting for it. Does nothing if the loop is closed."""
        if self._in_loop is not None:
            self._in_loop(call)

    def start(self) -> None:
        """Start the thread that renews."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._renew, name="holdfast-renewal", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop renewing."""
        self._stopped.set()

    def _renew(self) -> None:
        wait = self.interval
        while not self._pause(wait):
            wait = self.round()

    def round(self) -> float:
        """Renew once and sync the clock; return how many seconds to wait before the next round.

        Renewal comes first, because the store may be slow and a lease runs out meanwhile. Only if the machine was
        suspended the clock is synced before, as the new lease would otherwise end in the past.
        """
        try:
            is_steady = self._core.clock.is_trusted(inf)
            if not is_steady:
                self._core.sync_clock()
            self._renew_all()
            if is_steady:
                self._core.sync_clock()
        except HoldfastError as error:
            _log.warning("could not renew the session: %s", error)
            return self.interval / 4
        except Exception:  # noqa: BLE001  # whatever the error, renewal must continue
            _log.exception("could not renew the session")
            return self.interval / 4
        return self.interval

    def _pause(self, seconds: float) -> bool:
        """Wait while watching the event loop; return whether to stop."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self._stopped.is_set():
            self._check_loop()
            self._stopped.wait(min(left, LOOK_EVERY))
        return self._stopped.is_set()

    def _renew_all(self) -> None:
        sessions = self._sessions()
        answers = self._core.kernel.dispatch_many(
            [
                SessionRenew(namespace=self._core.namespace, session=session, lease=self._lease)
                for session in sessions
            ]
        )
        if answers and isinstance(answers[0], SessionLostError) and sessions[0] != self._known_lost:
            self._known_lost = sessions[0]
            if self._sessions()[0] == sessions[0]:
                self._lost()

    def _check_loop(self) -> None:
        """Log a warning with the stack of the loop when it is blocked, once each time."""
        now = time.monotonic()
        if self._turned.is_set():
            self._turned.clear()
            self._checked_at, self._has_warned = now, False
            self.in_loop(self._turned.set)
            return
        if self._has_warned or now - self._checked_at < BLOCKED_AFTER:
            return
        self._has_warned = True
        self.blocked += 1
        frame = sys._current_frames().get(self._loop_thread)  # pyright: ignore[reportPrivateUsage]  # the only way
        stack = "".join(traceback.format_stack(frame)) if frame else "(no stack)"
        _log.warning(
            "the event loop has been blocked for more than %s s; use a sync stage, which runs in a thread, or"
            " anyio.to_thread. It is in:\n%s",
            BLOCKED_AFTER,
            stack,
        )
