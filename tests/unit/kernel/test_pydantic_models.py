"""pydantic models: values round-trip, and invalid ones are refused with their path."""

import dataclasses
import enum
import math
import subprocess
import sys
from collections import OrderedDict
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import pydantic
import pydantic.dataclasses
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from holdfast.kernel.values import MAX_DEPTH, check_type, decode, encode
from holdfast.ports.errors import DefinitionError, InvalidValueError, UnstorableValueError

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Item(BaseModel, frozen=True):
    name: str
    price: float = Field(gt=0, alias="unitPrice")
    tags: frozenset[str] = frozenset()


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    name: str


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    name: str


class Order(BaseModel):
    items: list[Item]
    buyer: str | None = None
    pet: Cat | Dog | None = None
    notes: Any = None


class Rush(Order):
    hours: int = 1


@attrs.frozen
class Bird:
    wings: int


@dataclasses.dataclass(frozen=True)
class Address:
    street: str


class Fish(BaseModel):
    fins: int


class Everything(BaseModel):
    whole: int
    real: float
    yes: bool
    text: str
    raw: bytes
    colour: Colour
    exact: Decimal
    ident: UUID
    at: datetime
    day: date
    span: timedelta
    where: Path
    site: pydantic.HttpUrl
    choice: Literal["a", 1] | None
    either: int | str | list[int]
    pair: tuple[int, str]
    unique: set[str]
    fixed: frozenset[Item]
    numbered: dict[int, date]
    address: Address
    packed: pydantic.Json[list[int]]

    @pydantic.computed_field
    def twice(self) -> int:
        return 2 * self.whole


class Tree(BaseModel):
    name: str
    children: "list[Tree]" = []


class Box(BaseModel, Generic[T]):
    content: T
    others: list[T] = []


@pydantic.dataclasses.dataclass(frozen=True)
class Size:
    width: int = Field(gt=0, alias="w")
    height: timedelta = timedelta(0)


@pydantic.dataclasses.dataclass
class Pack(Generic[T]):
    content: T


@attrs.frozen
class Delivery:
    order: Order
    sizes: list[Size]


class Row(TypedDict):
    fish: Fish | None


class Worn(BaseModel):
    """It loses its private attribute, as attrs classes lose what their constructor does not take."""

    name: str
    _uses: int = 0

    def use(self) -> "Worn":
        self._uses += 1
        return self


def size(width: int, height: timedelta) -> Size:
    return Size(w=width, height=height)


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
prices = st.floats(min_value=0, exclude_min=True, allow_nan=False, allow_infinity=False)
items = st.builds(Item, name=texts, unitPrice=prices, tags=st.frozensets(texts, max_size=3))
pets = st.builds(Cat, name=texts) | st.builds(Dog, name=texts)
json = (
    st.none()
    | st.booleans()
    | st.integers()
    | texts
    | st.lists(st.integers())
    | st.dictionaries(texts, texts)
)
orders = st.builds(
    Order, items=st.lists(items, max_size=3), buyer=st.none() | texts, pet=st.none() | pets, notes=json
)
sizes = st.builds(size, st.integers(min_value=1), st.timedeltas())
trees = st.recursive(
    st.builds(Tree, name=texts),
    lambda inner: st.builds(Tree, name=texts, children=st.lists(inner, max_size=2)),
    max_leaves=4,
)
fish = st.builds(Fish, fins=st.integers())
birds = st.builds(Bird, st.integers())

