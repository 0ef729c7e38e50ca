"""Filters by the values of attributes and annotations: equal ones, ranges, prefixes, one of several."""

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final, TypeAlias, cast

import attrs

from holdfast.ports.errors import InvalidFilterError
from holdfast.ports.json import canonical, parse_input
from holdfast.ports.search_values import (
    NUMBER_BITS,
    TEXT_ORDERED,
    SearchValue,
    ValueMatch,
    ValueSource,
    code_of,
    instant_text,
    is_ordered,
    span_of,
    span_of_prefix,
)

FoundValue: TypeAlias = str | int | float | bool | datetime
"""A value that a filter compares with. A datetime is aware."""

CHOICES_MAX: Final = 100
"""The maximum number of values in a `OneOf`."""
MATCHES_MAX: Final = 10
"""The maximum number of attributes, and of annotations, in a filter: each one is a search of its own."""

_BOUND: Final = (
    f"a string of at most {TEXT_ORDERED} characters, none of which is a control character or unpaired"
)
_FILTERS: Final = "a Range, a Prefix or a OneOf"


@attrs.frozen(kw_only=True)
class Range:
    """Matches values from `at_least`, which matches, up to `below`, which does not.

    Numbers match numbers; texts match texts, by the numbers of their characters; instants match instants. One of the
    two bounds may be left out. A bound that is a text has at most 200 characters.
    """

    at_least: str | float | datetime | None = None
    below: str | float | datetime | None = None


@attrs.frozen
class Prefix:
    """Matches texts that begin with a text of 1 to 200 characters; case counts."""

    text: str


@attrs.frozen(init=False)
class OneOf:
    """Matches values that equal one of these, 1 to 100: `OneOf("new", "late")`."""

    values: tuple[FoundValue, ...]

    def __init__(self, *values: FoundValue) -> None:
        self.__attrs_init__(values)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


ValueFilter: TypeAlias = FoundValue | Range | Prefix | OneOf
"""A condition on a value: an equal one, or a `Range`, a `Prefix` or a `OneOf`."""


def values_option(
    given: Mapping[str, object], option: str, source: ValueSource
) -> tuple[tuple[tuple[str, str], ...], tuple[ValueMatch, ...]]:
    """Return the names and texts that must be equal, and the other conditions on values. Raises InvalidFilterError."""
    value = given.get(option)
    if value is None:
        return (), ()
    if not isinstance(value, Mapping):
        raise InvalidFilterError(option, f"is {value!r:.80}; it must be a dict of values by their names")
    items = cast("Mapping[object, object]", value)
    if len(items) > MATCHES_MAX:
        raise InvalidFilterError(option, f"has {len(items)} names; {MATCHES_MAX} are possible")
    equal: list[tuple[str, str]] = []
    matches: list[ValueMatch] = []
    for name, wanted in items.items():
        if not isinstance(name, str):
            raise InvalidFilterError(option, f"has the name {name!r:.80}; a name is a string")
        if isinstance(wanted, str):
            equal.append((name, wanted))
        else:
            matches.append(_match(_Place(option, source, name), wanted))
    return tuple(sorted(equal)), tuple(sorted(matches, key=lambda match: match.name))


def wire_text(value: ValueFilter) -> str:
    """Return a filter that was checked as JSON text, as the server takes it."""
    match value:
        case Range(at_least=at_least, below=below):
            bounds = {"at_least": at_least, "below": below}
            return canonical({name: _plain(bound) for name, bound in bounds.items() if bound is not None})
        case Prefix(text=text):
            return canonical({"prefix": text})
        case OneOf(values=values):
            return canonical({"one_of": list(map(_plain, values))})
        case _:
            return canonical(_plain(value))


def value_from_wire(option: str, text: str) -> ValueFilter:
    """Return the filter in a JSON text. Its values are checked with the filter. Raises InvalidFilterError."""
    try:
        data: object = parse_input(text)
    except (ValueError, RecursionError):
        raise InvalidFilterError(option, f"{text!r:.80} is not JSON; write a text with its quotes") from None
    if not isinstance(data, dict):
        return cast("ValueFilter", data)
    fields = cast("dict[str, object]", data)
    make = _FORMS.get(tuple(sorted(fields)))
    if make is None:
        names = "at_least and below, prefix, or one_of"
        raise InvalidFilterError(option, f"{text!r:.80} is an object; it may have {names}")
    if not isinstance(fields.get("one_of", []), list):
        raise InvalidFilterError(option, f"{text!r:.80} has `one_of` without a list")
    return make(fields)


