"""Schemas of workflows as workers store them: what they have of updates, and what is checked by them."""

from typing import Any, Literal

import attrs
import pytest
from typing_extensions import override

from holdfast.hosts.inspection.workflows import RegisteredWorkflow
from holdfast.hosts.wiring.channel_discovery import channels_of
from holdfast.hosts.wiring.registered_workflows import schemas_of, schemas_text
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.queries import expose, query, update, updates_in
from holdfast.kernel.commands.workflows import SCHEMAS_MAX
from holdfast.kernel.values.schemas import problems_of
from holdfast.ports.errors import InvalidValueError
from holdfast.ports.json import compact, parse


@attrs.frozen
class Address:
    street: str
    number: int


class Cart:
    @update
    def add(self, item: str, count: int = 1) -> int:
        return count

    @update
    async def send(self, /, to: Address, **notes: str) -> Address:
        return to

    @update
    def clear(self) -> None: ...

    @query
    def items(self) -> list[str]:
        return []


class LargeCart(Cart):
    @override
    @update
    def add(self, item: str, count: float = 1.0, *, size: Literal["s", "l"] = "s") -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return 1

    @update
    def shrink(self) -> None: ...


note = Channel("note", str)


def choose(self: object, one: str) -> None:
    """Take one of many texts."""


choose.__annotations__["one"] = Literal[tuple(f"{number:05}-{'x' * 50}" for number in range(1_500))]


class Wide:
    choose = update(choose)


def new_cart() -> Cart:
    return Cart()


@workflow
async def cart(customer: str) -> str:
    expose(new_cart())
    return await note.receive()


@workflow
async def large(customer: str) -> str:
    expose(LargeCart())
    return await note.receive()


@workflow
async def either(is_large: bool) -> None:
    expose(LargeCart() if is_large else Cart())


@workflow
async def wide() -> str:
    expose(Wide())
    return await note.receive()


@workflow
async def local() -> None:
    class Inner:
        @update
        def move(self) -> None: ...

    expose(Inner())


@workflow
async def none() -> None: ...


def registered(function: Any, schemas: object) -> RegisteredWorkflow:
    found: Any = schemas
    return RegisteredWorkflow(function.plan(), found, 0)


def stored(function: Any) -> dict[str, Any]:
    found: dict[str, Any] = parse(schemas_text(function))
    return found


def test_each_update_has_the_schema_of_its_arguments_and_of_its_reply() -> None:
    updates = stored(cart)["updates"]
    assert list(updates) == ["Cart.add", "Cart.clear", "Cart.send"]
    assert updates["Cart.add"] == {
        "arguments": {
            "type": "object",
            "properties": {"item": {"type": "string"}, "count": {"type": "integer"}},
            "required": ["item"],
            "additionalProperties": False,
        },
        "reply": {"type": "integer"},
    }
    assert updates["Cart.clear"]["arguments"]["properties"] == {}
    assert updates["Cart.clear"]["reply"] == {"type": "null"}
    assert updates["Cart.send"]["reply"]["title"] == "Address"


def test_an_update_has_the_names_by_which_it_can_be_sent() -> None:
    """An update of a base class is found by the names of both classes, and one that replaces it is too."""
    updates = stored(large)["updates"]
    assert sorted(updates) == [
        *("Cart.add", "Cart.clear", "Cart.send"),
        *("LargeCart.add", "LargeCart.clear", "LargeCart.send", "LargeCart.shrink"),
    ]
    assert updates["Cart.add"] == updates["LargeCart.add"]
    assert updates["Cart.clear"] == updates["LargeCart.clear"]


def test_classes_that_share_a_name_are_alternatives() -> None:
    updates = stored(either)["updates"]
    assert len(updates["Cart.add"]["arguments"]["anyOf"]) == 2
    assert updates["Cart.add"]["reply"] == {"type": "integer"}
    found = registered(either, stored(either))
    found.check_update("Cart.add", {"item": "tea", "size": "l"})
    found.check_update("Cart.add", {"item": "tea", "count": 2})
    with pytest.raises(InvalidValueError):
        found.check_update("Cart.add", {"item": 1})


@pytest.mark.parametrize("function", [none, local])
def test_without_known_updates_the_document_is_as_before(function: Any) -> None:
    assert "updates" not in stored(function)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"item": "tea"},
        {"item": "tea", "count": 2},
        {"item": "tea", "count": 2.5},
        {"item": "tea", "size": "l"},
        {"item": "tea", "size": "m"},
        {"item": None},
        {"to": {"street": "A", "number": 1}},
        {"to": {"street": "A"}},
        {"to": {"street": "A", "number": "1"}},
        {"to": {"street": "A", "number": 1}, "notes": {"a": "b"}},
        {"to": {"street": "A", "number": 1}, "notes": {"a": 1}},
        [],
        "tea",
    ],
)
@pytest.mark.parametrize("kind", [Cart, LargeCart])
def test_a_schema_refuses_what_the_code_refuses(kind: type[object], arguments: object) -> None:
    updates = stored(large if kind is LargeCart else cart)["updates"]
    for name, one in updates_in(kind):
        try:
            one.form.decode(compact(arguments))
            is_taken = True
        except InvalidValueError:
            is_taken = False
        assert (not problems_of(arguments, updates[name]["arguments"])) == is_taken, name


def test_schemas_of_updates_are_the_first_that_are_left_out() -> None:
    assert len(compact(schemas_of(wide))) > SCHEMAS_MAX
    assert stored(wide).keys() == {"input", "output", "signals"}


def test_a_wrong_argument_is_named_with_its_update() -> None:
    with pytest.raises(InvalidValueError) as caught:
        registered(cart, stored(cart)).check_update("Cart.send", {"to": {"street": 1, "number": 1}})
    assert "update 'Cart.send' of workflow 'cart'" in str(caught.value)
    assert caught.value.problems == ("$.to.street: expected string, got integer",)


@pytest.mark.parametrize(
    "schemas",
    [
        {},
        {"input": {"type": "object"}, "signals": {}},
        {"updates": []},
        {"updates": {"Cart.add": None}},
        {"updates": {"Cart.add": {"arguments": 1}}},
        {"updates": {"Cart.clear": {"arguments": {"type": "string"}}}},
    ],
)
def test_by_documents_without_an_update_its_arguments_are_not_checked(schemas: object) -> None:
    registered(cart, schemas).check_update("Cart.add", {"item": 1})


def test_updates_are_found_without_running_code_of_the_class() -> None:
    class Meta(type):
        @override
        def __dir__(cls) -> list[str]:
            raise AssertionError

    class Watched(metaclass=Meta):
        @update
        def move(self) -> None: ...

    assert [name for name, _ in updates_in(Watched)] == ["Watched.move"]
    assert sorted(channels_of(cart.function).updates) == ["Cart.add", "Cart.clear", "Cart.send"]
