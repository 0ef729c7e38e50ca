"""The updates that a function is asked for: each is a task of its own, whose reply or error is recorded."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context, copy_context
from typing import Any, Final, Protocol, TypeAlias

from holdfast.kernel.functions.protocol import Answered, Raised, UpdateReceived
from holdfast.kernel.history.exceptions import raised_from
from holdfast.ports.errors import InvalidValueError

Handler: TypeAlias = Callable[[str], Coroutine[Any, Any, str]]
"""What carries out an update: from the JSON text of its arguments, by name, to that of its reply."""

_NOWHERE: Final = "the function has exposed nothing that takes it"


class NowhereError(LookupError):
    """Nothing that the function has exposed takes an update."""


class RejectedError(Exception):
    """An update is not to be carried out. `reason` is what says so."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class UnreadableError(RejectedError):
    """The arguments of an update can't be read."""


class Begin(Protocol):
    """Begins a task."""

    def __call__(self, coroutine: Coroutine[Any, Any, None], context: Context, /, *, path: str) -> object:
        """Begin one in this context, with this path in the tree of tasks."""
        ...


class Updates:
    """Keeps what has come before anything was exposed, and has the rest carried out, in the order in which it came.

    `begin` makes a task of the loop that the function runs on, with a path in its tree of tasks; `halt` has the
    function halted.
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
        """The calls of which it is recorded that their arguments could not be read: they are not begun again."""
        self._context = Context()
        self._handlers: dict[str, Handler] = {}
        self._early: dict[int, UpdateReceived] = {}
        """Those that nobody has begun with, by the numbers of their rows."""
        self._under_way = 0
        self._is_closed = False
        self._is_quiet: asyncio.Future[None] | None = None
        """What is waited on for those to be done that are under way."""
        self.exposed: list[object] = []
        """The objects that others may ask about, in the order in which they were exposed."""
        self._answers: list[Answered] = []

    @property
    def are_taken(self) -> bool:
        """Whether anything is exposed that takes updates."""
        return bool(self._handlers)

    def expose(self, state: object, handlers: Mapping[str, Handler]) -> None:
        """Have updates carried out by these, by name; those too that have come before."""
        self.exposed = [*(one for one in self.exposed if type(one) is not type(state)), state]
        self._handlers.update(handlers)
        self._context = copy_context()
        self._begin_early()

    def receive(self, update: UpdateReceived, number: int) -> None:
        """Have an update carried out: now, or, if nothing takes any yet, as soon as something does.

        `number` is that of its row.
        """
        self._early[number] = update
        self._begin_early()

    @property
    def left(self) -> tuple[int, ...]:
        """The numbers of the rows with those that nobody has begun with."""
        return tuple(self._early)

    async def close(self, new_future: "Callable[[], asyncio.Future[Any]]") -> None:
        """Begin with none from here on, and wait until those are done that were begun.

        `new_future` makes a future of the loop that the function runs on.
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
        """Begin again with those that come, and with those that have come since it was closed."""
        self._is_closed = False
        self._begin_early()

    def _begin_early(self) -> None:
        if self._handlers and not self._is_closed:
            early, self._early = self._early, {}
            for number, one in early.items():
                self._carry_out(one, number)

    def take(self) -> tuple[Answered, ...]:
        """Return what has come of updates since this was called last, in order."""
        answers = tuple(self._answers)
        self._answers.clear()
        return answers

    def _carry_out(self, update: UpdateReceived, number: int) -> None:
        handler = self._handlers.get(update.update)
        if (rejected := self.rejected.get(update.call)) is not None:
            self._answers.append(Answered(call=update.call, rejected=rejected))
        elif handler is None:
            self._answers.append(Answered(call=update.call, rejected=raised_from(NowhereError(_NOWHERE))))
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
            answer = Answered(call=update.call, rejected=raised_from(error.reason))
        except RejectedError as error:
            answer = Answered(call=update.call, rejected=raised_from(error.reason))
        except asyncio.CancelledError as error:
            self._answers.append(Answered(call=update.call, error=raised_from(error)))
            raise
        except Exception as error:  # noqa: BLE001  # whatever it is, whoever asked for the update is told
            answer = Answered(call=update.call, error=raised_from(error))
        else:
            answer = Answered(call=update.call, output=output)
        self._answers.append(answer)
