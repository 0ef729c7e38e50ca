"""The replies to updates that a durable function sends to other runs."""

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn

from holdfast.kernel.functions.protocol import UpdateReplied, UpdateRequest
from holdfast.kernel.functions.updates import NowhereError
from holdfast.kernel.history.exceptions import error_from
from holdfast.kernel.history.raised import Raised
from holdfast.ports.errors import NotExposedError, UpdateFailedError, UpdateLostError, UpdateRejectedError


class Replies:
    """Passes replies on to the calls that await them.

    `new_future` creates a future on the function's loop.
    """

    __slots__ = ("_new_future", "_waiting")

    def __init__(self, new_future: "Callable[[], asyncio.Future[Any]]") -> None:
        self._new_future = new_future
        self._waiting: dict[str, tuple[UpdateRequest, asyncio.Future[tuple[UpdateReplied, int]]]] = {}

    @property
    def awaited(self) -> tuple[UpdateRequest, ...]:
        """The updates whose replies are awaited."""
        return tuple(request for request, future in self._waiting.values() if not future.done())

    def arrive(self, reply: UpdateReplied, row: int, *, wakes: bool) -> None:
        """Resume what awaits a reply, in this row, if `wakes`. A reply that nothing awaits any more is dropped."""
        _, future = self._waiting.pop(reply.call, (None, None))
        if wakes and future is not None and not future.done():
            future.set_result((reply, row))

    async def reply(self, request: UpdateRequest) -> tuple[UpdateReplied, int]:
        """Wait for the reply to an update that was sent; return it with the number of its row."""
        future: asyncio.Future[tuple[UpdateReplied, int]] = self._new_future()
        self._waiting[request.call] = request, future
        return await future


def raise_update_error(run: str, update: str, raised: Raised, *, is_rejected: bool) -> NoReturn:
    """Raise the error of an update that failed or was rejected, with what it raised as the `__cause__`.

    Raises NotExposedError, UpdateRejectedError, UpdateFailedError.
    """
    name = raised.type.rpartition(".")[2]
    if name == NowhereError.__name__:
        raise NotExposedError(run, update, (), raised.message)
    kind = UpdateRejectedError if is_rejected else UpdateFailedError
    raise kind(run, update, f"{name}: {raised.message}" if raised.message else name) from error_from(raised)


def raise_lost(run: str, update: str, why: str) -> NoReturn:
    """Raise the UpdateLostError of an update that has no reply."""
    raise UpdateLostError(run, update, "", why)
