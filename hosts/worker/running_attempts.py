"""The attempts whose bodies run in a worker, and when to ask whether they are still held."""

from collections.abc import Iterable
from typing import Final

import attrs

from holdfast.hosts.worker.machine_protocol import Cancel, Heartbeat
from holdfast.kernel.commands import Attempt

TAKES_MAX: Final = 32
TAKES_SECONDS_MAX: Final = 1.0
"""How often in a row, and for how long, jobs of one run are taken on before those that queue get their turn."""


@attrs.frozen
class Turn:
    """Jobs of one run in a row: since when, and how many were taken on."""

    since: float
    takes: int = 0

    def may_go_on(self, now: float) -> bool:
        """Return whether one more may be taken on."""
        return self.takes < TAKES_MAX and now < self.since + TAKES_SECONDS_MAX

    def next(self) -> "Turn":
        """Return it with one more taken on."""
        return Turn(self.since, self.takes + 1)


@attrs.define
class Running:
    """An attempt whose body runs. One that is `cancelled` is held no more, but its body may take long to end."""

    attempt: Attempt
    since: float
    turn: Turn
    cancelled: bool = False
    doubted: bool = False


class RunningAttempts:
    """The bodies that run, and the heartbeats that ask about them. `interval` is in seconds."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._running: dict[tuple[str, int], Running] = {}
        self._awaiting_answer = False
        self._next_heartbeat = 0.0

    def __len__(self) -> int:
        """How many bodies run."""
        return len(self._running)

    @property
    def held(self) -> tuple[Attempt, ...]:
        """Those that are not cancelled."""
        return tuple(job.attempt for job in self._running.values() if not job.cancelled)

    @property
    def next_heartbeat(self) -> float | None:
        """When to ask about them; None while that is not known."""
        return None if self._awaiting_answer or not self._holds_any() else self._next_heartbeat

    def start(self, now: float, attempt: Attempt, turn: Turn) -> None:
        """Add one that starts now."""
        if not self._running:
            self._next_heartbeat = now + self._interval
        self._running[attempt.job, attempt.epoch] = Running(attempt, now, turn)

    def end(self, attempt: Attempt) -> Running | None:
        """Take one away that has ended, and return it; None if it was not there."""
        return self._running.pop((attempt.job, attempt.epoch), None)

    def cancel(self, attempts: Iterable[Attempt]) -> list[Cancel]:
        """Cancel those that run and are not cancelled yet."""
        cancels: list[Cancel] = []
        for attempt in attempts:
            running = self._running.get((attempt.job, attempt.epoch))
            if running is not None and not running.cancelled:
                running.cancelled = True
                cancels.append(Cancel(attempt))
        return cancels

    def doubt(self, now: float, runs: frozenset[str]) -> None:
        """Have bodies of these runs asked about at once, or as soon as what was asked before is answered."""
        for job in self._running.values():
            if job.attempt.run in runs and not job.cancelled:
                job.doubted = True
                self._next_heartbeat = min(self._next_heartbeat, now)

    def heartbeat(self, now: float) -> list[Heartbeat]:
        """Ask about bodies that have run for a while: they may have been cancelled, or have something to say.

        And about those of runs that are said to have ended.
        """
        if self._awaiting_answer or now < self._next_heartbeat or not self._holds_any():
            return []
        self._next_heartbeat = now + self._interval
        oldest = now - self._interval / 2
        due = [
            job
            for job in self._running.values()
            if (job.since <= oldest or job.doubted) and not job.cancelled
        ]
        if not due:
            return []
        for job in due:
            job.doubted = False
        self._awaiting_answer = True
        return [Heartbeat(tuple(job.attempt for job in due))]

    def answered(self) -> None:
        """Note that what was asked has been answered."""
        self._awaiting_answer = False

    def retry_heartbeat(self, at: float) -> None:
        """Note that what was asked will not be answered; it is to be asked again then."""
        self._awaiting_answer, self._next_heartbeat = False, at

    def _holds_any(self) -> bool:
        return any(not job.cancelled for job in self._running.values())
