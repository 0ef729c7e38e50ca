"""`@workflow`, which makes functions durable, and helpers for them: `now`, `sleep`, `random`, `patched`, ..."""

import inspect
from asyncio import sleep as _sleep
from collections.abc import Callable, Coroutine, Mapping, Sequence
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
from holdfast.kernel.authoring.calls import Call, WorkflowDefinition
from holdfast.kernel.authoring.concurrency import Concurrency
from holdfast.kernel.authoring.gather import GATHER, Gather, check_gathered, check_parts, items_of
from holdfast.kernel.authoring.nodes import In
from holdfast.kernel.authoring.options import (
    ONCE,
    Fair,
    Rate,
    Retry,
    RunOptions,
    check_name,
    check_options,
    given_options,
    input_attributes,
)
from holdfast.kernel.authoring.pipeline_builder import Condition, policy_from, retry_rules
from holdfast.kernel.authoring.scheduled_runs import Scheduled, scheduled_from
from holdfast.kernel.authoring.stages import Stage
from holdfast.kernel.authoring.steps import Step, make_compensation, make_untyped_step
from holdfast.kernel.functions.loop import FunctionLoop, loop_for
from holdfast.kernel.functions.machine import FunctionMachine
from holdfast.kernel.functions.run_facts import RunFacts
from holdfast.kernel.pipelines.input_attributes import InputAttribute
from holdfast.kernel.pipelines.plan import Group, Plan, StagePlan, StepsPlan
from holdfast.kernel.values import encode
from holdfast.ports.clock import instant, micros
from holdfast.ports.durations import NO_TIME, Duration
from holdfast.ports.errors import DefinitionError, InvalidValueError, UnreadableValueError
from holdfast.ports.records.values import Micros
from holdfast.ports.validation import AWARE, check, duration

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Out = TypeVar("Out", covariant=True)

_INPUT_ROW: Final = 1
"""Number of the history row that holds the input of a run."""

# Not Awaitable: see `holdfast.kernel.authoring.decorators`.
Async: TypeAlias = Coroutine[Any, Any, R]


@attrs.frozen(kw_only=True, eq=False, repr=False)
class FunctionStage(Stage[In, Out], Generic[In, Out]):
    """A durable function as the only stage of its plan: the stage's job drives the function."""

    workflow: "Workflow[..., object]"


class WorkflowOptions(TypedDict, total=False):
    """Options of `@workflow`."""

    name: str
    """Name of the workflow in the store. Default: the name of the function."""
    version: str
    """Version of the code: a run keeps the version that it started with. Default: "1"."""
    queue: str
    """Queue of its runs, unless the start names another."""
    priority: int
    """Priority of its runs, unless the start sets another: a head start in the queue, one minute per step."""
    deadline: Duration
    """How long its runs may take with all their attempts, unless the start sets another deadline.

    A timedelta or a number of seconds. After that the run fails, and the function cleans up first.
    """
    fair: Fair
    """How its runs share workers, by an attribute: `Fair(by="tenant")`. Default: they start in order of arrival."""
    concurrency: Concurrency
    """How many of its runs may be under way and waiting, unless the start sets another limit: a `Concurrency`."""
    rate: Rate
    """How many of its runs start in a period, unless the start sets another rate: `Rate(100, per=60, by="tenant")`."""
    retry: Retry
    """Retry policy of the whole run: if it fails, it starts again with the same input. Default: it does not.

    Each attempt is a new generation with an empty history. Cancelled runs are not retried, nor runs past their
    deadline. The steps of the function have policies of their own.
    """
    attributes_from: Sequence[str] | Mapping[str, str]
    """Attributes that its runs get from their arguments: names of parameters, or places by the attribute's name, such
    as `{"tenant": "order.tenant"}`. An attribute that the start gives comes first."""
    gather: Gather
    """Gathers its starts: one joins the run that waits, until that run begins. Default: each start is a run."""


