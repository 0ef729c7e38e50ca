"""Hooks for `os.fork`: a child can't use its parent's threads, held locks and connections.

Objects that own such things register with `renew_in_forks`. In a child each is renewed before any other code runs.
`holdfast.adapters` installs the hooks.
"""

import weakref
from collections.abc import Callable
from typing import Final, Protocol, runtime_checkable


@runtime_checkable
class Renewable(Protocol):
    """An object with state that belongs to one process."""

    def renew(self) -> None:
        """Reset to the state of a new object. Take no old lock; neither use nor close an old connection."""
        ...


@runtime_checkable
class Pausable(Renewable, Protocol):
    """An object that must be idle, with nothing open, while its process forks."""

    def pause(self, seconds: float, /) -> bool:
        """Wait until it is idle, block new use, and close what is open. False if that takes longer than `seconds`."""
        ...

    def resume(self) -> None:
        """Allow use again after `pause`."""
        ...

    def spoil(self) -> None:
        """Refuse all use: this is a child, and the parent was busy when it forked. Called after `renew`."""
        ...


_ALL: Final = weakref.WeakSet[Renewable]()
_INHERITED: Final[list[object]] = []
_PAUSED: Final[list[tuple[Pausable, bool]]] = []


def renew_in_forks(one: Renewable) -> None:
    """Register an object to be renewed in each forked child, for as long as it lives."""
    _ALL.add(one)


def leave_alone(*inherited: object) -> None:
    """Keep objects of the parent alive for as long as this process lives, so that no finalizer disturbs the parent.

    Closing a connection of SQLite drops the parent's locks; closing an event loop changes the parent's selector.
    """
    _INHERITED.extend(one for one in inherited if one is not None)


def pause_all(left: Callable[[], float]) -> None:
    """Pause all pausable objects before a fork. `left` returns how many seconds remain."""
    _PAUSED.extend((one, one.pause(left())) for one in tuple(_ALL) if isinstance(one, Pausable))


def resume_all() -> None:
    """Resume all paused objects in the parent after a fork."""
    while _PAUSED:
        one, is_paused = _PAUSED.pop()
        if is_paused:
            one.resume()


def renew_all() -> None:
    """Renew all objects in a forked child, and spoil those that could not be paused."""
    for one in tuple(_ALL):
        one.renew()
    while _PAUSED:
        paused, is_paused = _PAUSED.pop()
        if not is_paused:
            paused.spoil()


def inherited() -> object:
    """Return the list that keeps the parent's objects alive."""
    return _INHERITED
