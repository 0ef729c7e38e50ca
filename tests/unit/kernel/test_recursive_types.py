"""Recursive types: classes, and unions, lists and dicts of them."""

import os
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypedDict, Union

import attrs
import pytest
from typing_extensions import TypeAliasType

from holdfast.kernel.authoring.steps import step
from holdfast.kernel.values import decode, encode
from holdfast.ports.errors import InvalidValueError
from tests.integration.examples.pages import ROOT

Tree = Union["Leaf", "Node"]
Json = TypeAliasType("Json", "dict[str, Json] | list[Json] | str | int | float | bool | None")
Nested = TypeAliasType("Nested", "list[Nested]")
Expression = Union["Number", "Sum", "Product", int]


@dataclass
class Leaf:
    value: int


@dataclass
class Node:
    left: "Leaf | Node"
    right: "Tree"
    others: "list[Tree | None]" = field(default_factory=list["Leaf | Node | None"])


@attrs.frozen
class Number:
    number: float


@attrs.frozen
class Sum:
    terms: "tuple[Expression, ...]"


@attrs.frozen
class Product:
    factors: "dict[str, Expression]"
    by: "Product | Sum | None" = None


class Folder(TypedDict):
    name: str
    folders: "list[Folder]"
    parent: "Folder | None"


class Chain(NamedTuple):
    value: int
    rest: "Chain | None" = None


@step
def takes(tree: Tree, trees: list[Tree], expression: Expression, maybe: "Tree | None") -> None: ...


HINTS = takes.form.hints

VALUES: list[tuple[Any, Any]] = [
    (Node(Leaf(1), Node(Leaf(2), Leaf(3)), [None, Leaf(4), Node(Leaf(5), Leaf(6))]), HINTS["tree"]),
    (Leaf(1), HINTS["tree"]),
    ([Node(Leaf(1), Leaf(2))], HINTS["trees"]),
    (Node(Leaf(1), Leaf(2)), Node),
    (None, HINTS["maybe"]),
    ({"b": [1, 2.5, {"a": None}], "a": "x"}, Json),
    ([[], [[]]], Nested),
    (Sum((1, Number(2.0), Product({"b": 3, "a": Sum(())}, Sum((4,))))), HINTS["expression"]),
    (Product({"x": Number(1)}), Product | None),
    ({"name": "a", "folders": [{"name": "b", "folders": [], "parent": None}], "parent": None}, Folder),
    (Chain(1, Chain(2)), Chain),
]


@pytest.mark.parametrize(("value", "form"), VALUES, ids=lambda one: str(one)[:40])
def test_a_type_that_holds_itself_is_stored(value: object, form: Any) -> None:
    text = encode(value, form)

    assert decode(text, form) == value
    assert encode(decode(text, form), form) == text


def test_what_is_wrong_deep_in_it_is_told_with_its_place() -> None:
    wrong = Node(Leaf(1), Node(Leaf("x"), Leaf(3)))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    with pytest.raises(InvalidValueError, match=r"\$\.right\.left\.value: expected int, got str"):
        encode(wrong, HINTS["tree"])
    with pytest.raises(InvalidValueError, match=r"\$\.left\.value: expected integer, got string"):
        decode('{"left":{"value":"x"},"right":{"value":1}}', HINTS["tree"])


@pytest.mark.slow
@pytest.mark.parametrize("text", ['{"left":{"value":1},"right":{"value":2}}', '{"value":1}'])
def test_classes_are_told_apart_by_what_data_must_have_with_any_seed_of_hashes(text: str) -> None:
    """A field with a default may be missing: `others` does not identify the class."""
    program = (
        "from tests.unit.kernel.test_recursive_types import HINTS\n"
        f"from holdfast.kernel.values import decode; print(type(decode({text!r}, HINTS['tree'])).__name__)"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(1, 7)
    }
    assert said == {"Node\n" if "left" in text else "Leaf\n"}
