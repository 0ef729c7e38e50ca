"""Recorded errors come back with the fields that handlers read, without running code of their class."""

import asyncio
import dataclasses
import enum
import http
import json
import subprocess
import urllib.error
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Self
from uuid import UUID

import attrs
import pydantic
import pytest
from typing_extensions import override

from holdfast.kernel.history.exceptions import error_from, error_words, message_of, raised_from
from holdfast.ports.errors import RetryAfter, StepFailedError


class HolderError(Exception):
    def __init__(self, held: Any) -> None:
        super().__init__("it holds")
        self.held = held


class KeywordedError(Exception):
    def __init__(self, *, code: int, after: timedelta) -> None:
        super().__init__()
        self.code = code
        self.after = after

    @override
    def __str__(self) -> str:
        return f"again in {self.after}"


class SlottedError(Exception):
    __slots__ = ("__own", "_inner", "never", "outer")

    def __init__(self, outer: int) -> None:
        super().__init__("slots")
        self.outer = outer
        self._inner = (outer,)
        self.__own = {outer}

    @property
    def own(self) -> set[int]:
        return self.__own


class DeeperError(SlottedError):
    pass


@attrs.define
class WithAttrsError(Exception):
    code: int
    at: datetime


@attrs.frozen
class FrozenAttrsError(Exception):
    code: int


@dataclasses.dataclass(frozen=True)
class FrozenDataError(Exception):
    code: int
    detail: dict[int, str] = dataclasses.field(kw_only=True)


class GuardedError(Exception):
    """Runs user code for every operation except reading attributes."""

    ran: list[str] = []  # noqa: RUF012  # it is what all of them have run

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.__dict__["code"] = code
        self.__dict__["level"] = code
        self.ran.append("__init__")

    def __new__(cls, code: int) -> "GuardedError":  # noqa: PYI034  # it is final enough
        cls.ran.append("__new__")
        return super().__new__(cls, code)

    @override
    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise RuntimeError("user code")

    def _level(self) -> int:
        return int(self.__dict__["level"])

    def _set_level(self, level: int) -> NoReturn:
        raise RuntimeError("user code")

    level = property(_level, _set_level)


class Flags(enum.Flag):
    A = 1
    B = 2


class Pair(NamedTuple):
    a: int
    b: tuple[int, ...]


@attrs.frozen
class Part:
    pairs: list[Pair]

    def __attrs_post_init__(self) -> None:
        assert self.pairs, "user code"


class Model(pydantic.BaseModel):
    number: int
    names: list[str] = []

    @pydantic.field_validator("names")
    @classmethod
    def no_braces(cls, names: list[str]) -> list[str]:
        if "x" in names:
            raise ValueError("no {x} here")
        return names


def caught(function: Callable[[], object]) -> BaseException:
    try:
        function()
    except BaseException as error:  # noqa: BLE001  # that is what it is for
        return error
    raise AssertionError("it raises nothing")


def _chained() -> None:
    try:
        try:
            raise HolderError(1)
        except HolderError as error:
            raise KeyError("second") from error
    except KeyError:
        raise ValueError("third") from None


def back_from(error: BaseException) -> Any:
    return error_from(raised_from(error))


ERRORS: list[BaseException] = [
    KeywordedError(code=5, after=timedelta(seconds=30)),
    DeeperError(3),
    WithAttrsError(7, datetime(2026, 1, 1, tzinfo=UTC)),
    FrozenAttrsError(7),
    FrozenDataError(7, detail={1: "a"}),
    GuardedError(3),
    RetryAfter(timedelta(seconds=4)),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    UnicodeEncodeError("ascii", "é", 0, 1, "no"),
    UnicodeTranslateError("é", 0, 1, "no"),
    caught(lambda: compile("a b", "file.py", "exec")),
    ModuleNotFoundError("no x", name="x", path="/p"),
    FileNotFoundError(2, "no such file", "x.txt"),
    OSError(5, "a", "b", None, "c"),
    KeyError("k"),
    caught(lambda: getattr(3, "missing")),  # noqa: B009  # that is what raises it
    subprocess.CalledProcessError(2, ["a", "b"], b"out", b"err"),
    subprocess.TimeoutExpired("c", 3.5, b"out"),
    caught(lambda: json.loads("{")),
    asyncio.IncompleteReadError(b"ab", 5),
    asyncio.LimitOverrunError("m", 3),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda one: type(one).__name__)
