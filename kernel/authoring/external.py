"""External stages: they hand their work on to something outside, and are asked later whether it is done."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final, Generic, Never, overload

import attrs
from typing_extensions import TypeVar

from holdfast.kernel.authoring.context import StageContext
from holdfast.kernel.authoring.nodes import In, Out
from holdfast.kernel.authoring.options import Retry, check_options
from holdfast.kernel.authoring.shapes import Shape, fits, is_async_body, read_shape
from holdfast.kernel.authoring.stages import Config, ConfigurableStage
from holdfast.kernel.values import check_type
from holdfast.kernel.values.forms import Form, arguments, members, origin_of, show
from holdfast.ports.errors import DefinitionError

S = TypeVar("S")
T = TypeVar("T")
State = TypeVar("State", covariant=True)

KEY_MAX: Final = 255
"""How many characters the key of external work may have."""

_NO_TIME: Final = timedelta(0)


@attrs.frozen(kw_only=True)
class Suspended(Generic[State, Out]):
    """What the body of an external stage gives: made by `suspend` or `finished`.

    It waits for work that a `State` describes, and ends as an `Out`.
    """

    state: object = None
    check_after: timedelta | None = None
    give_up_at: datetime | None = None
    key: str | None = None
    value: object = None

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing to wait for: `value` is what the stage gives."""
        return self.check_after is None


def _is_some_time(value: object) -> bool:
    return isinstance(value, timedelta) and value > _NO_TIME


def _some_time(_: object, __: object, value: timedelta | None) -> None:
    if value is not None and not _is_some_time(value):
        raise ValueError(f"NotYet: check_after is {value!r}; it must be a timedelta longer than nothing")


@attrs.frozen
class NotYet:
    """What a check gives if the work is not done: ask again, as before or after `check_after`."""

    check_after: timedelta | None = attrs.field(default=None, validator=_some_time)


def suspend(
    state: S, *, check_after: timedelta, give_up_at: datetime | None = None, key: str | None = None
) -> Suspended[S, Never]:
    """Wait for work that was handed on. No worker is needed meanwhile.

    Args:
        state: What the check needs to ask about it. A value, of the type that the stage declares.
        check_after: When the check is made first, and how long it waits before it asks again.
        give_up_at: The check that is made then, or later, is the last one: if the work is not done, the stage fails.
            Aware.
        key: By what others name the work who can say that it is done: `engine.wake(key=...)` has it checked at once.
            If left out it is the idempotency key of the stage.

    Raises:
        ValueError: One of these can't be.
    """
    if not _is_some_time(check_after):
        raise ValueError(
            f"suspend: check_after is {check_after!r}; it must be a timedelta longer than nothing"
        )
    if give_up_at is not None and give_up_at.utcoffset() is None:
        raise ValueError(f"suspend: give_up_at is {give_up_at!r}; it must be aware, as datetime.now(UTC) is")
    if key is not None and not 1 <= len(key) <= KEY_MAX:
        raise ValueError(f"suspend: key has {len(key)} characters; it must have 1 to {KEY_MAX}")
    return Suspended(state=state, check_after=check_after, give_up_at=give_up_at, key=key)


