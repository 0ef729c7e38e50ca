"""External stages: they hand their work on to something outside, and are asked later whether it is done."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final, Generic, Never, overload

import attrs
from typing_extensions import TypeVar

from holdfast.kernel.authoring.body_types import Shape, fits, is_async_body, read_shape
from holdfast.kernel.authoring.nodes import In, Out
from holdfast.kernel.authoring.options import Retry, check_options, kept_length
from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.kernel.authoring.stages import Config, ConfigurableStage
from holdfast.kernel.values import check_type
from holdfast.kernel.values.type_forms import Form, arguments, members, origin_of, plain, show
from holdfast.ports.durations import Duration
from holdfast.ports.errors import DefinitionError, InvalidArgumentError
from holdfast.ports.validation import AWARE, TEXT, check, duration

S = TypeVar("S")
T = TypeVar("T")
State = TypeVar("State", covariant=True)

KEY_MAX: Final = 255
"""How many characters the key of external work may have."""

CANCEL_RETRY: Final = Retry(attempts=10)
"""How often, and how patiently, external work is cancelled where nothing else is said: for about ten minutes."""

CANCEL_TIMEOUT: Final = timedelta(minutes=1)
"""How long one attempt to cancel it may take where nothing else is said."""


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


def _some_time(value: Duration | None) -> timedelta | None:
    return None if value is None else duration("NotYet", "check_after", value)


@attrs.frozen
class NotYet:
    """What a check gives if the work is not done: ask again, as before or after `check_after`.

    That is a timedelta, or a number of seconds.
    """

    check_after: timedelta | None = attrs.field(default=None, converter=_some_time)


def suspend(
    state: S, *, check_after: Duration, give_up_at: datetime | None = None, key: str | None = None
) -> Suspended[S, Never]:
    """Wait for work that was handed on. No worker is needed meanwhile.

    Args:
        state: What the check needs to ask about it. A value, of the type that the stage declares.
        check_after: When the check is made first, and how long it waits before it asks again: a timedelta, or a number
            of seconds.
        give_up_at: The check that is made then, or later, is the last one: if the work is not done, the stage fails.
            Aware.
        key: By what others name the work who can say that it is done: `engine.wake(key=...)` has it checked at once.
            If left out it is the idempotency key of the stage.

    Raises:
        InvalidArgumentError: One of these can't be.
    """
    after = duration("suspend", "check_after", check_after)
    check("suspend", AWARE.or_none, give_up_at=give_up_at)
    check("suspend", TEXT.or_none, key=key)
    if key is not None and not 1 <= len(key) <= KEY_MAX:
        raise InvalidArgumentError(
            "key", f"suspend: key has {len(key)} characters; it must have 1 to {KEY_MAX}"
        )
    return Suspended(state=state, check_after=after, give_up_at=give_up_at, key=key)


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
        cancel_body: What cancels it, once nobody waits for it any more; None if nothing does.
        cancel_shape: What that takes.
        cancel_retry, cancel_timeout: How it is treated.
    """

    state_type: object
    check_body: Callable[..., object] | None = None
    check_shape: Shape | None = None
    check_retry: Retry | None = None
    check_timeout: timedelta | None = attrs.field(default=None, converter=kept_length)
    cancel_body: Callable[..., object] | None = None
    cancel_shape: Shape | None = None
    cancel_retry: Retry | None = None
    cancel_timeout: timedelta | None = attrs.field(default=None, converter=kept_length)

    @overload
    def check(
        self, fn: Callable[[StageContext[Config], State], Awaitable[Out | NotYet] | Out | NotYet], /
    ) -> "ExternalStage[In, Out, Config, State]": ...
    @overload
    def check(
        self, /, *, retry: Retry | None = None, timeout: Duration | None = None
    ) -> "CheckDecorator[In, Out, Config, State]": ...
    def check(
        self, fn: object = None, /, *, retry: Retry | None = None, timeout: Duration | None = None
    ) -> object:
        """Make the same stage with a check, of a function that is given the state, or the context and the state.

        It gives what the stage gives, if the work is done, and `NotYet()` if it is not. If the work failed it raises:
        what the stage's retry says to give up on, or GiveUp. Whatever else it raises only has it made again.

        Raises:
            DefinitionError: The function does not take the state, or gives something else.
        """
        options = {"retry": retry, "timeout": timeout}
        _check_body_options(options, "check")
        stage = attrs.evolve(self, check_retry=retry, check_timeout=kept_length(timeout))
        return CheckDecorator(stage) if fn is None else with_check(stage, fn)

    @overload
    def cancel(
        self, fn: Callable[[StageContext[Config], State], Awaitable[None] | None], /
    ) -> "ExternalStage[In, Out, Config, State]": ...
    @overload
    def cancel(
        self, /, *, retry: Retry | None = None, timeout: Duration | None = None
    ) -> "CancelDecorator[In, Out, Config, State]": ...
    def cancel(
        self, fn: object = None, /, *, retry: Retry | None = None, timeout: Duration | None = None
    ) -> object:
        """Make the same stage with what cancels its work once nobody waits for it any more.

        That is a function that is given the state, or the context and the state, and gives nothing. It is called, at
        least once, when the run ends while the stage is suspended, whatever ends it; when the stage gives up; and for
        items that a map is done without. Work that is over, or was never there, is none of its errors.

        Args:
            fn: The function.
            retry: How often, and how patiently, it is tried; `CANCEL_RETRY` if left out. Then it is given up.
            timeout: How long one attempt may take; `CANCEL_TIMEOUT` if left out.

        Raises:
            DefinitionError: The function does not take the state, or gives something.
        """
        _check_body_options({"retry": retry, "timeout": timeout}, "cancel")
        stage = attrs.evolve(self, cancel_retry=retry, cancel_timeout=kept_length(timeout))
        return CancelDecorator(stage) if fn is None else with_cancel(stage, fn)

    @cached_property
    def is_cancel_async(self) -> bool:
        """Whether calling what cancels gives something to await."""
        return self.cancel_body is not None and is_async_body(self.cancel_body)

    @cached_property
    def is_check_async(self) -> bool:
        """Whether calling the check gives something to await."""
        return self.check_body is not None and is_async_body(self.check_body)

    def check_arguments(self, state: object, context: StageContext[Any] | None) -> tuple[object, ...]:
        """Return what to call the check with."""
        return _arguments(self.check_shape, state, context)

    def cancel_arguments(self, state: object, context: StageContext[Any] | None) -> tuple[object, ...]:
        """Return what to call that with which cancels."""
        return _arguments(self.cancel_shape, state, context)


