"""Input and output types of bodies, and their compatibility."""

import enum
import types
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, TypedDict, TypeVar

import attrs
import pytest
from pydantic import BaseModel

from holdfast.kernel.authoring.body_types import fits, read_shape
from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.ports.errors import DefinitionError

T = TypeVar("T")
UserId = NewType("UserId", int)


@attrs.frozen
class Document:
    path: str


@attrs.frozen
class Page:
    text: str


@attrs.frozen
class LongPage(Page):
    words: int = 0


@dataclass
class Box(Generic[T]):
    content: T


class Pair(NamedTuple):
    a: int
    b: str


class Row(TypedDict):
    a: int


class Model(BaseModel):
    text: str


class LongModel(Model):
    words: int = 0


class ModelOf(BaseModel, Generic[T]):
    content: T


class Mode(enum.StrEnum):
    FAST = "fast"


async def takes_context(ctx: StageContext[Document], document: Document) -> list[Page]:
    raise NotImplementedError


def takes_nothing() -> None: ...


def takes_only_context(ctx: StageContext) -> int:
    raise NotImplementedError


def takes_one(pages: Sequence[Page], *, limit: int = 3, **more: int) -> int:
    raise NotImplementedError


def takes_one_and_an_optional(pages: list[Page], limit: int = 3) -> int:
    raise NotImplementedError


def takes_models(ctx: StageContext[Model], models: list[Model]) -> ModelOf[int]:
    raise NotImplementedError


def takes_three(ctx: StageContext[None], a: Document, b: dict[str, int], c: "list[Page]") -> str | None:
    raise NotImplementedError


@pytest.mark.parametrize(
    ("body", "takes", "config", "values", "given", "result"),
    [
        (takes_context, True, Document, 1, Document, list[Page]),
        (takes_nothing, False, None, 0, object, type(None)),
        (takes_only_context, True, None, 0, object, int),
        (takes_one, False, None, 1, Sequence[Page], int),
        (takes_one_and_an_optional, False, None, 1, list[Page], int),
        (takes_models, True, Model, 1, list[Model], ModelOf[int]),
        (takes_three, True, None, 3, tuple[Document, dict[str, int], list[Page]], str | None),
    ],
)
def test_a_shape_is_read_from_annotations(
    body: Callable[..., object], takes: bool, config: object, values: int, given: object, result: object
) -> None:
    shape = read_shape(body, "it")

    assert shape.takes_context is takes
    assert shape.config_type == config
    assert shape.values == values
    assert shape.input_type == given
    assert shape.output_type == result


def plain(page: Page) -> int:
    raise NotImplementedError


def with_context(ctx: StageContext, page: Page) -> int:
    raise NotImplementedError


def method(self: object, page: Page) -> int:
    raise NotImplementedError


def without(annotation: str, body: Callable[..., object]) -> types.FunctionType:
    """Return the body as if one annotation was missing."""
    assert isinstance(body, types.FunctionType)
    bare = types.FunctionType(body.__code__, body.__globals__, body.__name__)
    bare.__annotations__ = {name: form for name, form in body.__annotations__.items() if name != annotation}
    return bare


def any_first(page: Any) -> int:
    raise NotImplementedError


def context_second(page: Page, ctx: StageContext) -> int:
    raise NotImplementedError


def required_keyword(page: Page, *, must: int) -> int:
    raise NotImplementedError


def star(*pages: Page) -> int:
    raise NotImplementedError


def default_of_all(x: int = 3) -> int:
    raise NotImplementedError


def default_after_two(x: int, y: int, z: int = 3) -> int:
    raise NotImplementedError


def gives_any_model() -> ModelOf[Any]:
    raise NotImplementedError


gives_any_model.__annotations__["return"] = ModelOf


unresolved = without("page", plain)
unresolved.__annotations__["page"] = "Missing"


def callback(page: Callable[[int], str]) -> int:
    raise NotImplementedError


def gives_a_file() -> Iterator[int]:
    raise NotImplementedError


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


def generic(x: T) -> list[T]:
    raise NotImplementedError


