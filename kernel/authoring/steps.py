"""`@step`: makes a function whose calls a durable function records. Anywhere else it is called as usual."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Mapping
from contextvars import copy_context
from datetime import timedelta
from typing import (
    Any,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    Self,
    TypeAlias,
    TypedDict,
    Unpack,
    cast,
    overload,
)

import attrs
from typing_extensions import TypeVar, get_type_hints

from holdfast.kernel.authoring.body_types import Shape, is_async_body
from holdfast.kernel.authoring.call_types import CallForm, read_call_form
from holdfast.kernel.authoring.nodes import In
from holdfast.kernel.authoring.options import (
    Rate,
    Retry,
    Slots,
    check_limits,
    check_name,
    check_options,
    to_timedelta,
)
from holdfast.kernel.authoring.stages import Stage
from holdfast.kernel.authoring.transactions import Statements, read_transaction_form
from holdfast.kernel.functions.call_sites import call_site
from holdfast.kernel.functions.loop import FunctionLoop, loop_for, running_loop
from holdfast.kernel.functions.protocol import StepRequest
from holdfast.kernel.functions.sagas import Compensation
from holdfast.kernel.values import check_type, decode
from holdfast.kernel.values.type_forms import Form
from holdfast.ports.durations import Duration
from holdfast.ports.errors import DefinitionError, InvalidValueError, NoTransactionError

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
Out = TypeVar("Out", covariant=True)
Db = TypeVar("Db", bound=Statements)

# Not Awaitable: see `holdfast.kernel.authoring.decorators`.
Async: TypeAlias = Coroutine[Any, Any, R]


class StepOptions(TypedDict, total=False):
    """Options of `@step`. Durations are timedeltas or numbers of seconds."""

    name: str
    """Name of the step in the history. Default: the name of the function."""
    retry: Retry
    """Retry policy. Default: `Retry()`."""
    timeout: Duration
    """Time limit of one attempt."""
    heartbeat_timeout: Duration
    """Longest time without a heartbeat of the body before the attempt counts as lost, at least five seconds."""
    queue: str
    """Queue of the step: each call is a job, for any worker that serves the queue and knows a step of this name."""
    priority: int
    """With `queue`: head start in it, one minute per step. Default: the priority of the run."""
    max_concurrency: int | Slots
    """With `queue`: how many calls are active at a time, in all runs of a namespace, over all workers.

    With `Slots(10, name="gpu")`, how many of all stages and steps with this name.
    """
    rate_limit: Rate
    """With `queue`: how many calls start in a period, counted in the same way."""


@attrs.define(eq=False)
class _CompensationSpec:
    """The compensation of a step."""

    step: "Step[..., object] | None" = None
    """The step that compensates, or None."""
    names: tuple[str, ...] = ()
    """Names of the arguments that it takes after the result."""
    takes_unknown: bool = False
    """Whether it accepts None for an unknown result."""


def _returns_awaitable(step: "Step[..., object]") -> bool:
    return is_async_body(step.body)


@attrs.frozen(kw_only=True, eq=False)
class Step(Generic[P, Out]):
    """A function with `@step`. A durable function awaits its calls, and records their results.

    For the options see `StepOptions`.
    """

    name: str
    """Name of the step in the history."""
    body: Callable[..., object]
    """The decorated function."""
    form: CallForm
    """How the arguments and the result are stored."""
    transaction: type | None = None
    """Class of the connection or session that the body takes first, for a step in a transaction of the store."""
    retry: Retry | None = None
    timeout: timedelta | None = attrs.field(default=None, converter=to_timedelta)
    heartbeat_timeout: timedelta | None = attrs.field(default=None, converter=to_timedelta)
    queue: str | None = None
    priority: int | None = None
    max_concurrency: int | Slots | None = None
    rate_limit: Rate | None = None
    _undo: _CompensationSpec = attrs.field(factory=_CompensationSpec, alias="_undo", repr=False)
    is_async: bool = attrs.field(
        init=False, repr=False, default=attrs.Factory(_returns_awaitable, takes_self=True)
    )
    """Whether the body is async."""

    # Not Coroutine[Any, Any, Out]: mypy could not infer the types of `asyncio.gather` of several steps.
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[object, None, Out]:
        """In a durable function, run the step once and record its result. Anywhere else, call the body.

        Raises:
            TypeError: The function does not take these arguments.
            InvalidValueError: In a durable function, an argument does not have the type of its parameter.
            UnstorableValueError: In a durable function, an argument can't be stored.
            NoTransactionError: The step runs in a transaction of the store, and was not called by a durable function.
        """
        loop = running_loop()
        coroutine: Any
        if loop is None:
            coroutine = self._call_body(*args, **kwargs)
        else:
            request = self._request(loop, args, kwargs)
            coroutine = loop.made(request, self._run_recorded(loop, request))
        coroutine.__qualname__ = self.name  # for messages about tasks, and about calls that were not awaited
        made: Coroutine[object, None, Out] = coroutine
        return made

    def compensate(
        self, undo: "Callable[Concatenate[Out, Q], Async[None]] | Callable[Concatenate[Out, Q], None]", /
    ) -> "Step[Concatenate[Out, Q], None]":
        """Register a function or a step that undoes this step if the run fails or is cancelled: `@charge.compensate`.

        It takes the step's result, and by name any of the step's arguments. It is retried by its own options. If it
        fails for good, the run is blocked until someone resumes it.

        If it accepts None as the result, it is also called when it is unknown whether the step took place: the step was
        cancelled with the run, timed out, or lost its worker. Otherwise the outcome of the step is awaited first.

        Example:
            @charge.compensate
            async def refund(receipt: str, cents: int) -> None: ...

        Raises:
            DefinitionError: Its parameters do not match the step's result and arguments, or the step has a
                compensation.
        """
        given: object = undo
        made = cast("Step[Any, None]", given if isinstance(given, Step) else _make_step(given, {}))
        if self._undo.step is not None:
            raise DefinitionError(f"step {self.name!r} already has the compensation {self._undo.step.name!r}")
        self._undo.names = self._compensation_arguments(made.form)
        self._undo.takes_unknown = _takes_none(made.form)
        self._undo.step = made
        return made

    def _compensation_arguments(self, form: CallForm) -> tuple[str, ...]:
        names = tuple(form.signature.parameters)
        if not names:
            raise DefinitionError(
                f"the compensation of step {self.name!r} must take its result as the first parameter"
            )
        ours = self.form.hints
        for name in names[1:]:
            if name not in ours or form.hints[name] != ours[name]:
                raise DefinitionError(
                    f"the compensation of step {self.name!r} takes {name!r}; besides the result it can take the step's"
                    f" parameters with the same name and type: {', '.join(ours) or 'nothing'}"
                )
        return names[1:]

    def _request(
        self, loop: FunctionLoop, args: tuple[object, ...], kwargs: Mapping[str, object], undoes: str = ""
    ) -> StepRequest:
        # Positional, because keywords take twice as long, and this runs for each row of a replay (docs/decisions/0045).
        return StepRequest(
            loop.next_call(),
            self.name,
            self.form.encode(args, kwargs),
            self,
            call_site(2),
            undoes,
            self.queue,
            copy_context() or None,
        )

    def _register_compensation(self, loop: FunctionLoop, request: StepRequest) -> Compensation | None:
        """Register the compensation of a call and return it; None if the step has none."""
        undo, undoing = self._undo, self._undo.step
        if undoing is None:
            return None

        async def run_compensation(output: str | None) -> object:
            result = None if output is None else await self._read(loop, output, due.row)
            bound = await read_arguments()
            bound.apply_defaults()
            named = {name: bound.arguments[name] for name in undo.names}
            return await undoing.run_as_compensation(loop, (result,), named, request.call)

        async def read_arguments() -> inspect.BoundArguments:
            """Return the recorded arguments: a replay with new code might compute other ones."""
            try:
                return self.form.decode(loop.step_arguments.get(request.call, request.arguments))
            except Exception as error:  # noqa: BLE001  # a user's class may raise anything
                loop.halt(f"the arguments of step {self.name!r}", due.row or None, error)
            return await loop.never()

        async def read(output: str, row: int) -> None:
            await self._read(loop, output, row)
            await read_arguments()

        due = Compensation(f"step {self.name!r}", run_compensation, undo.takes_unknown, read=read)
        return loop.saga.expect(due)

    async def _read(self, loop: FunctionLoop, output: str, row: int) -> Out:
        """Return the result of a call from its JSON text. If it can't be read, halt the function."""
        try:
            return cast("Out", decode(output, self.form.output))
        except Exception as error:  # noqa: BLE001  # a user's class may raise anything
            loop.halt(f"the result of step {self.name!r}", row or None, error)
        return await loop.never()

    async def run_as_compensation(
        self, loop: FunctionLoop, args: tuple[object, ...], kwargs: Mapping[str, object], call: str
    ) -> object:
        """Compensate a call with this step, in a durable function."""
        return await loop.submit(self._request(loop, args, kwargs, call))

    def options(self, **changes: Unpack[StepOptions]) -> Self:
        """Return a copy of the step with other options: `charge.options(timeout=5)`.

        Raises:
            InvalidArgumentError: An option is unknown.
            DefinitionError: The value of an option is invalid, or the step has a queue: its workers apply the options
                of the definition, not those of a call.
        """
        check_options(changes, StepOptions, f"step {self.name!r}")
        _check_queue(f"step {self.name!r}", changes)
        if self.queue is not None or "queue" in changes:
            raise DefinitionError(
                f"step {self.name!r}: a worker finds a queued step by its name only; set"
                " its options in @step(...), or define another step"
            )
        return attrs.evolve(self, **cast("Any", changes))

    async def _run_recorded(self, loop: FunctionLoop, request: StepRequest) -> Out:
        future = loop.submit(request)
        due = None if self._undo.step is None else self._register_compensation(loop, request)
        # A compensation that needs the result must get it, so a cancellation does not stop such a step.
        is_shielded = due is not None and not due.takes_unknown
        if due is not None and is_shielded:
            due.future = future
        try:
            output = await (asyncio.shield(future) if is_shielded else future)
        except asyncio.CancelledError:
            if due is None or not is_shielded:
                loop.drop(request.call)
            else:
                future.add_done_callback(lambda _: setattr(due, "row", loop.row))
            raise
        except Exception as error:
            if due is not None:
                loop.saga.failed(due, error)
            raise
        if due is not None:
            due.output, due.row = output, loop.row
        try:  # inlined `_read`, because this runs for each row of a replay
            return cast("Out", decode(output, self.form.output))
        except Exception as error:  # noqa: BLE001  # a user's class may raise anything
            loop.halt(f"the result of step {self.name!r}", loop.row, error)
        return await loop.never()

    async def _call_body(self, *args: P.args, **kwargs: P.kwargs) -> Out:
        if self.transaction is not None:
            raise NoTransactionError(
                f"outside of a workflow there is no transaction; call `{self.name}.body(connection, ...)` with your own"
            )
        result = self.body(*args, **kwargs)
        return cast("Out", await result if inspect.isawaitable(result) else result)

    @property
    def records_arguments(self) -> bool:
        """Whether the arguments are recorded with the result, because the compensation takes some of them."""
        return bool(self._undo.names)

    @property
    def compensation(self) -> "Step[..., object] | None":
        """The compensation of this step, if it has one."""
        return self._undo.step


