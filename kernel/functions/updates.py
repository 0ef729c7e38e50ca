"""Updates of a durable function: each is carried out in a task of its own, and its reply or error is recorded."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context, copy_context
from typing import Any, Final, Protocol, TypeAlias

from holdfast.kernel.functions.protocol import UpdateOutcome, UpdateReceived
from holdfast.kernel.history.exceptions import raised_from
from holdfast.kernel.history.raised import Raised
from holdfast.ports.errors import InvalidValueError

Handler: TypeAlias = Callable[[str], Coroutine[Any, Any, str]]
"""Carries out an update: takes its arguments by name as JSON text, and returns its reply as JSON text."""

_NOWHERE: Final = "the function has exposed nothing with that name"


class NowhereError(LookupError):
    """The function has not exposed anything that takes an update."""


class RejectedError(Exception):
    """An update is rejected, for `reason`."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class UnreadableError(RejectedError):
    """The arguments of an update can't be decoded."""


class Begin(Protocol):
    """Starts a task."""

    def __call__(self, coroutine: Coroutine[Any, Any, None], context: Context, /, *, path: str) -> object:
        """Start a task in a context, with a path in the tree of tasks."""
        ...


class Updates:
    """Starts updates in order of arrival. Those that arrive before anything is exposed are kept until then.

    `begin` starts a task on the function's loop; `halt` halts the function.
    """

    __slots__ = (
        "_answers",
        "_begin",
        "_context",
        "_early",
        "_halt",
        "_handlers",
        "_is_closed",
        "_is_quiet",
        "_under_way",
        "exposed",
        "rejected",
    )

    def __init__(self, begin: Begin, halt: Callable[[str, int | None, Exception], None]) -> None:
        self._begin = begin
        self._halt = halt
        self.rejected: dict[str, Raised] = {}
        """Calls with a recorded rejection: they are not started, even if the code could decode their arguments now."""
        self._context = Context()
        self._handlers: dict[str, Handler] = {}
        self._early: dict[int, UpdateReceived] = {}
        """Updates that have not been started, by row number."""
        self._under_way = 0
        self._is_closed = False
        self._is_quiet: asyncio.Future[None] | None = None
        """Resolved when no update is in progress; set while `close` waits."""
        self.exposed: list[object] = []
        """The exposed objects, in the order in which they were exposed."""
        self._answers: list[UpdateOutcome] = []

    @property
    def are_taken(self) -> bool:
        """Whether the function has exposed anything that takes updates."""
        return bool(self._handlers)

    def expose(self, state: object, handlers: Mapping[str, Handler]) -> None:
        """Expose an object and its update methods, by name. Updates that arrived earlier are started."""
        self.exposed = [*(one for one in self.exposed if type(one) is not type(state)), state]
        self._handlers.update(handlers)
        self._context = copy_context()
        self._begin_early()

    def receive(self, update: UpdateReceived, number: int) -> None:
        """Start an update, or keep it until something takes updates. `number` is that of its row."""
        self._early[number] = update
        self._begin_early()

    @property
    def are_under_way(self) -> bool:
        """Whether an update is in progress."""
        return self._under_way > 0

    @property
    def left(self) -> tuple[int, ...]:
        """The row numbers of updates that have not been started."""
        return tuple(self._early)

    async def close(self, new_future: "Callable[[], asyncio.Future[Any]]") -> None:
        """Start no more updates, and wait for those in progress.

        `new_future` creates a future on the function's loop. If the wait is cancelled, updates are started again.
        """
        self._is_closed = True
        try:
            while self._under_way:
                self._is_quiet = new_future()
                await self._is_quiet
        except asyncio.CancelledError:
            self.open()
            raise

    def open(self) -> None:
        """Start updates again, beginning with those that arrived meanwhile."""
        self._is_closed = False
        self._begin_early()

    def _begin_early(self) -> None:
        if self._handlers and not self._is_closed:
            early, self._early = self._early, {}
            for number, one in early.items():
                self._carry_out(one, number)

    def take(self) -> tuple[UpdateOutcome, ...]:
        """Return the outcomes of updates since the last call, in order."""
        answers = tuple(self._answers)
        self._answers.clear()
        return answers

    def _carry_out(self, update: UpdateReceived, number: int) -> None:
        handler = self._handlers.get(update.update)
        if (rejected := self.rejected.get(update.call)) is not None:
            self._answers.append(UpdateOutcome(call=update.call, rejected=rejected))
        elif handler is None:
            self._answers.append(
                UpdateOutcome(call=update.call, rejected=raised_from(NowhereError(_NOWHERE)))
            )
        else:
            self._under_way += 1
            self._begin(self._answered(update, handler, number), self._context.copy(), path=update.call)

    async def _answered(self, update: UpdateReceived, handler: Handler, number: int) -> None:
        try:
            await self._carried_out(update, handler, number)
        finally:
            self._under_way -= 1
            if not self._under_way and self._is_quiet is not None and not self._is_quiet.done():
                self._is_quiet.set_result(None)

    async def _carried_out(self, update: UpdateReceived, handler: Handler, number: int) -> None:
        try:
            output = await handler(update.arguments)
        except UnreadableError as error:
            if update.checked or not isinstance(error.reason, InvalidValueError):
                self._halt(f"the arguments of update {update.update!r}", number, error.reason)
            answer = UpdateOutcome(call=update.call, rejected=raised_from(error.reason))
        except RejectedError as error:
            answer = UpdateOutcome(call=update.call, rejected=raised_from(error.reason))
        except asyncio.CancelledError as error:
            self._answers.append(UpdateOutcome(call=update.call, error=raised_from(error)))
            raise
        except Exception as error:  # noqa: BLE001  # any error is the reply to the caller of the update
            answer = UpdateOutcome(call=update.call, error=raised_from(error))
        else:
            answer = UpdateOutcome(call=update.call, output=output)
        self._answers.append(answer)