STRATEGIES: list[tuple[object, st.SearchStrategy[object]]] = [
    (Order, orders),
    (list[Item], st.lists(items, max_size=3)),
    (frozenset[Item], st.frozensets(items, max_size=3)),
    (dict[str, Tree], st.dictionaries(texts, trees, max_size=2)),
    (Box[int], st.builds(Box[int], content=st.integers(), others=st.lists(st.integers()))),
    (Size, sizes),
    (Pack[int], st.builds(Pack[int], st.integers())),
    (Delivery, st.builds(Delivery, orders, st.lists(sizes, max_size=2))),
    (Row, st.fixed_dictionaries({"fish": st.none() | fish})),
    (Cat | Dog, pets),
    (Annotated[Cat | Dog, Field(discriminator="kind")], pets),
    (Fish | Bird | list[int] | None, fish | birds | st.lists(st.integers()) | st.none()),
    (Size | Fish, sizes | fish),
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
    assert type(back) is type(value)
    assert encode(back, form) == text


def test_a_model_of_everything_comes_back_equal() -> None:
    value = Everything(
        whole=1,
        real=2.5,
        yes=True,
        text="é",
        raw="é".encode(),
        colour=Colour.RED,
        exact=Decimal("1.10"),
        ident=UUID(int=7),
        at=datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        day=date(2026, 1, 2),
        span=timedelta(days=1, microseconds=1),
        where=Path("a/b"),
        site=pydantic.HttpUrl("https://example.org/a"),
        choice=1,
        either=[1],
        pair=(1, "b"),
        unique={"a"},
        fixed=frozenset({Item(name="a", unitPrice=1)}),
        numbered={-1: date(2026, 1, 2)},
        address=Address("High Street"),
        packed="[1, 2]",  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    )

    assert decode(encode(value, Everything), Everything) == value


def test_the_text_is_compact_with_fields_by_name_and_without_what_is_computed() -> None:
    item = Item(name="a", unitPrice=1, tags=frozenset("cab"))

    assert encode(item, Item) == '{"name":"a","price":1.0,"tags":["a","b","c"]}'
    assert encode([Worn(name="a").use()], list[Worn]) == '[{"name":"a"}]'


def test_sets_of_models_with_sets_are_stored_in_one_order() -> None:
    class Bag(BaseModel):
        items: dict[int, tuple[set[Item], int]]

    both = [Item(name=name, unitPrice=1, tags=frozenset(name)) for name in ("ab", "xyz")]

    assert encode(Bag(items={1: (set(both), 2)}), Bag) == (
        '{"items":{"1":[[{"name":"ab","price":1.0,"tags":["a","b"]},'
        '{"name":"xyz","price":1.0,"tags":["x","y","z"]}],2]}}'
    )


class Moment(BaseModel):
    at: datetime


class Loose(BaseModel):
    notes: dict[str, Any] = {}


def test_dicts_in_a_model_keep_their_order() -> None:
    back = decode(encode(Loose(notes={"z": {"y": 1, "x": 2}, "a": 1}), Loose), Loose)

    assert str(back) == "notes={'z': {'y': 1, 'x': 2}, 'a': 1}"


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        (
            Moment(at=datetime(2026, 7, 1, tzinfo=ZoneInfo("Europe/Rome"))),
            r"\$\.at",
            "only the offset of a time zone",
        ),
        (Moment(at=datetime(2026, 7, 1, fold=1, tzinfo=UTC)), r"\$\.at", "only the offset of a time zone"),
        (Loose(notes={"a": Colour.RED}), r"\$\.notes\.a", "Colour would be read back as str"),
        (Loose(notes={"a": [True, (1,)]}), r"\$\.notes\.a\[1\]", "tuple would be read back as list"),
        (Loose(notes={"a": OrderedDict(b=1)}), r"\$\.notes\.a", "OrderedDict would be read back as dict"),
    ],
)
def test_what_a_model_would_not_give_back_alike_is_refused(value: BaseModel, path: str, reason: str) -> None:
    with pytest.raises(UnstorableValueError, match=f"{path}: .*{reason}"):
        encode(value, type(value))


@pytest.mark.parametrize("zone", [None, UTC, timezone(timedelta(hours=2)), ZoneInfo("UTC")])
def test_a_model_keeps_a_fixed_offset(zone: tzinfo | None) -> None:
    value = Moment(at=datetime(2026, 7, 1, tzinfo=zone))

    back = decode(encode(value, Moment), Moment)

    assert (back.at, back.at.utcoffset()) == (value.at, value.at.utcoffset())


def test_a_field_with_a_default_may_be_missing() -> None:
    assert decode('{"items":[]}', Order) == Order(items=[])


def test_what_a_model_makes_of_other_fields_is_its_own_decision() -> None:
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")

    class Closed(BaseModel):
        model_config = ConfigDict(extra="forbid")

    assert decode('{"items":[],"more":1}', Order) == Order(items=[])
    assert decode(encode(Open(more=[1]), Open), Open) == Open(more=[1])  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(InvalidValueError, match=r"\$\.more: Extra inputs are not permitted"):
        decode('{"more":1}', Closed)


class Masked(BaseModel):
    password: pydantic.SecretStr


class Excluded(BaseModel):
    seen: int
    hidden: int = Field(default=0, exclude=True)


class Hashing(BaseModel):
    key: str

    @pydantic.field_validator("key")
    @classmethod
    def hashed(cls, key: str) -> str:
        return f"#{key}"


class Raw(BaseModel):
    parts: dict[str, list[bytes]]


class Listed(BaseModel):
    @pydantic.model_serializer
    def write(self) -> list[int]:
        return [1]


class Failing(BaseModel):
    inner: list[int]

    @pydantic.field_serializer("inner")
    def write(self, inner: list[int]) -> list[int]:
        raise ZeroDivisionError("no")


def unchecked(**fields: object) -> Order:
    """Return a model that was changed without validation."""
    order = Order(items=[Item(name="a", unitPrice=1)])
    for name, value in fields.items():
        setattr(order, name, value)
    return order


