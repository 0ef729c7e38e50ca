"""Stands in for the bodies of stages in a `World`, and remembers how bodies were called."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Generic, Self, cast

import attrs
from typing_extensions import TypeVar

from holdfast.hosts.bodies import Body, idempotency_key
from holdfast.kernel.authoring.children import ChildStage
from holdfast.kernel.authoring.external import ExternalStage, Suspended, finished
from holdfast.kernel.authoring.shapes import Shape, is_async_body
from holdfast.kernel.authoring.stages import Stage
from holdfast.kernel.values import decode
from holdfast.ports.clock import instant
from holdfast.ports.records import JobKind

A = TypeVar("A")
R = TypeVar("R")
In = TypeVar("In", covariant=True)

AnyStage = Stage[Any, Any]


@attrs.frozen(kw_only=True)
class StageCall(Generic[In]):
    """A body that was started.

    Attributes:
        run_id: Of which run.
        stage: The name of the stage.
        item: Which item of a mapped stage; None if the stage is not mapped.
        attempt: Which attempt it was, from 1.
        idempotency_key: That of its context: the same for every attempt.
        at: When it was started, by the world's clock.
    """

    run_id: str
    stage: str
    item: int | None
    attempt: int
    idempotency_key: str
    at: datetime
    _text: str = attrs.field(alias="text", repr=False)
    _type: object = attrs.field(alias="type", repr=False)

    @property
    def input(self) -> In:
        """What the body was given: decoded anew from what is stored, so it is what it was then."""
        return cast("In", decode(self._text, cast("Any", self._type)))


@attrs.frozen
class _Action:
    """What a stub does, so many times; None: for ever."""

    call: Callable[[Any], object] | None
    times: int | None


class Stub(Generic[A, R]):
    """Stands in for a stage: does one thing after another, and then what the stage really does.

    Made by `World.stub` and `World.stub_check`. What it gives is checked and stored as what the stage gives.
    """

    def __init__(self, name: str, calls: "Callable[[], tuple[StageCall[A], ...]]") -> None:
        self._name = name
        self._calls = calls
        self._actions: list[_Action] = []

    @property
    def calls(self) -> tuple[StageCall[A], ...]:
        """How the stage was called in this world, in order; also before it was stubbed, and what no stub answered."""
        return self._calls()

    def returns(self, *values: R) -> Self:
        """Give these, one a call; the last from then on."""
        if not values:
            raise TypeError("returns takes the values to give, one a call; the last is given from then on")
        *first, last = values
        for value in first:
            self._then(_giving(value), 1)
        return self._then(_giving(last), None)

    def fails(self, error: Exception | type[Exception], /, *, times: int | None = None) -> Self:
        """Raise this error, so many times; without `times` from then on."""

        def fail(_: object) -> object:
            raise error if isinstance(error, type) else error.with_traceback(None)

        return self._then(fail, times)

    def does(self, fn: Callable[[A], Awaitable[R] | R], /, *, times: int | None = None) -> Self:
        """Call this with what the stage is given, so many times; without `times` from then on."""
        return self._then(fn, times)

    def calls_stage(self, *, times: int) -> Self:
        """Do what the stage really does, so many times: before something else."""
        return self._then(None, times)

    def take(self) -> Callable[[Any], object] | None:
        """Return what the next call does; None if that is what the stage really does. Called by the world."""
        if not self._actions:
            return None
        action = self._actions[0]
        if action.times is not None:
            self._actions[0] = attrs.evolve(action, times=action.times - 1)
            if action.times == 1:
                del self._actions[0]
        return action.call

    def _then(self, call: Callable[[Any], object] | None, times: int | None) -> Self:
        if times is not None and times < 1:
            raise ValueError(f"times is {times!r}; it is 1 or more")
        if self._actions and self._actions[-1].times is None:
            raise ValueError(
                f"the stub of {self._name!r} does something for ever already; what is added would never be done"
            )
        self._actions.append(_Action(call, times))
        return self


class Stubs:
    """All stubs of a world, and all calls of its bodies."""

    def __init__(self) -> None:
        self._stubs: dict[tuple[str, Callable[..., object], bool], Stub[Any, Any]] = {}
        self._calls: dict[tuple[str, Callable[..., object], bool], list[StageCall[Any]]] = {}

    def add(self, stage: AnyStage, *, check: bool) -> Stub[Any, Any]:
        """Return a stub that stands in for a stage from now on, or for its check; an earlier one does so no more."""
        if isinstance(stage, ChildStage):
            raise TypeError(
                f"stage {stage.name!r} is a pipeline, which has no body to stand in for: stub its stages"
            )
        if check and _check_of(stage) is None:
            raise TypeError(
                f"stage {stage.name!r} has no check: only @stage.external makes stages that have one"
            )
        key = _key(stage, check)
        self._stubs[key] = stub = Stub[Any, Any](stage.name, lambda: self.calls(stage, check=check))
        return stub

    def calls(self, stage: AnyStage, *, check: bool) -> tuple[StageCall[Any], ...]:
        """Return how a stage was called, or its check."""
        return tuple(self._calls.get(_key(stage, check), ()))

    def substituted(self, body: Body) -> Body:
        """Note that a body is about to be called; return what is to be called in its place."""
        if body.test is not None or body.is_ours or body.work.error is not None:
            return body
        check = body.attempt.kind is JobKind.CHECK
        key = _key(body.stage, check)
        self._calls.setdefault(key, []).append(_call(body, check=check))
        stub = self._stubs.get(key)
        action = None if stub is None else stub.take()
        return (
            body
            if action is None
            else attrs.evolve(body, stage=_standing_in(body.stage, action, check=check))
        )


def _key(stage: AnyStage, check: bool) -> tuple[str, Callable[..., object], bool]:
    # What a pipeline holds is a changed copy of the stage; its name and its function are the same.
    return stage.name, stage.body, check


def _call(body: Body, *, check: bool) -> StageCall[Any]:
    attempt, stage = body.attempt, body.stage
    known = cast("ExternalStage[Any, Any, Any, Any]", stage).state_type if check else stage.input_type
    is_given = check or stage.shape.values > 0
    return StageCall(
        run_id=body.work.run.id,
        stage=attempt.node,
        item=attempt.item,
        attempt=attempt.attempt,
        idempotency_key=idempotency_key(attempt),
        at=instant(body.started_at),
        text=body.work.input if is_given else "null",
        type=known if is_given else type(None),
    )


def _standing_in(stage: AnyStage, action: Callable[[Any], object], *, check: bool) -> AnyStage:
    """Return a stage, or one with a check, whose function is another one that takes the value alone."""
    if check:
        external = cast("ExternalStage[Any, Any, Any, Any]", stage)
        assert external.check_shape is not None
        shape = _alone(external.check_shape)
        return attrs.evolve(external, check_body=_taking(action, _as_it_is), check_shape=shape)
    gives = _handed_on if _is_external(stage) else _as_it_is
    return attrs.evolve(stage, body=_taking(action, gives), shape=_alone(stage.shape))


def _is_external(stage: AnyStage) -> bool:
    return isinstance(stage, ExternalStage)


def _check_of(stage: AnyStage) -> object:
    return cast("ExternalStage[Any, Any, Any, Any]", stage).check_body if _is_external(stage) else None


def _alone(shape: Shape) -> Shape:
    return attrs.evolve(shape, takes_context=False, values=min(shape.values, 1))


def _taking(action: Callable[[Any], object], gives: Callable[[object], object]) -> Callable[..., object]:
    """Return a function that can be called without a value, and is async if the action is."""

    def call(value: object = None) -> object:
        return gives(action(value))

    async def call_async(value: object = None) -> object:
        return gives(await cast("Awaitable[object]", action(value)))

    return call_async if is_async_body(action) else call


def _handed_on(gave: object) -> object:
    """Return what an external stage gives, where only what comes of its work was given."""
    return cast("object", gave) if isinstance(gave, Suspended) else finished(gave)


def _as_it_is(gave: object) -> object:
    return gave


def _giving(value: object) -> Callable[[object], object]:
    return lambda _: value
