"""`Codec`: a pair of functions between Python values and JSON data, and the error that both raise.

Codecs are strict in both directions, so that a stored value comes back equal: they convert nothing that is merely
close, and drop nothing that is unknown.
"""

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

import attrs

Kind: TypeAlias = Literal["null", "bool", "int", "float", "string", "array", "object"]
"""JSON types. A number with a fraction or an exponent is a float, any other number an int."""

KINDS: Final[dict[type, Kind]] = {
    type(None): "null",
    bool: "bool",
    int: "int",
    float: "float",
    str: "string",
    list: "array",
    dict: "object",
}
"""The JSON type of each Python type in JSON data."""

JSON_NAMES: Final[dict[type, str]] = {
    type(None): "null",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    str: "a string",
    list: "an array",
    dict: "an object",
}

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


def wrong_class(value: object, cls: type, name: str) -> Mismatch:
    """Return the error for a value that is not exactly of this class, called `name`: it would come back as that."""
    if isinstance(value, bool) or not isinstance(value, cls):
        return mismatch(f"{described(value)} is no {name}")
    own = type(value).__name__
    return mismatch(
        f"{described(value)} is of a subclass of {cls.__name__}, and would come back as {name}; "
        f"declare it as {own}, or give it as {name}"
    )


def segment(key: object) -> str:
    """Return a path segment for an index or a key: `[3]`, `.name` or `['a key']`."""
    if isinstance(key, str):
        return f".{key}" if key.isidentifier() else f"[{key!r}]"
    return f"[{key}]"


def described(value: object) -> str:
    """Return a description of a value for a message, without its contents: `a Page`, `an int`, `None`."""
    if value is None:
        return "None"
    name = type(value).__name__
    return f"an {name}" if name[0] in "aeioAEIO" else f"a {name}"


def described_json(data: object) -> str:
    """Return a description of JSON data: `a string`, `null`."""
    return JSON_NAMES.get(type(data), type(data).__name__)


def quoted(value: object) -> str:
    """Return the start of the repr of a value, for a message about a key or a short value."""
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
