"""`when`: one of two stages, or none, and its output type."""

from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import pytest

from holdfast.kernel.authoring import Pipeline, each, stage
from holdfast.kernel.pipelines.plan import Group, MapPlan, StagePlan, plan_from_json
from holdfast.ports.errors import DefinitionError


@attrs.frozen
class Page:
    text: str


@attrs.frozen
class Summary:
    summary: str


@attrs.frozen
class Index:
    words: dict[str, int]


@stage
def summarise(page: Page) -> Summary:
    return Summary(page.text)


@stage
def index(page: Page) -> Index:
    return Index({page.text: 1})


@stage
def shorten(page: Page) -> Page:
    return page


@stage
def number(page: Page) -> int:
    return 1


@stage
def words(page: Page) -> list[str]:
    return page.text.split()


@stage
def size(word: str) -> int:
    return len(word)


@stage
def upper(word: str) -> str:
    return word.upper()


@stage
def show(found: Summary | Index) -> str:
    return str(found)


def is_long(page: Page) -> bool:
    return len(page.text) > 3


async def is_long_by_and_by(page: Page) -> bool:
    return len(page.text) > 3


is_any: Callable[[Page], bool] = lambda page: True  # noqa: E731  # its name is looked at


class IsLong:
    def __call__(self, page: Page) -> bool:
        return len(page.text) > 3


class IsLongByAndBy:
    async def __call__(self, page: Page) -> bool:
        return len(page.text) > 3


pages = Pipeline("p", input=Page)


def test_what_goes_on_is_what_either_gives() -> None:
    assert pages.when(is_long, summarise, otherwise=index).output_type == Summary | Index
    assert pages.when(is_long, summarise, otherwise=index).pipe(show).output_type is str


def test_without_a_second_it_is_what_came_in_or_what_the_first_gives() -> None:
    assert pages.when(is_long, summarise).output_type == Summary | Page


def test_two_of_one_type_are_said_once() -> None:
    assert pages.when(is_long, shorten).output_type is Page
    assert pages.when(is_long, shorten, otherwise=shorten.options(name="b")).output_type is Page


def test_what_goes_on_must_fit_whichever_it_was() -> None:
    with pytest.raises(DefinitionError, match="stage 'show' takes"):
        pages.when(is_long, summarise).pipe(show)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_the_plan_names_the_test_for_people() -> None:
    plan = pages.when(is_long, shorten, otherwise=shorten.options(name="b")).pipe(words).plan()

    assert plan.groups == (
        Group(nodes=(StagePlan(name="shorten"), StagePlan(name="b")), test="is_long"),
        Group(nodes=(StagePlan(name="words"),)),
    )
    assert plan_from_json(plan.to_json()) == plan


def test_a_map_can_be_chosen_too() -> None:
    plan = pages.pipe(words).when(bool, each(upper)).plan()

    assert plan.groups[1] == Group(nodes=(MapPlan(stage=StagePlan(name="upper")),), test="bool")
    assert plan_from_json(plan.to_json()) == plan


def test_tests_are_found_by_the_first_of_the_two() -> None:
    pipeline = pages.when(is_long, shorten).when(bool, summarise, otherwise=index)

    assert {name: test.name for name, test in pipeline.conditions.items()} == {
        "shorten": "is_long",
        "summarise": "bool",
    }
    assert pipeline.conditions["shorten"].input_type is Page


@pytest.mark.parametrize(
    ("test", "name"),
    [(is_long, "is_long"), (is_any, "<lambda>"), (IsLong(), "IsLong"), (partial(is_long), "partial")],
)
def test_whatever_can_be_called_is_a_test(test: Callable[[Page], bool], name: str) -> None:
    assert pages.when(test, shorten).conditions["shorten"].name == name


@pytest.mark.parametrize("test", [is_long_by_and_by, 3, None, "is_long", partial(is_long_by_and_by)])
def test_a_test_is_a_sync_function(test: Any) -> None:
    with pytest.raises(DefinitionError, match="when takes a sync function, not"):
        pages.when(test, shorten)


def test_an_object_with_an_async_call_is_no_test() -> None:
    with pytest.raises(DefinitionError, match="when takes a sync function, not"):
        pages.when(IsLongByAndBy(), shorten)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "add",
    [
        lambda: pages.pipe(shorten).when(is_long, shorten),
        lambda: pages.pipe(shorten).when(is_long, summarise, otherwise=shorten),
        lambda: pages.when(is_long, shorten, otherwise=shorten),
        lambda: pages.when(is_long, shorten).pipe(shorten),
    ],
)
def test_a_name_is_taken_once_also_in_what_may_not_be_done(add: Callable[[], object]) -> None:
    with pytest.raises(DefinitionError, match="two stages named 'shorten'"):
        add()


@pytest.mark.parametrize(
    "add",
    [
        lambda: pages.when(is_long, size),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        lambda: pages.when(is_long, shorten, otherwise=size),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ],
)
def test_both_must_take_what_comes_in(add: Callable[[], object]) -> None:
    with pytest.raises(DefinitionError, match="stage 'size' takes str, but the pipeline's input is"):
        add()


def test_no_map_goes_over_what_may_not_be_done() -> None:
    first = pages.when(is_long, words)
    second = pages.when(is_long, number, otherwise=words)

    for pipeline in (first, second):
        with pytest.raises(DefinitionError, match="maps over 'words', which does not always run"):
            pipeline.map(size, over=words)


def test_values_that_can_not_be_told_apart_are_refused() -> None:
    @stage
    def as_list(page: Page) -> list[int]:
        return []

    with pytest.raises(DefinitionError, match="the output of `when` can't be stored"):
        pages.when(is_long, words, otherwise=as_list)
