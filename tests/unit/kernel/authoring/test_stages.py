"""Stages: made from functions, with options, called directly."""

import asyncio
import functools
from collections.abc import Callable
from datetime import timedelta
from typing import Any, ParamSpec, TypedDict, TypeVar

import attrs
import pytest
from pydantic import BaseModel, Field

from holdfast.kernel.authoring import ConfigurableStage, Pipeline, Retry, Stage, StageContext, each, stage
from holdfast.ports.errors import DefinitionError

P = ParamSpec("P")
R = TypeVar("R")


@attrs.frozen
class Extraction:
    dpi: int = 300


@attrs.frozen
class Model:
    name: str


class Limits(BaseModel):
    lowest: int = 0
    highest: int = Field(default=9, alias="max")


class Needed(BaseModel):
    name: str


class Choice(TypedDict, total=False):
    fast: bool


@stage
def double(x: int) -> int:
    return 2 * x


@stage
async def join(a: str, b: str) -> str:
    return a + b


@stage
async def extract(ctx: StageContext[Extraction], path: str) -> str:
    return f"{path} at {ctx.config.dpi}"


@stage
def ask(ctx: StageContext[Model], x: int) -> int:
    return x


@stage
def choose(ctx: StageContext[Choice], x: int) -> int:
    return x


@stage
def limit(ctx: StageContext[Limits], x: int) -> int:
    return min(x, ctx.config.highest)


@stage
def need(ctx: StageContext[Needed], x: int) -> int:
    return x


@stage
def bounded(ctx: StageContext[int], x: int) -> int:
    return x + ctx.config


def test_a_stage_is_called_like_its_function() -> None:
    assert double.name == "double"
    assert repr(double) == "<stage double: int -> int>"


def test_a_stage_with_a_context_is_configurable() -> None:
    assert isinstance(extract, ConfigurableStage)
    assert not isinstance(double, ConfigurableStage)


def test_a_stage_awaited_by_hand_runs_its_body() -> None:
    assert asyncio.run(double(4)) == 8
    assert asyncio.run(join(("a", "b"))) == "ab"


def test_a_stage_that_needs_a_context_cannot_be_awaited_by_hand() -> None:
    with pytest.raises(RuntimeError, match="'extract' takes a StageContext, which only an engine has"):
        asyncio.run(extract("a"))


def test_the_input_is_shared_out_to_the_parameters() -> None:
    assert double.arguments(3) == (3,)
    assert join.arguments(("a", "b")) == ("a", "b")


def test_a_host_can_tell_async_bodies_from_sync_ones() -> None:
    def logged(body: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(body)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            return body(*args, **kwargs)

        return wrapper

    assert join.is_async
    assert not double.is_async
    # What a decorator has made is asked, not what it wraps: what that gives is awaited where it can be.
    assert not stage(logged(join.body)).is_async
    assert asyncio.run(stage(logged(join.body))(("a", "b"))) == "ab"


def test_options_give_a_new_stage_and_keep_what_they_do_not_name() -> None:
    patient = double.options(retry=Retry(attempts=9), queue="gpu")
    named = patient.options(name="twice", timeout=timedelta(seconds=3), priority=2)

    assert double.queue is None
    assert (named.name, named.queue, named.priority, named.timeout) == (
        "twice",
        "gpu",
        2,
        timedelta(seconds=3),
    )
    assert named.retry == Retry(attempts=9)
    assert named.body is double.body


def test_a_preset_is_a_decorator_with_options() -> None:
    gpu = stage(queue="gpu", retry=Retry(give_up_on=(KeyError,)))

    @gpu(priority=3)
    def render(x: int) -> int:
        return x

    assert (render.queue, render.priority) == ("gpu", 3)
    assert render.give_up_on == (KeyError,)
    assert gpu(lambda_free).priority is None


def lambda_free(x: int) -> int:
    return x


def test_defaults_fill_what_a_stage_does_not_say() -> None:
    filled = double.options(queue="gpu").with_defaults({"queue": "slow", "retry": Retry(attempts=1)})

    assert filled.queue == "gpu"
    assert filled.retry == Retry(attempts=1)


def test_a_misspelt_option_of_a_decorator_is_named() -> None:
    with pytest.raises(
        TypeError, match=r"stage has no option 'quue' \(did you mean 'queue'\?\); it has attributes,"
    ):
        stage(quue="gpu")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


def test_a_misspelt_option_of_a_stage_is_named() -> None:
    with pytest.raises(TypeError, match="stage 'double' has no option 'retries'"):
        double.options(retries=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize("thing", [3, int, double, functools.partial(lambda_free, 1)])
def test_only_a_function_becomes_a_stage(thing: Any) -> None:
    with pytest.raises(DefinitionError, match="a stage needs a function, not"):
        stage(thing)


def test_a_function_without_a_name_needs_one() -> None:
    with pytest.raises(DefinitionError, match=r"the name of the stage .*<lambda> is '<lambda>'"):
        stage(lambda: None)


def test_a_config_is_stored_as_json() -> None:
    assert extract.configure(Extraction(dpi=600)).config_text == '{"dpi":600}'


def test_a_config_of_another_type_is_refused() -> None:
    with pytest.raises(
        DefinitionError, match=r"invalid config for stage 'extract': .*expected Extraction, got Model"
    ):
        extract.configure(Model("a"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_a_stage_that_declares_no_config_takes_none() -> None:
    @stage
    def plain(ctx: StageContext, x: int) -> int:
        return x

    with pytest.raises(
        DefinitionError, match=r"has no config; declare it, as in `ctx: StageContext\[MyConfig\]`"
    ):
        plain.configure(None)


def test_a_stage_without_config_gets_the_default_of_its_class() -> None:
    assert extract.with_default_config().config_text == '{"dpi":300}'
    assert limit.with_default_config().config_text == '{"lowest":0,"highest":9}'
    assert choose.with_default_config().config_text == "{}"
    assert double.with_default_config() is double


def test_a_config_that_was_given_is_not_replaced_by_the_default() -> None:
    configured = extract.configure(Extraction(1))

    assert configured.with_default_config() is configured


@pytest.mark.parametrize(
    ("unconfigured", "message"),
    [
        (ask, "stage 'ask' needs a config, because Model does not have a default for every field"),
        (
            need,
            r"because Needed does not have a default for every field \(\$\.name: Field required\): need.configure",
        ),
        (bounded, r"stage 'bounded' needs a config: bounded.configure\(...\), of int"),
    ],
)
def test_a_config_that_cannot_be_made_must_be_given(unconfigured: Stage[Any, object], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        unconfigured.with_default_config()


def test_a_config_is_read_back_from_the_plan() -> None:
    assert extract.read_config('{"dpi":72}') == Extraction(72)
    assert double.read_config(None) is None


def test_each_takes_a_sequence_and_gives_a_list() -> None:
    assert repr(each(double)) == "<each double: Sequence[int] -> list[int]>"


def test_each_refuses_what_is_not_a_stage() -> None:
    with pytest.raises(DefinitionError, match="each takes a stage, not <pipeline p: int -> int>"):
        each(Pipeline("p", input=int))  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("limit", [0, -1, 10_001, True, 1.5])
def test_each_refuses_a_limit_out_of_bounds(limit: Any) -> None:
    with pytest.raises(DefinitionError, match=r"each\(double\): limit is .*; it must be from 1 to 10,000"):
        each(double, limit=limit)


def test_each_refuses_to_go_over_what_is_no_sequence() -> None:
    with pytest.raises(
        DefinitionError, match=r"each\(double, over=join\) takes Sequence\[int\], but 'join' gives str"
    ):
        each(double, over=join)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
