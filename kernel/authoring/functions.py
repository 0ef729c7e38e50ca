"""`@workflow`: a durable function, and what it may use beside asyncio."""

import inspect
from asyncio import sleep as _sleep
from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime
from functools import cached_property, partial
from hashlib import sha256
from random import Random
from types import MappingProxyType
from typing import Any, Final, Generic, ParamSpec, TypeAlias, TypedDict, Unpack, cast, overload
from uuid import UUID

import attrs
from typing_extensions import TypeVar, override

from holdfast.kernel.authoring.body_types import Shape
from holdfast.kernel.authoring.call_types import CallForm, read_call_form
from holdfast.kernel.authoring.calls import Call, Definition
from holdfast.kernel.authoring.nodes import In
from holdfast.kernel.authoring.options import check_name, check_options
from holdfast.kernel.authoring.pipeline_builder import Test
from holdfast.kernel.authoring.stages import Stage
from holdfast.kernel.authoring.steps import Step, compensating, step_of_anything
from holdfast.kernel.functions.loop import FunctionLoop, loop_for
from holdfast.kernel.functions.machine import FunctionMachine
from holdfast.kernel.pipelines.plan import Group, Plan, RetryPolicy, StagePlan
from holdfast.kernel.values import encode
from holdfast.ports.clock import instant, micros
from holdfast.ports.durations import NO_TIME, Duration
from holdfast.ports.errors import DefinitionError, InvalidValueError, UnreadableValueError
from holdfast.ports.records import Micros
from holdfast.ports.validation import duration

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Out = TypeVar("Out", covariant=True)

_INPUT_ROW: Final = 1
"""The row of a history that has what the run was given."""

# Not Awaitable: see `holdfast.kernel.authoring.decorators`.
Async: TypeAlias = Coroutine[Any, Any, R]


@attrs.frozen(kw_only=True, eq=False, repr=False)
class FunctionStage(Stage[In, Out], Generic[In, Out]):
    """The one stage that a durable function is, as a workflow: its job drives it."""

    workflow: "Workflow[..., object]"


class WorkflowOptions(TypedDict, total=False):
    """What `@workflow` takes."""

    name: str
    version: str


class Workflow(Definition[Out], Generic[P, Out]):
    """A durable function. Called, it gives a `Call`: what an engine starts a run with."""

    def __init__(
        self, function: Callable[..., Async[Out]], form: CallForm, *, name: str, version: str
    ) -> None:
        self._function = function
        self._form = form
        self._name = name
        self._version = version

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Call[Out]:
        """Say what to run it with. TypeError if it can't be called so."""
        return Call(self, self._form.bind(args, kwargs))

    @property
    def function(self) -> Callable[..., object]:
        """What was made a workflow."""
        return self._function

    @property
    @override
    def name(self) -> str:
        return self._name

    @property
    @override
    def version(self) -> str:
        return self._version

    @property
    @override
    def input_type(self) -> object:
        return self._form.arguments

    @property
    @override
    def output_type(self) -> object:
        return self._form.output

    @override
    def input_text(self, value: object) -> str:
        if isinstance(value, dict):  # what is none is refused, with what it must be
            value = self._form.completed(cast("dict[str, object]", value))
        return encode(value, self._form.arguments)

    @property
    @override
    def stage_type(self) -> object:
        names = self.stage_parameters
        hints = tuple(self._form.hints[name] for name in names)
        if not hints:
            return object
        return hints[0] if len(hints) == 1 else cast("Any", tuple)[hints]

    @property
    @override
    def stage_parameters(self) -> tuple[str, ...]:
        required = [
            one
            for one in self._form.signature.parameters.values()
            if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        ]
        for one in required:
            if one.kind is one.KEYWORD_ONLY:
                raise DefinitionError(
                    f"stage({self.name}): parameter {one.name!r} must be given by name, and a stage has no names to"
                    " give; give it a default"
                )
        return tuple(one.name for one in required)

    @cached_property
    def bodies(self) -> Mapping[str, Stage[Any, object]]:
        """The one stage that it is, by its name."""
        shape = Shape(
            takes_context=False,
            config_type=None,
            values=1,
            input_type=self._form.arguments,
            output_type=self._form.output,
        )
        stage = FunctionStage[Any, object](
            name=self.name,
            input_type=shape.input_type,
            output_type=shape.output_type,
            body=self._function,
            shape=shape,
            workflow=cast("Workflow[..., object]", self),
        )
        return MappingProxyType({self.name: stage})

    @property
    def tests(self) -> Mapping[str, Test]:
        """Nothing: a function decides by itself."""
        return MappingProxyType({})

    @cached_property
    def _plan(self) -> Plan:
        stage = StagePlan(name=self.name, retry=RetryPolicy(attempts=1), function=True)
        return Plan(workflow=self.name, version=self.version, groups=(Group(nodes=(stage,)),))

    def plan(self) -> Plan:
        """Return what is stored of it: that it is a function, and nothing of its code."""
        return self._plan

    def machine(self, text: str, *, began_at: Micros, seed: str) -> FunctionMachine:
        """Return what drives one run of it, which has got the arguments of this JSON text. UnreadableValueError."""
        try:
            args, kwargs = self._form.arguments_from(text)
        except InvalidValueError as error:
            raise UnreadableValueError("what the run was given", _INPUT_ROW, error.problems) from error
        call = partial(self._function, *args, **kwargs)
        return FunctionMachine(call, self._encoded, began_at=began_at, seed=seed)

    def _encoded(self, value: object) -> str:
        return encode(value, self._form.output)


