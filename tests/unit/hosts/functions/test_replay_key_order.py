"""Replays compare values, not the order of keys: old histories with sorted keys still replay."""

import attrs
import pytest

from holdfast import Engine, Worker, workflow
from holdfast.client import RunHistory
from holdfast.ports.json import are_alike
from holdfast.ports.records.values import Payload
from holdfast.testing import replay


@workflow
async def ranks(given: dict[str, int]) -> dict[str, int]:
    return dict(sorted(given.items(), key=lambda pair: -pair[1]))


def _sorted(history: RunHistory, before: str, after: str) -> RunHistory:
    """Return a history with one text in the form that an older release wrote."""
    found = [row for row in history.rows if row.payload is not None and row.payload.inline == before]
    assert found
    rows = (attrs.evolve(row, payload=Payload(inline=after)) if row in found else row for row in history.rows)
    return attrs.evolve(history, rows=tuple(rows))


def test_a_result_with_sorted_keys_is_as_recorded() -> None:
    with Engine.open("memory://", workflows=[ranks]).sync as engine, Worker(engine):
        run = engine.start(ranks({"ann": 3, "zoe": 9}))
        assert list(run.result(timeout=120)) == ["zoe", "ann"]
        history = run.export_history()

    older = _sorted(history, '{"zoe":9,"ann":3}', '{"ann":3,"zoe":9}')
    assert replay(history, ranks).as_recorded
    assert replay(older, ranks).as_recorded


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ('{"a":1,"b":[{"c":1,"d":2}]}', '{"b": [{"d":2,"c":1}], "a":1}', True),
        ("[1,2]", "[2,1]", False),
        ('{"a":1}', '{"a":1.0}', False),
    ],
)
def test_texts_are_alike_but_for_the_order_of_keys(one: str, other: str, alike: bool) -> None:
    assert are_alike(one, other) is alike
