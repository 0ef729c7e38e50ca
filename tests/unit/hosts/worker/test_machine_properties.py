"""The worker's state machine under random events: nothing lost, no limit exceeded, and it ends."""

from collections import Counter
from typing import Final, TypeAlias

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from typing_extensions import override

from holdfast.hosts.worker import machine as m
from holdfast.hosts.worker import machine_protocol as p
from holdfast.hosts.worker.settings import Settings
from holdfast.kernel.commands import NO_FOLLOW_UP, Attempt, Completed, FollowUp, JobSettle
from holdfast.kernel.dispatch.command_batches import BATCH_COMMANDS_MAX
from holdfast.ports.records.job import JobKind
from holdfast.ports.records.values import Payload

CONCURRENCY: Final = 4
LIMITS: Final = {"default": CONCURRENCY, "gpu": 1, "slow": 2}
JOBS: Final = 12
GRACE: Final = 20.0

Call: TypeAlias = (
    p.OpenSession | p.Claim | p.Settle | p.Heartbeat | p.Sweep | p.WakeDue | FollowUp | p.FindEvents | p.Flush
)
Lease: TypeAlias = tuple[str, int]


def kind_of(call: Call) -> tuple[object, ...]:
    """Return what no two calls in flight have in common."""
    return type(call), getattr(call, "sink", None), getattr(call, "deliveries", None)


