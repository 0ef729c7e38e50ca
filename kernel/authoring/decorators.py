"""`@stage`, which makes a stage of a function, and `each`, which maps a stage over a list."""

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVarTuple, Unpack, cast, overload

import attrs
from typing_extensions import TypeVar

from holdfast.kernel.authoring.body_types import fits, list_of, read_shape, sequence_of
from holdfast.kernel.authoring.calls import WorkflowDefinition
from holdfast.kernel.authoring.child_stages import BODY_ONLY_OPTIONS, child_stage
from holdfast.kernel.authoring.completion_policies import AtLeast, PartialResults, TolerateFailures, enough_of
from holdfast.kernel.authoring.external import ExternalStage, Suspended, suspended_types
from holdfast.kernel.authoring.nodes import AnyNode, PlanNode
from holdfast.kernel.authoring.options import CHILD_ONLY_OPTIONS, BodyOptions, check_name, check_options
from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.kernel.authoring.stages import ConfigurableStage, Each, Stage, stage_hint
from holdfast.kernel.pipelines.plan import DEFAULT_MAP_LIMIT
from holdfast.kernel.values.type_forms import origin_of, show
from holdfast.ports.errors import DefinitionError

A = TypeVar("A")
B = TypeVar("B")
More = TypeVarTuple("More")
C = TypeVar("C")
R = TypeVar("R")
S = TypeVar("S")
Item = TypeVar("Item")

# Not Awaitable: an async function with an Any in its signature matches an async and a sync overload. Only with
# Coroutine does mypy see that both return the same type, and take the first instead of inferring Any.
Async: TypeAlias = Coroutine[Any, Any, R]

MAP_LIMIT_MAX: Final = 10_000
"""Maximum number of items of a map that may have jobs at the same time."""


@attrs.frozen(eq=False)
class StageDecorator:
    """The class of `@stage`. With options only it makes a preset: `gpu = stage(queue="gpu")`, then `@gpu`."""

    _options: Mapping[str, object] = attrs.field(factory=dict[str, object])

    # The first match wins: with context before without, async before sync, one value before several.
    @overload
    def __call__(self, fn: Callable[[StageContext[C]], Async[R]], /) -> ConfigurableStage[object, R, C]: ...
    @overload
    def __call__(self, fn: Callable[[StageContext[C], A], Async[R]], /) -> ConfigurableStage[A, R, C]: ...
    @overload
    def __call__(
        self, fn: Callable[[StageContext[C], A, B, *More], Async[R]], /
    ) -> ConfigurableStage[tuple[A, B, *More], R, C]: ...
    @overload
    def __call__(self, fn: Callable[[StageContext[C]], R], /) -> ConfigurableStage[object, R, C]: ...
    @overload
    def __call__(self, fn: Callable[[StageContext[C], A], R], /) -> ConfigurableStage[A, R, C]: ...
    @overload
    def __call__(
        self, fn: Callable[[StageContext[C], A, B, *More], R], /
    ) -> ConfigurableStage[tuple[A, B, *More], R, C]: ...
    @overload
    def __call__(self, fn: Callable[[], Async[R]], /) -> Stage[object, R]: ...
    @overload
    def __call__(self, fn: Callable[[A], Async[R]], /) -> Stage[A, R]: ...
    @overload
    def __call__(self, fn: Callable[[A, B, *More], Async[R]], /) -> Stage[tuple[A, B, *More], R]: ...
    @overload
    def __call__(self, fn: Callable[[], R], /) -> Stage[object, R]: ...
    @overload
    def __call__(self, fn: Callable[[A], R], /) -> Stage[A, R]: ...
    @overload
    def __call__(self, fn: Callable[[A, B, *More], R], /) -> Stage[tuple[A, B, *More], R]: ...
    @overload
    def __call__(self, /, **options: Unpack[BodyOptions]) -> "StageDecorator": ...
    def __call__(self, fn: object = None, /, **options: Unpack[BodyOptions]) -> object:
        """Make a stage of a function or a workflow. With options only, return a decorator that applies them.

        Raises:
            DefinitionError: An annotation is missing, values of a type can't be stored, or the value of an option is
                invalid.
            InvalidArgumentError: An option is unknown.
        """
        check_options(options, BodyOptions, "stage")
        all_options = {**self._options, **options}
        return StageDecorator(all_options) if fn is None else _make_stage(fn, all_options)

    @overload
    def external(
        self, fn: Callable[[StageContext[C], A], Async[Suspended[S, R]]], /
    ) -> ExternalStage[A, R, C, S]: ...
    @overload
    def external(
        self, fn: Callable[[StageContext[C], A], Suspended[S, R]], /
    ) -> ExternalStage[A, R, C, S]: ...
    def external(self, fn: object, /) -> object:
        """Make an external stage: its body submits work elsewhere, and a check polls for the result.

        The body returns `suspend(...)`, or `completed(...)` if it has the result already. If its worker is lost before
        the suspension is stored, it is called again with the same `ctx.idempotency_key`. Pass the key to the service,
        or use it to find work that was already submitted. After the suspension is stored, the body is never called
        again.

        Example:
            @stage.external
            def render(ctx: StageContext, film: str) -> Suspended[str, str]:
                job = farm.submit(film, idempotency_key=ctx.idempotency_key)
                return suspend(job, check_after=timedelta(hours=1))

        Raises:
            DefinitionError: The function is not annotated as `-> Suspended[State, Result]`, or as `stage` requires.
        """
        if not inspect.isroutine(fn):
            raise DefinitionError(f"an external stage needs a function, not {fn!r}")
        return _make_external(cast("Callable[..., object]", fn), self._options)


