"""Stubs of stages and steps in a `World`, and records of their calls."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Final, Generic, Literal, NoReturn, ParamSpec, Self, TypeAlias, cast, overload

import attrs
from typing_extensions import TypeVar

from holdfast.hosts.execution.bodies import Body, idempotency_key
from holdfast.kernel.authoring.body_types import Shape, is_async_body
from holdfast.kernel.authoring.child_stages import ChildStage
from holdfast.kernel.authoring.external import ExternalStage, NotReady, Suspended, completed
from holdfast.kernel.authoring.functions import FunctionStage
from holdfast.kernel.authoring.stages import Stage
from holdfast.kernel.authoring.steps import Step
from holdfast.kernel.values import decode
from holdfast.ports.clock import instant
from holdfast.ports.errors import GiveUp, InvalidArgumentError
from holdfast.ports.records.job import JobKind
from holdfast.ports.validation import an, check
from holdfast.testing.scripts import Script
from holdfast.testing.step_stubs import AnyStep, StepStub, StepStubs

A = TypeVar("A")
R = TypeVar("R")
S = TypeVar("S")
P = ParamSpec("P")
In = TypeVar("In", covariant=True)

AnyStage = Stage[Any, Any]
Part: TypeAlias = Literal["body", "check", "cancel"]
"""A function of a stage: its body or, for an external stage, its check or its cancel function."""

_PARTS: Final[Mapping[JobKind, Part]] = {JobKind.POLL: "check", JobKind.CANCEL: "cancel"}
_Key = tuple[str, Callable[..., object], Part]


@attrs.frozen(kw_only=True)
class StageCall(Generic[In]):
    """A started body.

    Attributes:
        run_id: The run.
        stage: The name of the stage.
        item: The index of the item if the stage is mapped; else None.
        attempt: The number of the attempt, from 1.
        idempotency_key: The key in its context, the same for every attempt.
        at: When it started, by the world's clock.
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
        """The body's input, decoded from the store, so later changes of the object do not show."""
        return cast("In", decode(self._text, cast("Any", self._type)))


class Stub(Generic[A, R]):
    """Replaces a stage: performs a sequence of actions, and then the original body.

    Created by `World.stub`, `World.stub_check` and `World.stub_cancel`. Its results are validated and stored like those
    of the stage.
    """

    def __init__(self, name: str, calls: "Callable[[], tuple[StageCall[A], ...]]") -> None:
        self._calls = calls
        self._script = Script(name)

    @property
    def calls(self) -> tuple[StageCall[A], ...]:
        """The calls of the stage in this world, in order, including those before it was stubbed."""
        return self._calls()

    def returns(self, *values: R) -> Self:
        """Return these values, one per call; repeat the last one for all further calls."""
        self._script.returns(values)
        return self

    def fails(self, error: Exception | type[Exception], /, *, times: int | None = None) -> Self:
        """Raise an error for this number of calls; without `times` for all further calls."""
        self._script.fails(error, times)
        return self

    def does(self, fn: Callable[[A], Awaitable[R] | R], /, *, times: int | None = None) -> Self:
        """Call a function with the stage's input for this number of calls; without `times` for all further calls."""
        self._script.does(fn, times)
        return self

    def calls_stage(self, *, times: int) -> Self:
        """Call the stage's own body for this number of calls, before the next action."""
        self._script.lets(times)
        return self

    def take(self) -> Callable[[Any], object] | None:
        """Return the action of the next call; None for the original body. For the world."""
        return self._script.take()


