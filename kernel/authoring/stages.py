"""Stages: named units of work of a pipeline, made from functions by `@stage`."""

import inspect
from collections.abc import Callable
from datetime import timedelta
from functools import cached_property
from typing import Any, Generic, Self, Unpack, cast

import attrs
from typing_extensions import TypeVar, override

from holdfast.kernel.authoring.body_types import Shape, is_async_body
from holdfast.kernel.authoring.calls import WorkflowDefinition
from holdfast.kernel.authoring.nodes import In, Out, PlanNode
from holdfast.kernel.authoring.options import (
    CHILD_ONLY_OPTIONS,
    BodyDefaults,
    BodyOptions,
    Rate,
    Retry,
    Slots,
    check_options,
    to_timedelta,
)
from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.kernel.pipelines.plan import Enough
from holdfast.kernel.values import decode, encode
from holdfast.kernel.values.stored_values import decode_recorded
from holdfast.kernel.values.type_forms import is_class_with_fields, is_typed_dict, show
from holdfast.ports.errors import DefinitionError, HoldfastError, InvalidValueError

Config = TypeVar("Config")


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Stage(PlanNode[In, Out], Generic[In, Out]):
    """A named unit of work of a pipeline.

    For the options see `BodyOptions`. An option is None where neither the stage nor its pipeline sets it.
    """

    body: Callable[..., object]
    """The function that you wrote. `arguments` returns what to call it with."""
    shape: Shape
    """The parameters and the return type of the body."""
    retry: Retry | None = None
    timeout: timedelta | None = attrs.field(default=None, converter=to_timedelta)
    timeout_total: timedelta | None = attrs.field(default=None, converter=to_timedelta)
    heartbeat_timeout: timedelta | None = attrs.field(default=None, converter=to_timedelta)
    queue: str | None = None
    priority: int | None = None
    max_concurrency: int | Slots | None = None
    rate_limit: Rate | None = None
    config_text: str | None = None
    """The config as canonical JSON; None if it is not set."""
    remote: bool = False
    """Whether only remote workers run it. The body is never called then."""

    def __attrs_post_init__(self) -> None:
        if self.remote:
            self._check_remote()

    def _check_remote(self) -> None:
        """Raise DefinitionError if remote workers can't run the stage."""
        if is_async_body(self.body):
            raise DefinitionError(
                f"stage {self.name!r} is remote, and its function is async: write `def`, since the function is never"
                " called, and only gives the types of the input and the output"
            )

    async def __call__(self, value: In, /) -> Out:
        """Call the body directly, without an engine or a record: `await resize(image)`.

        A sync body blocks the event loop.

        Raises:
            RuntimeError: The body takes a context, which only an engine can provide, or the stage is remote.
        """
        if self.remote:
            raise RuntimeError(f"stage {self.name!r} is remote: only remote workers run it, in a pipeline")
        if self.shape.takes_context:
            raise RuntimeError(
                f"stage {self.name!r} takes a StageContext, which only an engine has; run it in a pipeline, or call"
                f" its function with a context of your own: {self.name}.body(ctx, value)"
            )
        result = self.body(*self.arguments(value))
        return cast("Out", await result if inspect.isawaitable(result) else result)

    def options(self, **changes: Unpack[BodyOptions]) -> Self:
        """Return a copy of the stage with other options: `resize.options(queue="gpu")`.

        Raises:
            InvalidArgumentError: An option is unknown.
            DefinitionError: The value of an option is invalid.
        """
        check_options(changes, BodyOptions, f"stage {self.name!r}")
        if not hasattr(self, "close_policy") and (wrong := set(CHILD_ONLY_OPTIONS) & changes.keys()):
            raise DefinitionError(
                f"stage {self.name!r} is not a workflow; {min(wrong)} is only for stages that are workflows"
            )
        return attrs.evolve(self, **cast("Any", changes))

    def with_defaults(self, defaults: BodyDefaults) -> Self:
        """Return a copy of the stage that has these options where it sets none itself."""
        missing = {key: value for key, value in defaults.items() if getattr(self, key) is None}
        return attrs.evolve(self, **cast("Any", missing))

    def arguments(self, value: object, context: StageContext[Any] | None = None) -> tuple[object, ...]:
        """Return the arguments for the body. If it has several value parameters, `value` is a tuple of them."""
        first = (context,) if self.shape.takes_context else ()
        if self.shape.values == 0:
            return first
        return (*first, value) if self.shape.values == 1 else (*first, *cast("tuple[object, ...]", value))

    def with_default_config(self) -> Self:
        """Return a copy of the stage with a config: its own, or one with the defaults of the config class.

        Raises:
            DefinitionError: The stage needs a config, because its config class does not have a default for every field.
        """
        kind = self.shape.config_type
        if kind is None or self.config_text is not None:
            return self
        if not (is_class_with_fields(kind) or is_typed_dict(kind)):
            raise DefinitionError(
                f"stage {self.name!r} needs a config: {self.name}.configure(...), of {show(kind)}"
            )
        try:
            config = decode("{}", kind)
        except InvalidValueError as error:
            raise DefinitionError(
                f"stage {self.name!r} needs a config, because {show(kind)} does not have a default for every field"
                f" ({'; '.join(error.problems)}): {self.name}.configure({show(kind)}(...))"
            ) from error
        return attrs.evolve(self, config_text=_config_text(self.name, config, kind))

    def read_config(self, text: str | None) -> object:
        """Return the config that a plan stores for this stage. UnreadableInputError if its type has changed."""
        kind = self.shape.config_type
        if kind is None or text is None:
            return None
        return decode_recorded(text, kind, f"the config of stage {self.name!r}")

    @cached_property
    def is_async(self) -> bool:
        """Whether the body is async, and is called on the event loop."""
        return is_async_body(self.body)

    @property
    def give_up_on(self) -> tuple[type[Exception], ...]:
        """Exceptions that are not retried."""
        return self.retry.give_up_on if self.retry else ()

    @override
    def __repr__(self) -> str:
        return f"<stage {self.name}: {show(self.input_type)} -> {show(self.output_type)}>"


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ConfigurableStage(Stage[In, Out], Generic[In, Out, Config]):
    """A stage whose body takes a `StageContext[Config]`."""

    def configure(self, config: Config, /) -> Self:
        """Return a copy of the stage with this config: `resize.configure(Sizes(width=800))`.

        Raises:
            DefinitionError: The config does not have the type that the body's context declares, or can't be stored.
        """
        if self.shape.config_type is None:
            raise DefinitionError(
                f"stage {self.name!r} has no config; declare it, as in `ctx: StageContext[MyConfig]`"
            )
        return attrs.evolve(self, config_text=_config_text(self.name, config, self.shape.config_type))


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Each(PlanNode[In, Out], Generic[In, Out]):
    """A stage mapped over a list, made by `each`."""

    stage: Stage[Any, object]
    """The stage that runs for each item."""
    over: Stage[Any, object] | None
    """The stage whose output is the list of items; None if the input is."""
    limit: int
    """How many items may have jobs at the same time."""
    enough: Enough | None = None
    """When the map completes without all items; None if it needs all of them."""

    @override
    def __repr__(self) -> str:
        return f"<each {self.name}: {show(self.input_type)} -> {show(self.output_type)}>"


def stage_hint(given: object) -> str:
    """Return a hint on how to make a stage of this object, or "" if there is no way."""
    if isinstance(given, WorkflowDefinition):
        return "; make it one with stage(pipeline)"
    if inspect.isroutine(given):
        return "; make it one with @stage"
    return ""


def _config_text(stage: str, config: object, kind: object) -> str:
    try:
        return encode(config, kind)
    except HoldfastError as error:
        raise DefinitionError(f"invalid config for stage {stage!r}: {error}") from error
