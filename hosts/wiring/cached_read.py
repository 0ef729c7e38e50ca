"""A read of the store whose result several callers share for a while: one at a time, and none waits for it long."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class CachedRead(Generic[T]):
    """Reads at most once in a period, in a thread of its own. Times are in seconds. Safe from any thread.

    A store that does not answer holds this one thread, however many callers come meanwhile.

    Args:
        read: Reads. May block and raise.
        age_max: For how long a result, or a failure, is used.
        wait_max: How long a caller waits.
        monotonic: Returns the time.
    """

    def __init__(
        self, read: Callable[[], T], *, age_max: float, wait_max: float, monotonic: Callable[[], float]
    ) -> None:
        self._read = read
        self._age_max = age_max
        self._wait_max = wait_max
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._is_reading = False
        self._read_at: float | None = None
        self._result: tuple[T] | Exception | None = None

    def get(self) -> T:
        """Return a result that is not too old.

        Raises what the read raised, for as long as that is not too old; TimeoutError if it has not ended in time.
        """
        with self._lock:
            is_fresh = self._read_at is not None and self._monotonic() - self._read_at < self._age_max
            ended = self._ended
            if not is_fresh and not self._is_reading:
                self._is_reading, ended = True, threading.Event()
                self._ended = ended
                threading.Thread(target=self._run, args=(ended,), name="holdfast-read", daemon=True).start()
        if not is_fresh and not ended.wait(self._wait_max):
            raise TimeoutError("the store has not answered in time")
        result = self._result
        assert result is not None
        if isinstance(result, Exception):
            raise result
        return result[0]

    def _run(self, ended: threading.Event) -> None:
        result: tuple[T] | Exception
        try:
            result = (self._read(),)
        except Exception as error:  # noqa: BLE001  # raised again in those that wait
            result = error
        with self._lock:
            self._result, self._read_at, self._is_reading = result, self._monotonic(), False
        ended.set()
