"""Values that bodies report without a declared type, such as heartbeat details, as JSON text."""

from typing import Any, Final

from holdfast.kernel.values import encode

HEARTBEAT_MAX: Final = 16 * 1024
"""Maximum length of the JSON text of a heartbeat's details, in bytes."""
_PLAIN_JSON: Final = frozenset({type(None), bool, int, float, str, list, dict})


def form_of(value: object) -> Any:
    """Return the type to store a value as: `object` for plain JSON, otherwise its class."""
    return object if type(value) in _PLAIN_JSON else type(value)


def details_text(details: object) -> str:
    """Return the JSON text of heartbeat details. UnstorableValueError if they can't be stored or exceed 16 KiB."""
    return encode(details, form_of(details), max_bytes=HEARTBEAT_MAX)
