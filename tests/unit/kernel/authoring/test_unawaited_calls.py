"""Errors about values that are calls without `await` say so, and name what was called."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine

import attrs
import pytest

from holdfast import step, workflow
from holdfast.kernel.values import encode
from holdfast.ports.errors import InvalidValueError, UnstorableValueError


@attrs.frozen
class Page:
    text: str


@step(name="ocr")
async def read(number: int) -> Page:
    return Page(str(number))


@workflow
async def scan(number: int) -> Page:
    return await read(number)


async def helper() -> int:
    return 1


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (int, "$: expected int, got a call of 'ocr' that was not awaited"),
        (Page, "$: expected Page, got a call of 'ocr' that was not awaited"),
        (list[int], "$: expected list[int], got a call of 'ocr' that was not awaited"),
        (object, "$: expected plain JSON, got a call of 'ocr' that was not awaited"),
    ],
)
def test_of_a_step(form: object, expected: str) -> None:
    call = read(1)
    with pytest.raises((InvalidValueError, UnstorableValueError)) as caught:
        encode(call, form)
    call.close()
    assert expected in str(caught.value)


async def _future() -> Awaitable[int]:
    return asyncio.get_running_loop().create_future()


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (helper, "a call of 'helper' that was not awaited"),
        (lambda: scan(1), "Call, not awaited"),
        (lambda: asyncio.run(_future()), "Future, not awaited"),
        (lambda: Page("a"), "Page"),
    ],
)
def test_of_anything_else(make: Callable[[], object], expected: str) -> None:
    value = make()
    with pytest.raises(InvalidValueError, match=f"expected int, got {expected}$"):
        encode(value, int)
    if isinstance(value, Coroutine):
        value.close()
