"""A call object does nothing alone, and its error says where to pass it."""

import asyncio
from collections.abc import Coroutine

import pytest

from holdfast.kernel.authoring import Call, Pipeline, stage


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
