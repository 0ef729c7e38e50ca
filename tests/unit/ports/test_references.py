"""References and canonical JSON: what is stored in place of a value."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.ports.json import canonical, compact, parse
from holdfast.ports.references import (
    Reference,
    is_map,
    item_reference,
    leaves,
    list_reference,
    located,
    map_reference,
    of_run,
    reference_from,
    reference_text,
    references_from,
    references_text,
)

_HERE: st.SearchStrategy[Reference] = st.one_of(
    st.integers(1),
    st.builds(item_reference, st.text(), st.integers(0), st.integers(0)),
    st.builds(map_reference, st.text(), st.integers(1), st.integers(1)),
)
_LEAVES: st.SearchStrategy[Reference] = _HERE | st.builds(of_run, st.text(), _HERE)
REFERENCES = st.recursive(_LEAVES, lambda inner: st.lists(inner, max_size=3).map(tuple).map(list_reference))


@given(REFERENCES)
def test_a_reference_comes_back_from_its_text(reference: Reference) -> None:
    assert reference_from(reference_text(reference)) == reference


@given(REFERENCES)
def test_references_can_be_keys(reference: Reference) -> None:
    assert hash(reference_from(reference_text(reference))) == hash(reference)


def test_references_are_stored_like_this() -> None:
    nested = list_reference((5, item_reference("m", 0, 3), list_reference(()), map_reference("m", 4, 9)))

    assert reference_text(5) == "5"
    assert reference_text(nested) == '["list",5,["item","m",0,3],["list"],["map","m",4,9]]'


def test_the_leaves_of_a_reference_come_in_order() -> None:
    nested = list_reference((3, list_reference((2, map_reference("m", 1, 2))), list_reference(()), 1))

    assert list(leaves(nested)) == [3, 2, ("map", "m", 1, 2), 1]
    assert list(leaves(7)) == [7]


def test_what_another_run_has_is_referred_to_like_this() -> None:
    nested = list_reference((5, list_reference((map_reference("m", 4, 9), of_run("first", 7)))))
    there = of_run("second", nested)

    assert reference_text(there) == (
        '["list",["of","second",5],["list",["of","second",["map","m",4,9]],["of","first",7]]]'
    )
    assert [located("third", leaf) for leaf in leaves(there)] == [
        ("second", 5),
        ("second", ("map", "m", 4, 9)),
        ("first", 7),
    ]


@given(REFERENCES, st.text(), st.text(), st.text())
def test_however_far_away_a_reference_leads_straight_to_the_value(
    reference: Reference, here: str, there: str, beyond: str
) -> None:
    far = of_run(there, of_run(beyond, reference))

    assert far == of_run(beyond, reference)
    expected = [located(beyond, leaf) for leaf in leaves(reference)]
    assert [located(here, leaf) for leaf in leaves(far)] == expected
    assert is_map(far) == is_map(reference)


def test_all_outputs_of_a_map_are_told_from_other_values() -> None:
    for reference in (map_reference("m", 1, 2), of_run("r", map_reference("m", 1, 2)), list_reference(())):
        assert is_map(reference)
    for reference in (3, item_reference("map", 0, 0), of_run("r", 3), list_reference((1,))):
        assert not is_map(reference)


def test_references_by_name_come_back_from_their_text() -> None:
    kept = {"b": of_run("r", 3), "a": of_run("r", map_reference("m", 1, 2)), "c": list_reference(())}

    assert references_text(kept) == '{"a":["of","r",["map","m",1,2]],"b":["of","r",3],"c":["list"]}'
    assert references_from(references_text(kept)) == kept
    assert references_text({}) is None
    assert references_from(None) == {}


def test_a_node_called_list_is_no_list() -> None:
    assert list(leaves(item_reference("list", 0, 0))) == [("item", "list", 0, 0)]


_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(_JSON)
def test_canonical_json_comes_back_and_is_ascii(value: object) -> None:
    for encode in (canonical, compact):
        text = encode(value)
        assert text.isascii()
        assert "\x00" not in text
        assert parse(text) == value


@given(st.dictionaries(st.text(), st.integers()))
def test_canonical_json_does_not_depend_on_the_order_of_keys(value: dict[str, int]) -> None:
    assert canonical(dict(reversed(value.items()))) == canonical(value)


def test_compact_json_keeps_the_order_of_keys() -> None:
    assert compact({"b": 1, "a": 2}) == '{"b":1,"a":2}'
    assert canonical({"b": 1, "a": 2}) == '{"a":2,"b":1}'


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_json_can_not_say_is_refused(value: float) -> None:
    for encode in (canonical, compact):
        with pytest.raises(ValueError, match="JSON"):
            encode([value])


def test_a_lone_surrogate_is_escaped() -> None:
    assert canonical("\ud800\x00é") == '"\\ud800\\u0000\\u00e9"'
    assert json.loads(canonical("\ud800")) == "\ud800"
