"""`Codec`: a pair of functions between Python values and JSON data, and the error that both raise.

Codecs are strict in both directions, so that a stored value comes back equal: they convert nothing that is merely
close, and drop nothing that is unknown.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Literal, TypeAlias

import attrs

Kind: TypeAlias = Literal["null", "boolean", "integer", "number", "string", "list", "object"]
"""JSON types, as messages name them. A number without fraction and exponent is an integer."""

KINDS: Final[dict[type, Kind]] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "list",
    dict: "object",
}
"""The JSON type of each Python type in JSON data."""

_LISTED_MAX: Final = 10

Convert: TypeAlias = Callable[[object], object]


@attrs.frozen(eq=False)
class Codec:
    """The encoding of one type."""

    encode: Convert
    """Converts a value to JSON data. Raises Mismatch."""
    decode: Convert
    """Converts JSON data to a value. Raises Mismatch."""
    kinds: frozenset[Kind]
    """JSON types of the encoded values. A union selects the member by them when it decodes."""
    classes: tuple[type, ...]
    """Classes of the values. A union selects the member by them when it encodes."""
    needs_round_trip: bool = False
    """Whether each encoded value is decoded, to check that it comes back equal: user code makes a part of it."""


@attrs.frozen
class Problem:
    """One problem in a value."""

    path: str
    """Path from the value to the problem, such as `.pages[3]`; empty for the value itself."""
    reason: str
    fits: bool = False
    """Whether the value has its type there, but can't be stored."""


class Mismatch(Exception):  # noqa: N818  # never leaves this package
    """A value or JSON data that does not have the declared type, or can't be stored."""

    def __init__(self, *problems: Problem) -> None:
        self.problems = problems
        super().__init__(problems)

    def inside(self, segment: str) -> tuple[Problem, ...]:
        """Return the problems with paths that start at the value that contains this one at `segment`."""
        return tuple(attrs.evolve(each, path=segment + each.path) for each in self.problems)


def mismatch(reason: str) -> Mismatch:
    """Return the error for a value of the wrong type."""
    return Mismatch(Problem("", reason))


def unstorable(reason: str) -> Mismatch:
    """Return the error for a value that has its type, but can't be represented in JSON."""
    return Mismatch(Problem("", reason, fits=True))


def wrong_value(value: object, expected: str) -> Mismatch:
    """Return the error for a Python value of another type than the declared one."""
    return mismatch(f"expected {expected}, got {described(value)}")


def wrong_json(data: object, expected: str) -> Mismatch:
    """Return the error for JSON data of another type than the declared one."""
    return mismatch(f"expected {expected}, got {json_name(data)}")


def wrong_class(value: object, cls: type, name: str) -> Mismatch:
    """Return the error for a value that is not exactly of this class, called `name`."""
    if isinstance(value, bool) or not isinstance(value, cls):
        return wrong_value(value, name)
    return changed_class(value, name, name)


def changed_class(value: object, expected: str, restored: str) -> Mismatch:
    """Return the error for a value that would be read back as an instance of another class."""
    own = class_name(value)
    return mismatch(
        f"expected {expected}, got {own}, which would be read back as {restored}; declare the type as {own}, or convert"
        f" the value to {restored}"
    )


def object_name(cls: str) -> str:
    """Return the expected JSON type of a class with fields, for a message."""
    return f"object ({cls})"


def segment(key: object) -> str:
    """Return a path segment for an index or a key: `[3]`, `.name` or `['a key']`."""
    if isinstance(key, str):
        return f".{key}" if key.isidentifier() else f"[{key!r}]"
    return f"[{key}]"


def class_name(value: object) -> str:
    """Return the name of a value's class for a message: `Page`, `int`, `None`."""
    return "None" if value is None else type(value).__name__


def described(value: object) -> str:
    """Return the name of a value's class for a message; for a call that was not awaited, that too."""
    name, is_awaitable = class_name(value), isinstance(value, Awaitable)
    called: object = getattr(value, "__qualname__", None) if is_awaitable else None
    if called is not None:
        return f"a call of {called!r} that was not awaited"
    return f"{name}, not awaited" if is_awaitable else name


def json_name(data: object) -> str:
    """Return the JSON type of data for a message: `string`, `null`."""
    return KINDS.get(type(data)) or type(data).__name__


def listed(values: Iterable[object]) -> str:
    """Return the start of a list of allowed values, for a message."""
    texts = [quoted(value) for value in values]
    more = len(texts) - _LISTED_MAX
    return ", ".join(texts) if more <= 0 else f"{', '.join(texts[:_LISTED_MAX])} or {more} more"


def quoted(value: object) -> str:
    """Return the start of the repr of a value, for a message about a key or a short value."""
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
