from datetime import timedelta

from holdfast.adapters.system.ids import ulid_milliseconds
from holdfast.ports.clock import micros
from holdfast.testing.clock import DEFAULT_START, ManualClock
from holdfast.testing.ids import SeededIds


def _drawn(ids: SeededIds, times: int = 100) -> list[str]:
    return [ids.new() for _ in range(times)]


def test_the_same_seed_gives_the_same_ids() -> None:
    assert _drawn(SeededIds(1)) == _drawn(SeededIds(1))


def test_other_seeds_give_other_ids() -> None:
    drawn = [each for seed in range(100) for each in _drawn(SeededIds(seed))]

    assert len(set(drawn)) == 10_000


def test_the_time_is_that_of_the_clock() -> None:
    clock = ManualClock()
    ids = SeededIds(1, clock)
    first = ids.new()
    clock.advance(timedelta(seconds=2))
    second = ids.new()

    start = micros(DEFAULT_START) // 1_000
    assert [start, start + 2_000] == [ulid_milliseconds(first), ulid_milliseconds(second)]


def test_ids_rise_where_the_clock_is_set_back() -> None:
    clock = ManualClock()
    ids = SeededIds(1, clock)
    before = ids.new()
    clock.jump(-timedelta(hours=1))
    behind = _drawn(ids)
    clock.jump(timedelta(hours=2))

    drawn = [before, *behind, ids.new()]
    assert sorted(drawn) == drawn
