"""External stages: they submit work to another system, and poll for its result without a worker."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final, Generic, Never, overload

import attrs
from typing_extensions import TypeVar, override

from holdfast.kernel.authoring.body_types import Shape, check_storable, fits, is_async_body, read_shape
from holdfast.kernel.authoring.nodes import In, Out
from holdfast.kernel.authoring.options import Retry, check_options, to_timedelta
from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.kernel.authoring.stages import Config, ConfigurableStage
from holdfast.kernel.values.type_forms import Form, arguments, members, origin_of, show, unwrap
from holdfast.ports.durations import Duration
from holdfast.ports.errors import DefinitionError, InvalidArgumentError
from holdfast.ports.validation import AWARE, TEXT, check, duration

S = TypeVar("S")
T = TypeVar("T")
State = TypeVar("State", covariant=True)

KEY_MAX: Final = 255
"""Maximum length of the key of external work, in characters."""

CANCEL_RETRY: Final = Retry(attempts=10)
"""Default retry policy for cancelling external work: about ten minutes."""

CANCEL_TIMEOUT: Final = timedelta(minutes=1)
"""Default time limit of one attempt to cancel external work."""


@attrs.frozen(kw_only=True)
class Suspended(Generic[State, Out]):
    """The return value of an external stage's body, made by `suspend` or `completed`.

    Annotate the body `-> Suspended[State, Result]`: with the types of the stored state and of the stage's output.
    """

    state: object = None
    check_after: timedelta | None = None
    give_up_at: datetime | None = None
    key: str | None = None
    value: object = None

    @property
    def is_finished(self) -> bool:
        """Whether there is no external work to wait for, and `value` is the output of the stage."""
        return self.check_after is None


def _some_time(value: Duration | None) -> timedelta | None:
    return None if value is None else duration("NotReady", "check_after", value)


@attrs.frozen
class NotReady:
    """The return value of a check whose work is not done: `return NotReady()`.

    `NotReady(check_after=...)`, a timedelta or a number of seconds, changes the delay until the next check once.
    """

    check_after: timedelta | None = attrs.field(default=None, converter=_some_time)


def suspend(
    state: S, *, check_after: Duration, give_up_at: datetime | None = None, key: str | None = None
) -> Suspended[S, Never]:
    """Suspend the stage until its external work is done. A suspended stage needs no worker.

    Return the result from the body: `return suspend(job, check_after=timedelta(hours=1))`.

    Args:
        state: What the check needs to ask for the result, of the `State` type that the body declares.
        check_after: Delay before the first check and between checks: a timedelta or a number of seconds.
        give_up_at: Time of the last check, an aware datetime. If the work is not done by then, the stage fails.
        key: Name of the work for `engine.wake(key)`, which checks it at once. Default: the idempotency key of the
            stage.

    Raises:
        InvalidArgumentError: An argument is invalid.
    """
    after = duration("suspend", "check_after", check_after)
    check("suspend", AWARE.or_none, give_up_at=give_up_at)
    check("suspend", TEXT.or_none, key=key)
    if key is not None and not 1 <= len(key) <= KEY_MAX:
        raise InvalidArgumentError(
            "key", f"suspend: key has {len(key)} characters; it must have 1 to {KEY_MAX}"
        )
    return Suspended(state=state, check_after=after, give_up_at=give_up_at, key=key)


def completed(value: T) -> Suspended[Never, T]:
    """Return the result of an external stage without suspending it, because the work is done already."""
    return Suspended(value=value)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ExternalStage(ConfigurableStage[In, Out, Config], Generic[In, Out, Config, State]):
    """A stage whose work is done by another system, made by `@stage.external`."""

    state_type: object
    """Type of the state that the body passes to the check."""
    check_body: Callable[..., object] | None = None
    """The function that polls; None until `check` sets it."""
    check_shape: Shape | None = None
    """Its parameters and return type."""
    check_retry: Retry | None = None
    """Its retry policy; None for that of the stage."""
    check_timeout: timedelta | None = attrs.field(default=None, converter=to_timedelta)
    """Time limit of one check; None for that of the stage."""
    cancel_body: Callable[..., object] | None = None
    """The function that cancels the work, or None."""
    cancel_shape: Shape | None = None
    """Its parameters."""
    cancel_retry: Retry | None = None
    """Its retry policy; None for `CANCEL_RETRY`."""
    cancel_timeout: timedelta | None = attrs.field(default=None, converter=to_timedelta)
    """Time limit of one attempt; None for `CANCEL_TIMEOUT`."""

    @override
    def _check_remote(self) -> None:
        raise DefinitionError(
            f"external stage {self.name!r} can't be remote: its worker submits and polls the work; use a remote stage"
            " that does the work itself, or leave remote=True out"
        )

    @overload
    def check(
        self, fn: Callable[[StageContext[Config], State], Awaitable[Out | NotReady] | Out | NotReady], /
    ) -> "ExternalStage[In, Out, Config, State]": ...
    @overload
    def check(
        self, /, *, retry: Retry | None = None, timeout: Duration | None = None
    ) -> "CheckDecorator[In, Out, Config, State]": ...
    def check(
        self, fn: object = None, /, *, retry: Retry | None = None, timeout: Duration | None = None
    ) -> object:
        """Return a copy of the stage with a check: a function that takes the state, or the context and the state.

        It returns the stage's output if the work is done, and `NotReady()` if it is not. If the work failed, it raises
        GiveUp, or an error in `give_up_on` of the stage's retry policy. After any other error the check is repeated.

        Example:
            @render.check(timeout=30)
            def rendered(ctx: StageContext, job: str) -> str | NotReady: ...

        Raises:
            DefinitionError: The function does not take the state, or has another return type.
        """
        options = {"retry": retry, "timeout": timeout}
        _check_body_options(options, "check")
        stage = attrs.evolve(self, check_retry=retry, check_timeout=to_timedelta(timeout))
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
        """Return a copy of the stage with a function that cancels its work when the result is no longer needed.

        The function takes the state, or the context and the state, and returns None. It is called at least once: when
        the run ends while the stage is suspended, when the stage gives up, and for items that a map completes without.
        It must accept work that has ended or never existed.

        Args:
            fn: The function.
            retry: Its retry policy. Default: `Retry(attempts=10)`.
            timeout: Time limit of one attempt. Default: one minute.

        Raises:
            DefinitionError: The function does not take the state, or returns something.
        """
        _check_body_options({"retry": retry, "timeout": timeout}, "cancel")
        stage = attrs.evolve(self, cancel_retry=retry, cancel_timeout=to_timedelta(timeout))
        return CancelDecorator(stage) if fn is None else with_cancel(stage, fn)

    @cached_property
    def is_cancel_async(self) -> bool:
        """Whether the function that cancels is async."""
        return self.cancel_body is not None and is_async_body(self.cancel_body)

    @cached_property
    def is_check_async(self) -> bool:
        """Whether the check is async."""
        return self.check_body is not None and is_async_body(self.check_body)

    def check_arguments(self, state: object, context: StageContext[Any] | None) -> tuple[object, ...]:
        """Return the arguments for the check."""
        return _arguments(self.check_shape, state, context)

    def cancel_arguments(self, state: object, context: StageContext[Any] | None) -> tuple[object, ...]:
        """Return the arguments for the function that cancels."""
        return _arguments(self.cancel_shape, state, context)


@attrs.frozen
class CheckDecorator(Generic[In, Out, Config, State]):
    """The decorator that `@render.check(timeout=...)` returns."""

    _stage: ExternalStage[In, Out, Config, State]

    def __call__(
        self, fn: Callable[[StageContext[Config], State], Awaitable[Out | NotReady] | Out | NotReady], /
    ) -> ExternalStage[In, Out, Config, State]:
        """Return a copy of the stage with this check. See `ExternalStage.check`."""
        return with_check(self._stage, fn)


@attrs.frozen
class CancelDecorator(Generic[In, Out, Config, State]):
    """The decorator that `@render.cancel(timeout=...)` returns."""

    _stage: ExternalStage[In, Out, Config, State]

    def __call__(
        self, fn: Callable[[StageContext[Config], State], Awaitable[None] | None], /
    ) -> ExternalStage[In, Out, Config, State]:
        """Return a copy of the stage with this function. See `ExternalStage.cancel`."""
        return with_cancel(self._stage, fn)


class _Options:
    """Options of `check` and `cancel`, in the form that `check_options` reads."""

    __optional_keys__ = frozenset({"retry", "timeout"})


def _check_body_options(options: Mapping[str, object], what: str) -> None:
    check_options({name: value for name, value in options.items() if value is not None}, _Options, what)


def _arguments(shape: Shape | None, state: object, context: StageContext[Any] | None) -> tuple[object, ...]:
    assert shape is not None
    first = (context,) if shape.takes_context else ()
    return (*first, state) if shape.values else first


def with_check(stage: ExternalStage[Any, Any, Any, Any], fn: object) -> ExternalStage[Any, Any, Any, Any]:
    """Return a copy of a stage with a check. Raises DefinitionError."""
    where = f"the check of stage {stage.name!r}"
    body, shape = _read_state_function(
        stage, fn, where, lambda form: _read_check_output(form, stage.output_type, where)
    )
    return attrs.evolve(stage, check_body=body, check_shape=shape)


def with_cancel(stage: ExternalStage[Any, Any, Any, Any], fn: object) -> ExternalStage[Any, Any, Any, Any]:
    """Return a copy of a stage with a function that cancels its work. Raises DefinitionError."""
    where = f"what cancels the work of stage {stage.name!r}"
    body, shape = _read_state_function(stage, fn, where, lambda form: _check_returns_none(form, where))
    return attrs.evolve(stage, cancel_body=body, cancel_shape=shape)


def _read_state_function(
    stage: ExternalStage[Any, Any, Any, Any], fn: object, where: str, unwrap_output: Callable[[Form], Form]
) -> tuple[Callable[..., object], Shape]:
    """Return a function that takes the state, and its shape. Raises DefinitionError."""
    if not callable(fn):
        raise DefinitionError(f"{where} needs a function, not {fn!r}")
    body: Callable[..., object] = fn
    shape = read_shape(body, stage.name, unwrap_output=unwrap_output)
    if shape.values > 1 or not fits(stage.state_type, shape.input_type):
        raise DefinitionError(
            f"{where} takes {show(shape.input_type)}, but the stage is suspended with {show(stage.state_type)}"
        )
    return body, shape


def _check_returns_none(form: Form, where: str) -> Form:
    if unwrap(form) not in (None, type(None)):
        raise DefinitionError(f"{where} returns {show(form)}, which is never used; write -> None")
    return form


def suspended_types(form: Form, name: str) -> tuple[Form, Form]:
    """Return `State` and `Result` of a body annotated `-> Suspended[State, Result]`. Raises DefinitionError."""
    types = arguments(form)
    if origin_of(form) is not Suspended or len(types) != 2:
        raise DefinitionError(
            f"stage {name!r} returns {show(form)}; an external stage returns Suspended[State, Result],"
            " which suspend() and completed() make"
        )
    state, result = types
    check_storable(state, f"stage {name!r} is suspended with a state that can't be stored")
    return state, result


def _read_check_output(form: Form, output: object, where: str) -> Form:
    """Return the output type of a check, without `NotReady`. Raises DefinitionError."""
    done = [one for one in members(form) if one is not NotReady]
    if len(done) == len(members(form)):
        raise DefinitionError(
            f"{where} returns {show(form)}; it must be able to return NotReady: -> {show(output)} | NotReady"
        )
    for one in done:
        if not fits(one, output):
            raise DefinitionError(f"{where} returns {show(one)}, but the stage returns {show(output)}")
    return output
