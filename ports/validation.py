"""Validation of arguments at the public API, before anything is done (docs/decisions/0021).

Type checkers find most such mistakes. These checks are for callers without one, and for data from elsewhere.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final, TypeVar, cast

import attrs

from holdfast.ports.durations import SHORTEST, Duration, length_within, wanted_length
from holdfast.ports.errors import InvalidArgumentError

T = TypeVar("T")

_SHOWN_MAX: Final = 100


@attrs.frozen
class Wanted:
    """A requirement for an argument."""

    words: str
    """The requirement in words, for a message after `it must be`."""
    test: Callable[[object], bool]
    """Whether a value meets it."""

    @property
    def or_none(self) -> "Wanted":
        """The same requirement, with None allowed."""
        return Wanted(f"{self.words}, or None", lambda value: value is None or self.test(value))


def an(words: str, *classes: type) -> Wanted:
    """Return the requirement to be an instance of one of these classes."""
    return Wanted(words, lambda value: isinstance(value, classes))


def integer(least: int, most: int | None = None) -> Wanted:
    """Return the requirement to be an integer from `least`, up to `most` if given. Booleans are refused."""
    bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
    return Wanted(
        f"an integer {bounds}",
        lambda value: (
            isinstance(value, int)
            and not isinstance(value, bool)
            and value >= least
            and (most is None or value <= most)
        ),
    )


def with_methods(words: str, *methods: str) -> Wanted:
    """Return the requirement to be an object, not a class, with these methods."""
    return Wanted(
        words,
        lambda value: (
            not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in methods)
        ),
    )


TEXT: Final = an("a string", str)
TRUTH: Final = an("True or False", bool)
DATA: Final = an("bytes", bytes, bytearray, memoryview)
FUNCTION: Final = Wanted("a function", callable)
AWARE: Final = Wanted(
    "an aware datetime, such as datetime.now(UTC)",
    lambda value: isinstance(value, datetime) and value.utcoffset() is not None,
)
SINK: Final = with_methods("an event sink: an object with a method `emit`", "emit")


def check(where: str, kind: Wanted, /, **given: object) -> None:
    """Raise InvalidArgumentError if one of these arguments of `where` does not meet the requirement."""
    for argument, value in given.items():
        if not kind.test(value):
            raise refused(where, argument, value, kind.words)


def refused(where: str, argument: str, value: object, words: str) -> InvalidArgumentError:
    """Return the error for an argument that must be something else; `words` is the requirement."""
    return InvalidArgumentError(argument, f"{where}: {argument} is {shown(value)}; it must be {words}")


def duration(
    where: str,
    argument: str,
    value: Duration,
    least: timedelta = SHORTEST,
    most: timedelta = timedelta.max,
) -> timedelta:
    """Return a duration as a timedelta. InvalidArgumentError."""
    length = length_within(value, least, most)
    if length is None:
        raise refused(where, argument, value, wanted_length(least, most))
    return length


def several(where: str, argument: str, value: Iterable[T], words: str) -> tuple[T, ...]:
    """Return the elements of an iterable that is not a string. InvalidArgumentError."""
    if isinstance(value, str | bytes | Mapping) or not _is_iterable(value):
        raise refused(where, argument, cast("object", value), words)
    return tuple(value)


def by_name(where: str, argument: str, value: Mapping[str, T], words: str, kind: Wanted) -> dict[str, T]:
    """Return a mapping as a dict with string keys and values that meet a requirement. InvalidArgumentError."""
    if not isinstance(value, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise refused(where, argument, value, words)
    for name, one in value.items():
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise refused(where, argument, value, words)
        check(where, kind, **{f"{argument}[{name!r}]": one})
    return dict(value)


def shown(value: object) -> str:
    """Return a value for a message: short, and without an error whatever its `__repr__` does."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  # a class of the caller's may raise anything
        text = f"an object of the class {type(value).__qualname__}"
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


def is_unicode(text: str) -> bool:
    """Return whether a text has no half of a surrogate pair, as file names that are not UTF-8 have in Python."""
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def _is_iterable(value: object) -> bool:
    try:
        iter(cast("Iterable[object]", value))
    except TypeError:
        return False
    return True
