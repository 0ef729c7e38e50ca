"""Classes that only the type checkers keep from being changed are otherwise as those of attrs."""

import attrs

from holdfast.ports.frozen import frozen


@frozen(kw_only=True)
class Place:
    row: int
    seat: int = 1


@frozen(eq=False)
class Thing:
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