def item(**fields: Any) -> Item:
    return Item.model_construct(None, **{"name": "a", "price": 1.0, **fields})


def holding_itself() -> Order:
    order = Order(items=[])
    order.notes = {"order": order}
    return order


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "form", "path", "reason"),
    [
        (unchecked(items=[item(), item(price="1")]), Order, "$.items[1].price", "Input should be a valid number"),
        (unchecked(items=[item(price=-1.0)]), Order, "$.items[0].price", "should be greater than 0"),
        (Order.model_construct(buyer="b"), Order, "$.items", "Field required"),
        (unchecked(pet=Rush(items=[])), Order, "$.pet.name", "Field required (as Cat)"),
        (Rush(items=[]), Order, "$", "expected Order, got Rush, a subclass of it; declare the type as Rush"),
        ([Rush(items=[])], list[Order], "$[0]", "a subclass of it"),
        (Box(content=1), Box[int], "$", "expected Box[int], got Box"),
        (Tree.model_construct(name="a", children=[Order(items=[])]), Tree, "$.children[0].name", "Field required"),
        (Delivery(unchecked(buyer=1), []), Delivery, "$.order.buyer", "Input should be a valid string"),
        ({"fish": Fish.model_construct(fins="x")}, Row, "$.fish.fins", "Input should be a valid integer"),
        (Cat(name="a"), Fish | Bird, "$", "expected Fish | Bird, got Cat"),
    ],
)  # fmt: skip
def test_what_is_no_such_model_any_more_is_refused_with_its_place(
    value: object, form: object, path: str, reason: str
) -> None:
    with pytest.raises(InvalidValueError) as caught:
        encode(value, form)

    problem = caught.value.problems[0]
    assert (problem.startswith(f"{path}: "), reason in problem) == (True, True), caught.value


@pytest.mark.parametrize(
    ("value", "form", "path", "reason"),
    [
        (unchecked(items=[item(price=math.nan)]), Order, "$.items[0].price", "nan"),
        (unchecked(items=[item(name="\0")]), Order, "$.items[0].name", "NUL"),
        (unchecked(items=[item(name="\ud800")]), Order, "$.items[0].name", "surrogate"),
        (Order(items=[], notes=(1,)), Order, "$.notes", "tuple would be read back as list"),
        (Order(items=[], notes={"a": [date(2026, 1, 1)]}), Order, "$.notes.a[0]", "date would be read back as str"),
        (Order(items=[], notes={1: 2}), Order, "$.notes", "dict would be read back with other fields, keys or items"),
        (Order(items=[], notes=[object()]), Order, "$.notes[0]", "it can't be written as JSON"),
        (Order(items=[], notes=math.inf), Order, "$.notes", "float would be read back as None"),
        (Order(items=[], notes=nested(MAX_DEPTH)), Order, "$.notes" + "[0]" * (MAX_DEPTH - 1), "nested more than"),
        (Order(items=[], notes=nested(1000)), Order, "$.notes" + "[0]" * (MAX_DEPTH - 1), "nested more than"),
        (Order(items=[], notes=10**5000), Order, "$.notes", "more digits"),
        (holding_itself(), Order, "$.notes.order", "it contains itself"),
        (Masked(password=pydantic.SecretStr("x")), Masked, "$.password", "SecretStr would not be equal when"),
        (Excluded(seen=1, hidden=2), Excluded, "$.hidden", "int would not be equal when"),
        (Hashing(key="a"), Hashing, "$.key", "str would not be equal when"),
        (Raw(parts={"a b": [b"", b"\xff"]}), Raw, "$.parts['a b'][1]", "UnicodeDecodeError"),
        (Listed(), Listed, "$", "Listed is serialized as list"),
        (Failing(inner=[]), Failing, "$.inner", "ZeroDivisionError: no"),
    ],
)  # fmt: skip
def test_what_would_not_come_back_is_refused_with_its_place(
    value: object, form: object, path: str, reason: str
) -> None:
    with pytest.raises(UnstorableValueError) as caught:
        encode(value, form)

    assert (caught.value.path, reason in caught.value.reason) == (path, True), caught.value


