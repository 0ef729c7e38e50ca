"""What a worker decides, as a pure machine: `step(now, inputs) -> actions`.

The worker's threads and tasks only carry actions out and report back; the simulator drives the same machine. Times are
seconds of a monotonic clock.

Claims: a worker that found less than it asked for asks again when it is told of work, or at the poll interval. One
that found all that it asked for (there is a backlog) waits until a good part of its room is free, so that claims
stay few and large. Settling: whatever has finished since the last commit is settled in the next one, and the next jobs
of the same runs may be taken with it. A run that was taken on so for a while queues again, so that others get their
turn.
"""

from collections.abc import Iterable
from enum import StrEnum
from heapq import heappop, heappush
from typing import Final

import attrs

from holdfast.hosts.worker.capacity import Capacity
from holdfast.hosts.worker.machine_protocol import (
    Action,
    Admit,
    Admitted,
    CallFailed,
    Cancel,
    Claim,
    Claimed,
    DeliverEnds,
    Drain,
    Ended,
    EndsDelivered,
    EventsFound,
    Finish,
    Flush,
    Heartbeat,
    HeartbeatAnswered,
    Input,
    Look,
    OpenSession,
    Release,
    RunsEnded,
    SessionLost,
    SessionReady,
    Settle,
    Settled,
    SinkFlushed,
    Start,
    Stop,
    Sweep,
    SweepDone,
    WakeDue,
    WokeDue,
    Woken,
)
from holdfast.hosts.worker.running_attempts import RunningAttempts, Turn
from holdfast.hosts.worker.settings import Settings
from holdfast.hosts.worker.sink_polling import Outgoing
from holdfast.kernel.commands import Attempt, JobAdmit, JobSettle, RunClaimPending

BACKOFF_MIN: Final = 0.05
BACKOFF_MAX: Final = 5.0
SETTLES_MAX: Final = 500
STOP_GRACE: Final = 5.0
WAKE_APART: Final = 0.02
REMEMBERED: Final = 60.0
IDLE_POLLS: Final = 2.0
"""An idle worker's claims are this many poll intervals apart, which leaves room for maintenance and renewal: in all
it makes at most one call to the store in each poll interval, if that is a second."""


class Phase(StrEnum):
    """Running; draining: no new work, what runs may end; stopping: what runs is given back; stopped."""

    RUNNING = "running"
    DRAINING = "draining"
    STOPPING = "stopping"
    STOPPED = "stopped"


@attrs.frozen
class _Finished:
    settle: JobSettle
    attempt: Attempt
    turn: Turn


