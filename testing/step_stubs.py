"""Stands in for the bodies of steps in a `World`, and remembers how they were called."""

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
    """A try of a step that was started.

    Attributes:
        run_id: Of which run.
        workflow: The name of the durable function that called it.
        step: The name of the step.
        attempt: The how-manieth try of that call it was, from 1.
        idempotency_key: That of `step_context()`: the same for every try of one call.
        at: When it was started, by the world's clock.
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
        """What it was called with, by the names of its parameters; those that were left out have their defaults.

        Decoded anew from what is stored, so it is what it was then.
        """
        bound = self._form.decode(self._text)
        bound.apply_defaults()
        return dict(bound.arguments)


class StepStub(Generic[P, R]):
    """Stands in for a step: does one thing after another, and then what the step really does.

    Made by `World.stub`. What it gives is checked and stored as what the step gives.
    """

    def __init__(self, step: Step[P, R], calls: Callable[[], tuple[StepCall, ...]]) -> None:
        self._step = step
        self._calls = calls
        self._script = Script(step.name)

    @property
    def calls(self) -> tuple[StepCall, ...]:
        """Which tries of the step were started in this world, in order; also before it was stubbed."""
        return self._calls()

    def returns(self, *values: R) -> Self:
        """Give these, one a call; the last from then on."""
        self._script.returns(values)
        return self

    def fails(self, error: Exception | type[Exception], /, *, times: int | None = None) -> Self:
        """Raise this error, so many times; without `times` from then on."""
        self._script.fails(error, times)
        return self

    def does(self, fn: Callable[P, Awaitable[R] | R], /, *, times: int | None = None) -> Self:
        """Call this with what the step is called with, so many times; without `times` from then on."""
        self._script.does(fn, times)
        return self

    def calls_step(self, *, times: int) -> Self:
        """Do what the step really does, so many times: before something else."""
        self._script.lets(times)
        return self

    def assert_called_once_with(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """AssertionError unless a single try of the step was started, with these arguments.

        To leave out an argument is to say its default. Each try counts: a call that was tried twice was not made once.
        """
        __tracebackhide__ = True
        expected = self._bound(args, kwargs)
        calls = self.calls
        if len(calls) != 1:
            raise AssertionError(f"step {self._step.name!r} was called {_times(len(calls))}{_listed(calls)}")
        if dict(calls[0].arguments) != expected:
            raise AssertionError(
                f"step {self._step.name!r} was called with {_arguments_text(calls[0].arguments)}, "
                f"not with {_arguments_text(expected)}"
            )

    def assert_not_called(self) -> None:
        """AssertionError if a try of the step was started."""
        __tracebackhide__ = True
        if calls := self.calls:
            raise AssertionError(f"step {self._step.name!r} was called {_times(len(calls))}{_listed(calls)}")

    def take(self) -> Callable[..., object] | None:
        """Return what the next try does; None if that is what the step really does. Called by the world."""
        return self._script.take()

    def _bound(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
        bound = self._step.form.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)


class StepStubs:
    """All stubs of steps of a world, or of one run of a simulation, and all calls of steps."""

    def __init__(self) -> None:
        self._stubs: dict[_Key, StepStub[..., Any]] = {}
        self._calls: dict[_Key, list[StepCall]] = {}

    def add(self, step: Step[P, R]) -> StepStub[P, R]:
        """Return a stub that stands in for a step from now on; an earlier one does so no more."""
        stub = StepStub(step, lambda: self.calls(step))
        self._stubs[_key(step)] = cast("StepStub[..., Any]", stub)
        return stub

    def calls(self, step: AnyStep) -> tuple[StepCall, ...]:
        """Return which tries of a step were started."""
        return tuple(self._calls.get(_key(step), ()))

    def watched(self, step: AnyStep, clock: Clock) -> AnyStep:
        """Return what is done in place of a step: the same, but that it is noted, or what its stub does."""
        stub = self._stubs.get(_key(step))
        action = stub.take() if stub is not None else None
        calls = self._calls.setdefault(_key(step), [])
        # What stands in for a step needs no transaction, and is not given one.
        stood_in = step if action is None else attrs.evolve(step, body=action, transaction=None)
        return attrs.evolve(
            stood_in,
            body=noting(stood_in, lambda args, kwargs: calls.append(_call(step, args, kwargs, clock.now()))),
        )


def noting(
    step: AnyStep, note: Callable[[tuple[object, ...], dict[str, object]], None]
) -> Callable[..., object]:
    """Return the body of a step, which first tells what it is called with; async if that of the step is."""
    injected = 0 if step.transaction is None else 1

    def call(*args: object, **kwargs: object) -> object:
        note(args[injected:], kwargs)
        return step.body(*args, **kwargs)

    async def call_async(*args: object, **kwargs: object) -> object:
        note(args, kwargs)
        return await cast("Awaitable[object]", step.body(*args, **kwargs))

    return call_async if step.is_async else call


def _key(step: AnyStep) -> _Key:
    # `step.options(...)` gives a changed copy; its name and its function are the same.
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


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


def _listed(calls: tuple[StepCall, ...]) -> str:
    return "".join(f"\n- attempt {call.attempt}, with {_arguments_text(call.arguments)}" for call in calls)


def _arguments_text(arguments: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items()) or "nothing"
