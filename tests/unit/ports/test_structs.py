"""Structs, which only type checkers keep frozen, otherwise behave like attrs classes."""

from typing import Any

import attrs
import pytest

from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import Job
from holdfast.ports.records.run import Run
from holdfast.ports.structs import changer, evolve, frozen, maker


@frozen(kw_only=True)
class Place:
    row: int
    seat: int = 1


@frozen(eq=False)
class Thing:
    name: str


def _at_least_one(_: object, __: object, number: int) -> None:
    if number < 1:
        raise ValueError("too small")


@frozen
class Checked:
    number: int = attrs.field(validator=_at_least_one)


@frozen
class Looked:
    number: int

    def __attrs_post_init__(self) -> None:
        if self.number < 0:
            raise ValueError("no number")


@frozen(cache_hash=True)
class Hashed:
    number: int


@frozen(slots=False)
class Open:
    name: str


@attrs.frozen
class Frozen:
    name: str


def test_they_compare_and_hash_by_their_fields() -> None:
    assert Place(row=1) == Place(row=1, seat=1) != Place(row=2)
    assert {Place(row=1): "a"}[Place(row=1)] == "a"
    assert attrs.evolve(Place(row=1), seat=2) == Place(row=1, seat=2)


def test_those_without_equality_are_equal_to_themselves_only() -> None:
    assert Thing("a") != Thing("a")
    assert len({Thing("a"), Thing("a")}) == 2


def test_they_have_room_for_nothing_else() -> None:
    assert not hasattr(Place(row=1), "__dict__")


def test_one_like_another_differs_in_what_was_said() -> None:
    place = Place(row=1)
    assert evolve(place, seat=2) == Place(row=1, seat=2)
    assert (place, evolve(place)) == (Place(row=1), place)
    assert evolve(place) is not place
    assert evolve(Thing("a"), name="b").name == "b"


@pytest.mark.parametrize("made", [Run, Job, HistoryRow])
def test_records_are_made_alike_field_by_field(made: Any) -> None:
    record = object.__new__(made)
    names = [field.name for field in attrs.fields(made)]
    for name in names:
        object.__setattr__(record, name, name)
    for name in names:
        changes: dict[str, Any] = {name: 1}
        copy = evolve(record, **changes)
        assert [getattr(copy, one) for one in names] == [1 if one == name else one for one in names]


def test_what_is_checked_when_it_is_made_is_checked_again() -> None:
    with pytest.raises(ValueError, match="too small"):
        evolve(Checked(2), number=0)
    with pytest.raises(ValueError, match="no number"):
        evolve(Looked(2), number=-1)
    hashed = Hashed(2)
    assert {hashed: 1}[evolve(hashed, number=2)] == 1
    assert evolve(Open("a"), name="b").name == "b"
    assert evolve(Frozen("a"), name="b") == Frozen("b")


def test_a_field_that_is_not_there_is_refused() -> None:
    with pytest.raises(AttributeError):
        evolve(Place(row=1), gate=2)  # type: ignore[call-arg]  # mypy sees it, too


def test_a_maker_sets_each_field_and_reads_the_members_of_enumerations() -> None:
    make = maker(Place, ("seat", "row"), seat={"window": 7})

    assert make(("window", 3)) == Place(row=3, seat=7)
    for values in (("window",), ("window", 3, 4)):
        with pytest.raises(ValueError, match="values to unpack"):
            make(values)
    with pytest.raises(KeyError, match="aisle"):
        make(("aisle", 3))
    with pytest.raises(TypeError):
        make(([], 3))


def test_a_changer_copies_with_new_values() -> None:
    change = changer(Place, "seat")
    before = Place(row=3)

    assert change(before, seat=9) == evolve(before, seat=9) == Place(row=3, seat=9)
    assert before == Place(row=3)
    with pytest.raises(TypeError, match="seat"):
        change(before)


@pytest.mark.parametrize("made", [Checked, Looked])
def test_code_is_generated_only_for_classes_whose_constructor_only_sets_fields(made: type[Any]) -> None:
    with pytest.raises(AssertionError):
        maker(made, ("number",))
    with pytest.raises(AssertionError):
        changer(made, "number")


def test_a_maker_needs_all_fields() -> None:
    with pytest.raises(AssertionError):
        maker(Place, ("row",))
