"""A generator of ULIDs (https://github.com/ulid/spec): 48 bits of milliseconds and 80 random bits in 26 characters."""

import os
import random
import time
import weakref
from collections.abc import Callable
from threading import Lock
from typing import Final

ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Crockford's base 32: in ASCII order, without letters that look like digits."""

_TIME_MAX: Final = 1 << 48
_HIGH_BITS: Final = 40
_LOW_BITS: Final = 40
_LOW_MAX: Final = 1 << _LOW_BITS
_PAIRS: Final = tuple(first + second for first in ALPHABET for second in ALPHABET)


def ulid(milliseconds: int, chance: int) -> str:
    """Return the ULID of an instant (milliseconds since 1970) and 80 random bits. ValueError if one is out of range."""
    if not 0 <= milliseconds < _TIME_MAX or not 0 <= chance < 1 << 80:
        raise ValueError(f"{milliseconds} ms and {chance} do not fit into 48 and 80 bits")
    return _digits(milliseconds, 10) + _digits(chance, 16)


def ulid_milliseconds(text: str) -> int:
    """Return the instant in a ULID, in milliseconds since 1970. ValueError if the text is not one."""
    if len(text) != 26 or any(character not in ALPHABET for character in text) or text[0] > "7":
        raise ValueError(f"{text!r} is not a ULID")
    milliseconds = 0
    for character in text[:10]:
        milliseconds = milliseconds * 32 + ALPHABET.index(character)
    return milliseconds


def _digits(number: int, width: int) -> str:
    return "".join([_PAIRS[(number >> shift) & 1023] for shift in range(5 * width - 10, -1, -10)])


class UlidIds:
    """A source of ids that rise within this process, whatever the wall clock does, and are unique among processes.

    Within one millisecond, and while the wall clock is behind an earlier reading, an id is the one before plus one;
    otherwise its 80 bits are random. Safe to use from several threads, and in a forked child.
    """

    def __init__(self, clock_ns: Callable[[], int] = time.time_ns) -> None:
        """`clock_ns` returns nanoseconds since 1970."""
        self._clock_ns = clock_ns
        self._milliseconds = -1
        self._start_afresh()
        _SOURCES.add(self)

    def new(self) -> str:
        """Return a new id, which sorts after all earlier ones of this source."""
        milliseconds = self._clock_ns() // 1_000_000
        with self._lock:
            if milliseconds > self._milliseconds:
                self._draw(milliseconds)
            else:
                self._low += 1
                if self._low == _LOW_MAX:
                    self._draw(self._milliseconds + 1)
            low = self._low
            prefix = self._prefix
        return f"{prefix}{_PAIRS[low >> 30]}{_PAIRS[low >> 20 & 1023]}{_PAIRS[low >> 10 & 1023]}{_PAIRS[low & 1023]}"

    def _draw(self, milliseconds: int) -> None:
        # Only the low half counts up, so the other characters are made once per millisecond. The low
        # half starts in its lower half, which leaves more ids than a millisecond can use.
        self._milliseconds = milliseconds
        self._prefix = ulid(milliseconds, self._random.getrandbits(_HIGH_BITS) << _LOW_BITS)[:18]
        self._low = self._random.getrandbits(_LOW_BITS - 1)

    def _start_afresh(self) -> None:
        self._lock = Lock()
        # Ids need not be secret, so a generator seeded by the system will do. It is ten times as fast.
        self._random = random.Random(os.urandom(32))  # noqa: S311
        self._draw(self._milliseconds + 1)

    @staticmethod
    def _after_fork() -> None:
        # A child would otherwise generate its parent's next ids, and may have been forked while the lock was held.
        # It starts in the next millisecond, so that its ids sort after the earlier ones of its parent.
        for source in tuple(_SOURCES):
            source._start_afresh()


_SOURCES: Final = weakref.WeakSet[UlidIds]()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=UlidIds._after_fork)  # pyright: ignore[reportPrivateUsage]
