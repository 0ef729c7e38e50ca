"""After each test all functions are taken out of memory, as a program does before it ends."""

from collections.abc import Iterator

import pytest

from holdfast.kernel.functions.machine import evict_all


@pytest.fixture(autouse=True)
def evicted() -> Iterator[None]:
    yield
    evict_all()
