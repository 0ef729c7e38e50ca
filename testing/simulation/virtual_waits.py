"""Waits for runs in virtual time: a waiting fiber lets the others run, where a real wait would block the thread."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from typing_extensions import override

from holdfast.hosts.wiring.hint_listener import RunsCallback
from holdfast.hosts.wiring.stores import Stores
from holdfast.ports.queries.runs import RunsByKey
from holdfast.ports.records.run import TERMINAL, Run

_LOOK_MIN: Final = 1.0
_LOOK_MAX: Final = 3_600.0


class VirtualListener:
    """A replacement of the listener thread in a simulated process."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    @property
    def waiting(self) -> int:
        """See `HintListener.waiting`. Always 0: futures wait only while their result is read."""
        return 0

    def when_ended(self, run: str, /) -> "Future[Run]":
        """See `HintListener.when_ended`. Time passes when the future's result is read."""
        return _Awaited(self._stores, run, lambda _: False)

    def when_past(self, run: str, row: int, /) -> "Future[Run]":
        """See `HintListener.when_past`. Time passes when the future's result is read."""
        return _Awaited(self._stores, run, lambda found: found.last_row > row)

    def add_worker(
        self,
        wake: Callable[[], None],
        notify: RunsCallback = lambda _, __: None,
        /,
        *,
        queues: frozenset[str] | None = None,
    ) -> None:
        """See `HintListener.add_worker`. Does nothing: a simulated worker has a listener of its own."""
        del wake, notify, queues

    def remove_worker(self, wake: Callable[[], None], /) -> None:
        """See `HintListener.remove_worker`."""
        del wake

    def close(self) -> None:
        """See `HintListener.close`."""


class _Awaited(Future[Run]):
    """A future whose `result` polls the store after each hint, and at growing intervals since hints get lost."""

    def __init__(self, stores: Stores, run: str, is_for: Callable[[Run], bool]) -> None:
        super().__init__()
        self._stores = stores
        self._run = run
        self._is_for = is_for

    @override
    def result(self, timeout: float | None = None) -> Run:
        monotonic, look = self._stores.clock.monotonic, _LOOK_MIN
        until = None if timeout is None else monotonic() + timeout
        while True:
            for run in self._stores.persistence.read(RunsByKey((self._run,))):
                if run.status in TERMINAL or self._is_for(run):
                    return run
            left = look if until is None else until - monotonic()
            if left <= 0:
                raise TimeoutError
            self._stores.transport.receive(100, min(look, left))
            look = min(2 * look, _LOOK_MAX)
