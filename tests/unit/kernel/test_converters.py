"""The strict converter accepts exact types only."""

from enum import StrEnum
from typing import Any

import attrs
import pytest
from cattrs.errors import ClassValidationError, ForbiddenExtraKeysError

from holdfast.kernel.converters import strict_converter


class Colour(StrEnum):
    RED = "red"


@attrs.frozen(kw_only=True)
class Parcel:
    name: str
    weight: int = 0
    is_fragile: bool = False
    colour: Colour = Colour.RED
    tags: tuple[str, ...] = ()
    note: str | None = None


def parcel(**fields: object) -> Parcel:
    converter = strict_converter(forbid_extra_keys=True, detailed_validation=False)
    return converter.structure({"name": "a", **fields}, Parcel)


def test_exact_types_are_accepted() -> None:
    fields: dict[str, Any] = {
        "weight": 5,
        "is_fragile": True,
        "colour": "red",
        "tags": ["x", "y"],
        "note": None,
    }

    assert parcel(**fields) == Parcel(
        name="a", weight=5, is_fragile=True, colour=Colour.RED, tags=("x", "y"), note=None
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", 5),
        ("name", None),
        ("name", ["a"]),
        ("weight", "5"),
        ("weight", True),
        ("weight", 5.0),
        ("is_fragile", 1),
        ("is_fragile", "true"),
        ("colour", "blue"),
        ("tags", "xy"),
        ("tags", {"x": 1}),
        ("tags", [5]),
        ("note", 5),
    ],
)
def test_other_types_are_refused(field: str, value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        parcel(**{field: value})


def test_an_error_says_what_was_expected() -> None:
    with pytest.raises(TypeError, match=r"expected int, got '5'"):
        parcel(weight="5")
    with pytest.raises(TypeError, match=r"expected list, got 'xy'"):
        parcel(tags="xy")


def test_unknown_fields_are_refused_or_ignored() -> None:
    with pytest.raises(ForbiddenExtraKeysError):
        parcel(size=1)
    lenient = strict_converter(forbid_extra_keys=False, detailed_validation=False)
    assert lenient.structure({"name": "a", "size": 1}, Parcel) == Parcel(name="a")


def test_every_fault_is_listed_if_that_is_wanted() -> None:
    converter = strict_converter(forbid_extra_keys=True, detailed_validation=True)
    with pytest.raises(ClassValidationError) as caught:
        converter.structure({"name": 5, "weight": "5"}, Parcel)
    assert len(caught.value.exceptions) == 2
