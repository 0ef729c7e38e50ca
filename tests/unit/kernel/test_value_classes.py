"""User classes as values: those that cannot be read back are refused at declaration."""

import dataclasses
from dataclasses import InitVar, dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar, NamedTuple, Self, cast
from zoneinfo import ZoneInfo

import attrs
import pytest

from holdfast.kernel.authoring.steps import step
from holdfast.kernel.commands import NewAnnotation, RunCreate
from holdfast.kernel.commands.codec import fingerprint_text
from holdfast.kernel.values import check_type, decode, encode
from holdfast.ports.errors import DefinitionError, InvalidValueError, UnstorableValueError
from holdfast.ports.records.values import Payload
from tests.sample_values import Once, Twice, are_alike, fields_of


@dataclass
class OwnInit:
    total: int

    def __init__(self, prices: list[int]) -> None:
        self.total = sum(prices)


@dataclass(init=False)
class NoInit:
    total: int


@attrs.define
class OwnAttrsInit:
    total: int

    def __init__(self, price: int, count: int) -> None:
        self.__attrs_init__(price * count)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


@dataclass
class NeedsMore:
    total: int
    rate: InitVar[int]

    def __post_init__(self, rate: int) -> None:
        self.total *= rate


class Pair(NamedTuple):
    a: int
    b: int


class OwnNew(Pair):
    __slots__ = ()

    def __new__(cls, both: int) -> Self:
        return super().__new__(cls, both, both)


@dataclass
class Parent:
    name: str


class Undecorated(Parent):
    age: int = 0


class Locked:
    pass


@dataclass
class HoldsLock:
    name: str
    lock: Locked = dataclasses.field(init=False, default_factory=Locked)


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (
            OwnInit,
            "its __init__ has no parameter for the field 'total'; add the parameter 'total', or let the decorator",
        ),
        (NoInit, "its __init__ has no parameter for the field 'total'"),
        (OwnAttrsInit, "its __init__ has no parameter for the field 'total'"),
        (NeedsMore, "its __init__ requires 'rate', which is not a field"),
        (OwnNew, "its __init__ has no parameter for the field 'a'"),
        (Undecorated, "its annotation 'age' is not a field"),
        (HoldsLock, r"HoldsLock\.lock: Locked can't be stored"),
    ],
)
def test_a_class_that_can_not_be_made_of_its_fields_is_refused_where_it_is_declared(
    cls: type, message: str
) -> None:
    with pytest.raises(DefinitionError, match=message):
        check_type(list[cls])  # type: ignore[valid-type]

    def gives_it() -> Any: ...

    gives_it.__annotations__["return"] = cls
    with pytest.raises(DefinitionError, match=message):
        step(gives_it)


@dataclass
class Sums:
    parts: list[int]
    total: int = dataclasses.field(init=False)
    cache: Locked = dataclasses.field(init=False, compare=False, default_factory=Locked)
    known: ClassVar[int] = 3

    def __post_init__(self) -> None:
        self.total = sum(self.parts)


@attrs.frozen
class Counts:
    _secret: str
    other: int = attrs.field(alias="another", kw_only=True)
    seen: int = attrs.field(init=False, default=0)
    lock: Locked = attrs.field(init=False, eq=False, factory=Locked)


@dataclass
class WithRate:
    total: int
    rate: InitVar[int] = 1

    def __post_init__(self, rate: int) -> None:
        self.total *= rate


@attrs.define
class TakesAny:
    total: int

    def __init__(self, **given: int) -> None:
        self.total = given["total"]


def _sums() -> Sums:
    sums = Sums([1, 2])
    sums.total = 7  # it is not what it would be if it were made again
    return sums


def _counts() -> Counts:
    counts = Counts("s", another=2)
    object.__setattr__(counts, "seen", 5)
    return counts


