"""The page of JSON documents is what their classes say."""

import attrs
import pytest

from tools import documents
from tools.documents import DOCUMENTS, PAGE, START, meanings_of, page


@attrs.frozen(kw_only=True)
class Bare:
    """Something."""

    why: str


@attrs.frozen(kw_only=True)
class Listed:
    """Something.

    Attributes:
        one, two: Both of
            them.
        three: The third.
    """

    one: int
    two: int
    three: str


def test_the_page_is_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(text), "`python -m tools.documents` writes it anew"


def test_what_is_written_by_hand_stays() -> None:
    head, _, generated = page(f"# By hand\n\n{START}\nold\n").partition(START)
    assert head == "# By hand\n\n"
    assert "old" not in generated.splitlines()
    assert all(f"### {cls.__name__}\n" in generated for cls in DOCUMENTS)


def test_a_page_without_the_heading_is_refused() -> None:
    with pytest.raises(ValueError, match="no heading '## Documents'"):
        page("# Documents\n")


def test_each_field_is_described() -> None:
    assert meanings_of(Listed) == {"one": "Both of them.", "two": "Both of them.", "three": "The third."}
    with pytest.raises(ValueError, match="Bare has fields without a description: why"):
        meanings_of(Bare)


def test_a_document_within_a_document_has_a_section(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = {cls: text for cls, text in DOCUMENTS.items() if cls.__name__ != "ParentRun"}
    monkeypatch.setattr(documents, "DOCUMENTS", inner)
    with pytest.raises(KeyError, match="ParentRun"):
        page(START)
