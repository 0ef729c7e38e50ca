"""Canonical JSON: the one text form in which values and replies are stored."""

import json
from typing import Any, Final

_ENCODER: Final = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"), sort_keys=True)
_PLAIN: Final = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))
_DECODER: Final = json.JSONDecoder()


def canonical(value: object) -> str:
    """Return the canonical text: ASCII only, sorted keys, no spaces. ValueError for NaN and infinities."""
    return _ENCODER.encode(value)


def compact(value: object) -> str:
    """Return a text without spaces that keeps the order of keys. ValueError for NaN and infinities."""
    return _PLAIN.encode(value)


def parse(text: str) -> Any:  # JSON is any of its types; callers narrow
    """Return the value that a JSON text describes. ValueError if it is not JSON."""
    return _DECODER.decode(text)
