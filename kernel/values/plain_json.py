"""Plain JSON: the codec of `object` and `Any`, and the limits of all JSON texts."""

import math
from typing import Any, Final, cast

from holdfast.kernel.values.codec import (
    KINDS,
    Codec,
    Mismatch,
    class_name,
    described,
    quoted,
    segment,
    unstorable,
)
from holdfast.kernel.values.type_forms import Form
from holdfast.ports.json import compact

PLAIN_FORMS: Final[frozenset[Form]] = frozenset({object, Any})
"""Types whose values are any plain JSON."""

MAX_DEPTH: Final = 64
"""Maximum nesting of arrays and objects in a value."""

_SCALARS: Final = frozenset({type(None), bool, int, float, str})


def _encode(value: object) -> object:
    """Return the value unchanged. Mismatch if it would not come back equal from JSON."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is list:
        for index, item in enumerate(cast("list[object]", value)):
            if type(item) not in _SCALARS:
                _encode_item(index, item)
        return value
    if kind is dict:
        for key, item in cast("dict[object, object]", value).items():
            if type(key) is not str:
                raise unstorable(f"expected a string as key, got {quoted(key)} of type {class_name(key)}")
            if type(item) not in _SCALARS:
                _encode_item(key, item)
        return value
    got = described(value)
    if got != class_name(value):
        raise unstorable(f"expected plain JSON, got {got}")
    raise unstorable(f"{got} is not plain JSON; declare its type")


def _encode_item(key: object, item: object) -> None:
    try:
        _encode(item)
    except Mismatch as error:
        raise Mismatch(*error.inside(segment(key))) from None


def _decode(data: object) -> object:
    return data


PLAIN_JSON: Final = Codec(_encode, _decode, frozenset(KINDS.values()), (object,))


def check_data(data: object, depth: int = 0) -> None:
    """Raise Mismatch for JSON data that can't be stored: NUL, lone surrogates, NaN, or too deep nesting."""
    if isinstance(data, str):
        _check_text(data)
    elif isinstance(data, dict | list):
        if depth == MAX_DEPTH:
            raise unstorable(f"lists and objects are nested more than {MAX_DEPTH} levels deep")
        is_dict = isinstance(data, dict)
        items = cast("dict[str, object]", data).items() if is_dict else enumerate(cast("list[object]", data))
        for key, item in items:
            try:
                if isinstance(key, str):
                    _check_text(key)
                check_data(item, depth + 1)
            except Mismatch as error:
                raise Mismatch(*error.inside(segment(key))) from None
    elif isinstance(data, float):
        if not math.isfinite(data):
            raise unstorable(f"expected a finite number, got {data}")
    elif isinstance(data, int):
        try:
            int.__repr__(data)
        except ValueError:
            raise unstorable("the integer has more digits than Python converts to text") from None


def first_difference(one: object, other: object) -> str:
    """Return the path of the first difference between two JSON data, as deep as possible. The order of keys counts."""
    parts, others = _parts(one), _parts(other)
    if list(parts) == list(others):
        for key, part in parts.items():
            if compact(part) != compact(others[key]):
                return segment(key) + first_difference(part, others[key])
    return ""


def _parts(data: object) -> dict[object, object]:
    if isinstance(data, dict):
        return cast("dict[object, object]", data)
    return dict(enumerate(cast("list[object]", data))) if isinstance(data, list) else {}


def _check_text(text: str) -> None:
    if "\0" in text:
        raise unstorable("the string contains a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise unstorable("the string contains half of a surrogate pair") from None