class Workflow(WorkflowDefinition[Out], Generic[P, Out]):
    """A durable function. Calling it returns a `Call`, which starts a run: `await engine.start(fulfil(order))`."""

    def __init__(
        self,
        function: Callable[..., Async[Out]],
        form: CallForm,
        options: WorkflowOptions,
        step_retry: Retry | None = None,
    ) -> None:
        self._function = function
        self._form = form
        self._options = options
        self._step_retry = step_retry

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Call[Out]:
        """Return a `Call` with these arguments. TypeError if the function does not take them."""
        return Call(self, self._form.bind(args, kwargs))

    @property
    def function(self) -> Callable[..., object]:
        """The decorated function."""
        return self._function

    @property
    @override
    def name(self) -> str:
        return self._options.get("name", self._function.__name__)

    @property
    @override
    def version(self) -> str:
        return self._options.get("version", "1")

    @property
    def gather(self) -> Gather | None:
        """How its starts are gathered into one run; None if each is a run of its own."""
        return self._options.get("gather")

    def gathered_items(self, value: object) -> int | None:
        """Return how many items a call adds to the joined list; None if lists are not joined.

        InvalidArgumentError if they are, and it has no list.
        """
        gather = self.gather
        return None if gather is None or gather.keep != "all" else items_of(self.name, value)

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
        if isinstance(value, dict):
            return self._form.encode_by_name(cast("dict[str, object]", value))
        return encode(value, self._form.arguments)  # which refuses it

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
        """The single stage of the plan, by its name."""
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
            retry=self._options.get("retry"),
        )
        return MappingProxyType({self.name: stage})

    @property
    def conditions(self) -> Mapping[str, Condition]:
        """Always empty: durable functions have no conditions."""
        return MappingProxyType({})

    @property
    @override
    def is_fair(self) -> bool:
        """Whether its runs share workers by an attribute."""
        return "fair" in self._options

    @property
    @override
    def attributes_from(self) -> tuple[InputAttribute, ...]:
        """The attributes that it takes from the arguments of its runs."""
        return self._plan.attributes_from

    @cached_property
    def _plan(self) -> Plan:
        options, retry = self._options, self._options.get("retry", ONCE)
        of_steps = self._step_retry
        stage = StagePlan(
            name=self.name,
            retry=policy_from(retry),
            retry_rules=retry_rules(retry),
            function=True,
            steps=None
            if of_steps is None
            else StepsPlan(retry=policy_from(of_steps), retry_rules=retry_rules(of_steps)),
        )
        given, fair = given_options(cast("RunOptions", options)), options.get("fair")
        return Plan(
            workflow=self.name,
            version=self.version,
            groups=(Group(nodes=(stage,)),),
            queue=given.queue,
            priority=given.priority,
            deadline_us=given.deadline,
            fair=None if fair is None else fair.by,
            gather=None if self.gather is None else self.gather.plan(),
            concurrency=given.concurrency,
            rate=given.rate,
            attributes_from=input_attributes(self._options.get("attributes_from", ())),
        )

    def with_default_retry(self, retry: Retry) -> "Workflow[P, Out]":
        """Return a copy with this policy for steps that have none."""
        return Workflow(self._function, self._form, self._options, retry)

    def plan(self) -> Plan:
        """Return the plan: one stage, without any code of the function."""
        return self._plan

    def machine(self, text: str, *, began_at: Micros, seed: str, run: RunFacts) -> FunctionMachine:
        """Return the state machine that drives one run.

        Args:
            text: JSON text of the arguments.
            began_at: When the run started, in microseconds since 1970.
            seed: Seed of the run's random values.
            run: What the function knows about its run.

        Raises:
            UnreadableValueError: The arguments no longer have the types of the parameters.
        """
        try:
            args, kwargs = self._form.arguments_from(text)
        except InvalidValueError as error:
            raise UnreadableValueError("what the run was given", _INPUT_ROW, error.problems) from error
        call = partial(self._function, *args, **kwargs)
        gather = self.gather
        encoded = self._encoded
        if gather is not None and gather.split:
            # Counted before the function runs: it may change the list.
            encoded = partial(self._encoded_parts, sum(map(len, (*args, *kwargs.values()))))
        return FunctionMachine(call, encoded, began_at=began_at, seed=seed, run=run)

    def _encoded_parts(self, items: int, value: object) -> str:
        check_parts(self.name, items, value)
        return self._encoded(value)

    def _encoded(self, value: object) -> str:
        return encode(value, self._form.output)


class WorkflowDecorator:
    """The class of `@workflow`."""

    @overload
    def __call__(self, fn: Callable[P, Async[R]], /) -> Workflow[P, R]: ...
    @overload
    def __call__(
        self, /, **options: Unpack[WorkflowOptions]
    ) -> "Callable[[Callable[P, Async[R]]], Workflow[P, R]]": ...
    def __call__(self, fn: object = None, /, **options: Unpack[WorkflowOptions]) -> object:
        """Make an async function durable. With options only, return a decorator that applies them.

        Raises:
            DefinitionError: The function is not async, an annotation is missing, values of a type can't be stored, or
                the value of an option is invalid.
            InvalidArgumentError: An option is unknown.
        """
        check_options(options, WorkflowOptions, "workflow")
        return partial(_make_workflow, options) if fn is None else _make_workflow(options, fn)


