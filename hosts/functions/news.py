"""Tells functions that are driven here that their histories have news: a message, or that they are to end."""

import threading
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager


class RunNews:
    """Whom to tell of which run. A hint, as all that a transport brings: drivers look by themselves, too."""

    def __init__(self) -> None:
        self._heard: dict[str, list[Callable[[], object]]] = {}
        self._lock = threading.Lock()

    @property
    def is_listened_to(self) -> bool:
        """Whether any function is driven here."""
        return bool(self._heard)

    @contextmanager
    def listening(self, run: str, heard: Callable[[], object]) -> Generator[None]:
        """Have `heard` called, in whichever thread, whenever there are news of a run."""
        with self._lock:
            self._heard.setdefault(run, []).append(heard)
        try:
            yield
        finally:
            with self._lock:
                self._heard[run].remove(heard)
                if not self._heard[run]:
                    del self._heard[run]

    def tell(self, runs: Collection[str]) -> None:
        """Tell of runs. From any thread."""
        with self._lock:
            told = [heard for run in runs for heard in self._heard.get(run, ())]
        for heard in told:
            heard()
