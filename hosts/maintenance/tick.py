"""What has to be done for all: wake, reap, expire, admit, repair. Any host may do it, as often as it likes."""

import logging
from datetime import timedelta
from typing import Final

import attrs

from holdfast.hosts.maintenance.blocked_runs import BlockedRunResumer
from holdfast.hosts.maintenance.retention import Retention
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.commands import (
    JobAdmit,
    JobReapSilent,
    JobsAdmitted,
    JobsWoken,
    JobWakeDue,
    LeaderAcquire,
    LeaseReapStale,
    LeasesReaped,
    RunClaimPending,
    RunExpire,
    RunRepair,
    RunRepaired,
    RunsAdmitted,
    RunsExpired,
    SessionReap,
    SilentReaped,
)
from holdfast.ports.clock import micros
from holdfast.ports.errors import CommandError
from holdfast.ports.records import Micros

LEADER_LEASE: Final = "maintenance"
WAKE_LIMIT: Final = 500
REAP_LIMIT: Final = 500
EXPIRE_LIMIT: Final = 500
ADMIT_LIMIT: Final = 500
"""Also how many concurrency keys are looked at in a round; the next one goes on from there."""
REPAIR_LIMIT: Final = 500
PRUNE_INTERVAL: Final = 600.0
LEADER_SECONDS_MAX: Final = 15.0
"""How long a worker that is lost with the duty keeps others from doing it, however long its lease is."""

KEPT_FOR: Final[Micros] = 7 * 86_400_000_000
"""How long a command with an idempotency key can be repeated and get the same reply."""

_log = logging.getLogger("holdfast.maintenance")


@attrs.frozen(kw_only=True)
class Tick:
    """What a round of maintenance did.

    Attributes:
        woken: Sleeping jobs that were due and are queued now.
        sessions: Sessions that were declared dead.
        freed: Jobs of dead sessions that can be claimed again.
        dead: Jobs of dead sessions that had no attempt left; their runs have failed.
        silent: Attempts that were taken for lost because their bodies gave no heartbeat in time.
        expired: Runs that have failed because their deadline had passed.
        admitted: Pending runs that have begun: their time had come, or there was a slot.
        queued: Jobs of stages with `max_concurrency` that got their turn.
        repaired: Ids of runs that lacked jobs and got them back: none, ever, without a fault.
        told: Ends of runs that others were told of, who wait for them or are their children.
        reminded: Queued jobs that a serverless host has announced again, because their messages may have been lost.
        events: Events that a serverless host has brought to its sinks.
        wakes_at: When there is room again under rate limits: jobs sleep until then. Microseconds since 1970.
        more: Whether there may be more of the same to do at once.
    """

    woken: int
    sessions: int
    freed: int
    dead: int
    repaired: tuple[str, ...]
    silent: int = 0
    told: int = 0
    reminded: int = 0
    expired: int = 0
    admitted: int = 0
    queued: int = 0
    events: int = 0
    wakes_at: tuple[Micros, ...] = ()
    more: bool