def test_an_error_comes_back_with_all_that_it_holds(error: BaseException) -> None:
    back = back_from(error)

    assert type(back) is type(error)
    assert (str(back), repr(back)) == (str(error), repr(error))
    assert vars(back) == vars(error)
    names = [
        name for name in dir(error) if not name.startswith("__") and not callable(getattr(error, name, None))
    ]
    assert {name: getattr(back, name) for name in names if hasattr(error, name)} == {
        name: getattr(error, name) for name in names if hasattr(error, name)
    }


@pytest.mark.parametrize(
    "held",
    [
        http.HTTPStatus.NOT_FOUND,
        Flags.A | Flags.B,
        Flags(0),
        timedelta(1),
        datetime(2026, 1, 1, tzinfo=UTC),
        Decimal("1.0"),
        UUID(int=1),
        Path("a"),
        b"\xff",
        (1, {2, 3}, frozenset({"a"})),
        {"b": 1, "a": {(1, 2): [None, True, 1.5]}},
        {"$": 1},
        float("inf"),
        Part([Pair(1, (2,))]),
        Model(number=1),
        "\0\ud800",
    ],
    ids=str,
)
def test_an_error_keeps_what_is_not_plain_json(held: object) -> None:
    back = back_from(HolderError(held)).held

    assert type(back) is type(held)
    assert repr(back) == repr(held)
    assert back == held


def test_no_code_of_its_class_runs() -> None:
    raised = raised_from(GuardedError(3))
    GuardedError.ran.clear()

    back = error_from(raised)

    assert isinstance(back, GuardedError)
    assert (vars(back), GuardedError.ran) == ({"code": 3, "level": 3}, [])


def test_a_validation_error_says_the_same() -> None:
    error = caught(lambda: Model(number="q", names=["x"]))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert isinstance(error, pydantic.ValidationError)

    back = back_from(error)

    assert isinstance(back, pydantic.ValidationError)
    assert (back.title, back.error_count(), str(back)) == ("Model", 2, str(error))
    for mine, its in zip(back.errors(), error.errors(), strict=True):
        context = mine.pop("ctx", {}), its.pop("ctx", {})
        assert repr(context[0]) == repr(context[1])
        assert mine == its


def test_causes_contexts_and_notes_are_kept() -> None:
    error = caught(_chained)
    error.add_note("a note")

    back = back_from(error)

    assert (back.__cause__, back.__suppress_context__, back.__notes__) == (None, True, ["a note"])
    second = back.__context__
    assert isinstance(second, KeyError)
    assert second.__cause__ is second.__context__
    assert isinstance(second.__cause__, HolderError)
    assert second.__cause__.held == 1


def test_causes_that_go_round_and_holders_of_themselves_end() -> None:
    first, second = ValueError("first"), HolderError(None)
    first.__cause__, second.__cause__, second.held = second, first, second

    back = back_from(first)

    assert isinstance(back.__cause__, HolderError)
    assert isinstance(back.__cause__.held, HolderError)


def test_a_long_chain_is_cut() -> None:
    error: Exception = ValueError(0)
    for number in range(1, 100):
        after = ValueError(number)
        after.__cause__ = error
        error = after

    found, back = 0, back_from(error)
    while back is not None:
        found, back = found + 1, back.__cause__
    assert found == 9


def test_a_group_comes_back_with_its_errors() -> None:
    inner = ExceptionGroup("inner", [KeyError("c"), KeywordedError(code=4, after=timedelta(1))])
    error = ExceptionGroup("outer", [ValueError("a"), inner])

    back = back_from(error)

    assert type(back) is ExceptionGroup
    assert repr(back) == repr(error)
    matched, rest = back.split(KeywordedError)
    assert matched is not None
    assert rest is not None
    assert matched.exceptions[0].exceptions[0].code == 4  # type: ignore[union-attr]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    shown = ""
    with suppress(ExceptionGroup):
        try:
            raise back
        except* KeyError as found:
            shown = repr(found.exceptions[0])
    assert shown == "ExceptionGroup('inner', [KeyError('c')])"


