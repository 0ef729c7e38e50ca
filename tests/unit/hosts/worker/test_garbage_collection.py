"""A worker that owns its process makes garbage collections rare, and restores the settings."""

import gc
from collections.abc import Generator

import anyio
import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.worker.garbage_collection import YOUNG_MAX, collecting_seldom
from holdfast.hosts.worker.worker import Worker

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _usual() -> Generator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    gc.unfreeze()  # the tests of this process have put theirs away
    yield
    gc.enable()
    gc.set_threshold(*before)


def test_it_looks_seldom_and_not_among_what_was_there_before() -> None:
    with collecting_seldom():
        assert gc.get_threshold()[0] == YOUNG_MAX
        assert gc.get_freeze_count() > 0

    assert gc.get_threshold()[0] == 700
    assert gc.get_freeze_count() == 0


def test_it_goes_back_to_what_it_was_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), collecting_seldom():
        raise ZeroDivisionError

    assert gc.get_threshold()[0] == 700


@pytest.mark.parametrize("young", [0, YOUNG_MAX, 10 * YOUNG_MAX])
def test_who_looks_more_seldom_or_never_is_left_to_it(young: int) -> None:
    gc.set_threshold(young, 10, 10)

    with collecting_seldom():
        assert gc.get_threshold()[0] == young
        assert gc.get_freeze_count() == 0


def test_who_has_switched_it_off_is_left_to_it() -> None:
    gc.disable()

    with collecting_seldom():
        assert gc.get_threshold()[0] == 700


def test_a_worker_does_so_while_it_owns_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def run(_: object) -> None:
        seen.append(gc.get_threshold()[0])

    monkeypatch.setattr(anyio, "run", run)

    Worker(Engine.open("memory://")).run()

    assert seen == [YOUNG_MAX]
