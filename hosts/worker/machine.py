"""Pure state machine of a worker: `step(now, inputs) -> actions`.

It decides what a worker does next: when to claim jobs and how many, which results to settle, when to send heartbeats,
to run maintenance and to flush sinks, and how to drain. It has no I/O, no threads and no clock: `now` is passed in,
in seconds of a monotonic clock. The host carries the actions out in threads and tasks and reports each result as an
input. Because of that the simulator drives the very machine that production runs (docs/decisions/0017): `shell.py`
holds what both share, `runner.py` is the host on an event loop.

Claims. One claim at a time, for all free slots. A claim that returned fewer jobs than it requested means that the
queues are empty: the next one follows a hint, or two poll intervals later, which leaves the poll interval between them
to maintenance. A claim that was filled means a backlog: the next one waits until half of the slots are free, or for
50 ms, so that claims stay few and large under load.

Settles. One transaction at a time, of up to 500 results or about 4 MiB of values: whatever has finished since the last
commit goes into the next one. A settle may lease the next job of its run in the same transaction (docs/decisions/0008).
That saves a claim, and is unfair to runs that have queued for longer, so it ends after 32 jobs in a row or one second;
then the run queues again.

Wake-ups. The machine remembers when the retries and sleepers that it knows of are due, for up to a minute ahead, and
wakes due ones with one call every 20 ms at most. Later ones are left to the maintenance tick.

Shutdown. `Drain` stops claims and lets bodies finish for `drain_grace`; then they are cancelled and their jobs
released. Five seconds later the worker ends, whatever is still running. `Stop` ends it at once: its jobs are reaped
when the session has expired.

What is guaranteed:

- At most one call of each kind is in flight, except `Release`, and one flush per sink.
- At most `concurrency` attempts hold a slot. An attempt holds it from its start until its result is stored or dropped,
  because a result that is not stored yet would be lost with the worker.
- Nothing starts except in `RUNNING`: jobs that a late claim or settle returns are released.
- A result stays queued until the store has answered. A settle that failed is sent again, before newer ones; if the
  first one did commit, the second is fenced by its epoch.
- A job that is claimed again cancels the attempt that still runs here: the claim proves that its lease was lost. A
  lost session cancels all attempts.
- After an error of the store a call is repeated after 0.1 s, and twice as long with each further error of its kind in a
  row, up to 5 s: a sink whose flushes fail delays no claims. `FollowUp` is not repeated: the
  maintenance tick does their work.

What is ugly and why it stays: each kind of call has its own flags (`_claiming`, `_sweeping`, ...) and due time, and
`next_step` repeats the conditions of `_work`. A table of generic calls would be shorter, but the rules differ for
each kind. The machine has no timeouts: an action without its input blocks this kind of call for good. So hosts must
answer every action but `Release` and `Finish`, also when the call raised (`StoreCalls._guarded`).
"""

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from heapq import heappop, heappush
from typing import Final

import attrs

