"""The interceptor examples do what their pages say."""

import runpy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Engine, Pipeline, Retry, Worker, stage, step, step_context, workflow
from holdfast.ports.errors import CommandError
from tests.integration.examples.pages import DOCS

FOLDER = DOCS / "examples" / "interceptors"


def example(name: str) -> dict[str, Any]:
    return runpy.run_path(str(FOLDER / name))


@stage(retry=Retry(attempts=2, wait=timedelta(0)))
def stumble(x: int) -> int:
    if x > 0:
        raise ValueError("positive")
    return x


@step(retry=Retry(attempts=2, wait=timedelta(0)))
def trip(x: int) -> int:
    if step_context().attempt == 1:
        raise ValueError("not yet")
    return x + 1


@workflow
async def errand(x: int) -> int:
    return await trip(x)


STUMBLE = Pipeline("stumble", input=int).pipe(stumble)


@pytest.mark.parametrize(
    ("hour", "attributes", "refused"),
    [
        (12, {"customer": "c-1"}, None),
        (7, {"customer": "c-1"}, "from 8 to 18"),
        (18, {"customer": "c-1"}, "from 8 to 18"),
        (12, {"colour": "red"}, "for which customer"),
        (12, {}, "for which customer"),
    ],
)
def test_office_hours(hour: int, attributes: dict[str, str], refused: str | None) -> None:
    policy = example("office_hours.py")["OfficeHours"](lambda: datetime(2026, 1, 5, hour, tzinfo=UTC))
    with Engine.open("memory://", workflows=[STUMBLE], interceptors=[policy]).sync as engine:
        if refused is None:
            assert engine.start(STUMBLE(0), attributes=attributes).info().status == "running"
        else:
            with pytest.raises(CommandError, match=refused):
                engine.start(STUMBLE(0), attributes=attributes)
            assert sum(engine.count().values()) == 0


def test_timing() -> None:
    timing = example("timing.py")["Timing"]()
    with (
        Engine.open("memory://", workflows=[STUMBLE], interceptors=[timing]).sync as engine,
        Worker(engine, poll_interval=0.05),
    ):
        assert engine.start(STUMBLE(0)).result(timeout=timedelta(seconds=20)) == 0
        with pytest.raises(Exception, match="positive"):
            engine.start(STUMBLE(1)).result(timeout=timedelta(seconds=20))

    assert timing.ended == {("stumble", "completed"): 1, ("stumble", "ValueError"): 2}


def test_timing_of_steps() -> None:
    timing = example("timing.py")["Timing"]()
    with (
        Engine.open("memory://", workflows=[errand], interceptors=[timing]).sync as engine,
        Worker(engine, poll_interval=0.05),
    ):
        assert engine.start(errand(3)).result(timeout=timedelta(seconds=20)) == 4
    assert timing.ended == {("errand/trip", "completed"): 1, ("errand/trip", "ValueError"): 1}
