"""What bodies say of themselves, as text: small values, of whatever class they are."""

from typing import Any, Final

from holdfast.kernel.values import encode

HEARTBEAT_MAX: Final = 16 * 1024
"""How many bytes the text of a heartbeat's details may have."""
_PLAIN_JSON: Final = frozenset({type(None), bool, int, float, str, list, dict})


def form_of(value: object) -> Any:
    """Return what a value is stored as: plain JSON, or of its class."""
    return object if type(value) in _PLAIN_JSON else type(value)


def details_text(details: object) -> str:
    """Return the JSON text of a heartbeat's details. UnstorableValueError if there is none, or it is over 16 KiB."""
    return encode(details, form_of(details), max_bytes=HEARTBEAT_MAX)
