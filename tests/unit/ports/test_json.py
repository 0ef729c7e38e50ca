"""The canonical JSON text of values; the parser accepts any valid JSON."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.ports.json import canonical, compact, parse, parse_input

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


@given(value=VALUES)
def test_canonical_text_is_what_the_library_writes(value: object) -> None:
    """It is produced differently, in less time."""
    assert canonical(value) == json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    assert parse(canonical(value)) == value


@pytest.mark.parametrize("length", [0, 1_000, 5_000, 100_000])
def test_any_character_is_written_as_the_library_does_in_texts_of_any_length(length: int) -> None:
    """Long texts with nothing to escape take a way of their own."""
    for code in (*range(0x180), 0x2028, 0xD800, 0xFFFF, 0x1F600):
        for text in (f"{'y' * length}{chr(code)}", f"{chr(code)}{'y' * length}"):
            assert canonical(text) == compact(text) == json.dumps(text)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [{"a": float("-inf")}]])
def test_what_json_has_not_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical(value)


def test_what_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(RecursionError):
        canonical(value)


def test_what_could_not_be_written_spoils_nothing_that_comes_after_it() -> None:
    shared = [1]
    with pytest.raises(TypeError, match="not JSON serializable"):
        canonical([shared, object()])
    assert canonical([shared, shared]) == "[[1],[1]]"


@pytest.mark.parametrize(("before", "after"), [(" \n", ""), ("", "\t "), (" ", " ")])
def test_spaces_around_a_text_say_nothing(before: str, after: str) -> None:
    assert parse(f'{before}{{"a":[1]}}{after}') == {"a": [1]}


@pytest.mark.parametrize("text", ["", " ", "1 2", "{", "[1,]", "{}x", "no"])
def test_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(json.JSONDecodeError):
        parse(text)


@given(value=VALUES)
def test_what_somebody_wrote_is_read_alike(value: object) -> None:
    assert parse_input(f" {json.dumps(value)} ") == value


@pytest.mark.parametrize("text", ['{"a":1,"a":1}', '[{"b":{"b":0,"a":1,"c":2,"a":3}}]'])
def test_a_key_that_somebody_wrote_twice_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="an object has the key 'a' more than once"):
        parse_input(text)
    parse(text)  # a stored row stays readable


def test_what_somebody_wrote_must_be_json() -> None:
    with pytest.raises(ValueError, match="Extra data"):
        parse_input("1 2")
