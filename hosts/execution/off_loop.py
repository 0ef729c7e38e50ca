"""Calls that drive durable functions outside any running event loop, because Python does not allow nested loops."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def run_off_loop(call: Callable[[], T]) -> T:
    """Run a call that drives functions: here, or in a thread that is awaited if an event loop runs here."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return call()
    results: list[T] = []
    raised: list[BaseException] = []

    def make() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001  # raised again in the waiting thread
            raised.append(error)

    thread = threading.Thread(target=make, name="holdfast-replay")
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return results[0]
