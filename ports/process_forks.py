"""What a forked child can't use of its parent's: threads that are not there, locks that are held, connections.

Whoever has such things registers with `renew_in_forks`. In a child of `os.fork` each is renewed before any other code
of the child runs. It is `holdfast.adapters` that hears of forks.
"""

import weakref
from collections.abc import Callable
from typing import Final, Protocol, runtime_checkable


@runtime_checkable
class Renewable(Protocol):
    """Something with state that is of one process."""

    def renew(self) -> None:
        """Begin anew, as if just made. No lock of before may be taken, and no connection be used or closed."""
        ...


@runtime_checkable
class Pausable(Renewable, Protocol):
    """Something of which nothing may be under way, or open, when its process forks."""

    def pause(self, seconds: float, /) -> bool:
        """Wait until nothing is under way, let nothing begin, and let go of all that is open. False: it took longer."""
        ...

    def resume(self) -> None:
        """Go on after a pause."""
        ...

    def spoil(self) -> None:
        """Be of no use: this is a child, and something was under way in its parent. Called after `renew`."""
        ...


_ALL: Final = weakref.WeakSet[Renewable]()
_INHERITED: Final[list[object]] = []
_PAUSED: Final[list[tuple[Pausable, bool]]] = []


def renew_in_forks(one: Renewable) -> None:
    """Have something renewed in each child that is forked while it lives."""
    _ALL.add(one)


def leave_alone(*inherited: object) -> None:
    """Keep what belongs to the parent for as long as this process lives: what tidies up after it would disturb that.

    A connection of SQLite's that is closed takes locks away, and an event loop that is closed what its parent hears by.
    """
    _INHERITED.extend(one for one in inherited if one is not None)


def pause_all(left: Callable[[], float]) -> None:
    """Pause what must not be under way when a process forks. `left` tells how many seconds there are yet."""
    _PAUSED.extend((one, one.pause(left())) for one in tuple(_ALL) if isinstance(one, Pausable))


def resume_all() -> None:
    """Have all go on that were paused: this is the process that has forked."""
    while _PAUSED:
        one, is_paused = _PAUSED.pop()
        if is_paused:
            one.resume()


def renew_all() -> None:
    """Renew all: this is a child. What could not be paused is of no use in it."""
    for one in tuple(_ALL):
        one.renew()
    while _PAUSED:
        paused, is_paused = _PAUSED.pop()
        if not is_paused:
            paused.spoil()


def inherited() -> object:
    """Return what keeps all that belongs to the parent."""
    return _INHERITED
