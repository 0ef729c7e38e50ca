"""What every codec is: two functions between Python values and JSON data, and the error both raise.

A codec is strict in both directions, so that what comes back equals what was stored. It neither converts what is
close enough nor drops what it does not know.
"""

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

import attrs

Kind: TypeAlias = Literal["null", "bool", "int", "float", "string", "array", "object"]
"""How JSON tells values apart. A number with a fraction or an exponent is a float, any other is an int."""

KINDS: Final[dict[type, Kind]] = {
    type(None): "null",
    bool: "bool",
    int: "int",
    float: "float",
    str: "string",
    list: "array",
    dict: "object",
}
"""The kind of each type that JSON data is made of."""

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
    """How values of one type are stored.

    `encode` turns a value into JSON data and `decode` turns it back; both raise `Misfit`. `kinds` are the kinds of JSON
    that it is stored as and `classes` the classes its values have, which is how the members of a union are told apart.
    `checks` says that only a look can tell whether a value comes back as it is: code of the user's makes a part of it.
    """

    encode: Convert
    decode: Convert
    kinds: frozenset[Kind]
    classes: tuple[type, ...]
    checks: bool = False


@attrs.frozen
class Problem:
    """What is wrong at one place. `path` starts at the value that was looked at, and is empty for itself.

    `fits` says that the value is of its type there, and can't be stored all the same.
    """

    path: str
    reason: str
    fits: bool = False


class Misfit(Exception):  # noqa: N818  # never leaves this package
    """A value, or JSON data, is not what its type says."""

    def __init__(self, *problems: Problem) -> None:
        self.problems = problems
        super().__init__(problems)

    def inside(self, segment: str) -> tuple[Problem, ...]:
        """Return the problems as seen from the value that holds this one at `segment`."""
        return tuple(attrs.evolve(each, path=segment + each.path) for each in self.problems)


def misfit(reason: str) -> Misfit:
    """Return the error for a value that is itself wrong."""
    return Misfit(Problem("", reason))


def unstorable(reason: str) -> Misfit:
    """Return the error for a value that is of its type, but that JSON can't hold."""
    return Misfit(Problem("", reason, fits=True))


def unlike(value: object, cls: type, name: str) -> Misfit:
    """Return the error for a value that is not of just this class, called `name`: what is stored comes back as that."""
    if isinstance(value, bool) or not isinstance(value, cls):
        return misfit(f"{described(value)} is no {name}")
    own = type(value).__name__
    return misfit(
        f"{described(value)} is of a subclass of {cls.__name__}, and would come back as {name}; "
        f"declare it as {own}, or give it as {name}"
    )


def segment(key: object) -> str:
    """Return how a path goes on to the item at this index or key: `[3]`, `.name` or `['a key']`."""
    if isinstance(key, str):
        return f".{key}" if key.isidentifier() else f"[{key!r}]"
    return f"[{key}]"


def described(value: object) -> str:
    """Return what a value is, for a message, without what is in it: `a Page`, `an int`, `None`."""
    if value is None:
        return "None"
    name = type(value).__name__
    return f"an {name}" if name[0] in "aeioAEIO" else f"a {name}"


def described_json(data: object) -> str:
    """Return what JSON data is: `a string`, `null`."""
    return JSON_NAMES.get(type(data), type(data).__name__)


def quoted(value: object) -> str:
    """Return the start of a value's repr, for a message about a key or a short value."""
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
