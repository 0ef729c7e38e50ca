"""Sample values of all storable types, and a comparison of two values by type, order and time zone as well."""

import dataclasses
import enum
import string
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, NotRequired, Self, TypeAlias, TypedDict, cast
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
from hypothesis import strategies as st

Typed: TypeAlias = tuple[Any, st.SearchStrategy[Any]]
"""A type, and values that may be passed for it, though perhaps not stored."""


class Colour(enum.Enum):
    """An enum without order, with an alias."""

    RED = "red"
    BLUE = "blue"
    CRIMSON = "red"  # noqa: PIE796  # an alias


class Level(enum.IntEnum):
    """An enum of integers."""

    LOW = 1
    HIGH = 2


class Mode(enum.StrEnum):
    """An enum of strings."""

    FAST = "fast"
    SLOW = "slow"


class Rights(enum.Flag):
    """A flag enum."""

    READ = 1
    WRITE = 2
    RUN = 4


class Point(NamedTuple):
    """A named tuple."""

    x: int
    y: float = 0.0


class Row(TypedDict):
    """A TypedDict."""

    b: int
    a: NotRequired[str]


class Text(str):
    """A subclass of str."""

    __slots__ = ()


class Number(int):
    """A subclass of int."""


class Day(date):
    """A subclass of date."""


class Dict(dict[Any, Any]):
    """A subclass of dict."""


class List(list[Any]):
    """A subclass of list."""


@dataclasses.dataclass
class Twice:
    """A class that changes its value at every construction."""

    value: int

    def __post_init__(self) -> None:
        """Double the value."""
        self.value *= 2


def _positive(value: int) -> int:
    return abs(value)


@attrs.define
class Once:
    """A class that changes its value only at the first construction, and holds more than its argument."""

    value: int = attrs.field(converter=_positive)
    seen: int = attrs.field(init=False, default=0)

    def saw(self, seen: int) -> Self:
        """Return the object with its extra state."""
        self.seen = seen
        return self


def fields_of(cls: Any) -> list[str]:
    """Return the names of the fields of an attrs class or dataclass; none of other classes."""
    if attrs.has(cls):
        return [field.name for field in attrs.fields(cls)]
    return [field.name for field in dataclasses.fields(cls)] if dataclasses.is_dataclass(cls) else []


def are_alike(one: Any, other: Any) -> bool:
    """Return whether two values are indistinguishable."""
    kind = _kind_of(one)[1]
    if kind is not _kind_of(other)[1]:
        return False
    if issubclass(kind, dict):
        return are_alike(list(one.items()), list(other.items()))
    if issubclass(kind, list | tuple | deque):
        return len(one) == len(other) and all(map(are_alike, one, other))
    if issubclass(kind, set | frozenset):
        return bool(one == other) and set(map(_kind_of, one)) == set(map(_kind_of, other))
    if names := fields_of(kind):
        return all(are_alike(getattr(one, name), getattr(other, name)) for name in names)
    if isinstance(one, datetime | time):
        return _told_of(one) == _told_of(other)
    return bool(one == other) and repr(one) == repr(other)


def _kind_of(value: object) -> tuple[object, type]:
    return value, type(value)


def _told_of(at: datetime | time) -> object:
    zone = at.tzinfo
    return at.replace(tzinfo=None), at.fold, type(zone), str(zone), at.utcoffset()


def _placed(at: Any, zone: tzinfo | None, fold: int) -> Any:
    return at.replace(tzinfo=zone, fold=fold)


def _once(value: int, seen: int) -> Once:
    return Once(value).saw(seen)


def _short(given: Iterable[Any]) -> deque[Any]:
    return deque(given, 4)


texts = st.text(max_size=5)
integers = st.integers() | st.integers(-3, 3)
floats = st.floats() | st.sampled_from([0.0, -0.0, 1.0])
names = st.text(string.ascii_lowercase, min_size=1, max_size=4).map(lambda text: f"f_{text}")
zones = st.sampled_from(
    [
        None,
        UTC,
        timezone(timedelta(hours=2)),
        timezone(timedelta(hours=2), "CEST"),
        timezone(timedelta(seconds=-3661, microseconds=7)),
        ZoneInfo("Europe/Berlin"),
        ZoneInfo("America/St_Johns"),
        ZoneInfo("UTC"),
    ]
)
folds = st.integers(0, 1)
moments = st.builds(
    _placed,
    st.datetimes() | st.datetimes(datetime.fromisoformat("2026-10-25"), datetime.fromisoformat("2026-10-26")),
    zones,
    folds,
)
times = st.builds(_placed, st.times(), zones, folds)
plain_json = st.recursive(
    st.none()
    | st.booleans()
    | integers
    | floats
    | texts
    | st.sampled_from([Mode.FAST, Level.LOW, (1,), Text("x")]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(texts, inner, max_size=3)
        | st.dictionaries(texts, inner, max_size=2).map(OrderedDict)
    ),
    max_leaves=6,
)

