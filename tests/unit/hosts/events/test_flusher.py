"""Events reach sinks: all of them, in order, and once if nothing fails."""

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

import attrs
import pytest

from holdfast.adapters.memory.persistence import MemoryPersistence
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.events import flusher
from holdfast.hosts.events.flusher import Flusher
from holdfast.hosts.wiring.services import Core
from holdfast.hosts.wiring.stores import open_stores
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.commands import (
    DeadLetterReplay,
    OutboxFlush,
    OutboxSettle,
    RunCancel,
    SinkRegister,
    SinkRemove,
)
from holdfast.kernel.rules.outbox import DEAD_LETTER_AFTER, DEAD_LETTER_AFTER_FAILURES
from holdfast.ports.actors import Actor
from holdfast.ports.changes import Insert, Update
from holdfast.ports.errors import EventRefusedError, SinkExistsError, SinkUnavailableError, UnavailableError
from holdfast.ports.events import Event
from holdfast.ports.queries.outbox import ListDeadLetters, ListSinks
from holdfast.ports.queries.runs import FindRun
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.outbox import Sink
from holdfast.ports.records.run import Run, RunName
from holdfast.testing.clock import ManualClock
from holdfast.testing.ids import SeededIds
from holdfast.testing.sink import MemorySink

SECOND: Final = 1_000_000


@stage
def plain(x: int) -> int:
    return x


ONE = Pipeline("one", input=int).pipe(plain)


class Picky:
    """A sink that fails as told, and records what it took."""

    def __init__(self) -> None:
        self.memory = MemorySink()
        self.fails: Callable[[Sequence[Event]], Exception | None] = lambda _: None
        self.calls = 0

    def emit(self, events: Sequence[Event], /) -> None:
        self.calls += 1
        if (error := self.fails(events)) is not None:
            raise error
        self.memory.emit(events)

    @property
    def events(self) -> tuple[Event, ...]:
        return self.memory.events


