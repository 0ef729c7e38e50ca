"""The JSON forms of what the client returns."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import StrEnum

import attrs
import pytest

from holdfast.hosts.inspection.json_form import json_form, keys_of


class Colour(StrEnum):
    RED = "red"


@attrs.frozen(kw_only=True)
class Part:
    length: timedelta | None = None
    whole: timedelta = timedelta(seconds=1.5)


@attrs.frozen(kw_only=True)
class Thing:
    at: datetime
    colour: Colour
    parts: tuple[Part, ...]
    counts: Mapping[Colour, int]
    price: Decimal
    value: object


def test_an_object_is_written_field_by_field() -> None:
    thing = Thing(
        at=datetime(2026, 1, 2, 5, 4, 5, 7, tzinfo=timezone(timedelta(hours=2))),
        colour=Colour.RED,
        parts=(Part(), Part(length=timedelta(minutes=1))),
        counts={Colour.RED: 3},
        price=Decimal("1E-7"),
        value={"a": [1, None, True, 0.5]},
    )
    assert json_form([thing]) == [
        {
            "at": "2026-01-02T03:04:05.000007Z",
            "colour": "red",
            "parts": [
                {"length_seconds": None, "whole_seconds": 1.5},
                {"length_seconds": 60.0, "whole_seconds": 1.5},
            ],
            "counts": {"red": 3},
            "price": "0.0000001",
            "value": {"a": [1, None, True, 0.5]},
        }
    ]
    assert [type(key) for key in keys_of(Part)] == [str, str]


@pytest.mark.parametrize("value", [None, True, 7, 1.5, "text"])
def test_json_data_stays_as_it_is(value: object) -> None:
    assert json_form(value) is value


def test_an_instant_of_a_whole_second_has_microseconds_too() -> None:
    assert json_form(datetime(2026, 1, 2, tzinfo=UTC)) == "2026-01-02T00:00:00.000000Z"