_SCALARS: Final[list[Typed]] = [
    (int, integers | st.booleans() | st.sampled_from([Level.LOW, Number(5)])),
    (float, floats | integers | st.booleans()),
    (bool, st.booleans()),
    (str, texts | st.sampled_from([Mode.FAST, Text("x")])),
    (None, st.none()),
    (bytes, st.binary(max_size=5) | st.just(bytearray(b"x"))),
    (Decimal, st.decimals() | st.sampled_from([Decimal("1.0"), Decimal("-0E+3")])),
    (UUID, st.uuids()),
    (datetime, moments),
    (time, times),
    (date, st.dates() | st.just(Day(2026, 1, 2)) | moments),
    (timedelta, st.timedeltas()),
    (Path, texts.map(Path)),
    (Colour, st.sampled_from(Colour)),
    (Level, st.sampled_from(Level) | st.just(1)),
    (Mode, st.sampled_from(Mode)),
    (Rights, st.sampled_from([Rights(0), Rights.READ, Rights.READ | Rights.RUN])),
    (Literal["a", 1, True], st.sampled_from(["a", 1, True, 1.0])),
    (object, plain_json),
    (Any, plain_json),
    (Point, st.builds(Point, integers, floats | integers)),
    (Row, st.dictionaries(st.sampled_from(["a", "b"]), integers | texts)),
    (Twice, st.integers(0, 2).map(Twice)),
    (Once, st.builds(_once, integers, integers)),
]
_KEYS: Final[list[Typed]] = [
    (str, texts | st.just(Mode.FAST)),
    (int, integers | st.just(True)),
    (Colour, st.sampled_from(Colour)),
    (Level, st.sampled_from(Level)),
    (date, st.dates()),
    (datetime, moments),
    (UUID, st.uuids()),
    (bytes, st.binary(max_size=3)),
]


@st.composite
def typed_values(draw: st.DrawFn, depth: int = 2) -> tuple[Any, Any]:
    """Draw a type and a value that may be passed for it."""
    form, values = draw(typed_strategies(depth))
    return form, draw(values)


@st.composite
def typed_strategies(draw: st.DrawFn, depth: int) -> Typed:
    """Draw a type and the strategy of its values."""
    build = draw(st.sampled_from([_scalar] if depth == 0 else [_scalar, *_BUILDERS]))
    return build(draw, depth - 1)


def _of(form: Any, *items: Any) -> Any:
    """Return a type with these arguments."""
    return form[items[0] if len(items) == 1 else items]


def _scalar(draw: st.DrawFn, depth: int) -> Typed:
    return draw(st.sampled_from(_SCALARS))


def _list(draw: st.DrawFn, depth: int) -> Typed:
    item, items = draw(typed_strategies(depth))
    several = st.lists(items, max_size=3)
    form, make = draw(
        st.sampled_from(
            cast(
                "list[tuple[Any, Callable[[Any], Any]]]",
                [
                    (_of(list, item), list),
                    (_of(list, item), List),
                    (_of(Sequence, item), list),
                    (_of(Sequence, item), tuple),
                    (_of(tuple, item, ...), tuple),
                    (_of(deque, item), deque),
                    (_of(deque, item), _short),
                ],
            )
        )
    )
    return form, several.map(make)


def _pair(draw: st.DrawFn, depth: int) -> Typed:
    (first, firsts), (second, seconds) = draw(typed_strategies(depth)), draw(typed_strategies(depth))
    return _of(tuple, first, second), st.tuples(firsts, seconds)


def _optional(draw: st.DrawFn, depth: int) -> Typed:
    form, values = draw(typed_strategies(depth))
    return (None if form is None else form | None if form is not Any else Any), st.none() | values


def _dict(draw: st.DrawFn, depth: int) -> Typed:
    (key, keys), (value, values) = draw(st.sampled_from(_KEYS)), draw(typed_strategies(depth))
    form, make = draw(
        st.sampled_from(
            cast(
                "list[tuple[Any, Callable[[Any], Any]]]",
                [
                    (_of(dict, key, value), dict),
                    (_of(dict, key, value), Dict),
                    (_of(dict, key, value), OrderedDict),
                    (_of(Mapping, key, value), dict),
                    (_of(MutableMapping, key, value), OrderedDict),
                    (_of(OrderedDict, key, value), OrderedDict),
                ],
            )
        )
    )
    return form, st.dictionaries(keys, values, max_size=3).map(make)


def _set(draw: st.DrawFn, depth: int) -> Typed:
    key, keys = draw(st.sampled_from(_KEYS))
    form, make = draw(
        st.sampled_from(
            [(_of(set, key), set), (_of(frozenset, key), frozenset), (_of(Counter, key), Counter)]
        )
    )
    return form, st.lists(keys, max_size=3).map(make)


def _class(draw: st.DrawFn, depth: int) -> Typed:
    """Return a class of one or two fields."""
    fields = dict(draw(st.lists(st.tuples(names, typed_strategies(depth)), min_size=1, max_size=2)))
    forms = {name: form for name, (form, _) in fields.items()}
    values = st.fixed_dictionaries({name: values for name, (_, values) in fields.items()})
    kind = draw(st.sampled_from(["attrs", "frozen", "dataclass", "slots", "late", "changes", "other"]))
    if kind in ("attrs", "frozen"):
        given = {name: attrs.field(type=form) for name, form in forms.items()}
        cls = attrs.make_class("Made", given, frozen=kind == "frozen", slots=True)
    else:
        listed: list[Any] = list(forms.items())
        if kind == "late":
            listed = [(name, form, dataclasses.field(init=False)) for name, form in forms.items()]
        space = {"changes": {"__post_init__": _wrap_fields}, "other": {"__init__": _take_nothing}}.get(
            kind, {}
        )
        cls = dataclasses.make_dataclass("Made", listed, namespace=space, slots=kind == "slots")
    return cls, values.map(lambda given: _instance(cls, kind, given))


def _wrap_fields(self: object) -> None:
    for name, value in list(vars(self).items()):
        setattr(self, name, [value])


def _take_nothing(self: object) -> None:
    pass


def _instance(cls: type, kind: str, given: Mapping[str, object]) -> object:
    made: Any = cls() if kind in ("late", "other") else cls(**given)
    if kind in ("late", "other"):
        for name, value in given.items():
            setattr(made, name, value)
    return made


_BUILDERS: Final = (_list, _pair, _optional, _dict, _set, _class)
