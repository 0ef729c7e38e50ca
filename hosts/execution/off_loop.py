"""Where functions are driven from: never within a running event loop, which Python forbids."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def drive_away(call: Callable[[], T]) -> T:
    """Make a call that drives functions: here, or, where an event loop runs, in a thread that this one waits for."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return call()
    results: list[T] = []
    raised: list[BaseException] = []

    def make() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001  # it is raised again by whoever waits
            raised.append(error)

    thread = threading.Thread(target=make, name="holdfast-replay")
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return results[0]
