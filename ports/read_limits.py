"""Limits of reads: how long the store may take to answer one, and whether its caller still wants the answer.

Who calls a store sets the limit of the reads in a block, `limited_reads`; the store finds it there, `read_limit`. So
the layers in between, which read for many callers, need not hand it on.
"""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Final, Protocol


class ReadLimit(Protocol):
    """The limit of the reads of one caller. Safe to use from several threads."""

    @property
    def seconds(self) -> float:
        """How long one read may take."""
        ...

    @property
    def is_abandoned(self) -> bool:
        """Whether the caller has left, and needs no more reads."""
        ...

    def interrupted_by(self, interrupt: Callable[[], None], /) -> AbstractContextManager[None]:
        """Call `interrupt` from another thread when the caller leaves while the block runs, and never after it."""
        ...


_limit: Final[ContextVar[ReadLimit | None]] = ContextVar("holdfast_read_limit", default=None)


def read_limit() -> ReadLimit | None:
    """Return the limit of reads that are made here; None without one."""
    return _limit.get()


@contextmanager
def limited_reads(limit: ReadLimit) -> Generator[None]:
    """Limit the reads of `Persistence.read` in this block. Transactions are not limited."""
    token = _limit.set(limit)
    try:
        yield
    finally:
        _limit.reset(token)
