"""Event streams under random commits, flushes and losses: no gaps, and in order."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from typing_extensions import override

from holdfast.adapters.memory.persistence import MemoryPersistence
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.events.flusher import Flusher
from holdfast.hosts.wiring.stores import open_stores
from holdfast.kernel.commands import (
    DeadLetterReplay,
    OutboxFlush,
    OutboxFlushed,
    OutboxSettle,
    RunCancel,
    RunPause,
    RunResume,
    SinkRegister,
    StreamProgress,
)
from holdfast.ports.errors import EventRefusedError, SinkUnavailableError
from holdfast.ports.events import Event
from holdfast.ports.queries.outbox import ListSinks
from holdfast.testing.clock import ManualClock
from holdfast.testing.ids import SeededIds
from tests.unit.hosts.events.test_flusher import ONE

FLUSHERS: Final = 2


@attrs.define
class Far:
    """The far end of a sink: what came there, and how it fails."""

    came: list[Event] = attrs.field(factory=list[Event])
    faults: list[str] = attrs.field(factory=list[str])
    poison: set[str] = attrs.field(factory=set[str])

    def emit(self, events: Sequence[Event], /) -> None:
        fault = self.faults.pop() if self.faults else ""
        if fault == "away":
            raise SinkUnavailableError("away")
        if any(event.run_id in self.poison for event in events):
            raise EventRefusedError("poison")
        if fault == "fails before":
            raise OSError("before")
        self.came += events
        if fault == "fails after":
            raise OSError("after")


class Streams(RuleBasedStateMachine):
    """Runs, processes that know of the sink sooner or later, flushers that die, and a sink that fails."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.store = MemoryPersistence()
        self.ids = SeededIds(clock=self.clock)
        self.far = Far()
        self.engines = [self.process() for _ in range(FLUSHERS)]
        self.flushers = [Flusher(engine.core, {"audit": self.far}) for engine in self.engines]
        self.runs: list[str] = []
        self.faults = 0
        self.since: int | None = None
        self.leased: list[OutboxFlushed] = []

    def process(self) -> Engine:
        stores = attrs.evolve(
            open_stores("memory://"), persistence=self.store, clock=self.clock, ids=self.ids
        )
        engine = Engine.on(stores, workflows=[ONE])
        engine.core.connect()
        return engine

    # What may happen --------------------------------------------------------------------------------------------

    @rule(at=st.integers(0, FLUSHERS - 1))
    def a_run_is_started(self, at: int) -> None:
        self.runs.append(f"r{len(self.runs)}")
        self.engines[at].sync.start(ONE(1), id=self.runs[-1])

    @precondition(lambda self: self.runs)
    @rule(
        data=st.data(),
        at=st.integers(0, FLUSHERS - 1),
        what=st.sampled_from([RunCancel, RunPause, RunResume]),
    )
    def something_happens_to_a_run(self, data: st.DataObject, at: int, what: type[RunPause]) -> None:
        run = data.draw(st.sampled_from(self.runs))
        self.engines[at].kernel.dispatch(what(run_id=run))

    @precondition(lambda self: self.since is None)
    @rule(ago=st.sampled_from([0, 5_000_000]))
    def the_sink_is_registered(self, ago: int) -> None:
        now = round(self.clock.now().timestamp() * 1_000_000)
        self.since = now - ago
        self.engines[0].kernel.dispatch(SinkRegister(sink="audit", since=self.since))

    @rule(seconds=st.sampled_from([0.5, 3.0, 20.0, 61.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))

    @rule(at=st.integers(0, FLUSHERS - 1))
    def events_are_flushed(self, at: int) -> None:
        self.flushers[at].flush()

    @rule(fault=st.sampled_from(["away", "fails before", "fails after"]))
    def the_sink_is_about_to_fail(self, fault: str) -> None:
        self.faults += 1
        self.far.faults.append(fault)

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def a_run_becomes_poison(self, data: st.DataObject) -> None:
        self.faults += 1
        self.far.poison.add(data.draw(st.sampled_from(self.runs)))

    @precondition(lambda self: self.since is not None)
    @rule(emits=st.booleans(), limit=st.integers(1, 3))
    def a_flusher_is_killed(self, emits: bool, limit: int) -> None:
        """Before it said how far it came, after it handed some events over or before."""
        leased = self.engines[0].kernel.dispatch(OutboxFlush(sink="audit", lease=60_000_000, limit=limit))
        if leased.streams:
            self.faults += 1
            self.leased.append(leased)
        if emits:
            self.far.came += [
                event
                for stream in leased.streams
                for event in self.expected(stream.run)
                if event.number == stream.after + 1
            ]

    @precondition(lambda self: self.leased)
    @rule()
    def a_flusher_comes_back_from_the_dead(self) -> None:
        """It says that it delivered all. If others have the streams by now, nothing changes."""
        leased = self.leased.pop()
        before = self.store.dump().streams
        answer = self.engines[0].kernel.dispatch(
            OutboxSettle(
                sink="audit",
                registration=leased.registration,
                holder=leased.holder,
                delivered=tuple(StreamProgress(run=one.run, number=one.after) for one in leased.streams),
            )
        )
        after = self.store.dump().streams
        fenced = set(answer.fenced)
        assert all(after[key] == stream for key, stream in before.items() if key.run in fenced)

    # What must be true ------------------------------------------------------------------------------------------

    def expected(self, run: str) -> list[Event]:
        """The events of a run that count, numbered on from the first one at `since` or later."""
        tables = self.store.dump()
        rows = tables.history[run]
        assert self.since is not None
        first = next((row.number for row in rows if row.at >= self.since), None)
        return [
            Event(
                namespace="default",
                run_id=tables.runs[run].id,
                run=run,
                number=row.number,
                type=row.type,
                at=self.clock.now(),
                data="{}",
            )
            for row in rows
            if first is not None and row.number >= first
        ]

    def first_numbers(self, run: str) -> list[int]:
        return list(dict.fromkeys(event.number for event in self.far.came if event.run == run))

    @invariant()
    def what_has_come_is_in_order_and_has_no_gap(self) -> None:
        if self.since is None:
            assert not self.far.came
            return
        for run in self.store.dump().runs:
            numbers = [event.number for event in self.expected(run)]
            came = self.first_numbers(run)
            assert came == numbers[: len(came)]

    @invariant()
    def without_faults_nothing_comes_twice(self) -> None:
        if not self.faults:
            assert len(self.far.came) == len({event.id for event in self.far.came})

    @invariant()
    def cursors_are_never_past_what_came(self) -> None:
        for stream in self.store.dump().streams.values():
            expected = [event.number for event in self.expected(stream.run)] if self.since is not None else []
            missing = set(expected) - set(self.first_numbers(stream.run))
            assert all(number > stream.delivered for number in missing)

    @override
    def teardown(self) -> None:
        """Once nothing fails any more, all that was ever committed comes."""
        if self.since is None:
            return
        parked = {
            letter.run for letter in self.store.dump().streams.values() if letter.dead_lettered_at is not None
        }
        assert parked <= {key for key, run in self.store.dump().runs.items() if run.id in self.far.poison}, (
            "only poison is parked"
        )
        self.far.faults.clear()
        self.far.poison.clear()
        self.engines[0].kernel.dispatch(DeadLetterReplay())
        for _ in range(12):
            self.clock.advance(timedelta(seconds=70))
            for flusher in self.flushers:
                flusher.flush()
        for run in self.store.dump().runs:
            assert self.first_numbers(run) == [event.number for event in self.expected(run)]
        (sink,) = self.store.read(ListSinks("default"))
        assert sink.error is None


Streams.TestCase.settings = settings(stateful_step_count=40, deadline=None)
test_streams = Streams.TestCase
