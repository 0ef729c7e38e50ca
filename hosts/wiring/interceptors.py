"""What plugins may put around the dispatch of commands and around bodies: logging, metrics, tracing, policy.

Both are context managers. What one raises on the way in refuses; what one raises on the way out is logged, and what was
stored, or what a body gave, stands: no plugin can lose anything that was acknowledged.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

import attrs

from holdfast.kernel.commands import Command
from holdfast.ports.errors import CommandError, InvalidArgumentError
from holdfast.ports.validation import several

R = TypeVar("R")

Answer: TypeAlias = object | CommandError
Proceed: TypeAlias = Callable[[Sequence[Command[Any]]], Sequence[Answer]]

_log: Final = logging.getLogger("holdfast.interceptors")


class Batch:
    """Commands that are dispatched together, in one transaction or a few."""

    def __init__(self, commands: Sequence[Command[Any]]) -> None:
        self._commands = tuple(commands)
        self._refused: dict[int, CommandError] = {}
        self._answers: tuple[Answer, ...] | None = None

    @property
    def commands(self) -> tuple[Command[object], ...]:
        """The commands, without those that an outer interceptor has refused."""
        return self._commands

    def refuse(self, command: Command[object], error: CommandError) -> None:
        """Have this command answered with this error, and not carried out. Only on the way in."""
        place = next((place for place, one in enumerate(self._commands) if one is command), None)
        if place is None or self._answers is not None:
            raise ValueError("refuse takes a command of this batch, before it is carried out")
        self._refused[place] = error

    @property
    def answers(self) -> tuple[Answer, ...]:
        """The reply to each command, or the CommandError. Only on the way out; RuntimeError if there are none."""
        if self._answers is None:
            raise RuntimeError("the batch has no answers: it was not carried out, or not yet")
        return self._answers

    def carry_out(self, proceed: Proceed) -> list[Answer]:
        """Have those carried out that are not refused, and keep all answers. Called by the engine."""
        allowed = [one for place, one in enumerate(self._commands) if place not in self._refused]
        replies = iter(proceed(allowed) if allowed else ())
        places = range(len(self._commands))
        answers = [self._refused[place] if place in self._refused else next(replies) for place in places]
        self._answers = tuple(answers)
        return answers


@attrs.frozen(kw_only=True)
class BodyCall:
    """The body of a stage, or of a step, that is about to be called. `idempotency_key` is that of its context.

    (`job`, `epoch`) is this attempt's own name: no other has it, ever. Of a step, `step` is its name, `stage` that of
    the function, and `attempt` which try of the call it is; the steps of a function share the job and epoch that drive
    it, and (`idempotency_key`, `attempt`) names the try.
    """

    namespace: str
    job: str
    run_id: str
    workflow: str
    version: str
    stage: str
    item: int | None
    attempt: int
    max_attempts: int
    epoch: int
    queue: str
    idempotency_key: str
    step: str | None = None


@runtime_checkable
class DispatchInterceptor(Protocol):
    """Has a method `dispatch` that gives what is put around a batch of commands. Called from any thread."""

    def dispatch(self, batch: Batch, /) -> AbstractContextManager[object]:
        """Return a context manager. What it raises on the way in refuses the whole batch."""
        ...


@runtime_checkable
class BodyInterceptor(Protocol):
    """Has a method `body` that gives what is put around the call of a body. Called on the event loop: never block.

    Bodies are those of stages, and those of steps that a durable function has called.
    """

    def body(self, call: BodyCall, /) -> AbstractContextManager[object]:
        """Return a context manager. What it raises on the way in is a failed attempt; the body is not called."""
        ...


Interceptor: TypeAlias = DispatchInterceptor | BodyInterceptor


def check_interceptors(interceptors: Iterable[Interceptor]) -> tuple[Interceptor, ...]:
    """Return them. InvalidArgumentError if one has neither method."""
    words = "a list of interceptors, which are objects with a method `dispatch` or `body`"
    checked = several("Engine", "interceptors", interceptors, words)
    for one in checked:
        if isinstance(one, type) or not isinstance(one, DispatchInterceptor | BodyInterceptor):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgumentError(
                "interceptors", f"an interceptor is an object with a method `dispatch` or `body`, not {one!r}"
            )
    return checked


def around_dispatch(
    interceptors: Iterable[Interceptor],
) -> Callable[[Sequence[Command[Any]], Proceed], list[Answer]] | None:
    """Return what puts interceptors around a dispatch, the first outermost; None if there are none."""
    chain = tuple(one for one in interceptors if isinstance(one, DispatchInterceptor))
    if not chain:
        return None

    def around(commands: Sequence[Command[Any]], proceed: Proceed) -> list[Answer]:
        return _through(chain, commands, proceed)

    return around


def around_bodies(interceptors: Iterable[Interceptor]) -> tuple[BodyInterceptor, ...]:
    """Return those that are put around bodies, the first outermost."""
    return tuple(one for one in interceptors if isinstance(one, BodyInterceptor))


def _through(
    chain: tuple[DispatchInterceptor, ...], commands: Sequence[Command[Any]], proceed: Proceed
) -> list[Answer]:
    if not chain:
        return list(proceed(commands))
    batch = Batch(commands)
    try:
        manager = chain[0].dispatch(batch)
        manager.__enter__()
    except CommandError as error:
        return [error] * len(batch.commands)
    try:
        answers = batch.carry_out(lambda allowed: _through(chain[1:], allowed, proceed))
    except BaseException as error:
        _leave(manager, error)
        raise
    _leave(manager, None)
    return answers


class EnteredBodies:
    """The interceptors around one body, as they are entered and left."""

    def __init__(self) -> None:
        self._managers: list[AbstractContextManager[object]] = []

    def enter(self, interceptors: Iterable[BodyInterceptor], call: BodyCall) -> None:
        """Enter them. Raises what one raises; those before it are still to be left."""
        for interceptor in interceptors:
            manager = interceptor.body(call)
            manager.__enter__()
            self._managers.append(manager)

    def leave(self) -> None:
        """Leave them: the body has given what it had to give."""
        for manager in reversed(self._managers):
            _leave(manager, None)

    def leave_failed(self, error: BaseException) -> BaseException:
        """Leave them, and return what the attempt failed by: the error, or what one has raised in its place."""
        for manager in reversed(self._managers):
            error = _leave(manager, error) or error
        return error


async def within(
    interceptors: tuple[BodyInterceptor, ...], call: Callable[[], BodyCall], act: Callable[[], Awaitable[R]]
) -> R:
    """Do something within interceptors. What they set in the context is seen by it, also in a thread."""
    if not interceptors:
        return await act()
    entered = EnteredBodies()
    try:
        entered.enter(interceptors, call())
        result = await act()
    except BaseException as error:
        failed = entered.leave_failed(error)
        if failed is error:
            raise
        raise failed from error
    entered.leave()
    return result


def _leave(manager: AbstractContextManager[object], error: BaseException | None) -> BaseException | None:
    """Leave a context manager; return what it raised in place of the error. It can't make an error undone."""
    kind = None if error is None else type(error)
    try:
        manager.__exit__(kind, error, None if error is None else error.__traceback__)
    except Exception as raised:  # noqa: BLE001  # whatever it is, what was done is done
        if raised is not error:
            _log.exception("an interceptor raised on the way out")
            return cast("BaseException", raised)
    return None
