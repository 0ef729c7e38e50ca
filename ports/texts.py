"""Escaping of untrusted text for terminals and logs: control and invisible characters, and line ends."""

import re
from typing import Final

# Categories Cc, Cf, Cs, Zl and Zp, and letters and marks that are invisible; a test compares with Unicode.
_HIDDEN: Final = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    r"\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb"
    r"\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_IN_TEXT: Final = re.compile(f"[{_HIDDEN}]")
_IN_LINE: Final = re.compile(rf"[\n{_HIDDEN}]")
_LINE_END: Final = 0x0A
_FOUR_DIGITS: Final = 0xFFFF


def escape_text(text: str) -> str:
    """Return a text with unprintable characters as Python escapes; tabs and line ends are kept."""
    return _IN_TEXT.sub(_escaped, text)


def escape_line(text: str) -> str:
    """Return a text as one line: as `escape_text`, with line ends escaped too."""
    return _IN_LINE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code == _LINE_END:
        return "\\n"
    return f"\\u{code:04x}" if code <= _FOUR_DIGITS else f"\\U{code:08x}"
