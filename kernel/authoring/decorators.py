"""`stage` and `each`: from a function to a stage, and from a stage to one that is done for each item."""

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVarTuple, Unpack, cast, overload

import attrs
from typing_extensions import TypeVar

from holdfast.kernel.authoring.body_types import fits, list_of, read_shape, sequence_of
from holdfast.kernel.authoring.calls import Definition
from holdfast.kernel.authoring.child_stages import THEIR_OWN, child_stage
from holdfast.kernel.authoring.completion_policies import AtLeast, Partial, Tolerate, enough_of
from holdfast.kernel.authoring.external import ExternalStage, Suspended, suspended_types
from holdfast.kernel.authoring.nodes import AnyNode, Node
from holdfast.kernel.authoring.options import BodyOptions, check_name, check_options
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

# Not Awaitable: only so does mypy see that an async function with an Any in its signature matches the sync overload
# with the very same type, and keep the first match instead of falling back to Any.
Async: TypeAlias = Coroutine[Any, Any, R]

MAP_LIMIT_MAX: Final = 10_000
"""How many items of a map may have jobs at once."""


@attrs.frozen(eq=False)
class StageDecorator:
    """`@stage`, `@stage(retry=...)`, and presets: `gpu = stage(queue="gpu")` and then `@gpu`.

    The function's annotations say what the stage takes and gives. A first parameter of type StageContext is given the
    context; any others take the stage's input, and if there are several, the input is a tuple that they share out.
    """

    _options: Mapping[str, object] = attrs.field(factory=dict[str, object])

    # The first match wins: context before none, async before sync, one value before several.
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
        """Make a stage of a function, or, given options, a decorator that does so with them.

        Raises:
            DefinitionError: The function's annotations do not say what it takes and gives, no value of such a type can
                be stored, or an option is not what it must be.
            InvalidArgumentError: There is no such option.
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
        """Make a stage whose work is done elsewhere: this function hands it on, and a check asks about it later.

        The function gives `suspend(...)` or, if there is nothing to wait for, `finished(...)`. It may be called again
        if its worker is lost before the suspension is stored, with the same `ctx.idempotency_key`: hand that on too,
        or look by it for work that is under way. Once the suspension is stored it is never called again.

        Raises:
            DefinitionError: The function's annotations do not say what it takes and gives.
        """
        if not inspect.isroutine(fn):
            raise DefinitionError(f"an external stage is made of a function, not of {fn!r}")
        return _make_external(cast("Callable[..., object]", fn), self._options)


stage: Final = StageDecorator()
"""The decorator that makes a stage of a function, sync or async."""


@overload
def each(node: Stage[Item, R], /, *, limit: int | None = None) -> Node[Sequence[Item], list[R]]: ...
@overload
def each(
    node: Stage[Item, R], /, *, limit: int | None = None, enough: AtLeast | Tolerate
) -> Node[Sequence[Item], Partial[R]]: ...
@overload
def each(
    node: Stage[Item, R], /, *, over: AnyNode[Sequence[Item]], limit: int | None = None
) -> Node[object, list[R]]: ...
@overload
def each(
    node: Stage[Item, R],
    /,
    *,
    over: AnyNode[Sequence[Item]],
    limit: int | None = None,
    enough: AtLeast | Tolerate,
) -> Node[object, Partial[R]]: ...
def each(node: object, /, *, over: object = None, limit: int | None = None, enough: object = None) -> object:
    """Do a stage once for each item of what comes in, or of what the earlier stage `over` gave.

    What goes on is the list of what it gave, in the order of the items; with `enough`, a `Partial` of it.

    Args:
        node: The stage.
        over: The earlier stage that gave the items.
        limit: How many items have jobs at once, 1 to 10,000. 1,000 if left out.
        enough: When it is done although not all items are: `AtLeast(n)`, or `Tolerate(count=..., share=...)`. If left
            out, all must be done, and the first that fails for good ends the run.

    Raises:
        DefinitionError: The stage does not take such items, or what has them is not a sequence.
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
    """Return the form `Partial[item]`."""
    return cast("Any", Partial)[item]


def _make_stage(fn: object, options: Mapping[str, object]) -> Stage[Any, object]:
    if isinstance(fn, Definition):
        return _child(cast("Definition[object]", fn), dict(options))
    if "close_policy" in options:
        raise DefinitionError("stage: close_policy is for stages that are pipelines, as in stage(pipeline)")
    if not inspect.isroutine(fn):
        raise DefinitionError(f"a stage is made of a function, not of {fn!r}")
    body = cast("Callable[..., object]", fn)
    remaining = dict(options)
    name = remaining.pop("name", body.__name__)
    check_name(name, f"the name of the stage {body.__qualname__}")
    shape = read_shape(body, cast("str", name))
    if origin_of(shape.output_type) is Suspended:
        raise DefinitionError(
            f"stage {name!r} gives {show(shape.output_type)}; a stage that is suspended is made with @stage.external"
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


def _child(workflow: Definition[object], options: dict[str, object]) -> Stage[Any, object]:
    if misplaced := sorted(THEIR_OWN & options.keys()):
        raise DefinitionError(
            f"stage({workflow.name}): a pipeline has no {misplaced[0]} as a stage; its own stages can have one"
        )
    return child_stage(workflow, cast("dict[str, Any]", options))