class Team(ExceptionGroup[Exception]):
    def __new__(cls, name: str, errors: list[Exception]) -> Self:  # pyright: ignore[reportInconsistentConstructor]
        raise RuntimeError("user code")


def test_a_group_of_a_class_of_its_own_comes_back() -> None:
    error = ExceptionGroup.__new__(Team, "team", [ValueError("a")])
    error.name = "red"  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]

    back = back_from(error)

    assert (type(back), back.name, repr(back.exceptions)) == (Team, "red", "(ValueError('a'),)")


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (SystemExit(3), "SystemExit(3)"),
        (KeyboardInterrupt(), "KeyboardInterrupt()"),
        (asyncio.CancelledError("x"), "CancelledError('x')"),
        (StopIteration(5), "StopIteration(5)"),
        (BaseExceptionGroup("b", [SystemExit(1)]), "BaseExceptionGroup('b', [SystemExit(1)])"),
    ],
)
def test_what_a_function_can_not_be_given_is_the_cause_of_what_says_so(
    error: BaseException, cause: str
) -> None:
    back = back_from(error)

    assert isinstance(back, StepFailedError)
    assert "(known, but " in str(back)
    assert repr(back.__cause__) == cause


def test_what_can_not_be_made_again_says_so() -> None:
    gone = attrs.evolve(raised_from(ValueError("x")), type="shop.gone.NoSuchError")
    bare = attrs.evolve(raised_from(ExceptionGroup("g", [ValueError("x")])), arguments=None)

    assert str(error_from(gone)) == "shop.gone.NoSuchError: x"
    assert str(error_from(bare)) == (
        "ExceptionGroup: ValueError: x (1 of 1 in group 'g') (known, but its attributes were not stored)"
    )


def test_what_an_error_held_and_is_not_kept_says_so_when_it_is_read() -> None:
    class Response:
        status_code = 404

    error = HolderError(Response())
    error.args = (Response(), "x")

    back = back_from(error)

    assert str(back.held) == repr(error.held)
    assert back.args == (repr(error.args[0]), "x")
    with pytest.raises(
        AttributeError, match=r"'status_code' of the Response .* can't be read: it was not kept"
    ):
        _ = back.held.status_code


def test_what_an_http_error_has_is_kept_but_for_its_connection() -> None:
    back = back_from(urllib.error.HTTPError("http://x", 404, "not there", {}, None))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    assert (back.code, back.reason, back.url, str(back)) == (
        404,
        "not there",
        "http://x",
        "HTTP Error 404: not there",
    )


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x" * 100_000),
        HolderError({str(number): "y" * 5_000 for number in range(50)}),
        HolderError([[number] for number in range(100_000)]),
        HolderError(10**10_000),
        UnicodeDecodeError("utf-8", b"x" * 100_000, 3, 4, "no"),
        caught(lambda: json.loads("[" + "1," * 50_000)),
        ExceptionGroup("many", [ValueError(number) for number in range(2_000)]),
    ],
    ids=lambda one: type(one).__name__,
)
def test_what_is_large_is_cut(error: BaseException) -> None:
    raised = raised_from(error)
    back = error_from(raised)

    assert len(raised.arguments or "") <= 16_384
    assert type(back) in (type(error), StepFailedError)
    assert str(back)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            ExceptionGroup("unhandled errors in a TaskGroup", [ValueError("card declined"), KeyError("k")]),
            "ValueError: card declined (1 of 2 in a TaskGroup); KeyError: 'k' (2 of 2)",
        ),
        (
            ExceptionGroup("several", [ExceptionGroup("unhandled errors in a TaskGroup", [ValueError("a")])]),
            "ValueError: a (1 of 1 in group 'several')",
        ),
        (
            BaseExceptionGroup("several", [ValueError(number) for number in range(7)]),
            (
                "ValueError: 0 (1 of 7 in group 'several'); ValueError: 1 (2 of 7); ValueError: 2 (3 of 7);"
                " ValueError: 3 (4 of 7); ValueError: 4 (5 of 7); and 2 more"
            ),
        ),
    ],
)
def test_a_group_is_told_by_its_errors(error: BaseException, message: str) -> None:
    assert message_of(error) == message
    assert error_words(error) == f"{type(error).__name__}: {message}"
    assert raised_from(error).message == message
