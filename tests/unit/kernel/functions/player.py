"""A player that runs a durable function against its machine: steps at once, time only when nothing else can happen."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, cast

import attrs

from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.authoring.steps import Step
from holdfast.kernel.functions.machine import FunctionMachine
from holdfast.kernel.functions.protocol import (
    Ended,
    FunctionEvent,
    FunctionFailed,
    FunctionReturned,
    Request,
    Row,
    StepCompleted,
    StepFailed,
    StepRequest,
    TimerFired,
    TimerRequest,
    Turn,
)
from holdfast.kernel.functions.run_facts import RunFacts
from holdfast.kernel.history.exceptions import raised_from
from holdfast.kernel.values import decode, encode

BEGAN_AT = 1_767_225_600_000_000
_SECOND = 1_000_000


@attrs.define
class Played:
    """The result of playing: the rows, the pending requests after each, and the end."""

    rows: list[Row] = attrs.field(factory=list[Row])
    waited: list[tuple[Request, ...]] = attrs.field(factory=list[tuple[Request, ...]])
    dropped: list[tuple[str, ...]] = attrs.field(factory=list[tuple[str, ...]])
    patches: list[tuple[str, ...]] = attrs.field(factory=list[tuple[str, ...]])
    ended: Ended | None = None
    done: list[str] = attrs.field(factory=list[str])

    @property
    def value(self) -> object:
        """The JSON text that was returned. Raises AssertionError if it failed."""
        assert isinstance(self.ended, FunctionReturned), self.ended
        return self.ended.output

    @property
    def error(self) -> BaseException:
        assert isinstance(self.ended, FunctionFailed), self.ended
        return self.ended.error


def new_machine(call: Any) -> FunctionMachine:
    """Return the machine of a call such as `fulfil("x")`."""
    workflow = cast("Workflow[..., object]", call.definition)
    text = encode(call.value, workflow.input_type)
    return workflow.machine(
        text, began_at=BEGAN_AT, seed="run", run=RunFacts(id="run", workflow="w", version="1")
    )


def play(call: Any, *, seed: int = 0, then: Sequence[tuple[float, FunctionEvent]] = ()) -> Played:
    """Play a call to its end. The order of pending results is drawn from the seed.

    `then` lists external events with their time, in seconds since the start.
    """
    random = Random(seed)
    played = Played()
    machine = new_machine(call)
    at = BEGAN_AT
    later = sorted(then, key=lambda one: one[0])
    _note(played, machine, machine.begin())
    while played.ended is None:
        asked = machine.pending_requests
        steps = [one for one in asked if isinstance(one, StepRequest)]
        timers = sorted((one for one in asked if isinstance(one, TimerRequest)), key=lambda one: one.at)
        if steps and (not timers or random.random() < 0.8):
            at += random.randrange(1, _SECOND)
            told = done(random.choice(steps), played)
        elif later and (not timers or BEGAN_AT + later[0][0] * _SECOND <= timers[0].at):
            seconds, told = later.pop(0)
            at = max(at, BEGAN_AT + int(seconds * _SECOND))
        elif timers:
            at = max(at, timers[0].at)
            told = TimerFired(call=timers[0].call)
        else:
            raise AssertionError(f"it waits for nothing that could come: {asked}")
        row = Row(number=len(played.rows) + 1, at=at, event=told)
        played.rows.append(row)
        _note(played, machine, machine.feed(row))
    return played


def replay(
    call: Any, rows: Sequence[Row], patches: Sequence[tuple[str, ...]] = ()
) -> tuple[FunctionMachine, Played]:
    """Feed these rows to a new machine. `patches` are those recorded after each row."""
    machine, played = new_machine(call), Played(rows=list(rows))
    recorded = [name for of_turn in patches for name in of_turn]
    _note(played, machine, machine.begin(more=bool(rows), patches=recorded))
    for row in rows:
        _note(played, machine, machine.feed(row, more=row.number < len(rows)))
    return machine, played


def done(request: StepRequest, played: Played | None = None) -> FunctionEvent:
    """Call a step's body, and return the resulting event."""
    step = cast("Step[..., object]", request.definition)
    given = step.form.decode(request.arguments)
    if played is not None:
        played.done.append(f"{request.call} {request.step}{request.arguments}")
    try:
        value = step.body(*given.args, **given.kwargs)
        if step.is_async:
            value = _run(cast("Callable[[], Any]", lambda: value))
    except Exception as error:  # noqa: BLE001  # it is the step's
        return StepFailed(call=request.call, step=request.step, error=raised_from(error))
    return StepCompleted(call=request.call, step=request.step, output=encode(value, step.form.output))


def _run(make: Callable[[], Any]) -> object:
    async def body() -> object:
        return await make()

    return asyncio.run(body())


def _note(played: Played, machine: FunctionMachine, turn: Turn) -> None:
    played.waited.append(machine.pending_requests)
    played.dropped.append(turn.dropped)
    played.patches.append(turn.patches)
    played.ended = played.ended or turn.ended


def same_end(one: Ended | None, other: Ended | None) -> bool:
    """Return whether two ends are equal; errors are compared by their text."""
    if isinstance(one, FunctionFailed) and isinstance(other, FunctionFailed):
        return repr(one.error) == repr(other.error)
    return one == other


__all__ = ["BEGAN_AT", "Played", "decode", "done", "new_machine", "play", "replay", "same_end"]