@pytest.mark.parametrize("value", [_sums(), _counts(), Once(3).saw(4), WithRate(5), TakesAny(total=2)])
def test_what_its_constructor_does_not_take_comes_back_too(value: Any) -> None:
    form: type = type(cast("object", value))
    back: Any = decode(encode(value, form), form)

    assert back == value
    assert {**_state(back), "cache": 0, "lock": 0} == {**_state(value), "cache": 0, "lock": 0}


def _state(value: Any) -> dict[str, object]:
    return {name: getattr(value, name) for name in fields_of(type(value))}


@attrs.frozen
class Holds:
    several: list[Twice]


@attrs.frozen
class Picky:
    value: int

    def __attrs_post_init__(self) -> None:
        if self.value > 5:
            raise ValueError("too much")


def _grown() -> Picky:
    picky = Picky(1)
    object.__setattr__(picky, "value", 6)
    return picky


@pytest.mark.parametrize(
    ("value", "form", "path", "reason"),
    [
        (Twice(2), Twice, r"\$\.value", "would change when it is read back"),
        (
            {"a": [Twice(0), Twice(1)]},
            dict[str, list[Twice]],
            r"\$\.a\[1\]\.value",
            "would change when it is read back",
        ),
        (
            (1, Holds([Twice(3)])),
            tuple[int, Holds],
            r"\$\[1\]\.several\[0\]\.value",
            "would change when it is read back",
        ),
        (
            _grown(),
            Picky | None,
            r"\$",
            "it can't be read back: Picky rejected the value: ValueError: too much",
        ),
    ],
)
def test_what_its_constructor_changes_is_refused_with_its_place(
    value: object, form: object, path: str, reason: str
) -> None:
    with pytest.raises(UnstorableValueError, match=f"{path}: (it )?{reason}"):
        encode(value, form)


def test_what_its_constructor_does_not_change_is_stored() -> None:
    assert decode(encode([Twice(0)], list[Twice]), list[Twice]) == [Twice(0)]


def test_such_an_argument_of_a_step_is_refused_too() -> None:
    @step
    def take(it: Twice) -> None: ...

    with pytest.raises(UnstorableValueError, match=r"\$\.it\.value: it would change when it is read back"):
        take.form.encode((Twice(1),), {})


def test_a_field_that_was_never_set_is_told_by_its_place() -> None:
    @dataclass
    class Half:
        whole: int
        rest: int = dataclasses.field(init=False)

    with pytest.raises(InvalidValueError, match=r"\$\.rest: required field is not set"):
        encode(Half(1), Half)


@pytest.mark.parametrize(
    "at",
    [datetime(2026, 10, 25, 2, 30, fold=fold, tzinfo=ZoneInfo("Europe/Berlin")) for fold in (0, 1)],
)
def test_a_time_in_a_zone_goes_on_in_it_after_a_change_of_the_clocks(at: datetime) -> None:
    back = decode(encode(at, datetime), datetime)

    assert are_alike(back, at)
    assert (back + timedelta(days=30)).isoformat() == "2026-11-24T02:30:00+01:00"


def test_a_zone_that_is_not_known_here_is_told() -> None:
    with pytest.raises(InvalidValueError, match="unknown time zone 'Europe/Atlantis'"):
        decode('"2026-01-01T00:00:00+01:00[Europe/Atlantis]"', datetime)


def test_a_moment_of_others_is_seen_in_its_zone() -> None:
    back = decode('"2026-01-01T00:00:00Z[Europe/Berlin]"', datetime)

    assert back.isoformat() == "2026-01-01T01:00:00+01:00"


def test_the_order_of_keys_does_not_make_another_command() -> None:
    texts = ['{"a":1,"b":{"c":1,"d":[{"e":1,"f":2}]}}', '{"b":{"d":[{"f":2,"e":1}],"c":1},"a":1}']
    one, other = (
        fingerprint_text(
            RunCreate(
                idempotency_key="k",
                workflow="w",
                input=Payload(inline=text),
                annotations=(NewAnnotation(name="n", value=text),),
            )
        )
        for text in texts
    )

    assert one == other
