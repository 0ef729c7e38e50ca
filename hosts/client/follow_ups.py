"""What follows from commands in transactions of the application, after their commits: hints and admissions."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from holdfast.hosts.execution.threads import start_in_thread
from holdfast.ports.process_forks import renew_in_forks

_log = logging.getLogger("holdfast.engine")


class FollowUps:
    """Calls that are made one after the other in a thread of their own, while there are any.

    The caller may be an event loop or a driver, which must not be kept. A call that fails, or is lost with the process,
    is left to maintenance.
    """

    def __init__(self) -> None:
        self.renew()
        renew_in_forks(self)

    def renew(self) -> None:
        """Reset in a forked child: the thread exists only in its parent."""
        self._lock = threading.Lock()
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_running = False

    def add(self, call: Callable[[], None]) -> None:
        """Make a call soon."""
        with self._lock:
            self._waiting.append(call)
            if self._is_running:
                return
            self._is_running = True
        try:
            start_in_thread(self._run)
        except RuntimeError:  # the process ends
            self._is_running = False
            _log.debug("maintenance must complete a command: no thread could be started")

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._is_running = False
                    return
                call = self._waiting.popleft()
            try:
                call()
            except Exception as error:  # noqa: BLE001  # the engine may be closed: the commands are committed all the same
                _log.warning("maintenance must complete a command: %s", error)


FOLLOW_UPS: Final = FollowUps()
"""Those of this process."""