class WorkerMachine:
    """The state of one worker. Not thread-safe: one task owns it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.phase = Phase.RUNNING
        self.late = 0
        """How many results came from bodies that were cancelled, and were dropped."""
        self._session = False
        self._opening = False
        self._capacity = Capacity(settings)
        self._running = RunningAttempts(settings.heartbeat_interval)
        self._finished: list[_Finished] = []
        self._settling: tuple[_Finished, ...] = ()
        self._claiming = False
        self._wanted = True
        self._backlog = False
        self._sweeping = False
        self._outgoing = Outgoing(settings)
        self._waking = False
        self._admitting = False
        self._admits: dict[RunClaimPending | JobAdmit, None] = {}
        self._has_deliveries = False
        self._delivering = False
        self._next_claim = 0.0
        self._next_settle = 0.0
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
        self._admit(actions)
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
            if (look := self._outgoing.next_look()) is not None:
                times.append(look)
            if not self._session:
                if not self._opening:
                    times.append(self._next_claim)
            else:
                if not self._claiming and self._capacity.claimable > 0:
                    times.append(self._next_claim)
                if not self._sweeping:
                    times.append(self._next_sweep)
                if self._wakes and not self._waking:
                    times.append(max(self._wakes[0], self._next_wake))
        else:
            if self._drain_until is not None and self.phase is Phase.DRAINING:
                times.append(self._drain_until)
            elif self.phase is Phase.STOPPING:
                times.append(self._give_up_at())
            if (ends_at := self._outgoing.ends_at()) is not None:
                times.append(ends_at)
        if (heartbeat := self._running.next_heartbeat) is not None:
            times.append(heartbeat)
        return min(times, default=None)

    def leave(self) -> tuple[tuple[JobSettle, ...], tuple[Attempt, ...]]:
        """Return what is to be settled and what is to be given back by a worker that ends here and now.

        Nothing if it was told to stop at once. What is being settled is to be settled again: the second time is fenced.
        """
        if self.phase is Phase.STOPPED and not self._running and not self.unsettled:
            return (), ()
        settles = tuple(done.settle for done in (*self._settling, *self._finished))
        return settles, self._running.held

    # What happened ----------------------------------------------------------------------------------------------

    def _take(self, now: float, happened: Input, actions: list[Action]) -> None:
        match happened:
            case Woken():
                self._wanted = True
                self._outgoing.look_soon(now)
            case Claimed(attempts, requested, admits):
                self._admits.update(dict.fromkeys(admits))
                self._claimed(now, attempts, requested, actions)
            case Ended(attempt, settle):
                self._ended(attempt, settle)
            case Settled():
                self._settled(now, happened, actions)
                self._outgoing.look_soon(now)
            case HeartbeatAnswered(lost):
                self._running.answered()
                actions += self._running.cancel(lost)
            case RunsEnded(runs):
                self._running.doubt(now, runs)
                self._outgoing.look_soon(now)
            case SweepDone(more, wakes_in):
                self._sweeping = False
                self._wake_in(now, wakes_in)
                self._next_sweep = now if more else now + self._settings.maintenance_interval
                self._wanted = self._wanted or more
            case WokeDue(more, wakes_in):
                self._waking, self._wanted = False, True
                self._wake_in(now, wakes_in)
                if more:
                    self._next_wake = now
                    heappush(self._wakes, now)
            case Admitted(opened, wakes_in):
                self._admitting = False
                self._wake_in(now, wakes_in)
                self._wanted = self._wanted or opened
            case EventsFound(sinks):
                actions += self._outgoing.found(now, sinks)
            case SinkFlushed(sink, more):
                self._outgoing.flushed(now, sink, more=more)
            case EndsDelivered():
                self._delivering, self._wanted = False, True
            case SessionReady():
                self._session, self._opening, self._failures = True, False, 0
                self._wanted = True
            case SessionLost(action):
                self._session = False
                if action is not None:
                    self._failed(now, action)
                actions += self._running.cancel(self._running.held)
            case CallFailed(action):
                self._failed(now, action)
            case Drain():
                if self.phase is Phase.RUNNING:
                    self.phase = Phase.DRAINING
                    self._drain_until = now + self._settings.drain_grace
            case Stop():
                self.phase = Phase.STOPPED
                actions.append(Finish())

    def _claimed(
        self, now: float, attempts: tuple[Attempt, ...], requested: int, actions: list[Action]
    ) -> None:
        self._claiming = False
        self._failures = 0
        self._backlog = len(attempts) >= requested
        self._capacity.claimed(attempts)
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
        actions += self._running.cancel(held for held in self._running.held if held.job in again)
        # Beside a job that was lost, some of what was found is not taken: others may have been found in its place.
        self._wanted = self._wanted or any(attempt.lost_attempts for attempt in attempts)
        turn = Turn(now)
        for attempt in attempts:
            self._start(now, attempt, turn, actions)

    def _start(self, now: float, attempt: Attempt, turn: Turn, actions: list[Action]) -> None:
        self._running.start(now, attempt, turn)
        self._capacity.enter(attempt)
        actions.append(Start(attempt))

    def _ended(self, attempt: Attempt, settle: JobSettle | None) -> None:
        ended = self._running.end(attempt)
        if ended is None:
            return
        if settle is not None and not ended.cancelled:
            self._finished.append(_Finished(settle, attempt, ended.turn))
        else:
            self.late += settle is not None
            self._free_capacity(attempt)

    def _free_capacity(self, attempt: Attempt) -> None:
        self._wanted = self._capacity.leave(attempt) or self._wanted

    def _settled(self, now: float, happened: Settled, actions: list[Action]) -> None:
        settled, self._settling = self._settling, ()
        self._failures = 0
        self._wanted = self._wanted or happened.opened
        self._has_deliveries = self._has_deliveries or happened.has_deliveries
        for done in settled:
            self._free_capacity(done.attempt)
        self._admits.update(dict.fromkeys(happened.admits))
        self._wake_in(now, happened.retries_in)
        taken = [
            (attempt, done.turn)
            for attempt, done in zip(happened.taken, settled, strict=False)
            if attempt is not None
        ]
        if self.phase is Phase.RUNNING:
            for attempt, turn in taken:
                self._start(now, attempt, turn.next(), actions)
        elif taken:
            actions.append(Release(tuple(attempt for attempt, _ in taken)))

    def _wake_in(self, now: float, wakes_in: Iterable[float]) -> None:
        for wake_in in wakes_in:
            # What is due later is woken by the sweeps: a worker remembers no more than a while's sleepers.
            if wake_in <= REMEMBERED:
                heappush(self._wakes, now + wake_in)

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
                self._running.retry_heartbeat(later)
            case Sweep():
                self._sweeping, self._next_sweep = False, later
            case WakeDue():
                self._waking, self._next_wake = False, later
                heappush(self._wakes, later)
            case Admit():
                self._admitting = False
            case Look() | Flush():
                self._outgoing.failed(action, later)
            case DeliverEnds():
                self._delivering = False  # the next sweep does it
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

    def _admit(self, actions: list[Action]) -> None:
        """Let in what waits for slots that were freed: one call at a time, for all that were freed meanwhile."""
        if self._admits and not self._admitting and self.phase is not Phase.STOPPED:
            self._admitting = True
            actions.append(Admit(tuple(self._admits)))
            self._admits.clear()

    def _work(self, now: float, actions: list[Action]) -> None:
        actions += self._running.heartbeat(now)
        actions += self._outgoing.look(now)
        if not self._session:
            if not self._opening and now >= self._next_claim:
                self._opening = True
                actions.append(OpenSession())
            return
        if self._should_claim(now):
            self._claiming, self._wanted = True, False
            actions.append(self._capacity.claim())
        if self._wakes and not self._waking and now >= max(self._wakes[0], self._next_wake):
            while self._wakes and self._wakes[0] <= now:
                heappop(self._wakes)
            # Retries that are due within a moment of each other are woken together.
            self._waking, self._next_wake = True, now + WAKE_APART
            actions.append(WakeDue())
        if self._has_deliveries and not self._delivering:
            self._has_deliveries, self._delivering = False, True
            actions.append(DeliverEnds())
        if not self._sweeping and now >= self._next_sweep:
            self._sweeping = True
            actions.append(Sweep())

    def _should_claim(self, now: float) -> bool:
        if self._claiming or self._capacity.claimable <= 0:
            return False
        if self._backlog:
            return self._capacity.free >= (self._settings.concurrency + 1) // 2 or now >= self._next_claim
        return self._wanted or now >= self._next_claim

    def _wind_down(self, now: float, actions: list[Action]) -> None:
        if self.phase is Phase.DRAINING:
            actions += self._running.heartbeat(now)
            assert self._drain_until is not None
            if now >= self._drain_until:
                self.phase = Phase.STOPPING
                held = self._running.held
                actions += self._running.cancel(held)
                if held:
                    actions.append(Release(held))
        idle = not self._running and not self.unsettled and not self._claiming and not self._admitting
        if (idle and self._outgoing.is_over(now, actions)) or now >= self._give_up_at():
            self.phase = Phase.STOPPED
            actions.append(Finish())

    def _give_up_at(self) -> float:
        """When a worker that is to stop no longer waits for bodies that ignore their cancellation, or for the store."""
        assert self._drain_until is not None
        return self._drain_until + STOP_GRACE
