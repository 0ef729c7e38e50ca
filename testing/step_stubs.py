"""Stubs of steps in a `World`, and records of their calls."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Generic, ParamSpec, Self, cast

import attrs
from typing_extensions import TypeVar

from holdfast.kernel.authoring.call_types import CallForm
from holdfast.kernel.authoring.step_context import step_context
from holdfast.kernel.authoring.steps import Step
from holdfast.ports.clock import Clock
from holdfast.testing.scripts import Script

P = ParamSpec("P")
R = TypeVar("R")

AnyStep = Step[..., Any]
_Key = tuple[str, Callable[..., object]]


@attrs.frozen(kw_only=True)
class StepCall:
    """A started attempt of a step.

    Attributes:
        run_id: The run.
        workflow: The name of the durable function that called the step.
        step: The name of the step.
        attempt: The number of the attempt at this call, from 1.
        idempotency_key: The key in `step_context()`, the same for every attempt of one call.
        at: When it started, by the world's clock.
    """

    run_id: str
    workflow: str
    step: str
    attempt: int
    idempotency_key: str
    at: datetime
    _text: str = attrs.field(alias="text", repr=False)
    _form: CallForm = attrs.field(alias="form", repr=False)

    @property
    def arguments(self) -> Mapping[str, object]:
        """The arguments by parameter name, with defaults filled in.

        They are decoded from the stored call, so later changes of the objects do not show.
        """
        bound = self._form.decode(self._text)
        bound.apply_defaults()
        return dict(bound.arguments)


class StepStub(Generic[P, R]):
    """Replaces a step: performs a sequence of actions, and then the original body.

    Created by `World.stub`. Its results are validated and stored like those of the step.
    """

    def __init__(self, step: Step[P, R], calls: Callable[[], tuple[StepCall, ...]]) -> None:
        self._step = step
        self._calls = calls
        self._script = Script(step.name)

    @property
    def calls(self) -> tuple[StepCall, ...]:
        """The started attempts of the step in this world, in order, including those before it was stubbed."""
        return self._calls()

    def returns(self, *values: R) -> Self:
        """Return these values, one per call; repeat the last one for all further calls."""
        self._script.returns(values)
        return self

    def fails(self, error: Exception | type[Exception], /, *, times: int | None = None) -> Self:
        """Raise an error for this number of calls; without `times` for all further calls."""
        self._script.fails(error, times)
        return self

    def does(self, fn: Callable[P, Awaitable[R] | R], /, *, times: int | None = None) -> Self:
        """Call a function with the step's arguments for this number of calls; without `times` for all further calls."""
        self._script.does(fn, times)
        return self

    def calls_step(self, *, times: int) -> Self:
        """Call the step's own body for this number of calls, before the next action."""
        self._script.lets(times)
        return self

    def assert_called_once_with(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Assert that exactly one attempt of the step was started, with these arguments. Raises AssertionError.

        An omitted argument has its default. Retries count: a call with two attempts was not made once.
        """
        __tracebackhide__ = True
        expected = self._bound(args, kwargs)
        calls = self.calls
        if len(calls) != 1:
            raise AssertionError(
                f"expected one call of step {self._step.name!r}, got {len(calls)}{_listed(calls)}"
            )
        if dict(calls[0].arguments) != expected:
            raise AssertionError(
                f"expected a call of step {self._step.name!r} with {_arguments_text(expected)},"
                f" got {_arguments_text(calls[0].arguments)}"
            )

    def assert_not_called(self) -> None:
        """Assert that no attempt of the step was started. Raises AssertionError."""
        __tracebackhide__ = True
        if calls := self.calls:
            raise AssertionError(
                f"expected no call of step {self._step.name!r}, got {len(calls)}{_listed(calls)}"
            )

    def take(self) -> Callable[..., object] | None:
        """Return the action of the next attempt; None for the original body. For the world."""
        return self._script.take()

    def _bound(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
        bound = self._step.form.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)


class StepStubs:
    """All stubs and recorded calls of steps, of a world or of one run of a simulation."""

    def __init__(self) -> None:
        self._stubs: dict[_Key, StepStub[..., Any]] = {}
        self._calls: dict[_Key, list[StepCall]] = {}

    def add(self, step: Step[P, R]) -> StepStub[P, R]:
        """Create a stub that replaces a step from now on, and any earlier stub of it."""
        stub = StepStub(step, lambda: self.calls(step))
        self._stubs[_key(step)] = cast("StepStub[..., Any]", stub)
        return stub

    def calls(self, step: AnyStep) -> tuple[StepCall, ...]:
        """Return the started attempts of a step."""
        return tuple(self._calls.get(_key(step), ()))

    def watched(self, step: AnyStep, clock: Clock) -> AnyStep:
        """Return a step to run instead: it records the call, and has the action of a stub if there is one."""
        stub = self._stubs.get(_key(step))
        action = stub.take() if stub is not None else None
        calls = self._calls.setdefault(_key(step), [])
        # A replacement is not passed a transaction.
        stood_in = step if action is None else attrs.evolve(step, body=action, transaction=None)
        return attrs.evolve(
            stood_in,
            body=noting(stood_in, lambda args, kwargs: calls.append(_call(step, args, kwargs, clock.now()))),
        )


def noting(
    step: AnyStep, note: Callable[[tuple[object, ...], dict[str, object]], None]
) -> Callable[..., object]:
    """Return the body of a step that first passes its arguments to `note`; async if the step is."""
    injected = 0 if step.transaction is None else 1

    def call(*args: object, **kwargs: object) -> object:
        note(args[injected:], kwargs)
        return step.body(*args, **kwargs)

    async def call_async(*args: object, **kwargs: object) -> object:
        note(args, kwargs)
        return await cast("Awaitable[object]", step.body(*args, **kwargs))

    return call_async if step.is_async else call


def _key(step: AnyStep) -> _Key:
    # `step.options(...)` returns a changed copy, which has the same name and function.
    return step.name, step.body


def _call(step: AnyStep, args: tuple[object, ...], kwargs: dict[str, object], at: datetime) -> StepCall:
    context = step_context()
    return StepCall(
        run_id=context.run_id,
        workflow=context.workflow,
        step=context.step,
        attempt=context.attempt,
        idempotency_key=context.idempotency_key,
        at=at,
        text=step.form.encode(args, kwargs),
        form=step.form,
    )


def _listed(calls: tuple[StepCall, ...]) -> str:
    return "".join(f"\n- attempt {call.attempt}, with {_arguments_text(call.arguments)}" for call in calls)


def _arguments_text(arguments: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items()) or "nothing"