def _make_workflow(options: WorkflowOptions, fn: object) -> Workflow[Any, object]:
    if not inspect.isfunction(fn) or not inspect.iscoroutinefunction(fn):
        raise DefinitionError(f"a workflow needs an async function, not {fn!r}; write `async def`")
    function = cast("Callable[..., Async[object]]", fn)
    name = options.get("name", function.__name__)
    check_name(name, f"the name of the workflow {function.__qualname__}")
    check_name(options.get("version", "1"), f"the version of workflow {name!r}")
    form = read_call_form(function, f"workflow {name!r}")
    for taken in input_attributes(options.get("attributes_from", ())):
        if (parameter := taken.path.split(".", 1)[0]) not in form.signature.parameters:
            names = ", ".join(form.signature.parameters) or "none"
            raise DefinitionError(
                f"workflow {name!r}: attributes_from takes {taken.name!r} from the parameter {parameter!r}, which the"
                f" function does not have; it has {names}"
            )
    if (gather := options.get("gather")) is not None:
        if not GATHER.test(gather):
            raise DefinitionError(f"workflow {name!r}: gather is {gather!r}; it must be {GATHER.words}")
        check_gathered(gather, form)
        limit = options.get("concurrency")
        if limit is not None and limit.full != "wait":
            raise DefinitionError(
                f"workflow {name!r}: it gathers its starts, so its concurrency can't have full={limit.full!r}: a start"
                " that joins a run makes no run more; leave out `full` and `waiting`"
            )
    return Workflow[Any, object](function, form, options)


workflow: Final = WorkflowDecorator()
"""The decorator that makes an async function durable: `@workflow`, or with options `@workflow(version="2")`.

A run of the function continues after a crash: its calls of steps, timers and messages are recorded and replayed.
Between them the code must be deterministic.

Example:
    @workflow
    async def fulfil(order: Order) -> Receipt:
        payment = await charge(order)
        await holdfast.sleep(timedelta(days=1))
        return await ship(order, payment)
"""


# For use in durable functions -------------------------------------------------------------------------------------


def now() -> datetime:
    """Return the current time of the run, which is the same in every replay. RuntimeError outside of a workflow.

    It is the time of the last history row that the function has received.
    """
    return instant(loop_for("holdfast.now()").now)


def scheduled() -> Scheduled | None:
    """Return which schedule started the run of the durable function that calls this; None if none did.

    A run keeps it when it is run again or continues as new. RuntimeError outside of a workflow; a stage has
    `ctx.scheduled`.
    """
    return scheduled_from(loop_for("holdfast.scheduled()").run.scheduled)


def uuid4() -> UUID:
    """Return a random UUID that is the same in every replay. RuntimeError outside of a workflow."""
    return UUID(bytes=_random_bytes(loop_for("holdfast.uuid4()"), "uuid4")[:16], version=4)


def random() -> Random:
    """Return a random generator with the same numbers in every replay: `holdfast.random().choice(names)`.

    Each call returns another generator. RuntimeError outside of a workflow.
    """
    return Random(int.from_bytes(_random_bytes(loop_for("holdfast.random()"), "random")))  # noqa: S311  # no secrets


def patched(name: str, /) -> bool:
    """Return whether this run has a change of the code, so that older runs keep the old behaviour.

    Runs that reach the call for the first time have the change; runs whose history passed this point before do not. The
    answer for a name stays the same throughout a run. When no run without the change is left, remove the old code and
    the call.

    Example:
        if patched("gift-wrap"):
            await wrap(order)

    Args:
        name: A name for the change, unique in the function.

    Raises:
        DefinitionError: The name is invalid.
        RuntimeError: It was not called by a durable function.
    """
    check_name(name, "the name of a patch")
    loop = loop_for("holdfast.patched()")
    return loop.patches.has(name, is_replaying=loop.is_replaying)


async def side_effect(fn: Callable[[], T], /) -> T:
    """Call a function once, and return the recorded value in every replay.

    `await side_effect(read_config)` is short for a sync step without options: the function runs in a thread. The value
    has the annotated return type, or is plain JSON if there is no annotation.

    Raises:
        RuntimeError: It was not called by a durable function.
        Whatever the function raises.
    """
    loop_for("holdfast.side_effect()")
    return cast("T", await make_untyped_step(fn, "side_effect")())


def _random_bytes(loop: FunctionLoop, what: str) -> bytes:
    return sha256(f"{loop.seed}/{what}/{loop.next_call()}".encode()).digest()


async def sleep(how_long: Duration, /) -> None:
    """Wait for a duration, even for days or years: a waiting run need not be in memory.

    `how_long` is a timedelta or a number of seconds; InvalidArgumentError if it is neither. RuntimeError outside of a
    workflow.
    """
    loop_for("holdfast.sleep()")
    await _sleep(duration("sleep", "how_long", how_long, least=NO_TIME).total_seconds())


async def sleep_until(when: datetime, /) -> None:
    """Wait until an instant, an aware datetime.

    InvalidArgumentError, which is a ValueError, if it is something else. RuntimeError outside of a workflow.
    """
    loop = loop_for("holdfast.sleep_until()")
    check("sleep_until", AWARE, when=when)
    await _sleep((micros(when) - loop.now) / 1_000_000)


def compensate_with(undo: Step[P, object], /, *args: P.args, **kwargs: P.kwargs) -> None:
    """Register a step to call if the run fails or is cancelled: `compensate_with(refund, payment)`.

    It runs in reverse order with the compensations of `@step.compensate`.

    Raises:
        TypeError: The step does not take these arguments.
        RuntimeError: It was not called by a durable function.
    """
    loop = loop_for("holdfast.compensate_with()")
    loop.saga.expect(make_compensation(undo, args, kwargs))