@attrs.frozen(kw_only=True, eq=False, repr=False)
class StepStage(Stage[In, Out], Generic[In, Out]):
    """A step in a queue, as the stage that its job runs."""

    step: Step[..., object]


def stage_of_step(step: Step[..., Any]) -> StepStage[Any, object]:
    """Return the stage that the job of a step in a queue runs."""
    form = step.form
    shape = Shape(
        takes_context=False, config_type=None, values=1, input_type=form.arguments, output_type=form.output
    )
    return StepStage[Any, object](
        name=step.name,
        input_type=form.arguments,
        output_type=form.output,
        body=step.body,
        shape=shape,
        timeout=step.timeout,
        step=cast("Step[..., object]", step),
    )


@attrs.frozen(eq=False)
class StepDecorator:
    """The class of `@step`. With options only it makes a preset: `careful = step(retry=...)`, then `@careful`."""

    _options: Mapping[str, object] = attrs.field(factory=dict[str, object])

    @overload
    def __call__(self, fn: Callable[P, Async[R]], /) -> Step[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Step[P, R]: ...
    @overload
    def __call__(self, /, **options: Unpack[StepOptions]) -> "StepDecorator": ...
    def __call__(self, fn: object = None, /, **options: Unpack[StepOptions]) -> object:
        """Make a step of a function. With options only, return a decorator that applies them.

        Raises:
            DefinitionError: An annotation is missing, values of a type can't be stored, or the value of an option is
                invalid.
            InvalidArgumentError: An option is unknown.
        """
        check_options(options, StepOptions, "step")
        all_options = {**self._options, **options}
        return StepDecorator(all_options) if fn is None else _make_step(fn, all_options)

    @overload
    def in_transaction(self, fn: Callable[Concatenate[Db, P], Async[R]], /) -> Step[P, R]: ...
    @overload
    def in_transaction(self, fn: Callable[Concatenate[Db, P], R], /) -> Step[P, R]: ...
    def in_transaction(self, fn: Callable[Concatenate[Db, P], object], /) -> Step[P, object]:
        """Make a step of a function that writes to the run's own store: `@step.in_transaction`.

        The first parameter is a `sqlalchemy.Connection` or a `sqlalchemy.orm.Session` in a transaction; calls leave it
        out. What the function writes is committed together with the step's result, or not at all.

        An async function gets an `AsyncConnection` or an `AsyncSession` of `sqlalchemy.ext.asyncio`, which needs the
        extra `asyncio`. It runs in a thread, on an asyncio loop of its own, whatever loop the worker has: objects that
        belong to another loop can't be used in it.

        Example:
            @step.in_transaction
            def reserve(connection: Connection, item: str) -> int: ...

            @step.in_transaction
            async def pay(session: AsyncSession, cents: int) -> None: ...

        Raises:
            DefinitionError: As `@step`; or the first parameter has another type.
        """
        return cast("Step[P, object]", _make_step(fn, dict(self._options), in_transaction=True))


def _make_step(
    fn: object, step_options: dict[str, object], *, in_transaction: bool = False
) -> Step[Any, object]:
    if not inspect.isroutine(fn) or not callable(fn):
        raise DefinitionError(f"a step needs a function, or a method of an object, not {fn!r}")
    body = cast("Callable[..., object]", fn)
    if in_transaction and "queue" in step_options:
        raise DefinitionError(
            f"step {body.__name__!r} has a queue: what is done in a transaction of the store runs where its function"
            " is driven; leave one of the two out"
        )
    name = step_options.pop("name", body.__name__)
    check_name(name, f"the name of the step {body.__qualname__}")
    what = f"step {name!r}"
    _check_queue(what, step_options)
    form, transaction = (
        read_transaction_form(body, what) if in_transaction else (read_call_form(body, what), None)
    )
    options = cast("Any", step_options)
    return Step[Any, object](name=cast("str", name), body=body, form=form, transaction=transaction, **options)


def _check_queue(what: str, options: Mapping[str, object]) -> None:
    only = [option for option in ("priority", "max_concurrency", "rate_limit") if option in options]
    if only and "queue" not in options:
        raise DefinitionError(
            f"{what} has {only[0]} but no queue, so it runs in the worker of its workflow: set queue=, or leave"
            f" {only[0]} out"
        )
    check_limits(what, options.get("max_concurrency"), cast("Rate | None", options.get("rate_limit")))


def make_untyped_step(fn: Callable[[], object], name: str) -> Step[[], object]:
    """Return a step that calls a function. Without an annotation, the result is plain JSON."""
    form = CallForm(
        what=name,
        signature=inspect.Signature(),
        hints={},
        arguments=cast("Any", TypedDict)(name, {}),
        output=_output_form(fn),
    )
    return Step[[], object](name=name, body=fn, form=form)


def _output_form(fn: Callable[[], object]) -> Form:
    try:
        form = cast("dict[str, Form]", get_type_hints(fn, include_extras=True)).get("return", object)
    except (NameError, TypeError, AttributeError):
        form = object
    check_type(form)
    return form


def make_compensation(
    undo: Step[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> Compensation:
    """Return a compensation that calls a step with these arguments. Raises TypeError or UnstorableValueError."""
    loop = loop_for("a step with a compensation")
    text = undo.form.encode(args, kwargs)

    def take_back(_: str | None) -> Coroutine[Any, Any, object]:
        bound = undo.form.decode(text)
        return undo.run_as_compensation(loop, bound.args, bound.kwargs, "")

    return Compensation(f"compensation {undo.name!r}", take_back)


def _takes_none(form: CallForm) -> bool:
    """Return whether the first parameter of a step accepts None."""
    first = next(iter(form.signature.parameters))
    try:
        decode("null", form.hints[first])
    except InvalidValueError:
        return False
    return True


step: Final = StepDecorator()
"""The decorator that makes a step of a sync or async function: `@step`, or with options `@step(timeout=5)`.

A durable function calls the step, and its result is recorded: after a crash a completed step is not run again.

Example:
    @step(retry=Retry(attempts=5))
    async def charge(order: Order) -> str: ...
"""