@pytest.mark.parametrize(
    ("text", "form", "problems"),
    [
        ("[]", Order, ["$: Input should be an object"]),
        ('{"buyer":"\\ud800"}', Order, ["$.buyer: the string contains half of a surrogate pair"]),
        (
            '{"items":[{"name":7,"price":"1"},{"name":"a","unitPrice":1}],"buyer":1}',
            Order,
            [
                "$.items[0].name: Input should be a valid string",
                "$.items[0].price: Input should be a valid number",
                "$.items[1].price: Field required",
                "$.buyer: Input should be a valid string",
            ],
        ),
        (
            '{"items":[],"pet":{"kind":"cat"}}',
            Order,
            [
                "$.pet.name: Field required (as Cat)",
                "$.pet.kind: Input",
                "$.pet.name: Field required (as Dog)",
            ],
        ),
        ('{"order":{"items":1},"sizes":[]}', Delivery, ["$.order.items: Input should be a valid array"]),
        ('[{"width":0}]', list[Size], ["$[0].width: Input should be greater than 0"]),
        ('{"w":1}', Size, ["$.width: Field required"]),
        ('{"content":"1"}', Box[int], ["$.content: Input should be a valid integer"]),
        ('{"content":"1"}', Pack[int], ["$.content: Input should be a valid integer"]),
        ('{"parts":{"a":[1]}}', Raw, ["$.parts.a[0]: Input should be a valid bytes"]),
        ('{"kind":"cow","name":"a"}', Cat | Dog, ["$: expected the fields of Cat or Dog, got other fields"]),
        ('{"legs":1}', Fish | Bird, ["$: expected the fields of Fish or Bird, got other fields"]),
    ],
)
def test_json_that_does_not_fit_is_refused_with_every_problem(
    text: str, form: object, problems: list[str]
) -> None:
    with pytest.raises(InvalidValueError) as caught:
        decode(text, form)

    assert len(caught.value.problems) == len(problems), caught.value.problems
    for found, expected in zip(caught.value.problems, problems, strict=True):
        assert found.startswith(expected)


def test_the_key_of_a_dict_that_does_not_fit_is_named() -> None:
    class Numbered(BaseModel):
        names: dict[int, str]

    with pytest.raises(InvalidValueError, match=r"\$\.names\.a: Input should be .*\(as a key\)"):
        decode('{"names":{"a":"b"}}', Numbered)


def test_what_a_validator_raises_is_a_refusal() -> None:
    class Strange(BaseModel):
        name: str

        @pydantic.field_validator("name")
        @classmethod
        def check(cls, name: str) -> str:
            if not name:
                raise ZeroDivisionError("no name")
            raise ValueError("not this name")

    with pytest.raises(
        InvalidValueError, match=r"\$: Strange rejected the value: ZeroDivisionError: no name"
    ):
        decode('{"name":""}', Strange)
    with pytest.raises(InvalidValueError, match=r"\$\.name: Value error, not this name"):
        decode('{"name":"a"}', Strange)


class Unresolved(BaseModel):
    page: "Missing"  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore[reportUndefinedVariable]


class Names(pydantic.RootModel[list[str]]):
    pass


class Twin(BaseModel):
    fins: int


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (Unresolved, "Unresolved can't be stored: name 'Missing' is not defined when the program runs"),
        (Box, "Box can't be stored: give its type arguments in brackets"),
        (Pack, "Pack can't be stored: give its type arguments in brackets"),
        (list[Names], r"an item of list\[Names\]: Names can't be stored: a RootModel has no fields"),
        (Fish | Twin, "Fish and Twin can't be told apart by their fields"),
        (Fish | dict[str, int], "are both stored as object"),
    ],
)
def test_a_model_that_cannot_be_stored_is_refused_before_there_is_a_value(form: object, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        check_type(form)


def test_a_name_that_is_defined_later_is_found_when_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    class Early(BaseModel):
        late: "Late"  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore[reportUndefinedVariable]

    with pytest.raises(DefinitionError, match="name 'Late' is not defined"):
        check_type(Early)
    monkeypatch.setattr(sys.modules[__name__], "Late", Fish, raising=False)

    assert encode(Early(late=Fish(fins=1)), Early) == '{"late":{"fins":1}}'


def test_models_of_version_1_are_refused() -> None:
    base = type("BaseModel", (), {"__module__": "pydantic.v1.main"})

    with pytest.raises(DefinitionError, match="Old can't be stored: pydantic 1 models are not supported"):
        check_type(type("Old", (base,), {}))


def test_a_pydantic_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class New(BaseModel):
        pass

    monkeypatch.setattr(pydantic, "VERSION", "2.10.6")

    with pytest.raises(
        DefinitionError, match=r"needs pydantic 2\.11 or newer, got 2\.10\.6; install holdfast\[pydantic\]"
    ):
        check_type(New)


@pytest.mark.slow
def test_whoever_has_no_models_does_not_load_pydantic() -> None:
    program = """
import dataclasses, sys, holdfast
from holdfast import Pipeline, stage
@dataclasses.dataclass
class Page:
    text: str
@stage
def count(page: Page) -> int | None: ...
Pipeline("p", input=Page).pipe(count)(Page("a"))
print([name for name in sys.modules if name.startswith("pydantic")])
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)

    assert done.stdout == "[]\n"
