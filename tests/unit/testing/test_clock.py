from datetime import UTC, datetime, timedelta, timezone

import pytest

from holdfast.ports.errors import InvalidArgumentError
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.threads import in_threads

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_time_stands_still_until_it_is_told() -> None:
    clock = ManualClock(START)

    assert [clock.now() for _ in range(3)] == [START] * 3
    assert [clock.monotonic() for _ in range(3)] == [0.0] * 3


def test_advancing_moves_both_clocks() -> None:
    clock = ManualClock(START)
    clock.advance(timedelta(hours=1, microseconds=1))

    assert START + timedelta(hours=1, microseconds=1) == clock.now()
    assert clock.monotonic() == 3600.000001


def test_sleeping_advances() -> None:
    clock = ManualClock(START)
    clock.sleep(1.5)

    assert START + timedelta(seconds=1.5) == clock.now()
    assert clock.monotonic() == 1.5


def test_time_passes_by_seconds_too() -> None:
    clock = ManualClock(START)
    clock.advance(90)
    clock.jump(-30)

    assert START + timedelta(seconds=60) == clock.now()
    assert clock.monotonic() == 90.0


@pytest.mark.parametrize("by", [timedelta(hours=1), timedelta(hours=-1)])
def test_a_jump_moves_the_wall_clock_only(by: timedelta) -> None:
    clock = ManualClock(START)
    clock.jump(by)

    assert START + by == clock.now()
    assert clock.monotonic() == 0.0


def test_time_does_not_pass_backwards() -> None:
    clock = ManualClock(START)
    with pytest.raises(InvalidArgumentError, match="not negative"):
        clock.advance(timedelta(seconds=-1))

    assert clock.now() == START


def test_a_start_is_aware_and_is_shown_in_utc() -> None:
    with pytest.raises(InvalidArgumentError, match="aware datetime"):
        ManualClock(datetime(2026, 3, 1))  # noqa: DTZ001
    clock = ManualClock(START.astimezone(timezone(timedelta(hours=5))))

    assert clock.now() == START
    assert UTC is clock.now().tzinfo


def test_no_step_is_lost_between_threads() -> None:
    clock = ManualClock(START)

    def step(_: int) -> None:
        for _ in range(500):
            clock.advance(timedelta(seconds=1))

    in_threads(4, step)

    assert clock.monotonic() == 2_000.0


def test_watchers_are_called_after_each_move_and_may_look_at_the_clock() -> None:
    clock = ManualClock(START)
    seen: list[tuple[datetime, float]] = []
    clock.watch(lambda: seen.append((clock.now(), clock.monotonic())))
    clock.advance(timedelta(seconds=1))
    clock.jump(timedelta(seconds=5))
    clock.sleep(2)

    expected = [(1, 1.0), (6, 1.0), (8, 3.0)]
    assert [(START + timedelta(seconds=wall), passed) for wall, passed in expected] == seen