class AWorkersLife(RuleBasedStateMachine):
    """A store with a few jobs, bodies that end at any time, and calls that are answered in any order, or fail."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = m.WorkerMachine(
            Settings(
                definitions=("w@1",),
                queues=tuple(LIMITS),
                concurrency=CONCURRENCY,
                limits={queue: limit for queue, limit in LIMITS.items() if queue != "default"},
                drain_grace=GRACE,
                sinks=("audit", "search"),
            )
        )
        self.now = 0.0
        self.drained_at: float | None = None
        self.is_finished = False
        self.is_stopped = False
        self.is_live = False
        self.calls: list[Call] = []
        self.running: dict[Lease, Attempt] = {}
        self.cancelled: set[Lease] = set()
        self.started: set[Lease] = set()
        self.claimed: set[Lease] = set()
        self.released: set[Lease] = set()
        self.to_settle: set[Lease] = set()
        self.settled: set[Lease] = set()
        self.epochs = Counter[str]()
        self.queued = {f"run.{n}": tuple(LIMITS)[n % len(LIMITS)] for n in range(JOBS)}
        self.queue_of = dict(self.queued)
        self.step()

    # The driver -------------------------------------------------------------------------------------------------

    def step(self, *inputs: p.Input) -> None:
        for action in self.machine.step(self.now, inputs):
            assert not self.is_finished, "nothing is done after the end"
            self.carry_out(action)
        due = self.machine.next_step()
        assert due is None or due > self.now, "its driver would never rest"

    def carry_out(self, action: p.Action) -> None:
        match action:
            case p.Start(attempt):
                lease = (attempt.job, attempt.epoch)
                assert lease in self.claimed
                assert lease not in self.started, "a body starts once in each attempt"
                self.started.add(lease)
                self.running[lease] = attempt
            case p.Cancel(attempt):
                lease = (attempt.job, attempt.epoch)
                assert lease in self.running
                assert lease not in self.cancelled
                self.cancelled.add(lease)
            case p.Release(attempts):
                self.released |= {(attempt.job, attempt.epoch) for attempt in attempts}
            case p.Finish():
                self.is_finished = True
            case p.Settle(settles=settles):
                assert 0 < len(settles) <= BATCH_COMMANDS_MAX
                assert len({(settle.job, settle.epoch) for settle in settles}) == len(settles)
                self.call(action)
            case p.Claim(lanes, limit):
                assert 0 < limit <= CONCURRENCY - len(self.running)
                assert sum(lane.limit for lane in lanes) >= limit
                self.call(action)
            case p.Heartbeat(attempts):
                asked = {(attempt.job, attempt.epoch) for attempt in attempts}
                assert asked <= self.running.keys() - self.cancelled
                self.call(action)
            case FollowUp():
                assert list(action.parts()) == [action], "admissions or deliveries, not both"
                self.call(action)
            case p.OpenSession() | p.Sweep() | p.WakeDue() | p.FindEvents() | p.Flush():
                self.call(action)

    def call(self, action: Call) -> None:
        assert kind_of(action) not in map(kind_of, self.calls), "one call of a kind at once"
        self.calls.append(action)

    # What may happen --------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.0, 0.01, 0.05, 0.5, 1.0, 2.0, 7.0]))
    def time_passes(self, seconds: float) -> None:
        if not self.is_finished:
            self.now += seconds
            self.step()

    @precondition(lambda self: self.calls and not self.is_finished)
    @rule(data=st.data(), fails=st.sampled_from([False, False, False, True]), more=st.booleans())
    def a_call_is_answered(self, data: st.DataObject, fails: bool, more: bool) -> None:
        call = self.calls.pop(data.draw(st.integers(0, len(self.calls) - 1)))
        if fails:
            self.step(p.CallFailed(call))
        else:
            self.step(self.answer(call, more=more))

    @precondition(lambda self: self.running and not self.is_finished)
    @rule()
    def runs_are_said_to_have_ended(self) -> None:
        self.step(p.RunsEnded(frozenset(attempt.run for attempt in self.running.values())))

    @precondition(lambda self: not self.is_finished)
    @rule()
    def hint_that_histories_grew(self) -> None:
        self.step(p.HistoriesGrew())

    def answer(self, call: Call, *, more: bool) -> p.Input:
        match call:
            case p.OpenSession():
                self.is_live = True
                return p.SessionReady()
            case p.Claim():
                return p.Claimed(self.lease(call), call.limit) if self.is_live else p.SessionLost(call)
            case p.Settle(settles=settles):
                for settle in settles:
                    lease = (settle.job, settle.epoch)
                    assert lease not in self.settled, "what was stored is not settled again"
                    self.settled.add(lease)
                return p.Settled(
                    opened=more,
                    retries_in=(0.3, 0.1) if more else (),
                    next_attempts=self.take(call) if more else (),
                    follow_up=FollowUp(jobs=("w/a",), deliveries=True) if more else NO_FOLLOW_UP,
                )
            case p.Heartbeat(attempts):
                lost = [attempt for attempt in attempts if more and attempt.epoch < self.epochs[attempt.job]]
                return p.HeartbeatAnswered(tuple(lost))
            case p.Sweep():
                return p.SweepDone(more)
            case p.WakeDue():
                return p.WokeDue(more)
            case FollowUp():
                return p.FollowedUp(call, more)
            case p.FindEvents():
                return p.EventsFound(("search", "audit") if more else ())
            case p.Flush(sink):
                return p.SinkFlushed(sink, more)

    def lease(self, claim: p.Claim) -> tuple[Attempt, ...]:
        leased: list[Attempt] = []
        for lane in claim.queue_claims:
            most = min(lane.limit, claim.limit - len(leased))
            leased += map(self.lease_one, self.queued_in(lane.queue)[:most])
        return tuple(leased)

    def take(self, call: p.Settle) -> tuple[Attempt | None, ...]:
        taken: list[Attempt | None] = []
        for settle, takes in zip(call.settles, call.lease_next, strict=True):
            queued = self.queued_in(self.queue_of[settle.job]) if takes and self.is_live else []
            taken.append(self.lease_one(queued[0]) if queued else None)
        return tuple(taken)

    def queued_in(self, queue: str) -> list[str]:
        return [job for job, its in self.queued.items() if its == queue]

    def lease_one(self, job: str) -> Attempt:
        self.epochs[job] += 1
        self.claimed.add((job, self.epochs[job]))
        return Attempt(
            job=job,
            epoch=self.epochs[job],
            run="run",
            definition="w@1",
            queue=self.queued.pop(job),
            kind=JobKind.STAGE,
            node="a",
            item=None,
            attempt=1,
            max_attempts=3,
            input="1",
        )

    @precondition(lambda self: self.calls and not self.is_finished)
    @rule()
    def all_calls_are_answered(self) -> None:
        """All calls are answered, the usual case."""
        calls, self.calls = self.calls, []
        self.step(*(self.answer(call, more=False) for call in calls))

    @precondition(lambda self: self.running and not self.is_finished)
    @rule(data=st.data(), together=st.integers(1, CONCURRENCY), obeys=st.booleans())
    def bodies_end(self, data: st.DataObject, together: int, obeys: bool) -> None:
        leases = data.draw(st.permutations(sorted(self.running)))[:together]
        self.step(*(self.end(lease, obeys=obeys) for lease in leases))

    def end(self, lease: Lease, *, obeys: bool) -> p.BodyEnded:
        attempt = self.running.pop(lease)
        if lease in self.cancelled and obeys:
            return p.BodyEnded(attempt, None)
        if lease not in self.cancelled:
            self.to_settle.add(lease)
        done = JobSettle(job=attempt.job, epoch=attempt.epoch, outcome=Completed(output=Payload(inline="1")))
        return p.BodyEnded(attempt, done)

    @rule()
    def it_hears_of_work(self) -> None:
        if not self.is_finished:
            self.step(p.Woken())

    @precondition(lambda self: self.is_live and self.running and not self.is_finished)
    @rule()
    def the_session_is_lost(self) -> None:
        """Its jobs are queued again, while their bodies may run on."""
        self.is_live = False
        leased = self.claimed - self.settled - self.released
        for job, epoch in sorted(leased):
            if self.epochs[job] == epoch and (job, epoch) not in self.to_settle:
                self.queued.setdefault(job, self.queue_of[job])
        self.step(p.SessionLost())

    @precondition(lambda self: self.drained_at is None and len(self.settled) > JOBS // 2)
    @rule()
    def it_is_told_to_drain(self) -> None:
        self.drained_at = self.now
        self.step(p.Drain())

    # What must be true ------------------------------------------------------------------------------------------

    @invariant()
    def no_limit_is_exceeded(self) -> None:
        assert len(self.running) <= CONCURRENCY
        of_queue = Counter(attempt.queue for attempt in self.running.values())
        assert all(of_queue[queue] <= limit for queue, limit in LIMITS.items())

    @invariant()
    def it_knows_what_runs(self) -> None:
        if not self.is_finished:
            assert self.machine.running == len(self.running)
            assert self.machine.unsettled == len(self.to_settle - self.settled)

    @override
    def teardown(self) -> None:
        """At the end the store answers, bodies end, and the worker drains."""
        if self.drained_at is None and not self.is_finished:
            self.it_is_told_to_drain()
        healed_at = self.now
        while not self.is_finished:
            if self.calls:
                self.step(self.answer(self.calls.pop(0), more=False))
            elif self.running:
                self.step(self.end(min(self.running), obeys=True))
            else:
                due = self.machine.next_step()
                assert due is not None, "it waits for nothing, for ever"
                self.now = due
                self.step()
            assert self.now <= healed_at + m.BACKOFF_MAX, "it ends as soon as it can"
        gave_up = self.drained_at is not None and healed_at >= self.drained_at + GRACE + m.STOP_GRACE
        if not gave_up:
            assert self.to_settle <= self.settled, "what has ended was settled"
            assert self.started == self.to_settle | self.cancelled
            assert self.claimed == self.started | self.released


AWorkersLife.TestCase.settings = settings(stateful_step_count=50, deadline=None)
test_a_workers_life = AWorkersLife.TestCase