class World:
    """An engine without workers on an in-memory store with a manual clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryPersistence()
        stores = attrs.evolve(
            open_stores("memory://"),
            persistence=self.store,
            clock=self.clock,
            ids=SeededIds(clock=self.clock),
        )
        self.engine = Engine.on(stores, workflows=[ONE])
        self.core: Core = self.engine.core
        self.core.connect()
        self.sink = Picky()
        self.flusher = Flusher(self.core, {"audit": self.sink})

    def register(self, since: int | None = None, types: tuple[str, ...] = ()) -> None:
        self.core.kernel.dispatch(SinkRegister(sink="audit", since=since, types=types))

    def start(self, id: str) -> None:
        self.engine.sync.start(ONE(1), id=id)

    def cancel(self, id: str) -> None:
        self.core.kernel.dispatch(RunCancel(run_id=id))

    def wait(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))

    def run(self, id: str) -> Run:
        run = self.store.read(FindRun(RunName("default", id)))
        assert run is not None
        return run

    def row(self) -> Sink:
        (sink,) = self.store.read(ListSinks("default"))
        return sink

    def numbers(self, id: str) -> list[int]:
        return [event.number for event in self.sink.events if event.run_id == id]

    def flush(self, times: int = 1, apart: float = 70) -> None:
        for _ in range(times):
            self.flusher.flush()
            self.wait(apart)


@pytest.fixture
def world() -> World:
    return World()


def broken(_: Sequence[Event]) -> Exception:
    return OSError("it is broken")


def unless_of(id: str, number: int, error: Exception) -> Callable[[Sequence[Event]], Exception | None]:
    def fails(events: Sequence[Event]) -> Exception | None:
        return error if any((event.run_id, event.number) == (id, number) for event in events) else None

    return fails


def test_events_come_once_and_in_order(world: World) -> None:
    world.register()
    world.start("a")
    world.start("b")
    assert world.flusher.flush().events == 2
    world.cancel("a")
    world.flush(3)

    assert world.numbers("a") == [1, 2]
    assert world.numbers("b") == [1]
    first = world.sink.events[0]
    assert (first.type, first.workflow, first.namespace) == ("run.created", "one", "default")
    assert first.id == f"{first.run}/1"


def test_many_events_go_in_one_call(world: World) -> None:
    world.register()
    for number in range(50):
        world.start(f"r{number}")
    world.flusher.flush()

    assert (world.sink.calls, len(world.sink.events)) == (1, 50)


def test_without_a_sink_nothing_is_noted(world: World) -> None:
    world.start("a")

    assert world.store.dump().streams == {}


def test_a_stream_begins_with_the_first_row_from_since_on(world: World) -> None:
    world.start("old")
    world.start("quiet")
    world.wait(100)
    world.register()
    world.cancel("old")
    world.flush(3)

    assert world.numbers("old") == [2]
    assert world.numbers("quiet") == []


def test_since_may_be_in_the_past(world: World) -> None:
    world.start("a")
    world.wait(10)
    world.start("b")
    world.register(since=world.run("b").created_at)
    world.flush(3)

    assert [event.run_id for event in world.sink.events] == ["b"]


def test_what_a_process_stored_before_it_knew_of_the_sink_is_found(world: World) -> None:
    other = Engine.on(attrs.evolve(world.core.stores), workflows=[ONE])
    other.sync.start(ONE(1), id="before")
    world.register()
    other.sync.start(ONE(1), id="unheard")
    assert world.store.dump().streams == {}
    world.flush(3)

    assert world.numbers("unheard") == [1]
    assert world.row().swept_at is not None


def test_walks_end_when_every_process_knows_the_sink(world: World) -> None:
    world.register()
    world.start("a")
    world.flush(1)
    noted = world.row().swept_at
    assert noted is not None
    world.flush(1)
    later = world.row().swept_at
    assert later is not None
    assert later > noted
    world.flush(5)

    assert world.row().swept_at == later


def test_rows_that_come_while_a_stream_is_flushed_come_after(world: World) -> None:
    world.register()
    world.start("a")

    def cancels(_: Sequence[Event]) -> None:
        world.sink.fails = lambda _: None
        world.cancel("a")

    world.sink.fails = cancels
    world.flusher.flush()

    assert world.numbers("a") == [1, 2]


def test_a_flusher_that_dies_leaves_its_streams_to_others_after_its_lease(world: World) -> None:
    world.register()
    world.start("a")
    leased = world.core.kernel.dispatch(OutboxFlush(sink="audit", lease=60 * SECOND))
    assert len(leased.streams) == 1
    assert world.flusher.flush().events == 0
    world.wait(61)
    assert world.flusher.flush().events == 1
    late = OutboxSettle(
        sink="audit",
        registration=leased.registration,
        holder=leased.holder,
        untouched=(leased.streams[0].run,),
    )

    assert world.core.kernel.dispatch(late).fenced == (leased.streams[0].run,)
    assert world.flusher.flush().events == 0


@pytest.mark.slow
def test_a_sink_that_fails_for_an_hour_loses_nothing_and_is_seldom_called(world: World) -> None:
    world.register()
    for number in range(10):
        world.start(f"r{number}")
    world.sink.fails = broken
    for _ in range(3_600):
        world.flusher.flush()
        world.wait(1)
    row = world.row()
    assert row.failures > 5
    assert row.error == "OSError: it is broken"
    assert world.sink.calls < 100
    assert world.store.read(ListDeadLetters(namespace="default")) == ()
    world.sink.fails = lambda _: None
    world.flush(10)

    assert sorted(event.run_id for event in world.sink.events) == sorted(f"r{n}" for n in range(10))
    assert (world.row().failures, world.row().error) == (0, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (OSError("no"), DEAD_LETTER_AFTER_FAILURES),
        (UnavailableError("gone"), DEAD_LETTER_AFTER_FAILURES),
        (EventRefusedError("no such type"), DEAD_LETTER_AFTER),
    ],
    ids=repr,
)
def test_a_poisoned_event_parks_its_own_stream_loudly_and_no_other(
    world: World, error: Exception, attempts: int, caplog: pytest.LogCaptureFixture
) -> None:
    world.register()
    for number in range(10):
        world.start(f"r{number}")
    world.cancel("r3")
    world.sink.fails = unless_of("r3", 2, error)
    for number in range(80):
        world.start(f"later{number}")
        world.flush()
    (letter,) = world.store.read(ListDeadLetters(namespace="default"))

    assert (letter.sink, letter.run_id, letter.number) == ("audit", "r3", 2)
    assert (letter.attempts, letter.head_row) == (attempts, 2)
    assert str(error) in letter.error
    assert world.numbers("r3") == [1]
    assert {event.run_id for event in world.sink.events} >= {f"later{n}" for n in range(80)}
    assert len(world.sink.events) == 10 + 80
    (told,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "event 2 of run r3 repeatedly" in told.getMessage()
    assert letter.run not in told.getMessage()


def test_a_poisoned_event_that_is_alone_waits_for_proof_that_the_sink_takes_others(world: World) -> None:
    world.register()
    world.start("bad")
    world.sink.fails = unless_of("bad", 1, OSError("no \0 \ud800"))
    world.flush(20, apart=400)
    assert world.store.read(ListDeadLetters(namespace="default")) == ()
    for number in range(DEAD_LETTER_AFTER_FAILURES + 1):
        world.start(f"r{number}")
        world.flush(2, apart=400)

    assert len(world.store.read(ListDeadLetters(namespace="default"))) == 1


def test_three_poisoned_runs_do_not_keep_others_waiting(world: World) -> None:
    world.register()
    for number in range(5):
        world.start(f"bad{number}")
    for number in range(5):
        world.start(f"good{number}")
    world.sink.fails = lambda events: (
        OSError("no") if any(event.run_id.startswith("bad") for event in events) else None
    )
    world.flush(30)

    assert sorted(event.run_id for event in world.sink.events) == [f"good{n}" for n in range(5)]


def test_a_sink_says_how_long_to_leave_it_alone(world: World) -> None:
    world.register()
    world.start("a")
    world.sink.fails = lambda _: SinkUnavailableError("busy", retry_after=600)
    world.flusher.flush()
    world.sink.fails = lambda _: None
    world.wait(599)
    assert world.flusher.flush().events == 0
    world.wait(2)

    assert world.flusher.flush().events == 1


def parked(world: World) -> None:
    world.register()
    world.start("r")
    world.start("bad")
    world.cancel("bad")
    world.sink.fails = unless_of("bad", 1, EventRefusedError("no"))
    world.flush(DEAD_LETTER_AFTER + 1)
    assert len(world.store.read(ListDeadLetters(namespace="default"))) == 1


def test_a_parked_stream_stays_where_it_is_whatever_happens_to_its_run(world: World) -> None:
    world.register()
    world.start("bad")
    world.sink.fails = unless_of("bad", 1, EventRefusedError("no"))
    world.flush(DEAD_LETTER_AFTER + 1)
    world.cancel("bad")
    world.sink.fails = lambda _: None
    world.flush(5)

    assert world.sink.events == ()
    (letter,) = world.store.read(ListDeadLetters(namespace="default"))
    assert (letter.number, letter.head_row) == (1, 2)


def test_what_is_replayed_goes_on_from_the_event_that_was_refused(world: World) -> None:
    parked(world)
    world.sink.fails = lambda _: None
    assert world.core.kernel.dispatch(DeadLetterReplay()).replayed == 1
    world.flush(2)

    assert world.numbers("bad") == [1, 2]
    assert world.store.read(ListDeadLetters(namespace="default")) == ()


def test_what_is_replayed_and_refused_again_is_parked_again(world: World) -> None:
    parked(world)
    world.core.kernel.dispatch(DeadLetterReplay())
    world.flush(DEAD_LETTER_AFTER + 1)

    assert len(world.store.read(ListDeadLetters(namespace="default"))) == 1


def test_an_event_that_an_operator_leaves_out_has_one_in_its_place(world: World) -> None:
    parked(world)
    world.sink.fails = lambda events: (
        EventRefusedError("no") if any(event.type == "run.created" for event in events) else None
    )
    ann = Actor("user", "ann")
    world.core.kernel.dispatch(DeadLetterReplay(run_id="bad", skip=True, reason="too odd", actor=ann))
    world.flush(2)

    first, second = [event for event in world.sink.events if event.run_id == "bad"]
    assert (first.number, first.type) == (1, "event.skipped")
    assert first.data == '{"actor":{"id":"ann","kind":"user"},"reason":"too odd","type":"run.created"}'
    assert (second.number, second.type) == (2, "run.cancelled")


def test_if_even_that_is_refused_it_gets_nothing_in_its_place(world: World) -> None:
    parked(world)
    for _ in range(2):
        world.core.kernel.dispatch(DeadLetterReplay(sink="audit", skip=True, reason="too odd"))
        world.flush(DEAD_LETTER_AFTER + 1)

    assert world.numbers("bad") == [2]
    (skips,) = [stream.skipped_rows for stream in world.store.dump().streams.values() if stream.skipped_rows]
    assert skips == '{"1":{"reason":"too odd"}}'


@pytest.mark.parametrize("which", [DeadLetterReplay(sink="other"), DeadLetterReplay(run_id="r")])
def test_only_what_is_named_is_replayed(world: World, which: DeadLetterReplay) -> None:
    parked(world)

    assert world.core.kernel.dispatch(which).replayed == 0
    assert len(world.store.read(ListDeadLetters(namespace="default"))) == 1


def test_a_sink_may_take_some_types_only(world: World) -> None:
    world.register(types=("run.*", "stage.failed"))
    world.start("a")
    world.cancel("a")
    world.register(types=("stage.failed", "run.*"))  # it is there, and stays as it is
    with pytest.raises(SinkExistsError):
        world.register()
    world.flush(2)

    assert [event.type for event in world.sink.events] == ["run.created", "run.cancelled"]
    world.core.kernel.dispatch(SinkRemove(sink="audit"))
    world.register(types=("run.cancelled",))
    world.wait(1)
    world.start("b")
    world.cancel("b")
    world.flush(2)
    assert world.numbers("b") == [2]


def test_a_sink_that_is_removed_gets_nothing_and_begins_anew_if_it_is_made_again(world: World) -> None:
    world.register()
    world.start("a")
    world.core.kernel.dispatch(SinkRemove(sink="audit"))
    world.flush()
    assert world.sink.events == ()
    world.wait(1)
    world.register()
    world.cancel("a")
    world.flush(2)

    assert world.numbers("a") == [2]
    world.store.prune(0)
    assert len(world.store.dump().streams) == 1


def test_a_sink_that_nobody_registered_is_told_of_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.start("a")
    world.flush(3)
    (told,) = [record.getMessage() for record in caplog.records]
    assert "the sink 'audit' is not registered in the namespace 'default'" in told
    assert "`holdfast sink add audit`" in told
    caplog.clear()
    world.register(since=0)
    world.flush(3)

    assert world.numbers("a") == [1]
    assert caplog.text == ""


def test_a_host_without_the_sink_leaves_its_events_alone(world: World) -> None:
    world.register()
    world.start("a")

    assert Flusher(world.core, {"other": MemorySink()}).flush().events == 0
    assert Flusher(world.core, {}).flush().events == 0


def test_a_long_history_comes_page_by_page(world: World) -> None:
    world.register()
    world.start("a")
    run = world.run("a")
    rows = [
        Insert(HistoryRow(run=run.key, number=number, type="stage.retrying", at=run.created_at))
        for number in range(2, 1_001)
    ]
    world.store.transact(lambda tx: tx.apply([*rows, Update(attrs.evolve(run, last_row=1_000))]))
    world.flush(2)

    assert world.numbers("a") == list(range(1, 1_001))


def test_a_flush_stops_when_it_is_told_to(world: World) -> None:
    world.register()
    for number in range(5):
        world.start(f"r{number}")

    assert world.flusher.flush(keep_on=lambda: False).events == 0
    assert world.flusher.flush().events == 5


def test_a_flush_says_how_far_it_has_come_before_it_is_over(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So few events are repeated if its process is killed."""
    monkeypatch.setattr(flusher, "ROWS_AT_ONCE", 2)
    world.register()
    for number in range(10):
        world.start(f"r{number}")
    said: list[tuple[int, int]] = []

    def note(_: Sequence[Event]) -> None:
        streams = world.store.dump().streams.values()
        said.append((len(world.sink.events), sum(stream.delivered > 0 for stream in streams)))
        world.wait(flusher.SETTLE_AFTER * 1.5)

    world.sink.fails = note
    assert world.flusher.flush_once("audit").events == 10

    assert said == [(0, 0), (2, 2), (4, 4), (6, 6), (8, 8)]
    assert all(stream.holder is None for stream in world.store.dump().streams.values())


def test_a_flush_gives_back_what_it_does_not_come_to_soon(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flusher, "ROWS_AT_ONCE", 2)
    world.register()
    for number in range(10):
        world.start(f"r{number}")
    world.sink.fails = lambda _: world.wait(flusher.FLUSH_SECONDS * 0.6)
    flushed = world.flusher.flush_once("audit")

    assert (flushed.events, flushed.more) == (4, True)
    assert all(stream.holder is None for stream in world.store.dump().streams.values())


@pytest.mark.slow
def test_two_flushers_do_not_double(world: World) -> None:
    world.register()
    for number in range(250):
        world.start(f"r{number}")
    other = Flusher(world.core, {"audit": world.sink})

    def flushes_too(_: Sequence[Event]) -> None:
        world.sink.fails = lambda _: None
        other.flush()

    world.sink.fails = flushes_too
    world.flush(2)

    assert len(world.sink.events) == len({event.id for event in world.sink.events}) == 250
