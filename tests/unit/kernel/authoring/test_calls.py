"""A call object does nothing alone, and its error says where to pass it."""

import asyncio
import math
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from holdfast import Channel, step, workflow
from holdfast.kernel.authoring import Call, Pipeline, stage
from holdfast.ports.errors import InvalidValueError, UnstorableValueError


@stage
def double(x: int) -> int:
    return 2 * x


doubled = Pipeline("doubled", input=int).pipe(double)


def test_a_call_is_a_coroutine() -> None:
    assert isinstance(doubled(3), Coroutine)


def test_awaiting_a_call_says_to_give_it_to_an_engine() -> None:
    async def program() -> int:
        return await doubled(3)

    with pytest.raises(RuntimeError, match=r"a call of 'doubled' was awaited, .* `await engine.run\(...\)`"):
        asyncio.run(program())


def test_running_a_call_as_a_task_says_to_give_it_to_an_engine() -> None:
    async def program() -> tuple[int, int]:
        return await asyncio.gather(doubled(3), doubled(4))

    with pytest.raises(RuntimeError, match="pass it to an engine"):
        asyncio.run(program())


def test_dropping_a_call_warns_of_nothing() -> None:
    call: Call[int] = doubled(3)
    call.close()
    del call


@workflow
async def fulfil(order: int, *, gift: bool = False) -> int:
    return await charge(order)


@step
async def charge(cents: int) -> int:
    return cents


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (cast("Any", fulfil), "workflow 'fulfil': missing a required argument: 'order'"),
        (lambda: cast("Any", fulfil)(1, 2), "workflow 'fulfil': too many positional arguments"),
        (
            lambda: cast("Any", fulfil)(1, wrap=1),
            "workflow 'fulfil': got an unexpected keyword argument 'wrap'",
        ),
        (lambda: charge.form.encode((), {}), "step 'charge': missing a required argument: 'cents'"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_the_name_of_what_was_called(
    call: Callable[[], object], expected: str
) -> None:
    with pytest.raises(TypeError) as caught:
        call()
    assert str(caught.value) == expected


def test_a_message_that_does_not_fit_its_channel_is_refused_with_the_name_of_the_channel() -> None:
    with pytest.raises(InvalidValueError) as invalid:
        cast("Any", Channel("pages", int))("x")
    with pytest.raises(UnstorableValueError) as unstorable:
        Channel("shares", float)(math.nan)

    assert str(invalid.value) == "invalid value for channel 'pages' (int): $: expected int, got str"
    assert str(unstorable.value).endswith("expected a finite number, got nan; channel 'shares'")
