"""The clients of httpx that a client of a server has made: one for each process and event loop that uses it."""

import os
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from anyio.lowlevel import current_token

from holdfast.ports.process_forks import leave_alone

C = TypeVar("C")

_ANYWHERE: Final = object()


def current_loop() -> object:
    """Return the running event loop: a connection can be used in the loop alone that has opened it."""
    return current_token().native_token


def anywhere() -> object:
    """Return one place for all threads, which can share connections."""
    return _ANYWHERE


class OwnClients(Generic[C]):
    """Clients of httpx, each for the place where it is used.

    A forked child gets new ones. With the connections of its parent, each would read answers to the other's requests.

    Args:
        make: Makes one. It is called at once too, so that a missing package is reported here.
        place: Returns the place: `current_loop` or `anywhere`.
    """

    def __init__(self, make: Callable[[], C], place: Callable[[], object]) -> None:
        self._make = make
        self._place = place
        self._unused: list[C] = [make()]
        self._process = os.getpid()
        self._clients: dict[object, C] = {}

    def get(self) -> C:
        """Return the client of this place."""
        if self._process != os.getpid():
            leave_alone(self._clients)
            self._clients, self._process = {}, os.getpid()
        place = self._place()
        found = self._clients.get(place)
        if found is None:
            for other in list(self._clients):
                if _is_closed(other):
                    del self._clients[other]
            try:
                made = self._unused.pop()
            except IndexError:
                made = self._make()
            found = self._clients.setdefault(place, made)
        return found

    def take(self) -> C | None:
        """Return the client of this place and forget it; None if none was used here."""
        return self._clients.pop(self._place(), None) if self._process == os.getpid() else None


def _is_closed(place: object) -> bool:
    is_closed: Callable[[], bool] | None = getattr(place, "is_closed", None)
    return is_closed is not None and is_closed()
