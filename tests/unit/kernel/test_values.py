"""Values as JSON: accepted values round-trip, others are refused with path and reason."""

import dataclasses
import enum
import math
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, NotRequired, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from holdfast.kernel.values import MAX_DEPTH, check, check_type, decode, encode
from holdfast.ports.errors import DefinitionError, InvalidValueError, UnstorableValueError

T = TypeVar("T")
UserId = NewType("UserId", int)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mode(enum.StrEnum):
    FAST = "fast"


class Point(NamedTuple):
    x: int
    y: float = 0.0


class Row(TypedDict):
    a: int
    b: NotRequired[str]


class Elsewhere(tzinfo):
    @override
    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        return None if dt is None else timedelta(hours=dt.month)

    @override
    def dst(self, dt: datetime | None) -> timedelta | None:
        return None

    @override
    def tzname(self, dt: datetime | None) -> str | None:
        return None


@attrs.frozen
class Page:
    text: str
    number: int = 1


@dataclasses.dataclass(frozen=True)
class Document:
    pages: list[Page]
    created: datetime | None = None


@attrs.frozen
class Tree:
    name: str
    children: "tuple[Tree, ...]" = ()
    parent: "Tree | None" = None


@attrs.frozen
class Box(Generic[T]):
    content: T
    others: list[T] = attrs.Factory(list[T])


@attrs.frozen
class IntBox(Box[int]):
    pass


@attrs.frozen
class Secret:
    _key: str


@attrs.frozen
class Positive:
    value: int = attrs.field(validator=attrs.validators.gt(0))


@attrs.frozen
class Cat:
    lives: int


@attrs.frozen
class Dog:
    tricks: list[str]


@attrs.frozen
class Made:
    kind: Literal["made"]
    at: date


@attrs.frozen
class Lost:
    kind: Literal["lost"]
    at: date


