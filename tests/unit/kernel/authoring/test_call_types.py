"""The stored form of a call's arguments, with its fast path."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from typing import Annotated

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.kernel.authoring.call_types import CallForm, read_call_form
from holdfast.kernel.values import MAX_DEPTH, encode
from holdfast.ports.errors import DefinitionError, InvalidValueError, UnstorableValueError

ANYTHING = st.recursive(
    st.none() | st.integers() | st.floats() | st.text() | st.binary() | st.booleans(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


class Some(IntEnum):
    """A subclass of int."""

    ONE = 1


def several(number: int, anything: object, a_text: str, length: timedelta) -> None:
    """Take some arguments, which are not in the order of their names."""


def one(anything: object) -> None: ...


def simple(z: int, é: str, flag: bool, nothing: None, count: Annotated[int, "of what"]) -> None:  # noqa: PLC2401
    """Take arguments of simple types, whose names are in sorted order: the fast path."""


def none() -> None: ...


def by_name(number: int, *, text: str = "") -> None: ...


SEVERAL, ONE, NONE, BY_NAME, SIMPLE = (
    read_call_form(function, "it") for function in (several, one, none, by_name, simple)
)


@pytest.mark.slow
@given(
    st.tuples(
        st.integers() | st.booleans() | st.just(10**5_000),
        ANYTHING,
        st.text() | st.integers() | st.sampled_from(("\0", "\ud800", "\\u0000")),
        st.timedeltas() | st.none(),
    )
)
def test_a_call_is_written_or_refused_as_the_object_of_its_arguments(args: tuple[object, ...]) -> None:
    is_written_alike(SEVERAL, *args)


@pytest.mark.parametrize("depth", [1, MAX_DEPTH - 1, MAX_DEPTH])
def test_so_is_one_whose_argument_nests_deeply(depth: int) -> None:
    argument: object = "[" * MAX_DEPTH
    for _ in range(depth):
        argument = [argument]
    is_written_alike(ONE, argument)


@pytest.mark.slow
def test_so_is_one_whose_argument_is_long_or_holds_itself() -> None:
    endless: list[object] = []
    endless.append(endless)
    is_written_alike(ONE, "x" * 17_000_000)
    is_written_alike(ONE, endless)


@given(st.tuples(st.integers(), st.text(), st.booleans(), st.none(), st.integers()))
@example((1, "\ud800", True, None, 2))
@example((10**5_000, "x", True, None, 2))
@example((True, "x", True, None, 2))
@example((Some.ONE, "x", True, None, 2))
@example((1, "x", 1, None, False))
@example((1, None, True, None, 2))
@example((1, "x", True, 0, 2))
def test_so_is_one_of_which_all_arguments_are_simple(args: tuple[object, ...]) -> None:
    is_written_alike(SIMPLE, *args)


def test_a_call_without_arguments_is_an_empty_object() -> None:
    assert NONE.encode((), {}) == "{}"


def test_what_is_left_out_is_written_as_the_default_that_it_has() -> None:
    assert SEVERAL.encode((1, None), {"length": timedelta(0), "a_text": "x"}) == (
        '{"number":1,"anything":null,"a_text":"x","length":0}'
    )
    assert BY_NAME.encode((1,), {}) == '{"text":"","number":1}'
    assert BY_NAME.encode_given((1,), {}) == '{"number":1}'
    assert BY_NAME.encode((1,), {"text": "x"}) == '{"text":"x","number":1}'
    with pytest.raises(TypeError):
        ONE.encode((1, 2), {})


def test_what_was_stored_without_a_default_can_still_be_called() -> None:
    args, kwargs = BY_NAME.arguments_from('{"number":1}')
    assert by_name(*args, **kwargs) is None  # type: ignore[func-returns-value]
    assert BY_NAME.reencode('{"number":1}') == '{"text":"","number":1}'


def test_a_default_that_can_change_is_refused() -> None:
    @dataclass
    class Options:
        depth: int = 1

    def of_list(names: list[str] = []) -> None: ...  # noqa: B006
    def of_dict(names: dict[str, int] = {}) -> None: ...  # noqa: B006
    def of_set(names: set[int] = set()) -> None: ...  # noqa: B006
    def of_class(options: Options = Options()) -> None: ...  # noqa: B008

    for function in (of_list, of_dict, of_set, of_class):
        with pytest.raises(
            DefinitionError, match=r"it: parameter '\w+' has a default that can be changed.*= None"
        ):
            read_call_form(function, "it")


def test_a_default_that_is_not_of_its_type_or_cannot_be_stored_is_refused() -> None:
    def of_none(name: str = None) -> None: ...  # type: ignore[assignment]  # pyright: ignore[reportArgumentType]  # noqa: RUF013
    def of_nan(size: float = float("nan")) -> None: ...

    for function in (of_none, of_nan):
        with pytest.raises(DefinitionError, match="has a default that can't be stored"):
            read_call_form(function, "it")


def test_defaults_that_do_not_change_are_taken() -> None:
    def several(
        a: int = 1, b: tuple[int, ...] = (), c: str | None = None, *rest: int, **more: int
    ) -> None: ...

    form = read_call_form(several, "it")
    assert form.encode((), {}) == '{"a":1,"b":[],"c":null}'
    assert form.encode((2, (3,), "x", 4), {"y": 5}) == '{"a":2,"b":[3],"c":"x","rest":[4],"more":{"y":5}}'


def is_written_alike(form: CallForm, *args: object) -> None:
    def usual() -> str:
        return encode(form.bind(args, {}), form.arguments)

    assert written(lambda: form.encode(args, {})) == written(usual)


def written(write: Callable[[], str]) -> str:
    try:
        return write()
    except (InvalidValueError, UnstorableValueError) as error:
        return f"{type(error).__name__}: {error}"
