"""Previews of stored values, for lists."""

import attrs

from holdfast.hosts.inspection.bounds import PREVIEW_MAX
from holdfast.ports.json import parse
from holdfast.ports.records.values import Payload


@attrs.frozen(kw_only=True)
class ValuePreview:
    """A stored value, shortened if its JSON text has more than 4,096 characters."""

    value: object = None
    """The value as JSON data; None also if it is shortened, or in a blob."""
    text: str | None = None
    """The first characters of its JSON text, if it is shortened; else None."""
    size: int | None
    """The size of its JSON text in bytes; None if it is in a blob, which is not read for a preview."""
    blob: str | None = None
    """The key of the blob that holds it; None if the row itself does."""


def preview_of(payload: Payload | None) -> ValuePreview | None:
    """Return the preview of a value; None without a value. ValueError if it is not JSON."""
    if payload is None:
        return None
    text = payload.inline
    if text is None:
        return ValuePreview(size=None, blob=payload.blob)
    size = len(text.encode())
    if len(text) > PREVIEW_MAX:
        return ValuePreview(text=text[:PREVIEW_MAX], size=size)
    return ValuePreview(value=parse(text), size=size)