from holdfast.hosts.worker.capacity import Capacity
from holdfast.hosts.worker.machine_protocol import (
    Action,
    BodyEnded,
    CallFailed,
    Cancel,
    Claim,
    Claimed,
    Drain,
    EventsFound,
    FindEvents,
    Finish,
    Flush,
    FollowedUp,
    Heartbeat,
    HeartbeatAnswered,
    HistoriesGrew,
    Input,
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
from holdfast.hosts.worker.running_attempts import JobSeries, RunningAttempts
from holdfast.hosts.worker.settings import Settings
from holdfast.hosts.worker.sink_poller import SinkPoller
from holdfast.kernel.commands import NO_FOLLOW_UP, Attempt, FollowUp, JobSettle, merge
from holdfast.kernel.dispatch.command_batches import BATCH_COMMANDS_MAX, batches_of

BACKOFF_MIN: Final = 0.05
"""Seconds; the first wait after an error of the store is twice this."""
BACKOFF_MAX: Final = 5.0
"""Seconds; the longest wait after errors of the store."""
STOP_GRACE: Final = 5.0
"""Seconds after the drain period in which cancelled bodies and calls to the store may still end."""
WAKE_APART: Final = 0.02
"""Seconds between two calls that wake sleeping jobs."""
WAKES_AHEAD_MAX: Final = 60.0
"""How many seconds ahead the machine remembers when sleeping jobs are due."""
IDLE_POLLS: Final = 2.0
"""Poll intervals between two claims of an idle worker.

The intervals between leave room for maintenance and renewal: with a poll interval of a second, an idle worker calls
the store about once per poll interval.
"""


class Phase(StrEnum):
    """The phase of a worker's life.

    Running; draining: no new work, running bodies may finish; stopping: running bodies are cancelled and their jobs
    released; stopped.
    """

    RUNNING = "running"
    DRAINING = "draining"
    STOPPING = "stopping"
    STOPPED = "stopped"


@attrs.frozen
class _Finished:
    settle: JobSettle
    attempt: Attempt
    turn: JobSeries


class WorkerMachine:
    """The state of one worker. Not thread-safe: a single task owns it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.phase = Phase.RUNNING
        self.late = 0
        """Number of results that were dropped because their bodies had been cancelled."""
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
        self._outgoing = SinkPoller(settings)
        self._waking = False
        self._follow_up = NO_FOLLOW_UP
        self._following: set[FollowUp] = set()
        """The calls in flight, of which admissions and deliveries have one each: neither waits for the other."""
        self._next_claim = 0.0
        self._next_settle = 0.0
        self._next_sweep = 0.0
        self._wakes: list[float] = []
        self._next_wake = 0.0
        self._drain_until: float | None = None
        self._failures: Counter[type[Action] | Flush] = Counter()
        """Failures in a row of each kind of call; flushes are counted for each sink."""

    @property
    def running(self) -> int:
        """Number of running bodies."""
        return len(self._running)

    @property
    def unsettled(self) -> int:
        """Number of bodies that have ended and are not settled."""
        return len(self._finished) + len(self._settling)

    def step(self, now: float, inputs: Iterable[Input]) -> list[Action]:
        """Apply the inputs; return the actions that are due at `now`."""
        actions: list[Action] = []
        for happened in inputs:
            self._take(now, happened, actions)
        self._settle(now, actions)
        self._carry_out(actions)
        if self.phase is Phase.RUNNING:
            self._work(now, actions)
        elif self.phase is not Phase.STOPPED:
            self._wind_down(now, actions)
        return actions

    def next_step(self) -> float | None:
        """Return when to call `step` at the latest if no input arrives before; None for never."""
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
        """Return the results to settle and the attempts to release for a worker that ends now.

        Both are empty after `Stop`. Results of a settle that is in flight are included: if it commits, the second one
        is fenced.
        """
        if self.phase is Phase.STOPPED and not self._running and not self.unsettled:
            return (), ()
        settles = tuple(done.settle for done in (*self._settling, *self._finished))
        return settles, self._running.held

    # Inputs ----------------------------------------------------------------------------------------------------

    def _take(self, now: float, happened: Input, actions: list[Action]) -> None:
        match happened:
            case Woken():
                self._wanted = True
                self._outgoing.look_soon(now)
            case Claimed(attempts, requested, follow_up):
                self._follow_up = merge(self._follow_up, follow_up)
                self._claimed(now, attempts, requested, actions)
            case BodyEnded(attempt, settle):
                self._ended(attempt, settle)
            case Settled():
                self._settled(now, happened, actions)
                self._outgoing.look_soon(now)
            case HeartbeatAnswered(lost):
                self._answered(Heartbeat)
                self._running.answered()
                actions += self._running.cancel(lost)
            case RunsEnded(runs):
                self._running.check_soon(now, runs)
                self._outgoing.look_soon(now)
            case HistoriesGrew():
                self._outgoing.look_soon(now)
            case SweepDone(more, wakes_in):
                self._sweeping = False
                self._answered(Sweep)
                self._wake_in(now, wakes_in)
                self._next_sweep = now if more else now + self._settings.maintenance_interval
                self._wanted = self._wanted or more
            case WokeDue(more, wakes_in):
                self._waking, self._wanted = False, True
                self._answered(WakeDue)
                self._wake_in(now, wakes_in)
                if more:
                    self._next_wake = now
                    heappush(self._wakes, now)
            case FollowedUp(done, opened, wakes_in):
                self._following.discard(done)
                self._answered(FollowUp)
                self._wake_in(now, wakes_in)
                self._wanted = self._wanted or opened
            case EventsFound(sinks):
                self._answered(FindEvents)
                actions += self._outgoing.found(now, sinks)
            case SinkFlushed(sink, more):
                self._answered(Flush(sink))
                self._outgoing.flushed(now, sink, more=more)
            case SessionReady():
                self._session, self._opening, self._wanted = True, False, True
                self._answered(OpenSession)
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
        self._answered(Claim)
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
        # A claim of the same job proves that the lease of an earlier attempt, which may still run here, was lost.
        again = {attempt.job for attempt in attempts}
        actions += self._running.cancel(held for held in self._running.held if held.job in again)
        # Beside a job that was lost before, a claim passes over other such jobs: more work may be queued behind them.
        self._wanted = self._wanted or any(attempt.lost_attempts for attempt in attempts)
        turn = JobSeries(now)
        for attempt in attempts:
            self._start(now, attempt, turn, actions)

    def _start(self, now: float, attempt: Attempt, turn: JobSeries, actions: list[Action]) -> None:
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
        self._answered(Settle)
        self._wanted = self._wanted or happened.opened
        self._follow_up = merge(self._follow_up, happened.follow_up)
        for done in settled:
            self._free_capacity(done.attempt)
        self._wake_in(now, happened.retries_in)
        taken = [
            (attempt, done.turn)
            for attempt, done in zip(happened.next_attempts, settled, strict=False)
            if attempt is not None
        ]
        if self.phase is Phase.RUNNING:
            for attempt, turn in taken:
                self._start(now, attempt, turn.next(), actions)
        elif taken:
            actions.append(Release(tuple(attempt for attempt, _ in taken)))

    def _wake_in(self, now: float, wakes_in: Iterable[float]) -> None:
        for wake_in in wakes_in:
            # Maintenance wakes what is due later: the list stays short.
            if wake_in <= WAKES_AHEAD_MAX:
                heappush(self._wakes, now + wake_in)

    def _answered(self, call: type[Action] | Flush) -> None:
        del self._failures[call]

    def _failed(self, now: float, action: Action) -> None:
        """Schedule the failed call again, after a wait that grows with each error of its kind in a row."""
        call = action if isinstance(action, Flush) else type(action)
        self._failures[call] += 1
        later = now + min(BACKOFF_MAX, BACKOFF_MIN * 2 ** min(self._failures[call], 10))
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
            case FollowUp():
                self._following.discard(action)  # the next maintenance tick does it
            case FindEvents() | Flush():
                self._outgoing.failed(action, later)
            case Start() | Cancel() | Release() | Finish():
                pass

    # Actions ----------------------------------------------------------------------------------------------------

    def _settle(self, now: float, actions: list[Action]) -> None:
        if (
            self._finished
            and not self._settling
            and now >= self._next_settle
            and self.phase is not Phase.STOPPED
        ):
            # One transaction: bodies of others go on while the store writes it.
            settles = next(batches_of([done.settle for done in self._finished[:BATCH_COMMANDS_MAX]]))
            self._settling = tuple(self._finished[: len(settles)])
            del self._finished[: len(settles)]
            can_take = self.phase is Phase.RUNNING and self._session
            actions.append(
                Settle(
                    tuple(done.settle for done in self._settling),
                    tuple(can_take and done.turn.may_continue(now) for done in self._settling),
                )
            )

    def _carry_out(self, actions: list[Action]) -> None:
        """Admit to all slots freed since the last such call, and deliver results, unless the worker winds down."""
        if not self._follow_up or self.phase is Phase.STOPPED:
            return
        can_deliver = self.phase is Phase.RUNNING and self._session
        left: list[FollowUp] = []
        for part in self._follow_up.parts():
            is_in_flight = any(call.delivers == part.delivers for call in self._following)
            if is_in_flight or (part.delivers and not can_deliver):
                left.append(part)
            else:
                self._following.add(part)
                actions.append(part)
        self._follow_up = merge(*left)

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
            # What falls due in the next 20 ms is woken together: many retries are due at nearly the same time.
            self._waking, self._next_wake = True, now + WAKE_APART
            actions.append(WakeDue())
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
        is_admitting = any(not call.delivers for call in self._following)
        idle = not (self._running or self.unsettled or self._claiming or is_admitting)
        if (idle and self._outgoing.is_over(now, actions)) or now >= self._give_up_at():
            self.phase = Phase.STOPPED
            actions.append(Finish())

    def _give_up_at(self) -> float:
        """Return when a stopping worker no longer waits for cancelled bodies and the store."""
        assert self._drain_until is not None
        return self._drain_until + STOP_GRACE
