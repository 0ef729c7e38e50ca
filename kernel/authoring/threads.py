"""What makes blocking calls for async stages."""

from collections.abc import Callable
from typing import Protocol

from typing_extensions import TypeVar

R = TypeVar("R")


class InThread(Protocol):
    """Makes calls in threads."""

    async def in_thread(self, call: Callable[[], R], /) -> R:
        """Make a call in a thread; return what it gives, or raise what it raises."""
        ...
