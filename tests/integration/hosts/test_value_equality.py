"""Values keep their type and equality between steps, functions and child runs, live and replayed."""

from collections import Counter, OrderedDict, deque
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.values import encode
from holdfast.ports.errors import DefinitionError, HoldfastError
from tests.integration.hosts.conftest import OpenEngine
from tests.sample_values import Colour, Level, Mode, Once, Point, Rights, Row, are_alike, typed_values
from tests.sizes import sized

SOON = 120
BERLIN = ZoneInfo("Europe/Berlin")

pytestmark = pytest.mark.usefixtures("quick")

ROW: Row = {"b": 1, "a": "x"}
VALUES: list[tuple[Any, Any]] = [
    ({"zoe": 9, "bob": 5, "ann": 3}, dict[str, int]),
    ({10: "ten", 9: "nine", 100: "hundred"}, dict[int, str]),
    ({"z": [{"y": 1, "x": {"w": None, "v": -0.0}}], "a": 1}, Any),
    (OrderedDict([("b", 1), ("a", 2)]), OrderedDict[str, int]),
    (Counter("hello"), Counter[str]),
    (deque([3, 1, 2]), deque[int]),
    (ROW, Row),
    ([datetime(2026, 10, 25, 2, 30, fold=fold, tzinfo=BERLIN) for fold in (0, 1)], list[datetime]),
    (
        [
            datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=zone)
            for zone in (None, UTC, timezone(timedelta(hours=2)), timezone(timedelta(hours=2), "CEST"))
        ],
        list[datetime],
    ),
    (
        (date(2026, 1, 2), time(3, 4, tzinfo=UTC), timedelta(days=-1, microseconds=1)),
        tuple[date, time, timedelta],
    ),
    ([1, 1.0, -0.0, 2**70], list[float]),
    ((True, 1, Decimal("1.0"), b"\0", UUID(int=7), Path("a")), tuple[bool, int, Decimal, bytes, UUID, Path]),
    ((Colour.CRIMSON, Level.HIGH, Mode.FAST, Rights.READ | Rights.RUN), tuple[Colour, Level, Mode, Rights]),
    (({"b", "a"}, frozenset({2, 1})), tuple[set[str], frozenset[int]]),
    ((Point(1, 2), Once(3).saw(4)), tuple[Point, Once]),
]


@pytest.mark.slow
def test_values_are_alike_wherever_they_come_from(open_engine: OpenEngine) -> None:
    values, forms = zip(*VALUES, strict=True)
    several: Any = tuple

    _check_everywhere(values, several[forms], open_engine)


def _check_everywhere(value: Any, form: Any, open_engine: OpenEngine) -> None:
    seen: dict[str, Any] = {}
    sent: Channel[Any] = Channel("sent", form)

    async def give() -> Any:
        return value

    give.__annotations__["return"] = form
    gives = step(give)

    async def look(it: Any) -> None:
        seen["argument of a step"] = it

    look.__annotations__["it"] = form
    looks = step(look)

    async def echo(it: Any) -> Any:
        seen["argument of a child"] = it
        return it

    echo.__annotations__.update({"it": form, "return": form})
    child = workflow(echo)

    async def main(it: Any) -> Any:
        seen["argument"] = it
        seen["result of a step"] = got = await gives()
        await looks(got)
        seen["result of a child"] = await child(got)
        seen["message"] = await sent.receive()
        return got

    main.__annotations__.update({"it": form, "return": form})
    called = workflow(main)
    with open_engine(called, child).sync as engine, Worker(engine):
        run = engine.start(called(value), signals=[sent(value)])
        seen["result"] = run.result(timeout=SOON)

    assert len(seen) == 7
    assert {where: one for where, one in seen.items() if not are_alike(one, value)} == {}


@pytest.mark.slow
@settings(
    max_examples=sized(5, 15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(typed_values(), min_size=5, max_size=10))
def test_whatever_is_accepted_is_alike_wherever_it_comes_from(
    open_engine: OpenEngine, several: list[tuple[Any, Any]]
) -> None:
    for form, value in several:
        try:
            encode(value, form)
        except (DefinitionError, HoldfastError):
            continue
        _check_everywhere(value, form, open_engine)
