"""Reproducible ids for tests."""

from random import Random
from threading import Lock

from holdfast.adapters.system.ids import ulid
from holdfast.ports.clock import Clock, micros
from holdfast.testing.clock import DEFAULT_START


class SeededIds:
    """A source of ULIDs that a seed and the clock determine. Thread-safe.

    Without a clock their time is fixed. They always ascend, even if the clock is set back.
    """

    def __init__(self, seed: int = 0, clock: Clock | None = None) -> None:
        """Sources with different seeds produce different ids."""
        self._lock = Lock()
        self._random = Random(seed)  # noqa: S311  # to be foreseeable is the point
        self._clock = clock
        self._milliseconds = -1
        self._chance = 0

    def new(self) -> str:
        """Return a new id, which sorts after all earlier ones of this source."""
        with self._lock:
            instant = DEFAULT_START if self._clock is None else self._clock.now()
            milliseconds = micros(instant) // 1_000
            if milliseconds > self._milliseconds:
                self._milliseconds = milliseconds
                self._chance = self._random.getrandbits(79)
            else:
                # Random step sizes keep sources that start close together from colliding.
                self._chance += 1 + self._random.getrandbits(40)
            return ulid(self._milliseconds, self._chance)
