"""Interceptors around the dispatch of commands, bodies and durable functions: for logging, tracing, policies.

All are context managers. An exception on entering refuses the batch, fails the attempt, or blocks the run of the
function. An exception on leaving is logged, and the stored result stands: an interceptor can't lose acknowledged work.
Those of starts are in `start_calls.py`.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

import attrs

from holdfast.hosts.wiring.start_calls import StartInterceptor
from holdfast.kernel.commands import Command
from holdfast.kernel.functions.machine import FunctionMachine
from holdfast.kernel.functions.run_facts import RunFacts
from holdfast.kernel.history.exceptions import error_words
from holdfast.kernel.pipelines.headers import headers_of
from holdfast.ports.errors import CommandError, InvalidArgumentError
from holdfast.ports.json import parse
from holdfast.ports.validation import several

R = TypeVar("R")

Answer: TypeAlias = object | CommandError
Proceed: TypeAlias = Callable[[Sequence[Command[Any]]], Sequence[Answer]]

_log: Final = logging.getLogger("holdfast.interceptors")


class CommandBatch:
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
        """Refuse a command: it gets this error as its answer and is not executed.

        Raises:
            ValueError: The command is not in this batch, or the batch was dispatched already.
        """
        place = next((place for place, one in enumerate(self._commands) if one is command), None)
        if place is None or self._answers is not None:
            raise ValueError("refuse takes a command of this batch, before the batch is executed")
        self._refused[place] = error

    @property
    def answers(self) -> tuple[Answer, ...]:
        """The reply or CommandError for each command. Raises RuntimeError before the batch is dispatched."""
        if self._answers is None:
            raise RuntimeError("the batch has no replies: it was not executed, or not yet")
        return self._answers

    def carry_out(self, proceed: Proceed) -> list[Answer]:
        """Dispatch the commands that are not refused, and return all answers. Called by the engine."""
        allowed = [one for place, one in enumerate(self._commands) if place not in self._refused]
        replies = iter(proceed(allowed) if allowed else ())
        places = range(len(self._commands))
        answers = [self._refused[place] if place in self._refused else next(replies) for place in places]
        self._answers = tuple(answers)
        return answers


@attrs.frozen(kw_only=True)
class BodyCall:
    """A call of the body of a stage or step that is about to run.

    (`job`, `epoch`) identifies the attempt of a stage. The steps of a durable function share the job and epoch that
    drive the function; (`idempotency_key`, `attempt`) identifies the attempt of a step.

    Attributes:
        namespace: The namespace.
        job: The id of the job.
        run_id: The run id.
        workflow: The name of the workflow.
        version: The version of the workflow.
        stage: The stage; for a step, the name of its durable function.
        item: The index of the map item; None if the stage is not mapped.
        attempt: The number of the attempt, from 1.
        max_attempts: The maximum number of attempts; None for no limit.
        epoch: The epoch of the job.
        queue: The queue of the job.
        idempotency_key: The same as in the context of the body.
        step: The name of the step; None for a stage.
        attributes: The attributes of the run, by name.
        headers: The headers of the run, by name.
    """

    namespace: str
    job: str
    run_id: str
    workflow: str
    version: str
    stage: str
    item: int | None
    attempt: int
    max_attempts: int | None
    epoch: int
    queue: str
    idempotency_key: str
    step: str | None = None
    attributes: Mapping[str, str] = attrs.field(factory=dict[str, str], hash=False)
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str], hash=False)


@attrs.frozen(kw_only=True)
class FunctionCall:
    """A durable function that is about to be called, for the first time or for a replay.

    Attributes:
        namespace: The namespace.
        run_id: The run id.
        workflow: The name of the workflow.
        version: The version of the workflow.
        generation: The generation of the run, from 1.
        parent: The id of the run that started it as a child run; None if none did.
        attributes: The attributes of the run, by name.
        headers: The headers of the run, by name.
    """

    namespace: str
    run_id: str
    workflow: str
    version: str
    generation: int
    parent: str | None
    attributes: Mapping[str, str] = attrs.field(hash=False)
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str], hash=False)


@runtime_checkable
class DispatchInterceptor(Protocol):
    """An interceptor with a method `dispatch`, which wraps a batch of commands. Called from any thread."""

    def dispatch(self, batch: CommandBatch, /) -> AbstractContextManager[object]:
        """Return a context manager around the dispatch. An exception on entering it refuses the whole batch."""
        ...


@runtime_checkable
class BodyInterceptor(Protocol):
    """An interceptor with a method `body`, which wraps the body of a stage or step.

    It is called on the event loop, and must not block.
    """

    def body(self, call: BodyCall, /) -> AbstractContextManager[object]:
        """Return a context manager around the body. An exception on entering it fails the attempt without a call."""
        ...


@runtime_checkable
class FunctionInterceptor(Protocol):
    """An interceptor with a method `function`, which wraps a durable function for as long as it is in memory.

    It is called again for each replay, in any thread, and must neither block nor do any input or output.
    """

    def function(self, call: FunctionCall, /) -> AbstractContextManager[object]:
        """Return a context manager around the function. An exception on entering it blocks the run."""
        ...


Interceptor: TypeAlias = DispatchInterceptor | BodyInterceptor | FunctionInterceptor | StartInterceptor

_METHODS: Final = "with a method `dispatch`, `body`, `function` or `start`"


class FunctionRefusedError(Exception):
    """An interceptor raised on entering a durable function. Its text names that exception, which is its cause."""


def check_interceptors(interceptors: Iterable[Interceptor]) -> tuple[Interceptor, ...]:
    """Return the interceptors as a tuple. Raises InvalidArgumentError if one has none of the methods."""
    words = f"a list of interceptors, which are objects {_METHODS}"
    checked = several("Engine", "interceptors", interceptors, words)
    for one in checked:
        kinds = DispatchInterceptor | BodyInterceptor | FunctionInterceptor | StartInterceptor
        if isinstance(one, type) or not isinstance(one, kinds):
            raise InvalidArgumentError("interceptors", f"an interceptor is an object {_METHODS}, not {one!r}")
    return checked


def around_dispatch(
    interceptors: Iterable[Interceptor],
) -> Callable[[Sequence[Command[Any]], Proceed], list[Answer]] | None:
    """Return a function that wraps interceptors around a dispatch, the first outermost; None without any."""
    chain = tuple(one for one in interceptors if isinstance(one, DispatchInterceptor))
    if not chain:
        return None

    def around(commands: Sequence[Command[Any]], proceed: Proceed) -> list[Answer]:
        return _through(chain, commands, proceed)

    return around


def around_bodies(interceptors: Iterable[Interceptor]) -> tuple[BodyInterceptor, ...]:
    """Return the interceptors that wrap bodies, the first outermost."""
    return tuple(one for one in interceptors if isinstance(one, BodyInterceptor))


def around_functions(interceptors: Iterable[Interceptor]) -> tuple[FunctionInterceptor, ...]:
    """Return the interceptors that wrap durable functions, the first outermost."""
    return tuple(one for one in interceptors if isinstance(one, FunctionInterceptor))


def enter_function(
    machine: FunctionMachine, interceptors: Sequence[FunctionInterceptor], namespace: str, run: RunFacts
) -> None:
    """Enter the interceptors of a function, and leave them when it leaves memory. FunctionRefusedError."""
    if interceptors:
        machine.enter(lambda: _entered(interceptors, _function_call(namespace, run)))


def entering(
    interceptors: Iterable[Interceptor], namespace: str, run: RunFacts
) -> Callable[[FunctionMachine], None]:
    """Return what enters the interceptors of a durable function that is replayed for a query, for example."""
    around = around_functions(interceptors)
    return lambda machine: enter_function(machine, around, namespace, run)


def attributes_of(stored: str | None) -> Mapping[str, str]:
    """Return the attributes of a run, which are stored as JSON text or None."""
    return {} if stored is None else cast("dict[str, str]", parse(stored))


def _function_call(namespace: str, run: RunFacts) -> FunctionCall:
    return FunctionCall(
        namespace=namespace,
        run_id=run.id,
        workflow=run.workflow,
        version=run.version,
        generation=run.generation,
        parent=run.parent,
        attributes=attributes_of(run.attributes),
        headers=headers_of(run.headers),
    )


def _entered(interceptors: Iterable[FunctionInterceptor], call: FunctionCall) -> Callable[[], None]:
    entered = Entered()
    try:
        for interceptor in interceptors:
            entered.enter_one(interceptor.function(call))
    except Exception as error:  # noqa: BLE001  # an interceptor may raise anything
        failed = entered.leave_failed(error)
        raise FunctionRefusedError(f"an interceptor of the function raised {error_words(failed)}") from failed
    return entered.leave


def _through(
    chain: tuple[DispatchInterceptor, ...], commands: Sequence[Command[Any]], proceed: Proceed
) -> list[Answer]:
    if not chain:
        return list(proceed(commands))
    batch = CommandBatch(commands)
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


class Entered:
    """The interceptors that were entered around one body or durable function."""

    def __init__(self) -> None:
        self._managers: list[AbstractContextManager[object]] = []

    def enter(self, interceptors: Iterable[BodyInterceptor], call: BodyCall) -> None:
        """Enter the interceptors. If one raises, those before it must still be left."""
        for interceptor in interceptors:
            self.enter_one(interceptor.body(call))

    def enter_one(self, manager: AbstractContextManager[object]) -> None:
        """Enter a context manager, within those before it."""
        manager.__enter__()
        self._managers.append(manager)

    def leave(self) -> None:
        """Leave the interceptors."""
        for manager in reversed(self._managers):
            _leave(manager, None)

    def leave_failed(self, error: BaseException) -> BaseException:
        """Leave the interceptors after an error; return it, or the exception that one raised in its place."""
        for manager in reversed(self._managers):
            error = _leave(manager, error) or error
        return error


async def within(
    interceptors: tuple[BodyInterceptor, ...], call: Callable[[], BodyCall], act: Callable[[], Awaitable[R]]
) -> R:
    """Run `act` within interceptors. It sees the context variables that they set, also in a thread."""
    if not interceptors:
        return await act()
    entered = Entered()
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
    """Leave a context manager; return the exception that it raised instead of `error`. It can't suppress `error`."""
    kind = None if error is None else type(error)
    try:
        manager.__exit__(kind, error, None if error is None else error.__traceback__)
    except Exception as raised:  # noqa: BLE001  # the work inside is done already
        if raised is not error:
            _log.exception("an interceptor raised on the way out")
            return cast("BaseException", raised)
    return None
