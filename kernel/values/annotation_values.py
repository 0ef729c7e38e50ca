"""Values of annotations as they are stored: plain JSON, in which an instant is a text."""

from datetime import datetime

from holdfast.kernel.values import encode
from holdfast.ports.errors import UnstorableValueError
from holdfast.ports.search_values import instant_text


def encode_annotation(value: object) -> str:
    """Return the JSON text of an annotation's value: plain JSON, or an aware datetime as its text in UTC.

    Raises UnstorableValueError for anything else, also for a datetime without a time zone.
    """
    if not isinstance(value, datetime):
        return encode(value, object)
    if value.utcoffset() is None:
        raise UnstorableValueError(
            "$", f"{value!r} has no time zone; use datetime.now(UTC) or another aware datetime"
        )
    try:
        return encode(instant_text(value), object)
    except OverflowError:
        raise UnstorableValueError("$", f"{value!r} is out of range in UTC") from None
