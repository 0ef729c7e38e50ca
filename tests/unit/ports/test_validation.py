"""Arguments of public functions are validated at the call."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from typing_extensions import override

from holdfast.ports.errors import HoldfastError, InvalidArgumentError
from holdfast.ports.validation import AWARE, SINK, TEXT, by_name, check, duration, integer, several, shown
from holdfast.testing import MemorySink


def test_the_error_says_where_which_argument_what_it_is_and_what_it_must_be() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        check("wake", TEXT, key=5)

    assert str(caught.value) == "wake: key is 5; it must be a string"
    assert (caught.value.argument, caught.value.code) == ("key", "invalid_argument")


def test_who_expects_the_errors_of_python_catches_it_too() -> None:
    for kind in (HoldfastError, TypeError, ValueError):
        with pytest.raises(kind):
            check("wake", TEXT, key=5)


def test_none_is_possible_only_where_it_is_said() -> None:
    check("x", TEXT.or_none, a=None, b="b")
    with pytest.raises(InvalidArgumentError, match="a is 1; it must be a string, or None"):
        check("x", TEXT.or_none, a=1)


@pytest.mark.parametrize("value", [True, 0, 4, 1.0, "1", None])
def test_integers_are_within_their_bounds_and_truths_are_none(value: object) -> None:
    check("x", integer(1, 3), a=1, b=3)
    with pytest.raises(InvalidArgumentError, match="it must be an integer from 1 to 3"):
        check("x", integer(1, 3), a=value)


def test_a_class_is_no_sink_though_it_has_the_method() -> None:
    check("x", SINK, a=MemorySink())
    with pytest.raises(InvalidArgumentError, match="an object with a method `emit`"):
        check("x", SINK, a=MemorySink)


def test_an_instant_is_aware() -> None:
    check("x", AWARE, at=datetime(2026, 1, 1, tzinfo=UTC))
    with pytest.raises(InvalidArgumentError, match=r"such as datetime.now\(UTC\)"):
        check("x", AWARE, at=datetime(2026, 1, 1))  # noqa: DTZ001


def test_a_length_of_time_comes_back_as_a_timedelta() -> None:
    assert duration("x", "a", 5) == duration("x", "a", timedelta(seconds=5)) == timedelta(seconds=5)
    with pytest.raises(InvalidArgumentError, match="a is 0; it must be a timedelta or a number of seconds"):
        duration("x", "a", 0)


@pytest.mark.parametrize("value", ["abc", b"abc", 5, None, {"a": 1}])
def test_a_string_is_no_list_and_a_dict_is_none_either(value: Any) -> None:
    assert several("x", "a", (one for one in (1, 2)), "a list") == (1, 2)
    with pytest.raises(InvalidArgumentError, match="it must be a list"):
        several("x", "a", value, "a list")


@pytest.mark.parametrize("value", [["a"], "a", {1: "a"}, {"a": 1}])
def test_a_mapping_is_looked_at_whole(value: Any) -> None:
    assert by_name("x", "a", {"b": "c"}, "a dict", TEXT) == {"b": "c"}
    with pytest.raises(InvalidArgumentError, match="it must be a"):
        by_name("x", "a", value, "a dict", TEXT)


def test_what_is_shown_is_short_and_never_raises() -> None:
    class Hostile:
        @override
        def __repr__(self) -> str:
            raise OSError("no")

    assert shown("x" * 1000).endswith("…")
    assert "Hostile" in shown(Hostile())
