"""What only a durable function can do is refused anywhere else, also in the body of a step."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

import pytest

import holdfast
from holdfast import Channel, Retry, Worker, query, step, workflow
from tests.integration.hosts.conftest import OpenEngine

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick")]

letters: Final = Channel("letters", str)
others: Final = Channel("others", str)


class Board:
    @query
    def size(self) -> int:
        return 0


@step
async def undo() -> None: ...


@workflow
async def child() -> None: ...


async def _now() -> object:
    return holdfast.now()


async def _uuid4() -> object:
    return holdfast.uuid4()


async def _random() -> object:
    return holdfast.random()


async def _patched() -> object:
    return holdfast.patched("change")


async def _publish() -> None:
    holdfast.publish("done", 1)


async def _expose() -> object:
    return holdfast.expose(Board())


async def _compensate_with() -> None:
    holdfast.compensate_with(undo)


async def _iterate() -> object:
    return [letter async for letter in letters]


CALLS: Final[dict[str, Callable[[], Awaitable[object]]]] = {
    "sleep()": lambda: holdfast.sleep(0),
    "sleep_until()": lambda: holdfast.sleep_until(datetime.now(UTC)),
    "side_effect()": lambda: holdfast.side_effect(lambda: 1),
    "continue_as_new()": lambda: holdfast.continue_as_new(child()),
    "start_child()": lambda: holdfast.start_child(child()),
    "now()": _now,
    "uuid4()": _uuid4,
    "random()": _random,
    "patched()": _patched,
    "publish()": _publish,
    "expose()": _expose,
    "compensate_with()": _compensate_with,
    "close()": letters.close,
    "receive() or select() of channels": letters.receive,
    "select() of channels": lambda: holdfast.select(letters, others),
    "or select() of channels": _iterate,
}


async def refusals() -> dict[str, str]:
    """What each call raises, by the name that it should have in the message."""
    raised: dict[str, str] = {}
    for name, call in CALLS.items():
        try:
            await call()
        except RuntimeError as error:
            raised[name] = str(error)
    return raised


def check(raised: dict[str, str]) -> None:
    assert raised.keys() == CALLS.keys()
    for name, text in raised.items():
        assert f"{name} was called outside of a workflow: call it in a function with @workflow" in text


async def test_nothing_for_durable_functions_works_outside_of_one() -> None:
    check(await refusals())


@step
async def refusals_in_a_step() -> dict[str, str]:
    return await refusals()


@step(retry=Retry(attempts=1))
async def await_a_call_of_a_workflow() -> None:
    await child()


@workflow
async def calls_in_steps() -> dict[str, str]:
    try:
        await await_a_call_of_a_workflow()
    except RuntimeError as error:
        return {"child": str(error), **await refusals_in_a_step()}
    return {}


async def test_nor_does_it_in_the_body_of_a_step(open_engine: OpenEngine) -> None:
    engine = open_engine(calls_in_steps)
    async with Worker(engine):
        raised = await engine.run(calls_in_steps())

    assert "a call of 'child' was awaited, but it does nothing on its own" in raised.pop("child")
    check(raised)


@workflow
async def asks_for_a_step() -> str:
    try:
        return holdfast.step_context().step
    except RuntimeError as error:
        return str(error)


async def test_a_workflow_has_no_step_context(open_engine: OpenEngine) -> None:
    with pytest.raises(RuntimeError, match="only in the body of a step that a workflow called"):
        holdfast.step_context()
    engine = open_engine(asks_for_a_step)
    async with Worker(engine):
        assert "only in the body of a step" in await engine.run(asks_for_a_step())