def finished(value: T) -> Suspended[Never, T]:
    """Give the value at once: the work was done already."""
    return Suspended(value=value)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ExternalStage(ConfigurableStage[In, Out, Config], Generic[In, Out, Config, State]):
    """A stage that hands its work on, and is asked about it later. Made by `@stage.external`.

    Attributes:
        state_type: What describes the work meanwhile.
        check_body: What asks about it; None until `check` has given it one.
        check_shape: What that takes and gives.
        check_retry, check_timeout: How it is treated; None where the stage's own are to be taken.
    """

    state_type: object
    check_body: Callable[..., object] | None = None
    check_shape: Shape | None = None
    check_retry: Retry | None = None
    check_timeout: timedelta | None = None

    @overload
    def check(
        self, fn: Callable[[StageContext[Config], State], Awaitable[Out | NotYet] | Out | NotYet], /
    ) -> "ExternalStage[In, Out, Config, State]": ...
    @overload
    def check(
        self, /, *, retry: Retry | None = None, timeout: timedelta | None = None
    ) -> "CheckDecorator[In, Out, Config, State]": ...
    def check(
        self, fn: object = None, /, *, retry: Retry | None = None, timeout: timedelta | None = None
    ) -> object:
        """Make the same stage with a check, of a function that is given the state, or the context and the state.

        It gives what the stage gives, if the work is done, and `NotYet()` if it is not. If the work failed it raises:
        what the stage's retry says to give up on, or GiveUp. Whatever else it raises only has it made again.

        Raises:
            DefinitionError: The function does not take the state, or gives something else.
        """
        told = {"retry": retry, "timeout": timeout}
        check_options(
            {name: value for name, value in told.items() if value is not None}, _CheckOptions, "check"
        )
        stage = attrs.evolve(self, check_retry=retry, check_timeout=timeout)
        return CheckDecorator(stage) if fn is None else with_check(stage, fn)

    @cached_property
    def is_check_async(self) -> bool:
        """Whether calling the check gives something to await."""
        return self.check_body is not None and is_async_body(self.check_body)

    def check_arguments(self, state: object, context: StageContext[Any] | None) -> tuple[object, ...]:
        """Return what to call the check with."""
        assert self.check_shape is not None
        first = (context,) if self.check_shape.takes_context else ()
        return (*first, state) if self.check_shape.values else first


@attrs.frozen
class CheckDecorator(Generic[In, Out, Config, State]):
    """`@transcode.check(timeout=...)`."""

    _stage: ExternalStage[In, Out, Config, State]

    def __call__(
        self, fn: Callable[[StageContext[Config], State], Awaitable[Out | NotYet] | Out | NotYet], /
    ) -> ExternalStage[In, Out, Config, State]:
        """Make the same stage with this check. See `ExternalStage.check`."""
        return with_check(self._stage, fn)


class _CheckOptions:
    """What a check can be told."""

    __optional_keys__ = frozenset({"retry", "timeout"})


def with_check(stage: ExternalStage[Any, Any, Any, Any], fn: object) -> ExternalStage[Any, Any, Any, Any]:
    """Return a stage with a check. DefinitionError."""
    where = f"the check of stage {stage.name!r}"
    if not callable(fn):
        raise DefinitionError(f"{where} is made of a function, not of {fn!r}")
    body: Callable[..., object] = fn
    shape = read_shape(body, stage.name, gives=lambda form: _done(form, stage.output_type, where))
    if shape.values > 1 or not fits(stage.state_type, shape.input_type):
        raise DefinitionError(
            f"{where} takes {show(shape.input_type)}, but the stage is suspended with {show(stage.state_type)}"
        )
    return attrs.evolve(stage, check_body=body, check_shape=shape)


def suspended_types(form: Form, name: str) -> tuple[Form, Form]:
    """Return what describes the work, and what comes of it, of the body of an external stage. DefinitionError."""
    types = arguments(form)
    if origin_of(form) is not Suspended or len(types) != 2:
        raise DefinitionError(
            f"stage {name!r} gives {show(form)}; an external stage gives Suspended[State, Result],"
            " which suspend() and finished() make"
        )
    state, result = types
    try:
        check_type(state)
    except DefinitionError as error:
        raise DefinitionError(f"stage {name!r} is suspended with what can't be kept: {error}") from None
    return state, result


def _done(form: Form, output: object, where: str) -> Form:
    """Return what a check gives when the work is done, of all that it may give."""
    done = [one for one in members(form) if one is not NotYet]
    if len(done) == len(members(form)):
        raise DefinitionError(
            f"{where} gives {show(form)}; it must be able to say NotYet: -> {show(output)} | NotYet"
        )
    for one in done:
        if not fits(one, output):
            raise DefinitionError(f"{where} gives {show(one)}, but the stage gives {show(output)}")
    return output
