"""Ids that are the same in every run of a test."""

from random import Random
from threading import Lock

from holdfast.adapters.system.ids import ulid
from holdfast.ports.clock import Clock, micros
from holdfast.testing.clock import DEFAULT_START


class SeededIds:
    """ULIDs that follow from a seed, and from the times at which they are drawn. Safe to use from several threads.

    Without a clock the time in them is a fixed one. They rise even where the clock is set back.
    """

    def __init__(self, seed: int = 0, clock: Clock | None = None) -> None:
        """Sources of different seeds give different ids."""
        self._lock = Lock()
        self._random = Random(seed)  # noqa: S311  # to be foreseeable is the point
        self._clock = clock
        self._milliseconds = -1
        self._chance = 0

    def new(self) -> str:
        """Return a fresh id, which sorts after all earlier ones of this source."""
        with self._lock:
            instant = DEFAULT_START if self._clock is None else self._clock.now()
            milliseconds = micros(instant) // 1_000
            if milliseconds > self._milliseconds:
                self._milliseconds = milliseconds
                self._chance = self._random.getrandbits(79)
            else:
                # Steps of different sizes, so that sources that happen to start close together do not meet.
                self._chance += 1 + self._random.getrandbits(40)
            return ulid(self._milliseconds, self._chance)