class Maintenance:
    """Rounds of maintenance. Keeps no truth: only who has the duty, and where repair goes on."""

    def __init__(self, core: Core, *, lease: float, retention: timedelta | None = None) -> None:
        """`retention` is how long runs are kept that have ended; None: until somebody removes them."""
        self._core = core
        self._retention = (
            None if retention is None else Retention(core, retention // timedelta(microseconds=1))
        )
        # Whoever has the duty may be the worker that is lost: it must not keep it for longer than its session lasts.
        self._lease = min(lease, LEADER_SECONDS_MAX)
        self._whole_lease = lease
        self._grace = round(lease / 10 * 1_000_000)
        self._clock_age_max = lease / 3
        self._leader_until = 0.0
        self._repair_after = ""
        self._runs_after = ""
        self._jobs_after = ""
        self._prune_at = 0.0
        self._resumer = BlockedRunResumer(core)

    def sweep(self, session: str) -> tuple[bool, tuple[Micros, ...]]:
        """Do a round if this session has the duty. What is blocked for want of code is looked at by each that has code.

        Return whether another should follow at once, and when jobs wake that wait under rate limits.
        """
        self.resume_blocked()
        if not self._is_leader(session):
            return False, ()
        tick = self.tick()
        return self.prune() or tick.more, tick.wakes_at

    def resign(self, session: str) -> None:
        """Leave the duty to others at once, if this session has it."""
        if self._core.clock.monotonic() < self._leader_until:
            self._leader_until = 0.0
            self._take(session, lease=0.0)

    def prune(self) -> bool:
        """Every ten minutes, remove what is no longer kept. Return whether there may be more of it.

        Those are replies to idempotency keys, and dead sessions, that are older than a week; and runs.
        """
        now = self._core.clock.monotonic()
        if now < self._prune_at:
            return False
        more = self._retention is not None and self._retention.sweep()
        if not more:
            self._prune_at = now + PRUNE_INTERVAL
            self._core.stores.persistence.prune(micros(self._core.clock.now()) - KEPT_FOR)
        return more

    def resume_blocked(self) -> tuple[str, ...]:
        """Once a minute, have runs go on that were blocked, and that the code which is here fits. Return their ids."""
        return self._resumer.round()

    def tick(self) -> Tick:
        """Do a round, whoever has the duty.

        The clock is synced first if it was not for a third of a lease, or has stepped since.
        """
        self._core.trust_clock(self._clock_age_max)
        for_sessions, for_silence = self._graces()
        answers = self._core.kernel.dispatch_many(
            (
                JobWakeDue(limit=WAKE_LIMIT),
                SessionReap(grace=for_sessions),
                LeaseReapStale(limit=REAP_LIMIT),
                JobReapSilent(grace=for_silence, limit=REAP_LIMIT),
                RunExpire(limit=EXPIRE_LIMIT),
                RunClaimPending(after=self._runs_after, limit=ADMIT_LIMIT),
                JobAdmit(after=self._jobs_after, limit=ADMIT_LIMIT),
                RunRepair(after=self._repair_after, limit=REPAIR_LIMIT),
            )
        )
        for answer in answers:
            if isinstance(answer, CommandError):
                raise answer
        woken, reaped, freed, overdue, expired, runs, jobs, repaired = answers
        assert isinstance(woken, JobsWoken)
        assert isinstance(reaped, LeasesReaped)
        assert isinstance(freed, LeasesReaped)
        assert isinstance(overdue, SilentReaped)
        assert isinstance(expired, RunsExpired)
        assert isinstance(runs, RunsAdmitted)
        assert isinstance(jobs, JobsAdmitted)
        assert isinstance(repaired, RunRepaired)
        self._repair_after = repaired.next or ""
        self._runs_after, self._jobs_after = runs.next or "", jobs.next or ""
        # What this round has freed, was searched for before it was free.
        wakes_at = (*jobs.wakes_at, *self._core.follow_up(woken, expired, runs))
        if repaired.repaired:
            _log.error("runs lacked jobs and got them back: %s", ", ".join(repaired.repaired))
        if freed.dead:
            _log.warning("%s jobs of lost workers had no attempt left: their runs have failed", freed.dead)
        if overdue.freed or overdue.dead:
            _log.warning("%s attempts gave no heartbeat in time: they are lost", overdue.freed + overdue.dead)
        return Tick(
            woken=woken.woken,
            sessions=reaped.sessions,
            freed=freed.freed,
            dead=freed.dead,
            expired=expired.expired,
            admitted=runs.admitted,
            queued=jobs.admitted,
            repaired=repaired.repaired,
            wakes_at=wakes_at,
            silent=overdue.freed + overdue.dead,
            told=self._core.deliver_ends() if repaired.has_deliveries else 0,
            # The jobs of sessions that this round declared dead are freed by the next one, and so are the slots of
            # what it has ended.
            more=woken.woken >= WAKE_LIMIT
            or reaped.sessions > 0
            or freed.freed + freed.dead >= REAP_LIMIT
            or freed.dead > 0
            or overdue.freed + overdue.dead >= REAP_LIMIT
            or overdue.dead > 0
            or expired.more
            or runs.more
            or jobs.more,
        )

    def _graces(self) -> tuple[Micros, Micros]:
        """Return how long ago a session must have expired, and a heartbeat have been due, to be given up.

        Where the store's clock is that of machines, and has just been set forward, all that was written before looks
        older than it is: for sessions until all that live have been renewed, for heartbeats as long as that may matter.
        """
        step = self._core.clock.step
        if step is None or step.by < 0:
            return self._grace, self._grace
        more = self._grace + round(step.by * 1_000_000)
        return (
            more if step.ago <= self._whole_lease else self._grace,
            more if step.ago <= max(step.by, self._whole_lease) else self._grace,
        )

    def _is_leader(self, session: str) -> bool:
        now = self._core.clock.monotonic()
        if now < self._leader_until - self._lease / 3:
            return True
        taken = self._take(session, lease=self._lease)
        self._leader_until = now + self._lease if taken else 0.0
        return taken

    def _take(self, session: str, *, lease: float) -> bool:
        command = LeaderAcquire(
            namespace=self._core.namespace, name=LEADER_LEASE, session=session, lease=round(lease * 1_000_000)
        )
        return self._core.kernel.dispatch(command).taken
