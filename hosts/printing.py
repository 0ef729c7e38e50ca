"""Texts that every database can keep."""

import re
from typing import Final

_UNPRINTABLE: Final = re.compile(r"[\x00\ud800-\udfff]")


def printable(text: str) -> str:
    """Return the text with what no database can keep replaced."""
    return _UNPRINTABLE.sub("\ufffd", text)
