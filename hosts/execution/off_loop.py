"""Calls that drive durable functions outside any running event loop, because Python does not allow nested loops."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

from holdfast.hosts.execution.caught_calls import CaughtCall

T = TypeVar("T")


def run_off_loop(call: Callable[[], T]) -> T:
    """Run a call that drives functions: here, or in a thread that is awaited if an event loop runs here."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return call()
    caught = CaughtCall(call)
    thread = threading.Thread(target=caught, name="holdfast-replay")
    thread.start()
    thread.join()
    return caught.result()
