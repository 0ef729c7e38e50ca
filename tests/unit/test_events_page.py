"""The page of events is what the classes of events say."""

import re
from typing import ClassVar

import pytest

from holdfast.kernel.history.events import EVENTS, HistoryEvent, StageRetrying, StepCompleted
from holdfast.ports.structs import frozen
from tools import events
from tools.events import LINKS, PAGE, START, Field, fields_of, page


@frozen(kw_only=True)
class Described(HistoryEvent):
    """Something happened."""

    type: ClassVar[str] = "thing.happened"
    json_names: ClassVar[dict[str, str]] = {"from_": "from"}
    hidden: ClassVar[frozenset[str]] = frozenset({"secret"})
    from_: str | None
    """Where it
    began; None: nowhere."""
    secret: str = ""
    times: int = 0
    """How often; None: never."""


@frozen(kw_only=True)
class Bare(HistoryEvent):
    """Something else happened."""

    type: ClassVar[str] = "thing.else"
    why: str


@pytest.mark.slow
def test_the_page_is_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(text), "`python -m tools.events` writes it anew"


@pytest.mark.slow
def test_what_is_written_by_hand_stays() -> None:
    head, _, generated = page(f"# By hand\n\n{START}\nold\n").partition(START)
    assert head == "# By hand\n\n"
    assert "old" not in generated.splitlines()
    assert set(EVENTS) <= set(re.findall(r"`([a-z]+\.[a-z_]+)`", generated))


def test_a_page_without_the_heading_is_refused() -> None:
    with pytest.raises(ValueError, match="no heading '## Types'"):
        page("# Events\n")


def test_fields_have_their_names_and_types_in_json() -> None:
    assert list(fields_of(Described)) == [
        Field("from", "string or null", "Where it began; null: nowhere."),
        Field("times", "integer, optional", "How often; left out: never."),
    ]


def test_own_fields_come_before_inherited_ones() -> None:
    names = [field.name for field in fields_of(StageRetrying)]
    assert names[0] == "retry_at"
    assert names[-1] == "host"
    assert "type" in names  # of the exception


def test_hidden_fields_are_left_out() -> None:
    assert "given" not in [field.name for field in fields_of(StepCompleted)]


def test_a_field_without_a_docstring_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Bare\.why has no docstring"):
        list(fields_of(Bare))


def test_a_link_whose_words_are_gone_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "LINKS", {**LINKS, "run.paused": (("no such words", "x.md"),)})
    with pytest.raises(ValueError, match="'no such words'"):
        page(START)
