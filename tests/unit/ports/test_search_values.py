"""Codes of values are in the order of the values."""

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.ports.search_values import (
    ITEMS_MAX,
    TEXT_ORDERED,
    ValueMatch,
    ValueSource,
    code_of,
    codes_of,
    index_key,
    instant_text,
    is_ordered,
    span_of,
    span_of_prefix,
)

EDGES = (
    -(2**63),
    -(2**63) + 1,
    -(2**53) - 1,
    -(2**53),
    -1,
    -0.5,
    0,
    5e-324,
    1,
    2**53 - 1,
    2**53,
    2**53 + 1,
    2**62 + 1,
    2**63 - 1,
    2**63,
)
NUMBERS = (
    st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(EDGES)
    | st.integers(-(2**63), 2**63 - 1).map(float)
)
CHARACTERS = st.characters(codec=None) | st.sampled_from(
    "\0\1\2\ud7fe\ud7ff\ud800\udfff\ue000\uffff\U0010ffffab"
)
TEXTS = st.text(CHARACTERS, max_size=12) | st.text(st.sampled_from("ab\U0010ffff"), max_size=3).map(
    lambda text: "ab" * (TEXT_ORDERED // 2 - 1) + text
)
BOUNDS = TEXTS.filter(is_ordered)
INSTANTS = st.datetimes(
    min_value=datetime(1, 1, 3),  # noqa: DTZ001  # the zone is drawn
    max_value=datetime(9999, 12, 29),  # noqa: DTZ001
    timezones=st.sampled_from(
        [UTC, timezone(timedelta(hours=5, minutes=30)), timezone(-timedelta(hours=11))]
    ),
)


def code(value: object) -> str:
    """Return the code of a value that has one; it can be stored and compared in a database."""
    found = code_of(value)
    assert found is not None
    assert "\0" not in found
    found.encode()
    return found


@given(NUMBERS, NUMBERS)
def test_codes_of_numbers_are_in_their_order(one: float, other: float) -> None:
    """Exactly, also where integers are too large for doubles. An integer equals the float of its value."""
    assert (code(one) < code(other)) == (one < other)
    assert (code(one) == code(other)) == (one == other)
    assert len(code(one)) == len(code(other))


def test_codes_of_numbers_at_the_edges_are_in_their_order() -> None:
    assert all(code(one) < code(other) for one, other in pairwise(EDGES))
    assert code(0.0) == code(-0.0) == code(0)


@pytest.mark.parametrize(
    "value", [2**63 + 1, -(2**63) - 1, math.nan, math.inf, None, {"a": 1}, [1], ["a", 1]]
)
def test_other_values_have_no_code(value: object) -> None:
    assert code_of(value) is None
    assert list(codes_of(value)) == []


@given(TEXTS, BOUNDS)
def test_a_text_is_below_a_bound_if_its_code_is(text: str, bound: str) -> None:
    """By the numbers of the characters, whatever the length and the characters of the text."""
    assert (code(text) < code(bound)) == (text < bound)
    assert (code(text) == code(bound)) == (text == bound)


@given(TEXTS, TEXTS)
def test_different_texts_have_different_codes(one: str, other: str) -> None:
    assert (code(one) == code(other)) == (one == other)


@given(TEXTS, BOUNDS.filter(bool))
def test_a_span_has_the_texts_with_a_prefix(text: str, prefix: str) -> None:
    for one in (text, prefix, prefix + text):
        low, high = span_of_prefix(prefix)
        assert (low <= code(one) < high) == one.startswith(prefix), (one, prefix)


@given(INSTANTS, INSTANTS)
def test_texts_of_instants_are_in_the_order_of_time(one: datetime, other: datetime) -> None:
    assert (instant_text(one) < instant_text(other)) == (one < other)
    assert (instant_text(one) == instant_text(other)) == (one == other)
    assert datetime.fromisoformat(instant_text(one)) == one


def _others() -> Iterator[str | float]:
    yield from (True, False, "", "1", "true", "n", "\U0010ffff", 0, 1, -1e300, 1e300)


@given(NUMBERS, NUMBERS)
def test_a_span_without_a_bound_has_all_values_of_its_kind(low: float, high: float) -> None:
    above = ValueMatch(source=ValueSource.ANNOTATION, name="n", span=span_of(low, None))
    under = ValueMatch(source=ValueSource.ANNOTATION, name="n", span=span_of(None, high))
    for value in (low, high, *_others()):
        number = None if isinstance(value, str | bool) else value
        assert above.matches(code(value)) == (number is not None and number >= low), value
        assert under.matches(code(value)) == (number is not None and number < high), value


def test_values_of_different_kinds_never_match() -> None:
    codes = [code(value) for value in (True, 1, "1", "true", False, 0, "0", "")]
    assert len(set(codes)) == len(codes)


def test_a_run_is_found_by_each_text_of_a_list() -> None:
    assert list(codes_of(["a", "b"])) == ["ta", "tb"]
    assert len(list(codes_of(["a"] * ITEMS_MAX))) == ITEMS_MAX
    assert list(codes_of(["a"] * (ITEMS_MAX + 1))) == []
    assert list(codes_of([])) == []


def test_keys_of_different_names_and_sources_differ() -> None:
    """The stored form is a contract (docs/decisions/0066)."""
    keys = {
        index_key(source, namespace, name, "ta")
        for source in ValueSource
        for namespace, name in (("n", "ab"), ("na", "b"), ("n", "a"), ("", "nab"), ("\ud800", "\0"))
    }
    assert len(keys) == 10
    assert (
        index_key(ValueSource.ATTRIBUTE, "default", "customer", "tann")
        == "22d3c840b81b0f6374b48c06b21b2c02tann"
    )
    assert (
        index_key(ValueSource.ANNOTATION, "default", "cents", code(-7))
        == "146ad0875b2fc48c2ecab3110181c031n3fe3ffffffffffff000"
    )
