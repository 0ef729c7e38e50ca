"""Pagination cursors round-trip as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.ports.pagination import ListPlace, list_place


@given(at=st.integers(0, 10**18 - 1), id=st.text("0123456789ABCXYZ", min_size=1, max_size=26))
def test_a_place_is_handed_on_as_a_text(at: int, id: str) -> None:
    place = ListPlace(at, id)

    assert list_place(place.text) == place


@pytest.mark.parametrize(
    "text",
    ["", ".", "1", "1.", ".A", "x.A", "-1.A", "+1.A", " 1.A", "1.A ", "1.A.B", "².A", "1.é", "9" * 19 + ".A"],
)
def test_what_names_no_place_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a cursor"):
        list_place(text)