stage: Final = StageDecorator()
"""The decorator that makes a stage of a sync or async function: `@stage`, or with options `@stage(timeout=60)`.

The annotations are the stage's input and output types. A first parameter of type `StageContext` receives the context.
The others receive the input; if there are several, the input is a tuple with one item for each.

`stage(workflow)` makes a stage that runs a pipeline or a durable function as a child run.

Example:
    @stage(retry=Retry(attempts=5), queue="images")
    def resize(ctx: StageContext, image: BlobRef, width: int) -> BlobRef: ...
"""


@overload
def each(node: Stage[Item, R], /, *, limit: int | None = None) -> PlanNode[Sequence[Item], list[R]]: ...
@overload
def each(
    node: Stage[Item, R], /, *, limit: int | None = None, enough: AtLeast | TolerateFailures
) -> PlanNode[Sequence[Item], PartialResults[R]]: ...
@overload
def each(
    node: Stage[Item, R], /, *, over: AnyNode[Sequence[Item]], limit: int | None = None
) -> PlanNode[object, list[R]]: ...
@overload
def each(
    node: Stage[Item, R],
    /,
    *,
    over: AnyNode[Sequence[Item]],
    limit: int | None = None,
    enough: AtLeast | TolerateFailures,
) -> PlanNode[object, PartialResults[R]]: ...
def each(node: object, /, *, over: object = None, limit: int | None = None, enough: object = None) -> object:
    """Map a stage: run it once for each item of its input, or of the output of the earlier stage `over`.

    The output is the list of the results in the order of the items, or `PartialResults` if `enough` is set.

    Args:
        node: The stage.
        over: The earlier stage whose output is the list of items.
        limit: How many items may have jobs at the same time, 1 to 10,000. Default: 1,000.
        enough: Lets the map complete without some of its items: `AtLeast(n)`, or `TolerateFailures(share=0.1)`.
            Without it, the first item that fails for good fails the run.

    Raises:
        DefinitionError: The stage does not take such items, or the items are not a sequence.
    """
    if not isinstance(node, Stage):
        raise DefinitionError(f"each takes a stage, not {node!r}{stage_hint(node)}")
    done = cast("Stage[Any, object]", node)
    if limit is not None and not (type(limit) is int and 1 <= limit <= MAP_LIMIT_MAX):
        raise DefinitionError(
            f"each({done.name}): limit is {limit!r}; it must be from 1 to {MAP_LIMIT_MAX:,}"
        )
    policy = enough_of(enough, f"each({done.name})")
    if over is not None and not isinstance(over, Stage):
        raise DefinitionError(f"each({done.name}): over takes an earlier stage, not {over!r}")
    source = cast("Stage[Any, object] | None", over)
    wanted = sequence_of(done.input_type)
    if source and not fits(source.output_type, wanted):
        raise DefinitionError(
            f"each({done.name}, over={source.name}) takes {show(wanted)}, but {source.name!r} gives"
            f" {show(source.output_type)}"
        )
    return Each[Any, object](
        name=done.name,
        input_type=object if source else wanted,
        output_type=list_of(done.output_type) if policy is None else partial_of(done.output_type),
        enough=policy,
        stage=done,
        over=source,
        limit=DEFAULT_MAP_LIMIT if limit is None else limit,
    )


def partial_of(item: object) -> object:
    """Return the type `PartialResults[item]`."""
    return cast("Any", PartialResults)[item]


def _make_stage(fn: object, options: Mapping[str, object]) -> Stage[Any, object]:
    if isinstance(fn, WorkflowDefinition):
        return _child(cast("WorkflowDefinition[object]", fn), dict(options))
    if wrong := set(CHILD_ONLY_OPTIONS) & options.keys():
        raise DefinitionError(
            f"stage: {min(wrong)} is only for stages that are workflows, as in stage(pipeline)"
        )
    if not inspect.isroutine(fn):
        raise DefinitionError(f"a stage needs a function, not {fn!r}")
    body = cast("Callable[..., object]", fn)
    remaining = dict(options)
    name = remaining.pop("name", body.__name__)
    check_name(name, f"the name of the stage {body.__qualname__}")
    shape = read_shape(body, cast("str", name))
    if origin_of(shape.output_type) is Suspended:
        raise DefinitionError(
            f"stage {name!r} returns {show(shape.output_type)}; use @stage.external for a stage that suspends"
        )
    make = ConfigurableStage[Any, object, Any] if shape.takes_context else Stage[Any, object]
    return make(
        name=cast("str", name),
        input_type=shape.input_type,
        output_type=shape.output_type,
        body=body,
        shape=shape,
        **cast("Any", remaining),
    )


def _make_external(body: Callable[..., object], options: Mapping[str, object]) -> Stage[Any, object]:
    remaining = dict(options)
    name = cast("str", remaining.pop("name", body.__name__))
    check_name(name, f"the name of the stage {body.__qualname__}")
    states: list[object] = []

    def unwrap_output(form: object) -> object:
        state, result = suspended_types(form, name)
        states.append(state)
        return result

    shape = read_shape(body, name, unwrap_output=unwrap_output)
    return ExternalStage[Any, object, Any, Any](
        name=name,
        input_type=shape.input_type,
        output_type=shape.output_type,
        body=body,
        shape=shape,
        state_type=states[0],
        **cast("Any", remaining),
    )


def _child(workflow: WorkflowDefinition[object], options: dict[str, object]) -> Stage[Any, object]:
    if misplaced := sorted(BODY_ONLY_OPTIONS & options.keys()):
        raise DefinitionError(
            f"stage({workflow.name}): a pipeline has no {misplaced[0]} as a stage; its own stages can have one"
        )
    return child_stage(workflow, cast("dict[str, Any]", options))
