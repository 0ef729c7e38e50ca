"""JSON Schema of stored types: what it refuses, the codec refuses too, with the same place."""

import enum
from datetime import date, timedelta
from decimal import Decimal
from importlib import import_module
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict

import attrs
import pytest
from pydantic import BaseModel
from typing_extensions import override

from holdfast.kernel.values import decode, schemas
from holdfast.kernel.values.schemas import PROBLEMS_MAX, problems_of, schema_of
from holdfast.ports.errors import DefinitionError, InvalidValueError
from holdfast.ports.json import compact

_jsonschema: Any = import_module("jsonschema")  # it has no types


@attrs.frozen
class Line:
    sku: str
    number: int = 1


@attrs.frozen
class Note:
    text: str


@attrs.frozen
class Tree:
    value: int
    children: "list[Tree]" = attrs.field(factory=list["Tree"])


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@attrs.frozen
class Leaf:
    op: Literal["leaf"]
    number: int


@attrs.frozen
class Sum:
    op: Literal["sum"]
    left: "Term"
    right: "Term"


@attrs.frozen
class Product:
    op: Literal["product"]
    left: "Term"
    right: "Term"


@attrs.frozen
class First:
    first: int
    next: "First | Second | None"


@attrs.frozen
class Second:
    second: int
    next: "First | Second | None"


Term = Leaf | Sum | Product


class Lenient(enum.Enum):
    ONE = "one"

    @classmethod
    @override
    def _missing_(cls, value: object) -> "Lenient | None":
        return cls.ONE if value == "uno" else None


class Options(TypedDict):
    size: int
    name: NotRequired[str]


class Point(NamedTuple):
    x: int
    y: str


class Model(BaseModel):
    name: str
    age: int = 0


FITTING: list[tuple[Any, object]] = [
    (int, 3),
    (float, 1.5),
    (float, 1),
    (bool, True),
    (str, "x"),
    (None, None),
    (object, {"any": [1]}),
    (date, "2026-01-02"),
    (timedelta, 5),
    (Decimal, "1.50"),
    (Line, {"sku": "a"}),
    (list[Line], [{"sku": "a", "number": 2}]),
    (Line | None, None),
    (Line | Note, {"text": "a"}),
    (int | str, "a"),
    (Tree, {"value": 1, "children": [{"value": 2}]}),
    (Colour, "red"),
    (Lenient, "uno"),
    (Literal["a", 1] | None, 1),
    (Options, {"size": 1}),
    (Point, [1, "a"]),
    (tuple[int, ...], [1, 2]),
    (tuple[int, str], [1, "a"]),
    (set[int], [1, 2]),
    (dict[str, int], {"a": 1}),
    (dict[int, str], {"1": "a"}),
    (Model, {"name": "a"}),
]
MISFITS: list[tuple[Any, object, tuple[str, ...]]] = [
    (int, True, ("$",)),
    (int, "3", ("$",)),
    (str, None, ("$",)),
    (Line, {}, ("$.sku",)),
    (Line, {"sku": "a", "numbr": 1}, ("$.numbr",)),
    (list[Line], [{"sku": "a"}, {"sku": 1}], ("$[1].sku",)),
    (Line | None, {"sku": 1}, ("$.sku",)),
    (Tree, {"value": 1, "children": [{"value": "2"}]}, ("$.children[0].value",)),
    (Colour, "green", ("$",)),
    (Literal["a", 1], True, ("$",)),
    (Options, {"size": 1, "other": 2}, ("$.other",)),
    (Point, [1], ("$",)),
    (tuple[int, str], ["a", "a"], ("$[0]",)),
    (dict[str, int], {"a": "1"}, ("$.a",)),
    (Model, {"age": 1}, ("$.name",)),
    (list[int], {"a": 1}, ("$",)),
]


def places(problems: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(one.partition(": ")[0] for one in problems)


@pytest.mark.parametrize(("form", "data"), FITTING, ids=str)
def test_what_a_codec_accepts_has_its_schema(form: Any, data: object) -> None:
    schema = schema_of(form)
    decode(compact(data), form)

    assert problems_of(data, schema) == ()
    _jsonschema.Draft202012Validator.check_schema(schema)
    _jsonschema.validate(data, schema, _jsonschema.Draft202012Validator)


@pytest.mark.parametrize(("form", "data", "expected"), MISFITS, ids=str)
def test_what_a_schema_refuses_is_refused_by_the_codec_at_the_same_place(
    form: Any, data: object, expected: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidValueError) as caught:
        decode(compact(data), form)

    schema = schema_of(form)
    assert places(problems_of(data, schema)) == places(caught.value.problems) == expected
    assert not _jsonschema.Draft202012Validator(schema).is_valid(data)


def test_a_type_that_can_not_be_stored_has_no_schema() -> None:
    with pytest.raises(DefinitionError):
        schema_of(complex)


def test_problems_are_bounded() -> None:
    assert len(problems_of(["x"] * 1_000, schema_of(list[int]))) == PROBLEMS_MAX


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/none"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"type": 5, "enum": "x", "anyOf": {}, "required": 1, "properties": [], "items": 7},
        {"pattern": "(a+)+$"},
    ],
    ids=str,
)
def test_a_schema_of_another_program_is_followed_as_far_as_it_is_understood(schema: Any) -> None:
    assert problems_of({"a": ["b"]}, schema) == ()


def test_classes_that_refer_to_each_other_are_written_once() -> None:
    """Written out at each mention, eight of them would make seven megabytes."""
    text = compact(schema_of(Sum | Product))
    assert [text.count(f'"{one}"') for one in ("leaf", "sum", "product")] == [1, 1, 1]


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The places of the values that were compared with schemas."""
    found: list[str] = []
    original: Any = vars(schemas)["_problems"]

    def noting(data: object, schema: object, path: str, *others: Any) -> Any:
        found.append(path)
        return original(data, schema, path, *others)

    monkeypatch.setattr(schemas, "_problems", noting)
    return found


def test_the_problem_of_a_deep_value_is_found_by_its_tags(checks: list[str]) -> None:
    """Alternatives with another tag are not searched, which would double the work at each level."""
    data: object = {"op": "leaf", "number": "one"}
    for _ in range(12):
        data = {"op": "sum", "left": data, "right": {"op": "leaf", "number": 1}}
    (problem,) = problems_of(data, schema_of(Sum))
    assert problem == f"${'.left' * 12}.number: expected integer, got string"
    assert len(checks) < 500


@pytest.mark.slow
def test_a_check_of_alternatives_without_tags_ends(checks: list[str]) -> None:
    """What it has not compared by then, the code of the workflow does."""
    data: object = 7
    for _ in range(40):
        data = {"first": 1, "second": 1, "next": data}  # each alternative is searched to its end
    problems_of(data, schema_of(First))
    assert schemas.CHECKS_MAX < len(checks) < schemas.CHECKS_MAX + 1_000


def test_one_and_true_are_two_values() -> None:
    schema = schema_of(Literal[1, True])
    assert (problems_of(1, schema), problems_of(True, schema)) == ((), ())
    assert problems_of(False, schema)
