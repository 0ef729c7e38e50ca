"""What a worker decides, as a pure machine: `step(now, inputs) -> actions`.

The worker's threads and tasks only carry actions out and report back; the simulator drives the same machine. Times are
seconds of a monotonic clock.

Claims: a worker that found less than it asked for asks again when it is told of work, or at the poll interval. One
that found all that it asked for (there is a backlog) waits until a good part of its room is free, so that claims
stay few and large. Settling: whatever has finished since the last commit is settled in the next one, and the next jobs
of the same runs may be taken with it. A run that was taken on so for a while queues again, so that others get their
turn.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from heapq import heappop, heappush
from typing import Final

import attrs

from holdfast.hosts.process.protocol import (
    Action,
    CallFailed,
    Cancel,
    Claim,
    Claimed,
    Drain,
    Ended,
    Finish,
    Heartbeat,
    HeartbeatAnswered,
    Input,
    OpenSession,
    Release,
    RunsEnded,
    SessionLost,
    SessionReady,
    Settle,
    Settled,
    Start,
    Stop,
    Sweep,
    SweepDone,
    WakeDue,
    WokeDue,
    Woken,
)
from holdfast.kernel.commands import Attempt, JobSettle, passed_over_beside
from holdfast.ports.persistence import Lane
from holdfast.ports.records import PassOver

BACKOFF_MIN: Final = 0.05
BACKOFF_MAX: Final = 5.0
SETTLES_MAX: Final = 500
STOP_GRACE: Final = 5.0
WAKE_APART: Final = 0.02
MAINTENANCE_INTERVAL: Final = 5.0
TAKES_MAX: Final = 32
TAKES_SECONDS_MAX: Final = 1.0
"""How often in a row, and for how long, jobs of one run are taken on before those that queue get their turn."""
IDLE_POLLS: Final = 2.0
"""An idle worker's claims are this many poll intervals apart, which leaves room for maintenance and renewal: in all
it makes at most one call to the store in each poll interval, if that is a second."""


class Phase(StrEnum):
    """Running; draining: no new work, what runs may end; stopping: what runs is given back; stopped."""

    RUNNING = "running"
    DRAINING = "draining"
    STOPPING = "stopping"
    STOPPED = "stopped"


@attrs.frozen(kw_only=True)
class Settings:
    """How a worker behaves. Seconds. `queues` limits single queues; the others share `concurrency`."""

    definitions: tuple[str, ...]
    queues: tuple[str, ...]
    concurrency: int = 100
    limits: Mapping[str, int] = attrs.field(factory=dict[str, int])
    poll_interval: float = 1.0
    heartbeat_interval: float = 2.0
    maintenance_interval: float = MAINTENANCE_INTERVAL
    drain_grace: float = 20.0
    claim_again_after: float = 0.05


@attrs.frozen
class _Turn:
    """Jobs of one run in a row: since when, and how many were taken on."""

    since: float
    takes: int = 0

    def may_go_on(self, now: float) -> bool:
        return self.takes < TAKES_MAX and now < self.since + TAKES_SECONDS_MAX


@attrs.define
class _Running:
    attempt: Attempt
    since: float
    turn: _Turn
    cancelled: bool = False
    doubted: bool = False


@attrs.frozen
class _Finished:
    settle: JobSettle
    attempt: Attempt
    turn: _Turn


class WorkerMachine:
    """The state of one worker. Not thread-safe: one task owns it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.phase = Phase.RUNNING
        self.late = 0
        """How many results came from bodies that were cancelled, and were dropped."""
        self._session = False
        self._opening = False
        self._running: dict[tuple[str, int], _Running] = {}
        self._busy_in: Counter[str] = Counter()
        self._lanes_asked: tuple[Lane, ...] = ()
        self._filled: frozenset[str] = frozenset()
        self._finished: list[_Finished] = []
        self._settling: tuple[_Finished, ...] = ()
        self._claiming = False
        self._wanted = True
        self._backlog = False
        self._sweeping = False
        self._waking = False
        self._asking = False
        self._next_claim = 0.0
        self._next_settle = 0.0
        self._next_heartbeat = 0.0
        self._next_sweep = 0.0
        self._wakes: list[float] = []
        self._next_wake = 0.0
        self._drain_until: float | None = None
        self._failures = 0

    @property
    def running(self) -> int:
        """How many bodies run."""
        return len(self._running)

    @property
    def unsettled(self) -> int:
        """How many bodies have ended and are not settled."""
        return len(self._finished) + len(self._settling)

    def step(self, now: float, inputs: Iterable[Input]) -> list[Action]:
        """Take in what happened, and return what to do now."""
        actions: list[Action] = []
        for happened in inputs:
            self._take(now, happened, actions)
        self._settle(now, actions)
        if self.phase is Phase.RUNNING:
            self._work(now, actions)
        elif self.phase is not Phase.STOPPED:
            self._wind_down(now, actions)
        return actions

    def next_step(self) -> float | None:
        """Return when `step` has to be called at the latest, if nothing happens before; None if never."""
        if self.phase is Phase.STOPPED:
            return None
        times: list[float] = []
        if self._finished and not self._settling:
            times.append(self._next_settle)
        if self.phase is Phase.RUNNING:
            if not self._session:
                if not self._opening:
                    times.append(self._next_claim)
            else:
                if not self._claiming and self._room() > 0:
                    times.append(self._next_claim)
                if not self._sweeping:
                    times.append(self._next_sweep)
                if self._wakes and not self._waking:
                    times.append(max(self._wakes[0], self._next_wake))
        elif self._drain_until is not None and self.phase is Phase.DRAINING:
            times.append(self._drain_until)
        elif self.phase is Phase.STOPPING:
            times.append(self._give_up_at())
        if not self._asking and self._holds_any():
            times.append(self._next_heartbeat)
        return min(times, default=None)

    def leave(self) -> tuple[tuple[JobSettle, ...], tuple[Attempt, ...]]:
        """Return what is to be settled and what is to be given back by a worker that ends here and now.

        Nothing if it was told to stop at once. What is being settled is to be settled again: the second time is fenced.
        """
        if self.phase is Phase.STOPPED and not self._running and not self.unsettled:
            return (), ()
        settles = tuple(done.settle for done in (*self._settling, *self._finished))
        return settles, tuple(job.attempt for job in self._running.values() if not job.cancelled)

    # What happened ----------------------------------------------------------------------------------------------

    def _take(self, now: float, happened: Input, actions: list[Action]) -> None:
        match happened:
            case Woken():
                self._wanted = True
            case Claimed(attempts, asked):
                self._claimed(now, attempts, asked, actions)
            case Ended(attempt, settle):
                self._ended(attempt, settle)
            case Settled():
                self._settled(now, happened, actions)
            case HeartbeatAnswered(lost):
                self._asking = False
                self._cancel(lost, actions)
            case RunsEnded(runs):
                self._doubt(now, runs)
            case SweepDone(more):
                self._sweeping = False
                self._next_sweep = now if more else now + self._settings.maintenance_interval
                self._wanted = self._wanted or more
            case WokeDue(more):
                self._waking, self._wanted = False, True
                if more:
                    self._next_wake = now
                    heappush(self._wakes, now)
            case SessionReady():
                self._session, self._opening, self._failures = True, False, 0
                self._wanted = True
            case SessionLost(action):
                self._session = False
                if action is not None:
                    self._failed(now, action)
                self._cancel(self._held(), actions)
            case CallFailed(action):
                self._failed(now, action)
            case Drain():
                if self.phase is Phase.RUNNING:
                    self.phase = Phase.DRAINING
                    self._drain_until = now + self._settings.drain_grace
            case Stop():
                self.phase = Phase.STOPPED
                actions.append(Finish())

    def _claimed(self, now: float, attempts: tuple[Attempt, ...], asked: int, actions: list[Action]) -> None:
        self._claiming = False
        self._failures = 0
        self._backlog = len(attempts) >= asked
        found = Counter(attempt.queue for attempt in attempts)
        self._filled = frozenset(lane.queue for lane in self._lanes_asked if found[lane.queue] >= lane.limit)
        wait = (
            self._settings.claim_again_after if self._backlog else IDLE_POLLS * self._settings.poll_interval
        )
        self._next_claim = now + wait
        if self.phase is not Phase.RUNNING:
            if attempts:
                actions.append(Release(attempts))
            return
        # That a job can be claimed again proves that an earlier attempt, which may still run here, is lost.
        again = {attempt.job for attempt in attempts}
        self._cancel([held for held in self._held() if held.job in again], actions)
        # Beside a job that was lost, some of what was found is not taken: others may have been found in its place.
        self._wanted = self._wanted or any(attempt.losses for attempt in attempts)
        turn = _Turn(now)
        for attempt in attempts:
            self._start(now, attempt, turn, actions)

    def _start(self, now: float, attempt: Attempt, turn: _Turn, actions: list[Action]) -> None:
        if not self._running:
            self._next_heartbeat = now + self._settings.heartbeat_interval
        self._running[attempt.job, attempt.epoch] = _Running(attempt, now, turn)
        self._busy_in[attempt.queue] += 1
        actions.append(Start(attempt))

    def _ended(self, attempt: Attempt, settle: JobSettle | None) -> None:
        ended = self._running.pop((attempt.job, attempt.epoch), None)
        if ended is None:
            return
        if settle is not None and not ended.cancelled:
            self._finished.append(_Finished(settle, attempt, ended.turn))
        else:
            self.late += settle is not None
            self._make_room(attempt)

    def _make_room(self, attempt: Attempt) -> None:
        self._busy_in[attempt.queue] -= 1
        # What was passed over beside a job that was lost may now be had.
        if attempt.queue in self._filled or attempt.losses:
            self._wanted = True

    def _settled(self, now: float, happened: Settled, actions: list[Action]) -> None:
        settled, self._settling = self._settling, ()
        self._failures = 0
        self._wanted = self._wanted or happened.opened
        for done in settled:
            self._make_room(done.attempt)
        for retry_in in happened.retries_in:
            heappush(self._wakes, now + retry_in)
        taken = [
            (attempt, done.turn)
            for attempt, done in zip(happened.taken, settled, strict=False)
            if attempt is not None
        ]
        if self.phase is Phase.RUNNING:
            for attempt, turn in taken:
                self._start(now, attempt, _Turn(turn.since, turn.takes + 1), actions)
        elif taken:
            actions.append(Release(tuple(attempt for attempt, _ in taken)))

    def _failed(self, now: float, action: Action) -> None:
        """The store did not answer: everything that is to be tried again is, a little later each time."""
        self._failures += 1
        later = now + min(BACKOFF_MAX, BACKOFF_MIN * 2 ** min(self._failures, 10))
        match action:
            case Claim():
                self._claiming, self._wanted, self._next_claim = False, False, later
            case Settle():
                self._finished[:0] = self._settling
                self._settling, self._next_settle = (), later
            case OpenSession():
                self._opening, self._next_claim = False, later
            case Heartbeat():
                self._asking, self._next_heartbeat = False, later
            case Sweep():
                self._sweeping, self._next_sweep = False, later
            case WakeDue():
                self._waking, self._next_wake = False, later
                heappush(self._wakes, later)
            case Start() | Cancel() | Release() | Finish():
                pass

    # What to do -------------------------------------------------------------------------------------------------

    def _settle(self, now: float, actions: list[Action]) -> None:
        if (
            self._finished
            and not self._settling
            and now >= self._next_settle
            and self.phase is not Phase.STOPPED
        ):
            self._settling = tuple(self._finished[:SETTLES_MAX])
            del self._finished[:SETTLES_MAX]
            can_take = self.phase is Phase.RUNNING and self._session
            actions.append(
                Settle(
                    tuple(done.settle for done in self._settling),
                    tuple(can_take and done.turn.may_go_on(now) for done in self._settling),
                )
            )

    def _work(self, now: float, actions: list[Action]) -> None:
        self._ask(now, actions)
        if not self._session:
            if not self._opening and now >= self._next_claim:
                self._opening = True
                actions.append(OpenSession())
            return
        if self._should_claim(now):
            self._claiming, self._wanted = True, False
            self._lanes_asked = self._lanes()
            actions.append(Claim(self._lanes_asked, self._room(), self._pass_over()))
        if self._wakes and not self._waking and now >= max(self._wakes[0], self._next_wake):
            while self._wakes and self._wakes[0] <= now:
                heappop(self._wakes)
            # Retries that are due within a moment of each other are woken together.
            self._waking, self._next_wake = True, now + WAKE_APART
            actions.append(WakeDue())
        if not self._sweeping and now >= self._next_sweep:
            self._sweeping = True
            actions.append(Sweep())

    def _should_claim(self, now: float) -> bool:
        if self._claiming or self._room() <= 0:
            return False
        if self._backlog:
            return self._free() >= (self._settings.concurrency + 1) // 2 or now >= self._next_claim
        return self._wanted or now >= self._next_claim

    def _free(self) -> int:
        """How many more bodies may run. What has ended and is not settled still takes up room."""
        return self._settings.concurrency - len(self._running) - self.unsettled

    def _room(self) -> int:
        """How many jobs to ask for: none where there is no code for any, or all queues are at their limits."""
        if not self._settings.definitions:
            return 0
        return min(self._free(), sum(lane.limit for lane in self._lanes()))

    def _pass_over(self) -> PassOver:
        """What must not run beside what is here. What has ended and is not settled would still be lost."""
        ended = (done.attempt for done in (*self._finished, *self._settling))
        return passed_over_beside((*(job.attempt for job in self._running.values()), *ended))

    def _lanes(self) -> tuple[Lane, ...]:
        lanes: list[Lane] = []
        for queue in self._settings.queues:
            limit = self._settings.limits.get(queue, self._settings.concurrency) - self._busy_in[queue]
            if limit > 0:
                lanes.append(Lane(queue=queue, definitions=self._settings.definitions, limit=limit))
        return tuple(lanes)

    def _ask(self, now: float, actions: list[Action]) -> None:
        """Ask about bodies that have run for a while: they may have been cancelled, or have something to say.

        And about those of runs that are said to have ended.
        """
        if self._asking or now < self._next_heartbeat or not self._holds_any():
            return
        self._next_heartbeat = now + self._settings.heartbeat_interval
        oldest = now - self._settings.heartbeat_interval / 2
        asked = [
            job
            for job in self._running.values()
            if (job.since <= oldest or job.doubted) and not job.cancelled
        ]
        if asked:
            for job in asked:
                job.doubted = False
            self._asking = True
            actions.append(Heartbeat(tuple(job.attempt for job in asked)))

    def _doubt(self, now: float, runs: frozenset[str]) -> None:
        """Have bodies of these runs asked about at once, or as soon as what was asked before is answered."""
        for job in self._running.values():
            if job.attempt.run in runs and not job.cancelled:
                job.doubted = True
                self._next_heartbeat = min(self._next_heartbeat, now)

    def _wind_down(self, now: float, actions: list[Action]) -> None:
        if self.phase is Phase.DRAINING:
            self._ask(now, actions)
            assert self._drain_until is not None
            if now >= self._drain_until:
                self.phase = Phase.STOPPING
                held = self._held()
                self._cancel(held, actions)
                if held:
                    actions.append(Release(held))
        idle = not self._running and not self.unsettled and not self._claiming
        if idle or now >= self._give_up_at():
            self.phase = Phase.STOPPED
            actions.append(Finish())

    def _give_up_at(self) -> float:
        """When a worker that is to stop no longer waits for bodies that ignore their cancellation, or for the store."""
        assert self._drain_until is not None
        return self._drain_until + STOP_GRACE

    def _held(self) -> tuple[Attempt, ...]:
        return tuple(job.attempt for job in self._running.values() if not job.cancelled)

    def _holds_any(self) -> bool:
        return any(not job.cancelled for job in self._running.values())

    def _cancel(self, attempts: Iterable[Attempt], actions: list[Action]) -> None:
        for attempt in attempts:
            running = self._running.get((attempt.job, attempt.epoch))
            if running is not None and not running.cancelled:
                running.cancelled = True
                actions.append(Cancel(attempt))
