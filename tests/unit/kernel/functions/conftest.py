"""A fixture that evicts all functions after each test, as a program does before it ends."""

from collections.abc import Iterator

import pytest

from holdfast.kernel.functions.machine import evict_all


@pytest.fixture(autouse=True)
def evicted() -> Iterator[None]:
    yield
    evict_all()
