"""Values by which runs are found, as texts whose order is that of the values (docs/decisions/0117).

A text of a value is called its code. It begins with a letter for the kind, so that values of different kinds never
match: texts, numbers, and booleans. An instant is a text of fixed length in UTC, whose order is that of time. Codes are
compared character by character, which is the bytewise order of UTF-8 in the databases.
"""

import math
import re
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import blake2b
from typing import Final, TypeAlias, cast

from holdfast.ports.structs import frozen

SearchValue: TypeAlias = str | int | float | bool
"""A value by which runs are found."""

TEXT_ORDERED: Final = 200
"""How many characters of a text decide its place among others. A longer one is still found by its equal."""
ITEMS_MAX: Final = 100
"""The maximum number of texts in a list by each of which a run is found."""
NUMBER_BITS: Final = 63
"""Integers from -2**63 to 2**63 are found."""

_TEXT: Final = "t"
_NUMBER: Final = "n"
_SIGN: Final = 1 << 63
_ALL: Final = (1 << 64) - 1

# Characters that PostgreSQL can't store, and two that stand for them. U+D7FF is no character: the halves of surrogate
# pairs follow it at once, so that they sort as if they had been stored.
_UNORDERED: Final = re.compile("[\0\1\ud7ff-\udfff]")


class ValueSource(StrEnum):
    """What of a run a value is from."""

    ATTRIBUTE = "attribute"
    ANNOTATION = "annotation"


@frozen(kw_only=True)
class ValueMatch:
    """A condition on the values that a run has under a name. It holds if one of them is one of these."""

    source: ValueSource
    name: str
    codes: tuple[str, ...] = ()
    """The codes that match, sorted."""
    span: tuple[str, str] | None = None
    """The first code that matches, and the first after it that no longer does."""

    def matches(self, code: str) -> bool:
        """Return whether a value with this code matches."""
        return code in self.codes or (self.span is not None and self.span[0] <= code < self.span[1])


def instant_text(instant: datetime) -> str:
    """Return an aware instant as a text of 27 characters in UTC: `2026-11-29T08:00:00.000000Z`."""
    return instant.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def code_of(value: object) -> str | None:
    """Return the code of a value; None if runs are not found by it."""
    if isinstance(value, str):
        return _text_code(value)
    if isinstance(value, bool):
        return f"b{int(value)}"
    if isinstance(value, int):
        return _integer_code(value) if abs(value) <= 1 << NUMBER_BITS else None
    return _number_code(value, 0) if isinstance(value, float) and math.isfinite(value) else None


def codes_of(value: object) -> Iterator[str]:
    """Yield the codes by which a run with a JSON value is found: its own, or those of a list of at most 100 texts."""
    if isinstance(value, list):
        texts = cast("list[object]", value)
        if len(texts) <= ITEMS_MAX and all(isinstance(text, str) for text in texts):
            yield from (_text_code(cast("str", text)) for text in texts)
    elif (code := code_of(value)) is not None:
        yield code


def is_ordered(text: str) -> bool:
    """Return whether a text can bound others: it has at most 200 characters, and none without a place in the order."""
    return len(text) <= TEXT_ORDERED and _UNORDERED.search(text) is None


def span_of(at_least: SearchValue | None, below: SearchValue | None) -> tuple[str, str]:
    """Return the span of the codes of values of one kind, from the first bound up to the second. One may be None.

    Texts must be ordered (see `is_ordered`).
    """
    kind = cast("str", code_of(below if at_least is None else at_least))[0]
    low = kind if at_least is None else cast("str", code_of(at_least))
    return low, chr(ord(kind) + 1) if below is None else cast("str", code_of(below))


def span_of_prefix(prefix: str) -> tuple[str, str]:
    """Return the span of the codes of texts that begin with an ordered text."""
    low = _text_code(prefix)
    return low, cast("str", text_after(low))


def text_after(prefix: str) -> str | None:
    """Return the least text, in the order of UTF-8 bytes, above every text with this prefix; None without such."""
    kept = prefix.rstrip("\U0010ffff")
    if not kept:
        return None
    following = ord(kept[-1]) + 1
    # Halves of surrogate pairs are no characters of UTF-8.
    return kept[:-1] + chr(0xE000 if following == 0xD800 else following)


def index_key(source: ValueSource, namespace: str, name: str, code: str) -> str:
    """Return the key of a value in an index: keys of one name are in the order of the values. It is stored."""
    # The length of the namespace keeps two names apart whose characters are the same.
    text = f"{len(namespace)} {namespace}{name}".encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=16, person=source.value.encode()).hexdigest() + code


def _text_code(text: str) -> str:
    """Return a text up to what can't be ordered; the digest after it keeps different ones apart."""
    if is_ordered(text):
        return _TEXT + text
    found = _UNORDERED.search(text[:TEXT_ORDERED])
    kept = text[:TEXT_ORDERED] if found is None else text[: found.start()]
    mark = "" if found is None else "\1" if found[0] < "\2" else "\ud7ff"
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{_TEXT}{kept}{mark}{digest}"


def _integer_code(value: int) -> str:
    """Return the code of an integer: the greatest double that is not above it, and what is left."""
    below = float(value)
    if int(below) > value:
        below = math.nextafter(below, -math.inf)
    return _number_code(below, value - int(below))


def _number_code(value: float, more: int) -> str:
    (bits,) = struct.unpack(">Q", struct.pack(">d", value + 0.0))  # -0.0 becomes 0.0
    ordered = bits ^ _ALL if bits & _SIGN else bits | _SIGN
    return f"{_NUMBER}{ordered:016x}{more:03x}"
