"""Functions that send updates: what a replay receives, in which order, and what a history may not contain."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

import pytest

from holdfast.kernel.authoring.calls import Call
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.queries import UpdateCall, update
from holdfast.kernel.authoring.sent_messages import update_run
from holdfast.kernel.functions.machine import FunctionMachine
from holdfast.kernel.functions.protocol import (
    Cancelling,
    FunctionEvent,
    FunctionFailed,
    FunctionReturned,
    Row,
    TimerFired,
    TimerRequest,
    Turn,
    UpdateReplied,
    UpdateRequest,
    UpdateSent,
)
from holdfast.kernel.history.raised import Raised
from holdfast.ports.errors import (
    HoldfastError,
    InvalidArgumentError,
    NondeterminismError,
    NotExposedError,
    RunNotFoundError,
    UnreadableValueError,
    UpdateFailedError,
    UpdateLostError,
    UpdateRefusedError,
    UpdateRejectedError,
)
from tests.unit.kernel.functions.player import BEGAN_AT, new_machine


class Cart:
    @update
    async def add(self, item: str) -> int:
        return len(item)

    @update
    def clear(self) -> None: ...


ADD = Cart.add("tea")
FAULT = Raised(type="ValueError", message="no tea", code="body_error")
NOWHERE = Raised(type="holdfast.kernel.functions.updates.NowhereError", message="nothing", code="body_error")


@workflow
async def adds(timeout: float | None = None) -> int:
    return await update_run("cart", Cart.add("tea"), timeout=timeout) + 1


def rows(events: Sequence[FunctionEvent]) -> list[Row]:
    return [
        Row(number=number, at=BEGAN_AT + number * 1_000_000, event=one, site="old.py:7")
        for number, one in enumerate(events, 2)
    ]


def fed(call: Call[Any], *events: FunctionEvent) -> tuple[FunctionMachine, Turn]:
    machine = new_machine(call)
    turn = machine.begin(more=bool(events))
    for row in rows(events):
        turn = machine.feed(row)
    return machine, turn


def sent(call: str = "1", run: str = "cart", **more: Any) -> UpdateSent:
    return UpdateSent(call=call, run=run, update="Cart.add", **more)


def replied(call: str = "1", **reply: Any) -> UpdateReplied:
    return UpdateReplied(call=call, **reply)


def test_the_request_has_the_update_and_its_arguments() -> None:
    machine, turn = fed(adds())
    (request,) = turn.requests
    assert isinstance(request, UpdateRequest)
    assert (request.call, request.run, request.update) == ("1", "cart", "Cart.add")
    assert (request.text, request.checked) == ('{"item":"tea"}', True)
    assert request.site.startswith("test_sent_updates.py:")
    assert not machine.waits_for_others
    machine.evict()


def test_it_waits_for_the_reply_of_a_stored_update() -> None:
    machine, turn = fed(adds(), sent())
    assert turn.ended is None
    assert machine.waits_for_others
    assert [(one.update, one.run) for one in machine.awaited_replies] == [("Cart.add", "cart")]
    machine.evict()


def test_it_returns_the_reply_with_the_type_of_the_update() -> None:
    _, turn = fed(adds(), sent(), replied(output="3"))
    assert turn.ended == FunctionReturned("4")


@pytest.mark.parametrize(
    ("events", "kind", "what"),
    [
        ((sent(error="there is no such run", code="run_not_found"),), RunNotFoundError, "no run 'cart'"),
        ((sent(error="it is a pipeline", code="update_refused"),), UpdateRefusedError, "it is a pipeline"),
        ((sent(), replied(error=FAULT)), UpdateFailedError, "ValueError: no tea"),
        ((sent(), replied(error=FAULT, is_rejected=True)), UpdateRejectedError, "ValueError: no tea"),
        ((sent(), replied(error=NOWHERE, is_rejected=True)), NotExposedError, "has no 'Cart.add': nothing"),
        ((sent(), replied(lost="the run was cancelled")), UpdateLostError, "no reply: the run was cancelled"),
    ],
)
def test_it_raises_what_a_program_would_get(
    events: Sequence[FunctionEvent], kind: type[HoldfastError], what: str
) -> None:
    _, turn = fed(adds(), *events)
    assert isinstance(turn.ended, FunctionFailed)
    assert type(turn.ended.error) is kind
    assert what in str(turn.ended.error)


def test_the_error_of_the_update_is_the_cause() -> None:
    _, turn = fed(adds(), sent(), replied(error=FAULT))
    assert isinstance(turn.ended, FunctionFailed)
    assert repr(turn.ended.error.__cause__) == "ValueError('no tea')"


def test_after_the_time_limit_the_reply_is_passed_over() -> None:
    machine, turn = fed(waits_twice())
    assert [(one.call, type(one)) for one in turn.requests] == [("2", TimerRequest), ("1", UpdateRequest)]
    machine.evict()
    events = (sent(), TimerFired(call="2"), replied(output="3"), sent("3"), replied("3", output="4"))
    _, turn = fed(waits_twice(), *events)
    assert isinstance(turn.ended, FunctionReturned)
    why, total = json.loads(turn.ended.output)
    assert total == 4
    assert why == (
        "run 'cart' has not answered update 'Cart.add' within 0:00:05; it is stored, and will be carried out"
    )


@workflow
async def waits_twice() -> list[object]:
    try:
        await update_run("cart", ADD, timeout=5)
    except TimeoutError as error:
        return [str(error), await update_run("cart", ADD)]
    return []


def test_a_time_limit_before_the_update_is_stored_does_not_withdraw_it() -> None:
    machine, turn = fed(waits_twice(), TimerFired(call="2"))
    assert turn.dropped == ()
    assert [one.call for one in machine.pending_requests] == ["1", "3"]
    machine.evict()


def test_a_cancellation_does_not_withdraw_it() -> None:
    _, turn = fed(adds(), sent(), Cancelling(reason="enough"))
    assert isinstance(turn.ended, FunctionFailed)
    assert isinstance(turn.ended.error, asyncio.CancelledError)


@workflow
async def adds_two() -> list[int]:
    return list(await asyncio.gather(update_run("cart", ADD), update_run("other", ADD)))


def test_replies_reach_their_calls_in_any_order() -> None:
    both = (sent("1.1"), sent("2.1", run="other"))
    first, second = replied("1.1", output="3"), replied("2.1", output="5")
    for arrived in ((first, second), (second, first)):
        _, turn = fed(adds_two(), *both, *arrived)
        assert turn.ended == FunctionReturned("[3,5]")


def test_a_reply_that_is_repeated_changes_nothing() -> None:
    machine, turn = fed(adds_two(), sent("1.1"), replied("1.1", output="3"), replied("1.1", output="9"))
    assert turn.ended is None
    machine.evict()


@pytest.mark.parametrize(
    "recorded",
    [
        sent(run="another"),
        UpdateSent(call="1", run="cart", update="Cart.clear"),
        TimerFired(call="1"),
        sent("7"),
    ],
)
def test_a_history_with_another_update_does_not_fit(recorded: FunctionEvent) -> None:
    with pytest.raises(NondeterminismError, match=r"update 'Cart\.add' of run 'cart'"):
        fed(adds(), recorded)


def test_a_reply_of_another_type_halts_the_function() -> None:
    with pytest.raises(UnreadableValueError, match=r"the reply to update 'Cart\.add' of run 'cart'"):
        fed(adds(), sent(), replied(output='"three"'))


@workflow
async def careless(what: str) -> str:
    calls: dict[str, Callable[[], Coroutine[Any, Any, int]]] = {
        "self": lambda: update_run("run", ADD),
        "run": lambda: update_run("", ADD),
        "call": lambda: update_run("cart", cast("UpdateCall[int]", "Cart.add")),
        "timeout": lambda: update_run("cart", ADD, timeout=-1),
    }
    try:
        await calls[what]()
    except InvalidArgumentError as error:
        return str(error)
    return "accepted"


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("self", "call the method of the object that it exposes instead"),
        ("run", "must be the id of a run"),
        ("call", "an update with its arguments"),
        ("timeout", "timeout"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_requested(what: str, why: str) -> None:
    _, turn = fed(careless(what))
    assert isinstance(turn.ended, FunctionReturned)
    assert why in turn.ended.output
    assert turn.requests == ()


def test_a_program_can_not_send_one() -> None:
    with pytest.raises(RuntimeError, match=r"update_run\(\) was called outside of a workflow"):
        asyncio.run(update_run("cart", ADD))