_FORMS: Final[Mapping[tuple[str, ...], Callable[[Mapping[str, object]], ValueFilter]]] = {
    ("at_least",): lambda fields: Range(at_least=cast("float", fields["at_least"])),
    ("below",): lambda fields: Range(below=cast("float", fields["below"])),
    ("at_least", "below"): lambda fields: Range(
        at_least=cast("float", fields["at_least"]), below=cast("float", fields["below"])
    ),
    ("prefix",): lambda fields: Prefix(cast("str", fields["prefix"])),
    ("one_of",): lambda fields: OneOf(*cast("list[FoundValue]", fields["one_of"])),
}


@attrs.frozen
class _Place:
    """The place of a value in a filter, for errors."""

    option: str
    source: ValueSource
    name: str

    def refused(self, problem: str) -> InvalidFilterError:
        """Return the error for a value in this place."""
        return InvalidFilterError(self.option, f"for {self.name!r:.80} {problem}")


def _match(place: _Place, wanted: object) -> ValueMatch:
    source, name = place.source, place.name
    match wanted:
        case Range(at_least=at_least, below=below):
            return ValueMatch(source=source, name=name, span=_span(place, at_least, below))
        case Prefix(text=text):
            if not isinstance(cast("object", text), str) or not text or not is_ordered(text):
                raise place.refused(f"has the prefix {text!r:.80}; a prefix is {_BOUND}, and not empty")
            return ValueMatch(source=source, name=name, span=span_of_prefix(text))
        case OneOf(values=values):
            if not 1 <= len(values) <= CHOICES_MAX:
                raise place.refused(f"has {len(values)} values; 1 to {CHOICES_MAX} are possible")
            codes = {cast("str", code_of(_value(place, one))) for one in values}
            return ValueMatch(source=source, name=name, codes=tuple(sorted(codes)))
        case _:
            code = cast("str", code_of(_value(place, wanted)))
            return ValueMatch(source=source, name=name, codes=(code,))


def _span(place: _Place, at_least: object, below: object) -> tuple[str, str]:
    low, high = (None if bound is None else _value(place, bound) for bound in (at_least, below))
    bounds = [bound for bound in (low, high) if bound is not None]
    if not bounds:
        raise place.refused("is a range without a bound; set `at_least`, `below` or both")
    for bound in bounds:
        if isinstance(bound, bool):
            raise place.refused(f"has the bound {bound!r}; give True or False alone")
        if isinstance(bound, str) and not is_ordered(bound):
            raise place.refused(f"has the bound {bound!r:.80}; a bound that is a text is {_BOUND}")
    if len({isinstance(bound, str) for bound in bounds}) > 1:
        raise place.refused(f"has bounds of two kinds, {at_least!r:.80} and {below!r:.80}")
    span = span_of(low, high)
    if span[0] >= span[1]:
        raise place.refused("is a range that no value is in: `below` must be above `at_least`")
    return span


def _value(place: _Place, value: object) -> SearchValue:
    """Return a checked value, an instant as its text."""
    if place.source is ValueSource.ATTRIBUTE and not isinstance(value, str):
        raise place.refused(f"is {value!r:.80}; attributes are strings: give one, or {_FILTERS} of strings")
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise place.refused(f"is {value!r}; an instant must be aware, such as datetime.now(UTC)")
        try:
            return instant_text(value)
        except OverflowError:
            raise place.refused(f"is {value!r}, which is out of range in UTC") from None
    if isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        if abs(value) <= 1 << NUMBER_BITS:
            return value
        raise place.refused(f"is an integer beyond 2**{NUMBER_BITS}, by which no run is found")
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        raise place.refused(f"is {value!r}; a number must be finite")
    wanted = "a string, a number, a boolean, an aware datetime"
    raise place.refused(f"is {value!r:.80}; it must be {wanted}, {_FILTERS}")


def _plain(value: FoundValue) -> SearchValue:
    return instant_text(value) if isinstance(value, datetime) else value
