"""A protocol for running blocking calls of async stages in threads."""

from collections.abc import Callable
from typing import Protocol

from typing_extensions import TypeVar

R = TypeVar("R")


class InThread(Protocol):
    """A runner of blocking calls in threads."""

    async def in_thread(self, call: Callable[[], R], /) -> R:
        """Run a call in a thread. Return its result, or raise its error."""
        ...
