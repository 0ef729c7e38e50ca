"""Invalid workflows, steps and stages are refused at definition, with advice."""

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from holdfast import query, stage, step, update, workflow
from holdfast.ports.errors import DefinitionError


async def greet(greeting: str, name: str) -> str:
    return f"{greeting} {name}"


def misnamed(name: str) -> str:
    return name


def broken(name: str, other: list[str]) -> str:
    return str((name, other))


def no_attribute(name: str) -> str:
    return name


def gives_badly(name: str) -> str:
    return name


async def misnamed_async(name: str) -> str:
    return name


# As with `from __future__ import annotations`, where checkers of types would not have it.
misnamed.__annotations__["name"] = misnamed_async.__annotations__["name"] = "Unknownn"
broken.__annotations__["other"] = "list["
no_attribute.__annotations__["name"] = "functools.nothing"
gives_badly.__annotations__["return"] = "dict[str"


class Caller:
    def __call__(self, name: str) -> str:
        return name

    def method(self, name: str) -> str:
        return name

    @classmethod
    def of_class(cls, name: str) -> str:
        return name


def values(name: str) -> Iterator[str]:
    yield name


async def values_later(name: str) -> AsyncIterator[str]:
    yield name


REFUSED: list[tuple[Callable[..., Any], object, str]] = [
    (workflow, functools.partial(greet, "hello"), "async function, not functools.partial"),
    (workflow, Caller(), "async function, not"),
    (workflow, Caller, "async function, not"),
    (workflow, print, "async function, not"),
    (workflow, lambda: None, "async function, not"),
    (workflow, values_later, "async function, not"),
    (workflow, 5, "async function, not 5"),
    (workflow, misnamed_async, "parameter 'name': name 'Unknownn' is not defined .* define or import it"),
    (step, functools.partial(greet, "hello"), "a step needs a function"),
    (step, Caller(), "a step needs a function"),
    (step, Caller, "a step needs a function"),
    (step, max, "step 'max': no signature found .* write a function that calls it"),
    (step, vars(Caller)["of_class"], "a step needs a function"),
    (step, values, "is a generator"),
    (step, values_later, "is a generator"),
    (step, Caller.method, r"is a method.*step\(payments.charge\)"),
    (step, misnamed, "step 'misnamed': parameter 'name': name 'Unknownn' is not defined"),
    (step, broken, "step 'broken': the annotation of parameter 'other' can't be read: SyntaxError"),
    (step, no_attribute, "the annotation of parameter 'name' can't be read: AttributeError"),
    (step, gives_badly, "the annotation of what it gives can't be read: SyntaxError"),
    (stage, functools.partial(greet, "hello"), "a stage needs a function"),
    (stage, Caller(), "a stage needs a function"),
    (stage, max, "stage 'max': no signature found"),
    (stage, values, "is a generator"),
    (stage, misnamed, "stage 'misnamed': parameter 'name': name 'Unknownn' is not defined"),
    (stage, broken, "the annotation of parameter 'other' can't be read: SyntaxError"),
    (stage, gives_badly, "the annotation of what it gives can't be read: SyntaxError"),
    (query, 5, "@query needs a method, not 5"),
    (query, functools.partial(greet, "hello"), "@query needs a method"),
    (query, broken, "the annotation of parameter 'other' can't be read"),
    (update, Caller(), "@update needs a method"),
    (update, staticmethod(values), "@update needs a method"),
]


@pytest.mark.parametrize(("decorate", "given", "message"), REFUSED)
def test_what_can_be_none_is_refused(decorate: Callable[..., Any], given: object, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        decorate(given)


def test_a_broken_annotation_of_an_update_is_refused() -> None:
    def badly(self: object, name: str) -> str:
        return str((self, name))

    badly.__annotations__["name"] = "list["
    with pytest.raises(
        DefinitionError, match="the annotation of parameter 'name' can't be read: SyntaxError"
    ):
        update(badly)
