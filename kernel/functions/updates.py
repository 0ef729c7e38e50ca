"""The updates that a function is asked for: each is a task of its own, whose reply or error is recorded."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context, copy_context
from typing import Any, Final, TypeAlias

from holdfast.kernel.functions.asked import Answered, UpdateReceived
from holdfast.kernel.functions.raising import raised_from

Handler: TypeAlias = Callable[[str], Coroutine[Any, Any, str]]
"""What carries out an update: from the JSON text of its arguments, by name, to that of its reply."""

_NOWHERE: Final = "the function has exposed nothing that takes it"


class RejectedError(Exception):
    """An update is not to be carried out. `reason` is what says so."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Updates:
    """Keeps what has come before anything was exposed, and has the rest carried out, in the order in which it came.

    `begin` makes a task of the loop that the function runs on, with a path in its tree of tasks.
    """

    def __init__(self, begin: Callable[[Coroutine[Any, Any, None], Context, str], object]) -> None:
        self._begin = begin
        self._context = Context()
        self._handlers: dict[str, Handler] = {}
        self._early: list[UpdateReceived] = []
        self.exposed: list[object] = []
        """The objects that others may ask about, in the order in which they were exposed."""
        self.answers: list[Answered] = []
        """What has come of updates since this was emptied, in order."""

    @property
    def are_taken(self) -> bool:
        """Whether anything is exposed that takes updates."""
        return bool(self._handlers)

    def expose(self, state: object, handlers: Mapping[str, Handler]) -> None:
        """Have updates carried out by these, by name; those too that have come before."""
        self.exposed = [*(one for one in self.exposed if type(one) is not type(state)), state]
        self._handlers.update(handlers)
        self._context = copy_context()
        if self._handlers:
            early, self._early = self._early, []
            for one in early:
                self._carry_out(one)

    def receive(self, update: UpdateReceived) -> None:
        """Have an update carried out: now, or, if nothing takes any yet, as soon as something does."""
        if self._handlers:
            self._carry_out(update)
        else:
            self._early.append(update)

    def _carry_out(self, update: UpdateReceived) -> None:
        handler = self._handlers.get(update.update)
        if handler is None:
            self.answers.append(Answered(call=update.call, rejected=raised_from(LookupError(_NOWHERE))))
        else:
            self._begin(self._answered(update, handler), self._context.copy(), update.call)

    async def _answered(self, update: UpdateReceived, handler: Handler) -> None:
        try:
            output = await handler(update.arguments)
        except RejectedError as error:
            answer = Answered(call=update.call, rejected=raised_from(error.reason))
        except asyncio.CancelledError as error:
            self.answers.append(Answered(call=update.call, error=raised_from(error)))
            raise
        except Exception as error:  # noqa: BLE001  # whatever it is, whoever asked for the update is told
            answer = Answered(call=update.call, error=raised_from(error))
        else:
            answer = Answered(call=update.call, output=output)
        self.answers.append(answer)
