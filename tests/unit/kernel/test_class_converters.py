"""Registered converters: classes are stored in the form that was declared, or refused where it is wrong."""

import fractions
from typing import Any

import attrs
import pytest
from typing_extensions import override

from holdfast.kernel.values import decode, encode
from holdfast.kernel.values.schemas import schema_of
from holdfast.ports.errors import DefinitionError, InvalidValueError, UnstorableValueError
from holdfast.workflows import register_converter


class Money:
    """A class with arguments that are not its fields."""

    def __init__(self, text: str) -> None:
        amount, self.currency = text.split()
        self.cents = round(float(amount) * 100)

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and (self.cents, self.currency) == (other.cents, other.currency)

    @override
    def __hash__(self) -> int:
        return hash((self.cents, self.currency))

    @override
    def __str__(self) -> str:
        return f"{self.cents / 100:.2f} {self.currency}"


class Coin(Money):
    """A subclass, which is another class."""


class Fraction(fractions.Fraction):
    """A class of this module: a process has one converter for each class, and an example has that of the original."""


def _ratio(fraction: Fraction) -> tuple[int, int]:
    return fraction.as_integer_ratio()


def _fraction(ratio: tuple[int, int]) -> Fraction:
    return Fraction(*ratio)


register_converter(Money, stored_as=str, dump=str, load=Money, example=Money("5 EUR"))
register_converter(Fraction, stored_as=tuple[int, int], dump=_ratio, load=_fraction, example=Fraction(1, 3))


WHOLE = Fraction(1)


@attrs.frozen
class Bill:
    """A class with fields of such classes."""

    total: Money
    share: Fraction = WHOLE


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (Money("1 EUR"), Money, '"1.00 EUR"'),
        ([Money("1 EUR")], list[Money], '["1.00 EUR"]'),
        ({Money("1 EUR"): 2}, dict[Money, int], '{"1.00 EUR":2}'),
        (7, Money | int, "7"),
        (Money("1 EUR"), Money | int, '"1.00 EUR"'),
        (Fraction(3, 4), Fraction, "[3,4]"),
        (Bill(Money("1 EUR"), Fraction(1, 2)), Bill, '{"total":"1.00 EUR","share":[1,2]}'),
        (None, Money | None, "null"),
    ],
)
def test_a_value_is_stored_in_its_form_and_comes_back_equal(value: object, form: Any, text: str) -> None:
    assert encode(value, form) == text
    back = decode(text, form)
    assert back == value
    assert type(back) is type(value)


def test_its_schema_is_that_of_the_stored_form() -> None:
    assert schema_of(Money) == {"type": "string"}
    assert schema_of(list[Fraction])["items"]["prefixItems"] == [{"type": "integer"}] * 2


@pytest.mark.parametrize(
    ("value", "form", "words"),
    [
        ("1 EUR", Money, r"expected .*Money, got str"),
        (Coin("1 EUR"), Money, "a subclass of it"),
        ([Money("1 EUR"), 1], list[Money], r"\$\[1\]: expected .*Money, got int"),
    ],
)
def test_a_value_of_another_class_is_refused(value: object, form: Any, words: str) -> None:
    with pytest.raises(InvalidValueError, match=words):
        encode(value, form)


@pytest.mark.parametrize("text", ["1", "null", '"EUR"', '"much EUR"'])
def test_a_text_that_is_not_of_the_stored_form_is_refused(text: str) -> None:
    with pytest.raises(InvalidValueError):
        decode(text, Money)


class Thing:
    """A class whose converters are wrong in some way."""

    def __init__(self, number: int = 1) -> None:
        self.number = number

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Thing) and self.number == other.number

    __hash__ = None  # type: ignore[assignment] # pyright: ignore[reportAssignmentType]


def _number(thing: Thing) -> int:
    return thing.number


def _fails(_: object) -> Any:
    raise KeyError("no")


def _another(_: object) -> Thing:
    return Thing(9)


async def _later(_: object) -> Any: ...


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "form": ({"stored_as": complex}, "can't be stored"),
    "dump fails": ({"dump": _fails}, "dump= of .*Thing failed: KeyError"),
    "dump of another type": ({"dump": str}, "its stored form is wrong: expected int, got str"),
    "load fails": ({"load": _fails}, "Thing rejected the value: KeyError"),
    "load of another class": ({"load": str}, "load= of .*Thing returned str"),
    "loses data": ({"load": _another}, "it would change when it is read back"),
    "no function": ({"dump": "str"}, "must be a function of one argument"),
    "coroutine": ({"load": _later}, "must be a function of one argument"),
    "another example": ({"example": 7}, "expected .*Thing, got int"),
}


@pytest.mark.parametrize(("change", "words"), WRONG.values(), ids=WRONG)
def test_a_wrong_converter_is_refused_at_once_and_not_registered(change: dict[str, Any], words: str) -> None:
    good: dict[str, Any] = {"stored_as": int, "dump": _number, "load": Thing, "example": Thing(3)}
    with pytest.raises(DefinitionError, match=words):
        register_converter(Thing, **{**good, **change})
    with pytest.raises(DefinitionError):
        encode(Thing(3), Thing)


def test_a_class_is_registered_once_and_before_it_is_used() -> None:
    register_converter(Money, stored_as=str, dump=str, load=Money, example=Money("5 EUR"))
    with pytest.raises(DefinitionError, match="has another converter already"):
        register_converter(Money, stored_as=str, dump=repr, load=Money, example=Money("5 EUR"))
    encode(Bill(Money("1 EUR")), Bill)
    for known in (Bill, int, str):
        with pytest.raises(DefinitionError, match="is stored without a converter already"):
            register_converter(known, stored_as=str, dump=repr, load=known, example=known)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    with pytest.raises(DefinitionError, match="is not a class"):
        register_converter("Money", stored_as=str, dump=str, load=Money, example=Money("5 EUR"))  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def test_a_value_that_would_come_back_unequal_is_refused() -> None:
    class Rounded:
        def __init__(self, number: float) -> None:
            self.number = number

        @override
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Rounded) and self.number == other.number

        __hash__ = None  # type: ignore[assignment] # pyright: ignore[reportAssignmentType]

    register_converter(
        Rounded, stored_as=int, dump=lambda one: int(one.number), load=Rounded, example=Rounded(2.0)
    )
    assert encode(Rounded(3.0), Rounded) == "3"
    with pytest.raises(UnstorableValueError, match="it would change when it is read back"):
        encode([Rounded(3.5)], list[Rounded])
