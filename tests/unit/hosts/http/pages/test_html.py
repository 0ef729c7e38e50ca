"""No text becomes markup, and no address comes from a text."""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from holdfast.hosts.http.pages.html import Link, document, el, join, shown_text

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onload='",
    "</p><p>",
    "&lt;",
    "&#60;",
    "]]>",
    "<!--",
)
TEXTS = st.one_of(st.sampled_from(HOSTILE), st.text(), st.text(alphabet="<>&\"'=/ -!;#x"))


class Shape(HTMLParser):
    """The elements of a document with their attributes, and its text."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.ends: list[str] = []
        self.other: list[str] = []
        self.text = ""
        self.feed(markup)
        self.close()

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    @override
    def handle_endtag(self, tag: str) -> None:
        self.ends.append(tag)

    @override
    def handle_data(self, data: str) -> None:
        self.text += data

    @override
    def handle_comment(self, data: str) -> None:
        self.other.append(data)

    @override
    def handle_decl(self, decl: str) -> None:
        self.other.append(decl)

    @override
    def unknown_decl(self, data: str) -> None:
        self.other.append(data)

    @override
    def handle_pi(self, data: str) -> None:
        self.other.append(data)


@pytest.mark.slow
@given(text=TEXTS, title=TEXTS, value=TEXTS)
def test_a_text_stays_a_text_in_every_place(text: str, title: str, value: str) -> None:
    page = el("p", el("b", text, title=title), el("input", value=value), text)

    shape = Shape(page.markup)

    expected: list[tuple[str, dict[str, str]]] = [
        ("p", {}),
        ("b", {"title": shown_text(title)}),
        ("input", {"value": shown_text(value)}),
    ]
    assert shape.elements == expected
    assert shape.ends == ["b", "p"]
    assert shape.text == shown_text(text) * 2
    assert shape.other == []


@given(address=TEXTS)
def test_an_address_stays_in_its_attribute(address: str) -> None:
    assert Shape(el("a", "x", href=Link(address)).markup).elements == [("a", {"href": address})]


@pytest.mark.parametrize("name", ["href", "src", "action", "formaction", "data_watch", "poster", "cite"])
def test_an_address_is_no_text(name: str) -> None:
    with pytest.raises(ValueError, match="takes a link"):
        el("a", **{name: "javascript:alert(1)"})


def test_no_other_attribute_takes_an_address() -> None:
    with pytest.raises(ValueError, match="takes a link"):
        el("a", title=Link("/ui"))


@pytest.mark.parametrize(
    "name", ["onclick", "onload", "on_load", "style", "srcdoc", "srcset", "ping", "background"]
)
def test_attributes_that_run_or_load_something_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not used in pages"):
        el("a", **{name: "x"})


@pytest.mark.parametrize("tag", ["style", "iframe", "object", "embed", "base"])
def test_elements_that_load_something_are_refused(tag: str) -> None:
    with pytest.raises(ValueError, match="not used in pages"):
        el(tag)


@pytest.mark.parametrize(
    "char", "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\x00\x1b\x08"
)
def test_characters_that_reorder_or_hide_others_are_written_out(char: str) -> None:
    assert shown_text(f"a{char}b") == f"a\\u{ord(char):04x}b"
    assert char not in el("p", f"a{char}b", title=char).markup


def test_other_characters_stay() -> None:
    assert shown_text("é 漢 😀\n\tשם") == "é 漢 😀\n\tשם"


def test_half_of_a_character_can_be_sent() -> None:
    assert b"\\ud800" in document(el("head"), el("p", "\ud800"))


def test_attributes_without_a_value_and_those_left_out() -> None:
    found = el("input", required=True, disabled=False, title=None, data_key=3, aria_label="", for_="x")
    assert found.markup == '<input required data-key="3" aria-label="" for="x">'


def test_nodes_are_joined_and_none_is_left_out() -> None:
    assert join("a", None, 1, [el("b"), "<"]).markup == "a1<b></b>&lt;"
