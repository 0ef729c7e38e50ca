"""Text for output: what is printed and what is escaped."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.ports.texts import escape_line, escape_text


@pytest.mark.slow
def test_all_that_is_invisible_or_commands_is_escaped_and_nothing_else_of_letters() -> None:
    """By this Python's Unicode tables, so new characters would be found."""
    wrong: list[str] = []
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        category = unicodedata.category(char)
        is_kept = escape_text(char) == char
        if (category in {"Cc", "Cf", "Cs", "Zl", "Zp"}) and is_kept != (char in "\t\n"):
            wrong.append(f"{code:x} {category}")
        if category in {"Lu", "Ll", "Nd", "Po", "Sc", "So", "Zs", "Pd"} and not is_kept:
            wrong.append(f"{code:x} {category}")

    assert wrong == []


def test_letters_that_show_nothing_are_escaped() -> None:
    for char in "\u115f\u1160\u3164\uffa0\u034f\u17b4\u180b\u2065\U000e0001\U000e01ef":
        assert escape_text(f"a{char}b").isascii()


@given(st.text())
def test_a_line_is_one_line(text: str) -> None:
    escaped = escape_line(text)

    assert len(f"{escaped}.".splitlines()) == 1
    assert escape_line(escaped) == escaped
    assert escape_text(text).count("\n") == text.count("\n")


def test_escapes_are_pythons() -> None:
    assert escape_line("a\nb\r\x1b[2J\u202e\U000e0041") == "a\\nb\\u000d\\u001b[2J\\u202e\\U000e0041"
    assert escape_text("größe 1 → 2\t🙂\n") == "größe 1 → 2\t🙂\n"
