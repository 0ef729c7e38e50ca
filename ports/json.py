"""JSON encoding and decoding: `compact` keeps the order of keys, `canonical` makes texts that can be compared."""

import json
from collections import Counter
from collections.abc import Callable
from json import encoder
from typing import Any, Final, cast

_ENCODER: Final = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"), sort_keys=True)
_PLAIN: Final = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))
_DECODER: Final = json.JSONDecoder()
_SCAN: Final = cast("Callable[[str, int], tuple[Any, int]]", cast("Any", _DECODER).scan_once)
"""Parses the value at a position of a text. `decode` also skips spaces around it, which takes as long again."""


def _chunks(encoder_of: json.JSONEncoder) -> Any:
    """Return the C encoder of an encoder, None without the C module. Making one takes longer than a short text."""
    make = cast("Any", getattr(encoder, "c_make_encoder", None))
    if make is None:
        return None
    text_of = cast("Any", encoder).encode_basestring_ascii
    return make(None, encoder_of.default, text_of, None, ":", ",", encoder_of.sort_keys, False, False)


_CHUNKS: Final = _chunks(_ENCODER)
_PLAIN_CHUNKS: Final = _chunks(_PLAIN)

_LONG: Final = 4_096
"""From how many characters on a text is searched for characters to escape, which is faster than the C encoder then."""
_TO_ESCAPE: Final = ("\n", '"', "\\", *(chr(code) for code in (*range(32), 127) if chr(code) != "\n"))
"""The ASCII characters that are not written as they are, the most frequent ones first."""


def _text_of(text: str) -> str:
    if len(text) >= _LONG and text.isascii() and not any(one in text for one in _TO_ESCAPE):
        return f'"{text}"'
    return cast("str", _encode_basestring(text))


_encode_basestring: Final = cast("Any", encoder).encode_basestring_ascii

TEXTS: Final[dict[type, Callable[[Any], str]]] = {
    int: int.__repr__,
    str: _text_of,
    bool: {False: "false", True: "true"}.__getitem__,
    type(None): {None: "null"}.__getitem__,
}
"""Encoders for values without parts. They save walking through a value, which takes several times as long."""


def canonical(value: object) -> str:
    """Return the canonical text: ASCII only, sorted keys, no spaces.

    ValueError for NaN and infinities; RecursionError for a value that contains itself.
    """
    if (text := TEXTS.get(type(value))) is not None:
        return text(value)
    return _ENCODER.encode(value) if _CHUNKS is None else "".join(_CHUNKS(value, 0))


def compact(value: object) -> str:
    """Return a text without spaces that keeps the order of keys. Raises the errors of `canonical`."""
    if (text := TEXTS.get(type(value))) is not None:
        return text(value)
    return _PLAIN.encode(value) if _PLAIN_CHUNKS is None else "".join(_PLAIN_CHUNKS(value, 0))


def are_alike(one: str, other: str) -> bool:
    """Whether two JSON texts differ only in spaces and the order of keys. ValueError if one is not JSON."""
    return one == other or canonical(parse(one)) == canonical(parse(other))


def parse(text: str) -> Any:  # callers narrow the type
    """Return the value of a JSON text. ValueError if it is not JSON."""
    try:
        value, end = _SCAN(text, 0)
    except StopIteration:  # leading spaces
        return _DECODER.decode(text)
    return value if end == len(text) else _DECODER.decode(text)


def parse_input(text: str) -> Any:  # callers narrow the type
    """Return the value of a user-supplied JSON text.

    ValueError if it is not JSON, or if a key occurs twice in an object: `parse` would drop its first value.
    """
    return _INPUT_DECODER.decode(text)


def _object_from(fields: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(fields)
    if len(found) < len(fields):
        [(key, _)] = Counter(key for key, _ in fields).most_common(1)
        raise ValueError(f"an object has the key {key!r} more than once")
    return found


_INPUT_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object_from)