def bad_config(ctx: StageContext[Iterator[int]]) -> int:
    raise NotImplementedError


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            without("page", plain),
            "stage 'it': parameter 'page' has no annotation; annotate it, as in `page: str`",
        ),
        (without("ctx", with_context), "as in `ctx: StageContext`"),
        (
            without("return", plain),
            "stage 'it' has no return annotation; write `-> str`, or `-> None` for nothing",
        ),
        (without("self", method), "a stage is a function, or a method of an object"),
        (any_first, "'page' is Any, which may be the context as well; write `object`"),
        (context_second, "the context 'ctx' must be its first parameter"),
        (required_keyword, "the engine does not fill 'must'; give it a default, or move it before `\\*`"),
        (star, r"\*pages is not filled by an engine"),
        (default_of_all, "whether 'x' should be filled; move what has a default after `\\*`"),
        (default_after_two, "whether 'z' should be filled"),
        (unresolved, "name 'Missing' is not defined when the program runs"),
        (callback, r"takes a type that can't be stored: Callable\[\[int\], str\] can't be stored"),
        (
            gives_a_file,
            r"returns a type that can't be stored: Iterator\[int\] can't be stored: declare list\[...\]",
        ),
        (generator, "is a generator; return all its values in a list"),
        (async_generator, "is a generator"),
        (generic, "T can't be stored: declare a concrete type"),
        (
            gives_any_model,
            "returns a type that can't be stored: ModelOf can't be stored: give its type arguments in brackets",
        ),
        (bad_config, "has a config that can't be stored"),
    ],
)
def test_a_body_that_no_engine_can_call_is_refused(body: Callable[..., object], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        read_shape(body, "it")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (list[Page], Sequence[Page]),
        (list[Page], list[Page] | None),
        (tuple[Page, Document], Sequence[Page | Document]),
        (tuple[Page, ...], Sequence[Page]),
        (tuple[Page, Page], tuple[Page, ...]),
        (tuple[int, int], tuple[float, object]),
        (Pair, tuple[int, str]),
        (Pair, Sequence[int | str]),
        (Document, Document | None),
        (int | None, str | int | None),
        (None, None),
        (None, type(None)),
        (str, object),
        (str, Any),
        (Any, str),
        (int, float),
        (list, list[int]),
        (list[int], list),
        (Literal["a"], str),
        (Literal["a"], Literal["a", "b"]),
        (Literal[1], float),
        (Mode, str),
        (UserId, int),
        (int, UserId),
        (Annotated[int, "note"], int),
        (dict[str, int], Mapping[str, float]),
        (dict[str, Any], dict[str, int]),
        (Row, Row),
        (Row, Mapping[str, object]),
        (Box[int], Box[int]),
        (LongPage, LongPage),
        (Model, Model | None),
        (list[Model], Sequence[Model | Page]),
        (dict[str, ModelOf[int]], Mapping[str, ModelOf[int]]),
        (Model, object),
    ],
)
def test_what_can_be_read_as_wanted_fits(given: object, wanted: object) -> None:
    assert fits(given, wanted)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (list[Page], Sequence[Document]),
        (Document, Page),
        (Document | None, Document),
        (None, int),
        (object, int),
        (str, Sequence[str]),
        (bytes, Sequence[int]),
        (str, Literal["a"]),
        (Literal["a", "b"], Literal["a"]),
        (Literal[True], Literal[1]),
        (bool, int),
        (float, int),
        (datetime, date),
        (LongPage, Page),
        (list[int], tuple[int, ...]),
        (tuple[int, ...], tuple[int, int]),
        (tuple[int, str], tuple[str, int]),
        (tuple[int, int], list[int]),
        (set[int], Sequence[int]),
        (Row, Mapping[str, int]),
        (dict[str, int], Row),
        (Box[int], Box[str]),
        (LongModel, Model),
        (Model, LongModel),
        (Model, Page),
        (Model | None, Model),
        (Model, Mapping[str, object]),
        (ModelOf[int], ModelOf[str]),
    ],
)
def test_what_cannot_be_read_as_wanted_does_not_fit(given: object, wanted: object) -> None:
    assert not fits(given, wanted)
