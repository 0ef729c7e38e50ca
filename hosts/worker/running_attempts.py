"""The attempts whose bodies run in a worker, and when to send heartbeats for them."""

from collections.abc import Iterable
from typing import Final

import attrs

from holdfast.hosts.worker.machine_protocol import Cancel, Heartbeat
from holdfast.kernel.commands import Attempt

TAKES_MAX: Final = 32
"""How many jobs of one run a worker takes in a row before the run queues again."""
TAKES_SECONDS_MAX: Final = 1.0
"""For how many seconds a worker takes jobs of one run in a row before the run queues again."""


@attrs.frozen
class JobSeries:
    """A series of jobs of one run that a worker takes in a row, each leased by the settle before."""

    since: float
    """When the series started."""
    takes: int = 0
    """How many jobs were taken after the first."""

    def may_continue(self, now: float) -> bool:
        """Return whether the settle of this job may lease the next one."""
        return self.takes < TAKES_MAX and now < self.since + TAKES_SECONDS_MAX

    def next(self) -> "JobSeries":
        """Return the series with one more job."""
        return JobSeries(self.since, self.takes + 1)


@attrs.define
class RunningAttempt:
    """An attempt whose body runs."""

    attempt: Attempt
    since: float
    turn: JobSeries
    cancelled: bool = False
    """Whether it was cancelled: its lease is lost or released, but the body may take long to end."""
    needs_check: bool = False
    """Whether the next heartbeat must include it, because its run may have ended."""


class RunningAttempts:
    """The running attempts of a worker and their heartbeats. `interval` is in seconds."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._running: dict[tuple[str, int], RunningAttempt] = {}
        self._awaiting_answer = False
        self._next_heartbeat = 0.0

    def __len__(self) -> int:
        """Return the number of running bodies."""
        return len(self._running)

    @property
    def held(self) -> tuple[Attempt, ...]:
        """The attempts that are not cancelled."""
        return tuple(job.attempt for job in self._running.values() if not job.cancelled)

    @property
    def next_heartbeat(self) -> float | None:
        """When the next heartbeat is due; None while one is in flight or nothing is held."""
        return None if self._awaiting_answer or not self._holds_any() else self._next_heartbeat

    def start(self, now: float, attempt: Attempt, turn: JobSeries) -> None:
        """Add an attempt that starts now."""
        if not self._running:
            self._next_heartbeat = now + self._interval
        self._running[attempt.job, attempt.epoch] = RunningAttempt(attempt, now, turn)

    def end(self, attempt: Attempt) -> RunningAttempt | None:
        """Remove an attempt that has ended and return it; None if it is unknown."""
        return self._running.pop((attempt.job, attempt.epoch), None)

    def cancel(self, attempts: Iterable[Attempt]) -> list[Cancel]:
        """Cancel those of the attempts that are running and not cancelled yet."""
        cancels: list[Cancel] = []
        for attempt in attempts:
            running = self._running.get((attempt.job, attempt.epoch))
            if running is not None and not running.cancelled:
                running.cancelled = True
                cancels.append(Cancel(attempt))
        return cancels

    def check_soon(self, now: float, runs: frozenset[str]) -> None:
        """Include the attempts of these runs in a heartbeat at once, or once the one in flight is answered."""
        for job in self._running.values():
            if job.attempt.run in runs and not job.cancelled:
                job.needs_check = True
                self._next_heartbeat = min(self._next_heartbeat, now)

    def heartbeat(self, now: float) -> list[Heartbeat]:
        """Return the heartbeat that is due, if any.

        It covers attempts that have run for at least half an interval, which may have been cancelled or have output
        to store, and those whose runs may have ended.
        """
        if self._awaiting_answer or now < self._next_heartbeat or not self._holds_any():
            return []
        self._next_heartbeat = now + self._interval
        oldest = now - self._interval / 2
        due = [
            job
            for job in self._running.values()
            if (job.since <= oldest or job.needs_check) and not job.cancelled
        ]
        if not due:
            return []
        for job in due:
            job.needs_check = False
        self._awaiting_answer = True
        return [Heartbeat(tuple(job.attempt for job in due))]

    def answered(self) -> None:
        """Note that the heartbeat in flight was answered."""
        self._awaiting_answer = False

    def retry_heartbeat(self, at: float) -> None:
        """Schedule the heartbeat that failed for the time `at`."""
        self._awaiting_answer, self._next_heartbeat = False, at

    def _holds_any(self) -> bool:
        return any(not job.cancelled for job in self._running.values())
