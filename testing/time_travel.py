"""Advancing time in a world: by a duration, until no work is left, or until a run ends."""

import math
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from datetime import timedelta
from typing import Final

from typing_extensions import override

from holdfast.hosts.inspection.why import why_of
from holdfast.hosts.wiring.hint_listener import RunsCallback
from holdfast.hosts.wiring.services import Core
from holdfast.ports.clock import instant, micros
from holdfast.ports.durations import NO_TIME, Duration, wanted_length
from holdfast.ports.errors import InvalidArgumentError
from holdfast.ports.queries.runs import RunsByKey
from holdfast.ports.records.run import TERMINAL, Run
from holdfast.ports.validation import Wanted, check, duration
from holdfast.testing.body_runner import BodyGenerator, InlineBodyRunner
from holdfast.testing.clock import ManualClock
from holdfast.testing.manual_driver import Driver

HORIZON: Final = timedelta(days=366)
"""Maximum time that may pass while a run is awaited: a check that never succeeds would be repeated for ever."""


_NUMBER: Final = Wanted(
    "a number",
    lambda value: isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value),
)


class RunStuckError(AssertionError):
    """A test waits for a run that does not end as time passes. The message explains what the run waits for."""


def time_to_pass(by: Duration | None, days: float, hours: float, minutes: float, seconds: float) -> timedelta:
    """Return the sum of the arguments of `advance`. Raises InvalidArgumentError if it is negative."""
    check("advance", _NUMBER, days=days, hours=hours, minutes=minutes, seconds=seconds)
    first = timedelta() if by is None else duration("advance", "by", by, timedelta.min)
    try:
        time = first + timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    except OverflowError:
        time = timedelta.min
    if time < timedelta():
        raise InvalidArgumentError(
            "by", f"advance: invalid duration {time}; it must be {wanted_length(NO_TIME)}"
        )
    return time


class TimeAdvancer:
    """Advances the clock of a driver. Its methods return generators for a runner of bodies."""

    def __init__(self, driver: Driver, core: Core, clock: ManualClock, horizon: timedelta) -> None:
        self._driver = driver
        self._core = core
        self._clock = clock
        self._horizon = horizon

    def by(self, time: timedelta) -> BodyGenerator[None]:
        """Advance time by a duration that is not negative, and run jobs as they become due."""
        until = self._clock.now() + time
        yield from self._driver.drive(micros(until), lambda: False)
        self._clock.advance(max(timedelta(), until - self._clock.now()))

    def until_quiet(self, within: Duration | None) -> BodyGenerator[None]:
        """Advance time until no job or timer is left but schedules. Raises RunStuckError."""
        passing = self._horizon if within is None else duration("run_until_quiet", "within", within, NO_TIME)
        yield from self._driver.drive(micros(self._clock.now() + passing), lambda: False, for_work=True)
        due = self._driver.next_work()
        if due is not None:
            raise RunStuckError(f"after {passing}, jobs or timers are still left, the next at {instant(due)}")

    def until_ended(self, run: str, timeout: timedelta | None, past: int | None = None) -> BodyGenerator[Run]:
        """Advance time until a run, named by its key, has ended. Raises TimeoutError; without a timeout RunStuckError.

        With `past`, only until its history has a row after that number.
        """

        def is_so() -> bool:
            row = self._row(run)
            return row.status in TERMINAL or (past is not None and row.last_row > past)

        within = self._horizon if timeout is None else timeout
        until = self._clock.now() + within
        yield from self._driver.drive(micros(until), is_so)
        row = self._row(run)
        if is_so():
            return row
        if timeout is not None:
            self._clock.advance(max(timedelta(), until - self._clock.now()))
            raise FutureTimeoutError
        is_endless = self._driver.next_due() is not None
        why = f"after {within}" if is_endless else "and no timer is left that would end it"
        reasons = "".join(f"\n- {reason.text}" for reason in why_of(self._core, row))
        what = "has not ended" if past is None else "has not replied"
        raise RunStuckError(f"run {row.id!r} {what}, {why}:{reasons}")

    def _row(self, run: str) -> Run:
        (row,) = self._core.stores.persistence.read(RunsByKey((run,)))
        return row


class TimeAdvancingListener:
    """A listener that advances time instead of waiting for a run to end."""

    def __init__(self, bodies: InlineBodyRunner) -> None:
        self._bodies = bodies
        self.passing: TimeAdvancer | None = None

    @property
    def waiting(self) -> int:
        """See `HintListener.waiting`: always 0."""
        return 0

    def when_ended(self, run: str, /) -> "Future[Run]":
        """See `HintListener.when_ended`. Time passes when the future's result is requested."""
        passing = self.passing
        assert passing is not None
        return _EndOfRun(lambda timeout: self._bodies.run(passing.until_ended(run, timeout)))

    def when_past(self, run: str, row: int, /) -> "Future[Run]":
        """See `HintListener.when_past`. Time passes when the future's result is requested."""
        passing = self.passing
        assert passing is not None
        return _EndOfRun(lambda timeout: self._bodies.run(passing.until_ended(run, timeout, row)))

    def add_worker(
        self,
        wake: Callable[[], None],
        notify: RunsCallback = lambda _, __: None,
        /,
        *,
        queues: frozenset[str] | None = None,
    ) -> None:
        """See `HintListener.add_worker`. Does nothing: a world runs its jobs itself."""
        del wake, notify, queues

    def remove_worker(self, wake: Callable[[], None], /) -> None:
        """See `HintListener.remove_worker`."""
        del wake

    def close(self) -> None:
        """See `HintListener.close`."""


class _EndOfRun(Future[Run]):
    """A future that advances time when a thread waits for it or a callback is added."""

    def __init__(self, let_pass: Callable[[timedelta | None], Run]) -> None:
        super().__init__()
        self._let_pass = let_pass

    @override
    def result(self, timeout: float | None = None) -> Run:
        if not self.done():
            return self._let_pass(None if timeout is None else timedelta(seconds=timeout))
        return super().result(timeout)

    @override
    def add_done_callback(self, fn: Callable[[Future[Run]], object]) -> None:
        super().add_done_callback(fn)
        try:
            self.set_result(self._let_pass(None))
        except BaseException as error:  # noqa: BLE001  # it is raised by `result`
            self.set_exception(error)
