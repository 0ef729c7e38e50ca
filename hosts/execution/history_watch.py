"""Tells functions that are driven here that their histories have news: a message, or that they are to end."""

import threading
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager


class RunListeners:
    """Whom to tell of which run. A hint, as all that a transport brings: drivers look by themselves, too."""

    def __init__(self) -> None:
        self._listeners: dict[str, list[Callable[[], object]]] = {}
        self._lock = threading.Lock()

    @property
    def is_listened_to(self) -> bool:
        """Whether any function is driven here."""
        return bool(self._listeners)

    @contextmanager
    def listening(self, run: str, listener: Callable[[], object]) -> Generator[None]:
        """Have `heard` called, in whichever thread, whenever there are news of a run."""
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
        """Tell of runs. From any thread."""
        with self._lock:
            listeners = [listener for run in runs for listener in self._listeners.get(run, ())]
        for heard in listeners:
            heard()