class WorkflowDecorator:
    """`@workflow`, `@workflow(version="2")`."""

    @overload
    def __call__(self, fn: Callable[P, Async[R]], /) -> Workflow[P, R]: ...
    @overload
    def __call__(
        self, /, **options: Unpack[WorkflowOptions]
    ) -> "Callable[[Callable[P, Async[R]]], Workflow[P, R]]": ...
    def __call__(self, fn: object = None, /, **options: Unpack[WorkflowOptions]) -> object:
        """Make a durable function of an async function, or, given options, a decorator that does so with them.

        Raises:
            DefinitionError: The function is not async, its annotations do not say what it takes and gives, or no value
                of such a type can be stored.
            TypeError: There is no such option.
        """
        check_options(options, WorkflowOptions, "workflow")
        return partial(_made, options) if fn is None else _made(options, fn)


def _made(options: WorkflowOptions, fn: object) -> Workflow[Any, object]:
    if not inspect.isfunction(fn) or not inspect.iscoroutinefunction(fn):
        raise DefinitionError(f"a workflow is made of an async function, not of {fn!r}; write `async def`")
    function = cast("Callable[..., Async[object]]", fn)
    name = options.get("name", function.__name__)
    version = options.get("version", "1")
    check_name(name, f"the name of the workflow {function.__qualname__}")
    check_name(version, f"the version of workflow {name!r}")
    form = read_call_form(function, f"workflow {name!r}")
    return Workflow[Any, object](function, form, name=name, version=version)


workflow: Final = WorkflowDecorator()
"""The decorator that makes a durable function of an async function."""


# In a durable function --------------------------------------------------------------------------------------------


def now() -> datetime:
    """Return the run's time: that of what it was last told. The same in every replay. RuntimeError outside of one."""
    return instant(loop_for("holdfast.now()").now)


def uuid4() -> UUID:
    """Return a UUID that looks random, and is the same in every replay. RuntimeError outside of a workflow."""
    return UUID(bytes=_drawn(loop_for("holdfast.uuid4()"), "uuid4")[:16], version=4)


def random() -> Random:
    """Return a source of what looks random, and is the same in every replay; each call gives another one.

    Use it as any `random.Random`: `holdfast.random().choice(names)`. RuntimeError outside of a workflow.
    """
    return Random(int.from_bytes(_drawn(loop_for("holdfast.random()"), "random")))  # noqa: S311  # no secrets


def patched(name: str, /) -> bool:
    """Whether this run has a change of the code, by a name of your own: so old runs go on as they began.

    Write the new code under `if patched("..."):` and the old one under `else:`. Runs that come to it from now on have
    the change, and keep it; those that went past it before have not. The same of one name all through a run. Once no
    run is left that has not, take the old code away, and the call with it.

    Raises:
        DefinitionError: The name can't be one.
        RuntimeError: It is called outside of a workflow.
    """
    check_name(name, "the name of a patch")
    loop = loop_for("holdfast.patched()")
    return loop.patches.has(name, is_replaying=loop.is_replaying)


async def side_effect(fn: Callable[[], T], /) -> T:
    """Call a function once, and have what it gave in every replay: short for a step without a name.

    It is called in a thread, as the body of any sync step without options. Its result is what its annotation says, or
    any plain JSON if it has none.

    Raises:
        RuntimeError: It is called outside of a workflow.
        Whatever the function raises.
    """
    loop_for("holdfast.side_effect()")
    return cast("T", await step_of_anything(fn, "side_effect")())


def _drawn(loop: FunctionLoop, what: str) -> bytes:
    return sha256(f"{loop.seed}/{what}/{loop.next_call()}".encode()).digest()


async def sleep(how_long: Duration, /) -> None:
    """Let time pass, days or years: nothing of the run needs to be in memory meanwhile.

    `how_long` is a timedelta, or a number of seconds; InvalidArgumentError if it is neither.
    """
    await _sleep(duration("sleep", "how_long", how_long, least=NO_TIME).total_seconds())


async def sleep_until(when: datetime, /) -> None:
    """Let time pass until an instant, an aware datetime. RuntimeError outside of a workflow."""
    loop = loop_for("holdfast.sleep_until()")
    await _sleep((micros(when) - loop.now) / 1_000_000)


def compensate_with(undo: Step[P, object], /, *args: P.args, **kwargs: P.kwargs) -> None:
    """Have a step done should this run fail or be cancelled, beside those of `@step.compensate`, in reverse order.

    Raises:
        TypeError: The step can't be called so.
        RuntimeError: It is called outside of a workflow.
    """
    loop = loop_for("holdfast.compensate_with()")
    loop.saga.expect(compensating(undo, args, kwargs))
