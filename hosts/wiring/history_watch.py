"""Notifications for the drivers in this process: the history of a run may have new rows."""

import threading
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager


class RunListeners:
    """The listeners of runs that are driven here. Hints only: drivers also poll the history."""

    def __init__(self) -> None:
        self._listeners: dict[str, list[Callable[[], object]]] = {}
        self._lock = threading.Lock()

    @property
    def is_listened_to(self) -> bool:
        """Whether any durable function is driven here."""
        return bool(self._listeners)

    @contextmanager
    def listening(self, run: str, listener: Callable[[], object]) -> Generator[None]:
        """Call `listener`, in any thread, whenever the run may have new rows, while the context is open."""
        with self._lock:
            self._listeners.setdefault(run, []).append(listener)
        try:
            yield
        finally:
            with self._lock:
                self._listeners[run].remove(listener)
                if not self._listeners[run]:
                    del self._listeners[run]

    def notify(self, runs: Collection[str]) -> None:
        """Call the listeners of these runs. From any thread."""
        with self._lock:
            listeners = [listener for run in runs for listener in self._listeners.get(run, ())]
        for callback in listeners:
            callback()
