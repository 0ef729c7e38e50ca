"""The maintenance tick: wakes sleeping jobs, reaps dead sessions, expires deadlines, admits waiting runs, repairs.

Any host may run it, as often as it likes.
"""

import logging
from datetime import timedelta
from typing import Final

import attrs

from holdfast.hosts.execution.dispatcher import Dispatcher
from holdfast.hosts.execution.trigger_firer import TriggerFirer
from holdfast.hosts.maintenance.blocked_runs import BlockedRunResumer
from holdfast.hosts.maintenance.retention import Retention
from holdfast.hosts.maintenance.schedules import ScheduleFirer
from holdfast.hosts.maintenance.topics import TopicSweeper
from holdfast.hosts.text import counted
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.commands import (
    JobAdmit,
    JobReapUnresponsive,
    JobsAdmitted,
    JobsWoken,
    JobWakeDue,
    LeaderAcquire,
    LeaderAcquired,
    LeaseReapStale,
    LeasesReaped,
    RunClaimPending,
    RunExpire,
    RunRepair,
    RunRepaired,
    RunsAdmitted,
    RunsExpired,
    SessionReap,
    TopicDelivered,
    UnresponsiveReaped,
)
from holdfast.ports.clock import micros
from holdfast.ports.errors import CommandError
from holdfast.ports.records.values import Micros

LEADER_LEASE: Final = "maintenance"
WAKE_LIMIT: Final = 500
REAP_LIMIT: Final = 500
EXPIRE_LIMIT: Final = 500
ADMIT_LIMIT: Final = 500
"""The maximum number of runs or jobs admitted in a tick, and of concurrency keys checked."""
REPAIR_LIMIT: Final = 500
PRUNE_INTERVAL: Final = 600.0
"""Seconds between two prunings."""
LEADER_SECONDS_MAX: Final = 15.0
"""The maximum length of the leader lease in seconds: how long a dead leader can delay maintenance."""

KEPT_FOR: Final[Micros] = 7 * 86_400_000_000
"""How long a command with an idempotency key can be repeated with the same reply, in microseconds."""

_log = logging.getLogger("holdfast.maintenance")


@attrs.frozen(kw_only=True)
class Tick:
    """The result of a maintenance tick.

    Attributes:
        woken: Sleeping jobs that were due and are now queued.
        sessions: Sessions declared dead.
        freed: Jobs of dead sessions that can be claimed again.
        dead: Jobs of dead sessions without an attempt left; their runs have failed.
        repaired: Ids of runs that lacked jobs and got them back. Always empty unless there is a bug.
        heartbeat_timeouts: Attempts that are lost because their bodies sent no heartbeat in time.
        delivered: Ends of runs delivered to parents or child runs.
        published: Messages of topics delivered to subscribers.
        reminded: Queued jobs that a serverless host announced again, because their messages may be lost.
        expired: Runs that failed because their deadline passed.
        admitted: Pending runs that started: their `start_at` came, or they got a slot.
        queued: Jobs under `max_concurrency` that got a slot.
        events: Events that a serverless host delivered to its sinks.
        scheduled: Runs that schedules started.
        wakes_at: When rate limits next allow a start, and the next schedule is due. Microseconds since 1970.
        more: Whether another tick should follow at once.
    """

    woken: int
    sessions: int
    freed: int
    dead: int
    repaired: tuple[str, ...]
    heartbeat_timeouts: int = 0
    delivered: int = 0
    published: int = 0
    reminded: int = 0
    expired: int = 0
    admitted: int = 0
    queued: int = 0
    events: int = 0
    scheduled: int = 0
    wakes_at: tuple[Micros, ...] = ()
    more: bool

    def followed_by(self, later: "Tick") -> "Tick":
        """Return what this tick and a later one did together."""
        names = [field.name for field in attrs.fields(Tick) if field.name != "more"]
        return attrs.evolve(later, **{name: getattr(self, name) + getattr(later, name) for name in names})


