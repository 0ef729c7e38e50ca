"""Bytes that are an answer: artifacts and large values, as something that a browser does not run."""

import re
from typing import Final

import attrs

from holdfast.hosts.http.problems import HttpError

BYTES: Final = "application/octet-stream"
"""The media type of everything that is not one of these."""
SHOWN_TYPES: Final = frozenset(
    {
        "application/json",
        "image/gif",
        "image/jpeg",
        "image/png",
        "image/webp",
        "text/csv",
        "text/plain",
    }
)
"""Media types that a browser shows and does not run. Whatever has another one is saved as a file."""
SIZE_MAX: Final = 64 * 1_048_576
"""The largest artifact or value that is sent, in bytes: it is read into memory, as its hash is checked first."""
_PARAMETER: Final = re.compile(r"\s*charset\s*=\s*\"?utf-8\"?\s*", re.IGNORECASE)


@attrs.frozen(kw_only=True)
class Download:
    """Bytes of a run."""

    content: bytes
    """The bytes."""
    media_type: str
    """The media type that user code set."""
    filename: str
    """The name under which a browser saves them."""
    sha256: str
    """Their hash, 64 hex digits: the ETag."""


def check_size(size: int) -> None:
    """Raise HttpError for more bytes than are sent."""
    if size > SIZE_MAX:
        raise HttpError(
            "value_too_large",
            f"it has {size:,} bytes, and at most {SIZE_MAX:,} are sent: read it with an engine",
        )


def safe_media_type(given: str) -> str:
    """Return the media type under which bytes of this media type are sent."""
    kind, _, parameters = given.partition(";")
    kind = kind.strip().lower()
    if kind not in SHOWN_TYPES or (parameters and not _PARAMETER.fullmatch(parameters)):
        return BYTES
    return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind
