"""JSON forms of what the client returns: one encoder for all its classes.

They are the `--json` output of the command line, and are listed in docs/reference/documents.md.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache
from typing import Any, Final, cast, get_args

import attrs

_DATA: Final = frozenset({str, int, float, bool, type(None)})
"""The types whose values are JSON data. Most fields have one of them, and are not worth a call."""


def json_form(value: object) -> object:
    """Return a value as JSON data.

    An object of an attrs class becomes an object with its fields. A duration is a number of seconds, and the name of
    its field ends in `_seconds`. An instant is text in ISO 8601, in UTC and with microseconds. A decimal number is
    text. Everything else must be JSON data already.
    """
    cls: Any = type(value)
    if cls in _DATA:
        return value
    if (fields := _fields_of(cls)) is not None:
        return {
            key: one if (one := getattr(value, name)).__class__ in _DATA else json_form(one)
            for name, key in fields
        }
    match value:
        case datetime():
            text = value.astimezone(UTC).isoformat(timespec="microseconds")
            return text.replace("+00:00", "Z")
        case timedelta():
            return value.total_seconds()
        case Decimal():
            return f"{value:f}"
        case Enum():
            return value.value
        case Mapping():
            items = cast("Mapping[object, object]", value).items()
            return {str(name): one if one.__class__ in _DATA else json_form(one) for name, one in items}
        case tuple() | list():
            return [json_form(one) for one in cast("tuple[object, ...]", value)]
        case _:
            return value


@cache
def _fields_of(cls: type) -> tuple[tuple[str, str], ...] | None:
    """Return the names of the fields of an attrs class, each with its key; None for another class."""
    return tuple(keys_of(cls).items()) if attrs.has(cls) else None


@cache
def keys_of(cls: type[attrs.AttrsInstance]) -> Mapping[str, str]:
    """Return the keys of the JSON form of an attrs class, by the names of its fields.

    A field `from_` has the key `from`, which is a keyword of Python.
    """
    return {
        one.name: f"{one.name}_seconds"
        if timedelta in (one.type, *get_args(one.type))
        else one.name.removesuffix("_")
        for one in attrs.fields(cls)
    }