@attrs.frozen
class CheckDecorator(Generic[In, Out, Config, State]):
    """`@transcode.check(timeout=...)`."""

    _stage: ExternalStage[In, Out, Config, State]

    def __call__(
        self, fn: Callable[[StageContext[Config], State], Awaitable[Out | NotYet] | Out | NotYet], /
    ) -> ExternalStage[In, Out, Config, State]:
        """Make the same stage with this check. See `ExternalStage.check`."""
        return with_check(self._stage, fn)


@attrs.frozen
class CancelDecorator(Generic[In, Out, Config, State]):
    """`@transcode.cancel(timeout=...)`."""

    _stage: ExternalStage[In, Out, Config, State]

    def __call__(
        self, fn: Callable[[StageContext[Config], State], Awaitable[None] | None], /
    ) -> ExternalStage[In, Out, Config, State]:
        """Make the same stage with this. See `ExternalStage.cancel`."""
        return with_cancel(self._stage, fn)


class _Options:
    """What a check, and what cancels, can be told."""

    __optional_keys__ = frozenset({"retry", "timeout"})


def _check_body_options(options: Mapping[str, object], what: str) -> None:
    check_options({name: value for name, value in options.items() if value is not None}, _Options, what)


def _arguments(shape: Shape | None, state: object, context: StageContext[Any] | None) -> tuple[object, ...]:
    assert shape is not None
    first = (context,) if shape.takes_context else ()
    return (*first, state) if shape.values else first


def with_check(stage: ExternalStage[Any, Any, Any, Any], fn: object) -> ExternalStage[Any, Any, Any, Any]:
    """Return a stage with a check. DefinitionError."""
    where = f"the check of stage {stage.name!r}"
    body, shape = _of_state(stage, fn, where, lambda form: _done(form, stage.output_type, where))
    return attrs.evolve(stage, check_body=body, check_shape=shape)


def with_cancel(stage: ExternalStage[Any, Any, Any, Any], fn: object) -> ExternalStage[Any, Any, Any, Any]:
    """Return a stage with what cancels its work. DefinitionError."""
    where = f"what cancels the work of stage {stage.name!r}"
    body, shape = _of_state(stage, fn, where, lambda form: _nothing(form, where))
    return attrs.evolve(stage, cancel_body=body, cancel_shape=shape)


def _of_state(
    stage: ExternalStage[Any, Any, Any, Any], fn: object, where: str, unwrap_output: Callable[[Form], Form]
) -> tuple[Callable[..., object], Shape]:
    """Return a function that is given the state, with its shape. DefinitionError."""
    if not callable(fn):
        raise DefinitionError(f"{where} is made of a function, not of {fn!r}")
    body: Callable[..., object] = fn
    shape = read_shape(body, stage.name, unwrap_output=unwrap_output)
    if shape.values > 1 or not fits(stage.state_type, shape.input_type):
        raise DefinitionError(
            f"{where} takes {show(shape.input_type)}, but the stage is suspended with {show(stage.state_type)}"
        )
    return body, shape


def _nothing(form: Form, where: str) -> Form:
    if plain(form) not in (None, type(None)):
        raise DefinitionError(f"{where} gives {show(form)}, which nobody would be given; write -> None")
    return form


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
