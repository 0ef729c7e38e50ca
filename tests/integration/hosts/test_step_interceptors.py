"""Interceptors around the bodies of steps, with the step and attempt."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta

import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.wiring.interceptors import BodyCall
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.step_context import step_context
from holdfast.kernel.authoring.steps import step
from holdfast.ports.errors import GiveUp, RunFailedError

SOON = timedelta(minutes=2)
AT_ONCE = Retry(attempts=3, wait=timedelta(0))
SEEN: ContextVar[str] = ContextVar("seen", default="nothing")


class House:
    """An interceptor that records bodies and raises on command, before the body or in place of its error."""

    def __init__(self, *, on_way_in: Exception | None = None, in_place: Exception | None = None) -> None:
        self.calls: list[BodyCall] = []
        self.ends: list[str] = []
        self._on_way_in = on_way_in
        self._in_place = in_place

    @contextmanager
    def body(self, call: BodyCall) -> Generator[None]:
        self.calls.append(call)
        if self._on_way_in is not None:
            error, self._on_way_in = self._on_way_in, None
            raise error
        token = SEEN.set(f"{call.stage}/{call.step}")
        try:
            yield
        except Exception as error:
            self.ends.append(type(error).__name__)
            if self._in_place is not None:
                raise self._in_place from error
            raise
        finally:
            SEEN.reset(token)
        self.ends.append("completed")


@step(retry=AT_ONCE)
def in_thread(number: int) -> str:
    if step_context().attempt == 1:
        raise ValueError("not yet")
    return f"{SEEN.get()} {number}"


@step(retry=AT_ONCE)
async def on_loop(number: int) -> str:
    return f"{SEEN.get()} {number}"


@workflow
async def both(number: int) -> list[str]:
    return [await in_thread(number), await on_loop(number)]


def ran(house: House) -> list[str]:
    engine = Engine.open("memory://", workflows=[both], interceptors=[house]).sync
    with engine, Worker(engine, poll_interval=0.05):
        return engine.start(both(3)).result(timeout=SOON)


def test_they_know_which_try_of_which_step_it_is() -> None:
    house = House()
    assert ran(house) == ["both/in_thread 3", "both/on_loop 3"]
    known = [(call.stage, call.step, call.attempt, call.max_attempts) for call in house.calls]
    assert known == [("both", "in_thread", 1, 3), ("both", "in_thread", 2, 3), ("both", "on_loop", 1, 3)]
    assert house.ends == ["ValueError", "completed", "completed"]
    first, second, other = (call.idempotency_key for call in house.calls)
    assert first == second != other
    assert len({(call.job, call.epoch) for call in house.calls}) == 1


def test_what_is_raised_on_the_way_in_is_a_failed_try() -> None:
    house = House(on_way_in=ConnectionError("no room"))
    assert ran(house) == ["both/in_thread 3", "both/on_loop 3"]
    assert house.ends == ["completed", "completed"]  # the body's first try was its second


def test_an_error_can_be_put_in_place_of_the_body_s() -> None:
    house = House(in_place=GiveUp("it never works"))
    with pytest.raises(RunFailedError, match="it never works"):
        ran(house)
    assert house.ends == ["ValueError"]