class Maintenance:
    """Runs maintenance. Its state is only positions and the leader lease, so losing it does no harm."""

    def __init__(self, core: Core, *, lease: float, retention: timedelta | None = None) -> None:
        """`lease` is the session lease in seconds; `retention` how long ended runs are kept, None for ever."""
        self._core = core
        self._dispatcher = Dispatcher(core)
        self._retention = (
            None if retention is None else Retention(core, retention // timedelta(microseconds=1))
        )
        # The leader may be the worker that dies: it must not stay leader longer than its session lasts.
        self._lease = min(lease, LEADER_SECONDS_MAX)
        self._whole_lease = lease
        self._grace = round(lease / 10 * 1_000_000)
        self._clock_age_max = lease / 3
        self._leader_until = 0.0
        self._repair_after = ""
        self._runs_after = ""
        self._jobs_after = ""
        self._prune_at = 0.0
        self._expire_at = 0.0
        self._resumer = BlockedRunResumer(core)
        self.schedules = ScheduleFirer(core)
        self._topics = TopicSweeper(self._dispatcher)
        self.has_rate_lines = False
        """Whether the last tick of this process found runs that wait for rates of starts."""

    def sweep(self, session: str) -> tuple[bool, tuple[Micros, ...]]:
        """Run a tick if this session has, or gets, the leader lease. Every process with code resumes blocked runs.

        Returns:
            Whether another tick should follow at once, and when rate limits allow the next start, in microseconds
                since 1970.
        """
        self.resume_blocked()
        self.schedules.replan()
        is_leader, (_, wakes_at, more) = self._is_leader(session)
        if not is_leader:
            # One process leads for all, and may lack the code of a trigger.
            TriggerFirer(self._core).try_to_fire()
            # One process leads for all namespaces, but runs expire by the setting of a process of their namespace.
            return self._expire() or more, wakes_at
        tick = self.tick()
        return self.prune() or tick.more, tick.wakes_at

    def resign(self, session: str) -> None:
        """Release the leader lease, if this session has it."""
        if self._core.clock.monotonic() < self._leader_until:
            self._leader_until = 0.0
            self._core.kernel.dispatch(self._acquire(session, lease=0.0))

    def prune(self) -> bool:
        """Every ten minutes, delete replies to idempotency keys and dead sessions older than a week, and expired runs.

        Return whether there may be more to delete.
        """
        more, now = self._expire(), self._core.clock.monotonic()
        if not more and now >= self._prune_at:
            self._prune_at = now + PRUNE_INTERVAL
            self._core.stores.persistence.prune(micros(self._core.clock.now()) - KEPT_FOR)
        return more

    def _expire(self) -> bool:
        """Every ten minutes, remove the expired runs of this namespace. Return whether there may be more."""
        now = self._core.clock.monotonic()
        if self._retention is None or now < self._expire_at:
            return False
        more = self._retention.sweep()
        if not more:
            self._expire_at = now + PRUNE_INTERVAL
        return more

    def resume_blocked(self) -> tuple[str, ...]:
        """Once a minute, resume blocked runs whose histories this process's code fits. Return their ids."""
        return self._resumer.round()

    def tick(self) -> Tick:
        """Run a tick, without checking the leader lease. Raises the error of the first part that failed.

        The clock is synchronized first if the last sync is older than a third of a lease, or the clock has stepped
        since.
        """
        self._core.trust_clock(self._clock_age_max)
        for_sessions, for_silence = self._graces()
        answers = self._core.kernel.dispatch_many(
            (
                *self.schedules.commands,
                self._topics.command,
                JobWakeDue(limit=WAKE_LIMIT),
                SessionReap(grace=for_sessions),
                LeaseReapStale(limit=REAP_LIMIT),
                JobReapUnresponsive(grace=for_silence, limit=REAP_LIMIT),
                RunExpire(limit=EXPIRE_LIMIT),
                RunClaimPending(namespace=self._core.namespace, after=self._runs_after, limit=ADMIT_LIMIT),
                JobAdmit(after=self._jobs_after, limit=ADMIT_LIMIT),
                RunRepair(after=self._repair_after, limit=REPAIR_LIMIT),
            )
        )
        *fired, published, woken, reaped, freed, overdue, expired, runs, jobs, repaired = answers
        for answer in (published, woken, reaped, freed, overdue, expired, runs, jobs, repaired):
            if isinstance(answer, CommandError):
                raise answer
        scheduled, scheduled_at, more_schedules = self.schedules.note(fired)
        assert isinstance(published, TopicDelivered)
        assert isinstance(woken, JobsWoken)
        assert isinstance(reaped, LeasesReaped)
        assert isinstance(freed, LeasesReaped)
        assert isinstance(overdue, UnresponsiveReaped)
        assert isinstance(expired, RunsExpired)
        assert isinstance(runs, RunsAdmitted)
        assert isinstance(jobs, JobsAdmitted)
        assert isinstance(repaired, RunRepaired)
        self._repair_after = repaired.next or ""
        self._runs_after, self._jobs_after = runs.next or "", jobs.next or ""
        self.has_rate_lines = bool(runs.wakes_at)
        # Slots freed by this tick were not free yet when the tick looked for runs to admit.
        followed = self._dispatcher.follow_up(*fired, published, woken, expired, runs, repaired)
        messages, more_messages = self._topics.go_on(published)
        more_starts = TriggerFirer(self._core).try_to_fire()
        if repaired.repaired:
            _log.error("repaired runs with missing jobs: %s", ", ".join(repaired.repaired))
        if reaped.sessions:
            _log.info("%s expired: other workers take over", counted(reaped.sessions, "worker session"))
        if freed.freed:
            _log.info("%s of expired worker sessions can be claimed again", counted(freed.freed, "job"))
        if freed.dead:
            _log.warning(
                "%s of expired worker sessions failed or blocked their runs: they were lost as often as allowed",
                counted(freed.dead, "job"),
            )
        if overdue.freed or overdue.dead:
            late = counted(overdue.freed + overdue.dead, "attempt")
            _log.warning("%s lost: no heartbeat came in time", late)
        return Tick(
            woken=woken.woken,
            sessions=reaped.sessions,
            freed=freed.freed,
            dead=freed.dead,
            expired=expired.expired,
            admitted=runs.admitted,
            queued=jobs.admitted,
            repaired=repaired.repaired,
            scheduled=scheduled,
            wakes_at=(*runs.wakes_at, *jobs.wakes_at, *followed.wakes_at, *scheduled_at),
            heartbeat_timeouts=overdue.freed + overdue.dead,
            delivered=followed.delivered,
            published=messages,
            # The next tick frees the jobs of sessions that this one declared dead, and the slots of runs that it
            # ended.
            more=more_schedules
            or more_messages
            or more_starts
            or woken.woken >= WAKE_LIMIT
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
        """Return the grace periods after which sessions and missing heartbeats count as expired, in microseconds.

        If the store uses the clocks of its hosts and this one was set forward, rows written before look too old. The
        grace is longer then: for sessions until all live ones have renewed, for heartbeats as long as the step matters.
        """
        step = self._core.clock.step
        if step is None or step.by < 0:
            return self._grace, self._grace
        more = self._grace + round(step.by * 1_000_000)
        return (
            more if step.ago <= self._whole_lease else self._grace,
            more if step.ago <= max(step.by, self._whole_lease) else self._grace,
        )

    def _is_leader(self, session: str) -> tuple[bool, tuple[int, tuple[Micros, ...], bool]]:
        """Return whether this session is the leader, and the results of firing, if the store was queried."""
        now = self._core.clock.monotonic()
        if now < self._leader_until - self._lease / 3:
            return True, (0, (), False)
        # Due schedules fire in the same transaction: a process that is not the leader has no other.
        acquire = self._acquire(session, lease=self._lease)
        leads, *fired = self._dispatcher.dispatch_many((acquire, *self.schedules.commands))
        if isinstance(leads, CommandError):
            raise leads
        assert isinstance(leads, LeaderAcquired)
        self._leader_until = now + self._lease if leads.taken else 0.0
        return leads.taken, self.schedules.note(fired)

    def _acquire(self, session: str, *, lease: float) -> LeaderAcquire:
        return LeaderAcquire(
            namespace=self._core.namespace, name=LEADER_LEASE, session=session, lease=round(lease * 1_000_000)
        )