@attrs.frozen
class Everything:
    whole: int
    real: float
    yes: bool
    text: str
    raw: bytes
    colour: Colour
    level: Level
    exact: Decimal
    ident: UUID
    at: datetime
    day: date
    moment: time
    span: timedelta
    where: Path
    choice: Literal["a", 1, True] | None
    maybe: int | None
    either: int | str | list[int]
    pair: tuple[int, str]
    many: tuple[int, ...]
    unique: frozenset[str]
    numbered: dict[int, str]
    coloured: Mapping[Colour, list[int]]
    point: Point
    row: Row
    pet: Cat | Dog
    event: Made | Lost
    tree: Tree
    boxed: Box[int]
    user: UserId
    noted: Annotated[int, "a note"]
    plain: object


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
integers = st.integers()
floats = st.floats(allow_nan=False, allow_infinity=False)
json = st.recursive(
    st.none() | st.booleans() | integers | floats | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
offsets = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
trees = st.recursive(
    st.builds(Tree, texts),
    lambda inner: st.builds(Tree, texts, st.tuples(inner), inner | st.none()),
    max_leaves=4,
)
rows: st.SearchStrategy[object] = st.fixed_dictionaries({"a": integers}, optional={"b": texts})

STRATEGIES: list[tuple[object, st.SearchStrategy[object]]] = [
    (int, integers),
    (float, floats | integers),
    (bool, st.booleans()),
    (str, texts),
    (None, st.none()),
    (bytes, st.binary()),
    (Colour, st.sampled_from(Colour)),
    (Level, st.sampled_from(Level)),
    (Mode, st.sampled_from(Mode)),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    (UUID, st.uuids()),
    (datetime, st.datetimes() | st.datetimes(timezones=offsets)),
    (date, st.dates()),
    (time, st.times() | st.times(timezones=offsets)),
    (timedelta, st.timedeltas()),
    (Path, texts.map(Path)),
    (Literal["a", 1, True] | None, st.sampled_from(["a", 1, True, None])),
    (int | str | list[int] | None, st.none() | integers | texts | st.lists(integers)),
    (int | float, integers | floats),
    (tuple[int, str], st.tuples(integers, texts)),
    (tuple[int, ...], st.lists(integers).map(tuple)),
    (tuple[()], st.just(())),
    (list[Page], st.lists(st.builds(Page, texts, integers))),
    (Sequence[int], st.lists(integers)),
    (set[int], st.sets(integers)),
    (frozenset[Point], st.frozensets(st.builds(Point, integers, floats))),
    (AbstractSet[str], st.sets(texts)),
    (dict[int, str], st.dictionaries(integers, texts)),
    (dict[date, int], st.dictionaries(st.dates(), integers)),
    (dict[Colour, int], st.dictionaries(st.sampled_from(Colour), integers)),
    (Mapping[UserId, bool], st.dictionaries(integers, st.booleans())),
    (Point, st.builds(Point, integers, floats)),
    (Row, rows),
    (
        Document,
        st.builds(Document, st.lists(st.builds(Page, texts)), st.none() | st.datetimes(timezones=offsets)),
    ),
    (Tree, trees),
    (Box[str], st.builds(Box[str], texts, st.lists(texts))),
    (IntBox, st.builds(IntBox, integers, st.lists(integers))),
    (Secret, st.builds(Secret, texts)),
    (Cat | Dog, st.builds(Cat, integers) | st.builds(Dog, st.lists(texts))),
    (
        Made | Lost,
        st.builds(Made, st.just("made"), st.dates()) | st.builds(Lost, st.just("lost"), st.dates()),
    ),
    (object, json),
    (dict[str, Any], st.dictionaries(texts, json)),
]


@given(st.data())
@pytest.mark.parametrize(("form", "values"), STRATEGIES, ids=[str(form) for form, _ in STRATEGIES])
def test_what_is_stored_comes_back_equal(
    form: object, values: st.SearchStrategy[object], data: st.DataObject
) -> None:
    value = data.draw(values)

    text = encode(value, form)
    back = decode(text, form)

    assert back == value
    assert encode(back, form) == text
    assert text.isascii()


def test_a_class_of_everything_comes_back_equal_and_of_the_same_classes() -> None:
    value = Everything(
        whole=1,
        real=2.5,
        yes=True,
        text="é \U0001f600 \\u0000",
        raw=b"\0\xff",
        colour=Colour.RED,
        level=Level.HIGH,
        exact=Decimal("1.10"),
        ident=UUID(int=7),
        at=datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        day=date(2026, 1, 2),
        moment=time(3, 4),
        span=timedelta(days=1, microseconds=1),
        where=Path("a/b"),
        choice=True,
        maybe=None,
        either=[1],
        pair=(1, "b"),
        many=(1, 2),
        unique=frozenset({"a"}),
        numbered={-1: "a"},
        coloured={Colour.BLUE: [1]},
        point=Point(1, 2.0),
        row={"a": 1},
        pet=Dog(["sit"]),
        event=Lost("lost", date(2026, 1, 2)),
        tree=Tree("root", (Tree("leaf"),)),
        boxed=Box(1, [2]),
        user=UserId(3),
        noted=4,
        plain={"a": [1, 2.0, None, True]},
    )

    back = decode(encode(value, Everything), Everything)

    assert back == value
    assert type(back.point) is Point
    assert type(back.level) is Level
    assert back.choice is True


def test_the_text_is_compact_with_keys_in_their_order_and_sets_sorted() -> None:
    assert encode({"b": 1, "a": [1.0, None]}, object) == '{"b":1,"a":[1.0,null]}'
    assert encode({3, 1, 2}, set[int]) == "[1,2,3]"


def test_a_naive_datetime_stays_naive_and_an_aware_one_keeps_its_offset() -> None:
    naive, aware = (
        datetime.fromisoformat("2026-07-01T12:00"),
        datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Europe/Rome")),
    )

    assert decode(encode(naive, datetime), datetime).tzinfo is None
    assert decode(encode(aware, datetime), datetime).utcoffset() == timedelta(hours=2)


def test_an_int_is_taken_where_a_float_is_declared_and_stays_one() -> None:
    for form in (float, float | None, float | str):
        assert type(decode(encode(3, form), form)) is int
        assert type(decode(encode(3.0, form), form)) is float
    assert decode(encode(10**400, float), float) == 10**400


def test_a_field_with_a_default_may_be_missing() -> None:
    assert decode('{"text":"a"}', Page) == Page("a")


def test_a_literal_beside_its_own_type_is_that_type() -> None:
    form = Literal["auto"] | str  # noqa: PYI051  # as people write it for the sake of their editors

    assert decode(encode("7", form), form) == "7"


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


def endless() -> object:
    value: list[object] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "form", "path", "reason"),
    [
        (Document([Page("a"), Page(3)]), Document, "$.pages[1].text", "expected str, got int"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (Page("a", True), Page, "$.number", "expected int, got bool"),
        ("7", int, "$", "expected int, got str"),
        (7.5, int, "$", "expected int, got float"),
        (1, bool, "$", "expected bool, got int"),
        ((1, 2), list[int], "$", "expected list[int], got tuple"),
        ("abc", Sequence[str], "$", "expected Sequence[str], got str"),
        ((1,), tuple[int, int], "$", "expected 2 items, got 1"),
        ((1, "a"), tuple[int, int], "$[1]", "expected int, got str"),
        (Point(1, "a"), Point, "$.y", "expected float, got str"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        ({1: 2}, dict[str, int], "$[1]", "expected str, got int"),
        (
            IntBox(1),
            Box[int],
            "$",
            "expected Box[int], got IntBox, a subclass of it; declare the type as IntBox",
        ),
        (Colour.RED, Mode, "$", "expected Mode, got Colour"),
        ("b", Literal["a"], "$", "expected Literal['a'], got another str"),
        (True, Literal[1], "$", "expected Literal[1], got another bool"),
        (1.5, int | str, "$", "expected int | str, got float"),
        ({"b": "x"}, Row, "$.a", "required field is missing"),
        ({"a": 1, "c": 1}, Row, "$.c", "unknown field"),
        ({"a": "x"}, Row, "$.a", "expected int, got str"),
        (
            datetime(2026, 1, 1, tzinfo=UTC),
            date,
            "$",
            "declare the type as datetime, or convert the value to date",
        ),
        (
            Mode.FAST,
            str,
            "$",
            "expected str, got Mode, which would be read back as str; declare the type as Mode",
        ),
        (Level.LOW, float, "$", "expected float, got Level"),
        (
            (1, 2),
            Sequence[int],
            "$",
            "expected Sequence[int], got tuple, which would be read back as list; declare the type as tuple",
        ),
        (frozenset({1}), AbstractSet[int], "$", "got frozenset, which would be read back as set"),
        (
            Point(1),
            tuple[int, float],
            "$",
            "expected tuple[int, float], got Point, which would be read back as",
        ),
        (
            OrderedDict[str, int](a=1),
            dict[str, int],
            "$",
            "expected dict[str, int], got OrderedDict, which would be read back as dict",
        ),
        (
            Counter("a"),
            Mapping[str, int],
            "$",
            "got Counter, which would be read back as dict; declare",
        ),
        (defaultdict(int, a=1), dict[str, int], "$", "got defaultdict, which would be read back as dict"),
        (
            OrderedDict[str, object](a=1, b="x"),
            Row,
            "$",
            "expected Row, got OrderedDict, which would be read back",
        ),
        (object(), Page, "$", "expected Page, got object"),
    ],
)
def test_what_is_not_of_its_type_is_refused_with_its_place(
    value: object, form: object, path: str, reason: str
) -> None:
    with pytest.raises(InvalidValueError) as caught:
        encode(value, form)

    (problem,) = caught.value.problems
    assert problem.startswith(f"{path}: ")
    assert reason in problem


@pytest.mark.parametrize(
    ("value", "form", "path", "reason"),
    [
        ({"a": {"b c": math.nan}}, object, "$.a['b c']", "nan"),
        (math.inf, float, "$", "inf"),
        (Decimal("NaN"), Decimal, "$", "expected a finite number, got NaN"),
        (["a", "b\0"], list[str], "$[1]", "NUL"),
        ({"a": "\ud800"}, dict[str, str], "$.a", "surrogate"),
        ({"\ud800": 1}, dict[str, int], r"$['\ud800']", "surrogate"),
        (nested(MAX_DEPTH + 1), object, "$" + "[0]" * MAX_DEPTH, "nested more than 64 levels deep"),
        (endless(), object, "$", "contains itself"),
        (deque([1], 1), deque[int], "$", "its maxlen would be lost"),
        ({"a": Mode.FAST}, object, "$.a", "Mode is not plain JSON; declare its type"),
        ([Level.LOW], object, "$[0]", "Level is not plain JSON"),
        ({Mode.FAST: 1}, object, "$", "expected a string as key, got <Mode.FAST: 'fast'> of type Mode"),
        (OrderedDict[str, int](a=1), object, "$", "OrderedDict is not plain JSON"),
        (
            datetime(2026, 1, 1, tzinfo=Elsewhere()),
            datetime,
            "$",
            "its time zone, of type Elsewhere, can't be",
        ),
        ([{1: 2}], object, "$[0]", "expected a string as key, got 1 of type int"),
        ([(1, 2)], object, "$[0]", "tuple is not plain JSON"),
        ([Page("a")], object, "$[0]", "Page is not plain JSON"),
        (time(12, tzinfo=ZoneInfo("Europe/Rome")), time, "$", "depends on the date"),
    ],
)
def test_what_cannot_be_stored_is_refused_with_its_place(
    value: object, form: object, path: str, reason: str
) -> None:
    with pytest.raises(UnstorableValueError) as caught:
        encode(value, form)

    assert caught.value.path == path
    assert reason in caught.value.reason


def test_all_that_is_not_of_its_type_is_told_at_once_and_before_what_cannot_be_stored() -> None:
    with pytest.raises(InvalidValueError) as caught:
        encode(["a", 1, None], list[str])

    assert caught.value.problems == ("$[1]: expected str, got int", "$[2]: expected str, got None")

    with pytest.raises(InvalidValueError) as caught:
        encode([math.nan, "a"], list[float])

    assert caught.value.problems == ("$[1]: expected float, got str",)


def test_an_integer_of_more_digits_than_python_reads_is_refused_with_its_place() -> None:
    with pytest.raises(UnstorableValueError, match=r"\$\[1\]: the integer has more digits"):
        encode([1, 10**5000], list[int])


def test_the_deepest_nesting_that_is_allowed_is_stored() -> None:
    assert decode(encode(nested(MAX_DEPTH), object), object) == nested(MAX_DEPTH)


def test_brackets_in_text_are_not_nesting() -> None:
    assert decode(encode("[" * 100, str), str) == "[" * 100


def test_text_that_looks_like_an_escaped_nul_is_stored() -> None:
    assert decode(encode("\\u0000 \\ud800", str), str) == "\\u0000 \\ud800"


def test_a_value_that_is_too_long_is_refused() -> None:
    with pytest.raises(UnstorableValueError, match="12 bytes, and the maximum is 10; store it as a blob"):
        encode("0123456789", str, max_bytes=10)


def test_check_says_what_encode_would_say() -> None:
    check(1, int)

    with pytest.raises(InvalidValueError, match=r"invalid value for int: \$: expected int, got str"):
        check("1", int)


@pytest.mark.parametrize(
    ("text", "form", "problems"),
    [
        ('"7"', int, ["$: expected integer, got string"]),
        ("7.5", int, ["$: expected integer, got number"]),
        ("true", int, ["$: expected integer, got boolean"]),
        ("true", float, ["$: expected number, got boolean"]),
        ("1", bool, ["$: expected boolean, got integer"]),
        ("0", None, ["$: expected null, got integer"]),
        ('"abc"', list[str], ["$: expected list, got string"]),
        ("{", int, ["$: invalid JSON"]),
        ("[1,2]", tuple[int, int, int], ["$: expected 3 items, got 2"]),
        ('["a",2,"b"]', list[int], ["$[0]: expected integer, got string", "$[2]: expected integer"]),
        (
            '{"a":"b"}',
            dict[int, int],
            ["$['a']: expected an integer as key, got 'a'", "$.a: expected integer"],
        ),
        ('{"x":1}', dict[Colour, int], ["$['x']: expected Colour ('red'"]),
        ('"green"', Colour, ["$: expected Colour ('red'"]),
        ("true", Level, ["$: expected Level (1"]),
        ("true", Literal[1], ["$: expected one of 1, got True"]),
        ('"2026-01-01"', datetime, ["$: expected string (ISO 8601 date and time), got '2026-01-01'"]),
        ('"%%"', bytes, ["$: expected string (base64), got '%%'"]),
        ('"NaN"', Decimal, ["$: expected string (decimal number), got 'NaN'"]),
        ('"x"', UUID, ["$: expected string (UUID), got 'x'"]),
        ('{"value":0}', Positive, ["$: Positive rejected the value: ValueError"]),
        ('{"purrs":1}', Cat | Dog, ["$: expected the fields of Cat or Dog"]),
        ('{"kind":"found"}', Made | Lost, ["$: expected the fields of Made or Lost"]),
        ("1.5", int | str, ["$: expected integer or string, got number"]),
        ('{"a":1,"c":2}', Row, ["$.c: unknown field"]),
        ("[[1]]", set[object], ["$: expected hashable items for set[object]"]),
        (
            '{"pages":[{"text":7,"x":1},{"number":"3"}],"created":"now"}',
            Document,
            [
                "$.pages[0].text: expected string, got integer",
                "$.pages[0].x: unknown field",
                "$.pages[1].text: required field is missing",
                "$.pages[1].number: expected integer, got string",
                "$.created: expected string (ISO 8601 date and time), got 'now'",
            ],
        ),
    ],
)
def test_json_that_does_not_fit_is_refused_with_every_problem(
    text: str, form: object, problems: list[str]
) -> None:
    with pytest.raises(InvalidValueError) as caught:
        decode(text, form)

    assert len(caught.value.problems) == len(problems)
    for found, expected in zip(caught.value.problems, problems, strict=True):
        assert found.startswith(expected)


@given(json, st.sampled_from([form for form, _ in STRATEGIES]))
def test_whatever_json_there_is_it_fits_or_is_refused(data: object, form: object) -> None:
    text = encode(data, object)

    try:
        value = decode(text, form)
    except InvalidValueError:
        return

    assert decode(encode(value, form), form) == value


@attrs.frozen
class Undecided:
    when: "str | datetime"


@attrs.frozen
class Unresolved:
    page: "Missing"  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore[reportUndefinedVariable]


class Odd(enum.Enum):
    TUPLE = (1, 2)


@attrs.frozen
class Twin:
    lives: int


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (str | datetime, "str and datetime are both stored as string"),
        (Undecided, r"Undecided\.when: str \| datetime can't be stored"),
        (Cat | Twin, "Cat and Twin can't be told apart by their fields"),
        (list[int] | tuple[int, ...], "are both stored as list"),
        (dict[float, int], "the keys of a stored dict must be strings or integers"),
        (dict[tuple[int, int], int], "the keys of a stored dict"),
        (Iterable[int], r"declare list\[...\]"),
        (list[Callable[[int], str]], r"an item of .*Callable\[\[int\], str\] can't be stored"),
        (complex, "complex can't be stored: use attrs classes"),
        (Box, r"Box\.content: .*T can't be stored: declare a concrete type"),
        (Unresolved, "name 'Missing' is not defined"),
        (Odd, "the values of a stored enum must be strings or integers"),
        (Literal[b"a"], "the values of a stored Literal must be"),
        (3, "3 can't be stored"),
    ],
)
def test_a_type_that_cannot_be_stored_is_refused_before_there_is_a_value(form: object, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        check_type(form)


def test_an_unknown_field_is_reported_with_the_missing_one_that_is_close() -> None:
    with pytest.raises(InvalidValueError) as caught:
        decode('{"txt":"a","size":1}', Page)

    assert caught.value.problems == (
        "$.text: required field is missing",
        "$.txt: unknown field; did you mean 'text'?",
        "$.size: unknown field",
    )


def test_a_union_names_the_json_types_of_its_members() -> None:
    with pytest.raises(InvalidValueError) as caught:
        decode('"a"', Page | list[int] | None)

    assert caught.value.problems == ("$: expected object (Page) or list or null, got string",)