class Stubs:
    """All stubs and recorded calls of bodies, of a world or of one run of a simulation."""

    def __init__(self) -> None:
        self.steps = StepStubs()
        self._stubs: dict[_Key, Stub[Any, Any]] = {}
        self._calls: dict[_Key, list[StageCall[Any]]] = {}

    @overload
    def stub(self, stage: ExternalStage[A, R, Any, S], /) -> Stub[A, R | Suspended[S, R]]: ...
    @overload
    def stub(self, stage: Stage[A, R], /) -> Stub[A, R]: ...
    @overload
    def stub(self, step: Step[P, R], /) -> StepStub[P, R]: ...
    def stub(self, body: AnyStage | Step[P, R], /) -> Stub[Any, Any] | StepStub[P, R]:
        """Replace a stage or a step: see `World.stub`."""
        return self.steps.add(body) if isinstance(body, Step) else self.add(body, "body")

    def stub_check(self, stage: ExternalStage[Any, R, Any, S], /) -> Stub[S, R | NotReady]:
        """Replace the check of an external stage."""
        return self.add(stage, "check")

    def add(self, stage: AnyStage, part: Part) -> Stub[Any, Any]:
        """Create a stub that replaces a function of a stage from now on, and any earlier stub of it.

        Raises InvalidArgumentError if the stage has no such function.
        """
        key = self._checked_key("stub" if part == "body" else f"stub_{part}", stage, part)
        if isinstance(stage, FunctionStage):
            raise InvalidArgumentError(
                "stage", f"{stage.name!r} is a durable function, which has no body to replace: stub its steps"
            )
        if isinstance(stage, ChildStage):
            raise InvalidArgumentError(
                "stage",
                f"stage {stage.name!r} is a pipeline, which has no body to replace: stub its stages",
            )
        self._stubs[key] = stub = Stub[Any, Any](stage.name, lambda: self.calls(stage, part))
        return stub

    def calls(self, stage: AnyStage, part: Part) -> tuple[StageCall[Any], ...]:
        """Return the calls of a function of a stage."""
        key = self._checked_key("calls" if part == "body" else f"{part}s", stage, part)
        return tuple(self._calls.get(key, ()))

    def _checked_key(self, where: str, stage: AnyStage, part: Part) -> _Key:
        what = "a stage or a step" if part == "body" else "a stage"
        check(where, an(f"{what}, not its name or its function", Stage), stage=stage)
        if part == "check" and _function_of(stage, part) is None:
            raise InvalidArgumentError(
                "stage", f"stage {stage.name!r} has no check; only stages of @stage.external have one"
            )
        if part == "cancel" and _function_of(stage, part) is None:
            raise InvalidArgumentError(
                "stage", f"stage {stage.name!r} has no cancel function; add one with @{stage.name}.cancel"
            )
        return _key(stage, part)

    def substituted(self, body: Body) -> Body:
        """Record that a body is about to run; return the body to run instead."""
        if body.test is not None or body.has_no_user_code or body.work.error is not None:
            return body
        if body.attempt.kind in (JobKind.WORKFLOW, JobKind.STEP):
            return self._of_function(body)
        part: Part = _PARTS.get(body.attempt.kind, "body")
        key = _key(body.stage, part)
        self._calls.setdefault(key, []).append(_call(body, part))
        stub = self._stubs.get(key)
        action = None if stub is None else stub.take()
        if action is None and body.stage.remote:
            action = _without_body(body.stage)
        return body if action is None else attrs.evolve(body, stage=_standing_in(body.stage, action, part))

    def _of_function(self, body: Body) -> Body:
        """Return a durable function, or a queued step, with its steps replaced by stubs."""
        clock = body.parts.clock

        def watched(step: AnyStep) -> AnyStep:
            return self.steps.watched(step, clock)

        parts = attrs.evolve(body.parts, step=watched)
        return attrs.evolve(body, parts=parts)


def _key(stage: AnyStage, part: Part) -> _Key:
    # A pipeline holds a changed copy of the stage, which has the same name and function.
    return stage.name, stage.body, part


def _call(body: Body, part: Part) -> StageCall[Any]:
    attempt, stage = body.attempt, body.stage
    of_state = part != "body"
    known = cast("ExternalStage[Any, Any, Any, Any]", stage).state_type if of_state else stage.input_type
    has_input = of_state or stage.shape.values > 0
    return StageCall(
        run_id=body.work.run.id,
        stage=attempt.node,
        item=attempt.item,
        attempt=attempt.attempt,
        idempotency_key=idempotency_key(attempt),
        at=instant(body.started_at),
        text=body.work.input if has_input else "null",
        type=known if has_input else type(None),
    )


def _standing_in(stage: AnyStage, action: Callable[[Any], object], part: Part) -> AnyStage:
    """Return a stage in which one function is replaced by an action that takes only the value."""
    if part == "body":
        convert = _external_result if _is_external(stage) else _as_it_is
        return attrs.evolve(stage, body=_taking(action, convert), shape=_alone(stage.shape), remote=False)
    external = cast("ExternalStage[Any, Any, Any, Any]", stage)
    function = _taking(action, _as_it_is)
    if part == "check":
        assert external.check_shape is not None
        return attrs.evolve(external, check_body=function, check_shape=_alone(external.check_shape))
    assert external.cancel_shape is not None
    return attrs.evolve(external, cancel_body=function, cancel_shape=_alone(external.cancel_shape))


def _without_body(stage: AnyStage) -> Callable[[Any], object]:
    """Return what takes the place of the function of a remote stage, which is never called."""

    def body(_: object) -> NoReturn:
        raise GiveUp(f"stage {stage.name!r} is remote, so its body is elsewhere: stub it")

    return body


def _is_external(stage: AnyStage) -> bool:
    return isinstance(stage, ExternalStage)


def _function_of(stage: AnyStage, part: Part) -> object:
    external = cast("ExternalStage[Any, Any, Any, Any]", stage) if _is_external(stage) else None
    if external is None:
        return None
    return external.check_body if part == "check" else external.cancel_body


def _alone(shape: Shape) -> Shape:
    return attrs.evolve(shape, takes_context=False, values=min(shape.values, 1))


def _taking(action: Callable[[Any], object], convert: Callable[[object], object]) -> Callable[..., object]:
    """Return a function that can be called without a value; async if the action is."""

    def call(value: object = None) -> object:
        return convert(action(value))

    async def call_async(value: object = None) -> object:
        return convert(await cast("Awaitable[object]", action(value)))

    return call_async if is_async_body(action) else call


def _external_result(returned: object) -> object:
    """Return the result of an external stage: a plain value counts as finished work."""
    return cast("object", returned) if isinstance(returned, Suspended) else completed(returned)


def _as_it_is(returned: object) -> object:
    return returned
