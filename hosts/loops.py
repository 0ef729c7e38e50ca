"""Event loops of whichever kind: whether one runs here, and calls from other threads into it."""

from collections.abc import Callable
from typing import cast

from anyio import lowlevel


def caller_into_loop() -> Callable[[Callable[[], None]], None]:
    """Return a function, for any thread, that has this loop make a call soon. It never waits.

    If the loop is gone by then, nothing happens: with it went whoever the call was for.
    """
    native = lowlevel.current_token().native_token
    name = "call_soon_threadsafe" if hasattr(native, "call_soon_threadsafe") else "run_sync_soon"
    soon = cast("Callable[[Callable[[], None]], object]", getattr(native, name))

    def call(what: Callable[[], None]) -> None:
        try:
            soon(what)
        except RuntimeError:
            return

    return call
