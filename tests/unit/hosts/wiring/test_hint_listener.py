"""The hint listener: who is woken by a hint, and what happens without hints."""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from itertools import count
from typing import Final

import pytest
from attrs import evolve
from typing_extensions import override

from holdfast.adapters.memory.transport import MemoryTransport
from holdfast.hosts.wiring import hint_listener as listener_module
from holdfast.hosts.wiring.hint_listener import ThreadedHintListener
from holdfast.ports.changes import Insert, Update
from holdfast.ports.errors import UnavailableError
from holdfast.ports.persistence import Persistence
from holdfast.ports.queries.runs import RunsByKey
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.transport import Delivery, Hint, HistoryGrew, JobHint, JobTransport, RunEnded
from holdfast.testing.conformance.builders import a_key, a_run
from holdfast.testing.faults import Fault, FaultPlan, FaultyPersistence
from holdfast.testing.transport import FaultyTransport
from tests.unit.hosts.attempt_harness import CountingPersistence

SOON: Final = 120.0
"""Seconds that a test waits for what should happen at once."""

A_JOB: Final = JobHint(job="run.1", epoch=0, queue="default")


class Scripted:
    """A JobTransport that delivers as told. An empty delivery is a timeout."""

    def __init__(self) -> None:
        self._said: queue.SimpleQueue[Sequence[Hint | None] | Exception] = queue.SimpleQueue()
        self._receipts = count()
        self.last_receipt = -1
        self.received = 0
        self.acknowledged = queue.SimpleQueue[str]()
        self.closed = threading.Event()

    def say(self, *hints: Hint | None) -> None:
        self.last_receipt += len(hints)
        self._said.put(hints)

    def fail(self, error: Exception) -> None:
        self._said.put(error)

    def settled(self) -> None:
        """Wait until everything delivered so far has been handled."""
        self.say(RunEnded(run="nobody waits for it"))
        while self.acknowledged.get(timeout=SOON) != str(self.last_receipt):
            pass

    def announce(self, hints: Sequence[Hint], /) -> None:
        self.say(*hints)

    def receive(self, limit: int, wait: float, /) -> Sequence[Delivery]:
        said = self._said.get()
        self.received += 1
        if isinstance(said, Exception):
            raise said
        return [Delivery(hint=hint, receipt=str(next(self._receipts))) for hint in said]

    def ack(self, receipt: str, /) -> None:
        self.acknowledged.put(receipt)

    def retry(self, receipt: str, delay: float, /) -> None:
        raise NotImplementedError

    def extend(self, receipt: str, by: float, /) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.closed.set()
        self.say()


class World:
    """A store with runs, a transport, and a listener between them."""

    def __init__(self) -> None:
        self.store = CountingPersistence()
        self.transport = Scripted()
        self._before = set(threading.enumerate())
        self.listener = ThreadedHintListener(self.store, self.transport)
        self._opened = [self.listener]

    def open(
        self, *, persistence: Persistence | None = None, transport: JobTransport | None = None
    ) -> ThreadedHintListener:
        """A listener on another store or transport."""
        self._opened.append(ThreadedHintListener(persistence or self.store, transport or self.transport))
        return self._opened[-1]

    def create(self, *numbers: int) -> None:
        runs = [a_run(number, status=RunStatus.RUNNING) for number in numbers]
        self.store.transact(lambda tx: tx.apply([Insert(run) for run in runs]))

    def end(self, number: int) -> None:
        (run,) = self.store.read(RunsByKey((a_key(number),)))
        self.store.asked.clear()
        self.store.transact(lambda tx: tx.apply([Update(evolve(run, status=RunStatus.COMPLETED))]))

    def append(self, number: int) -> None:
        """Let the history of a run have one row more, as far as the run's own row says."""
        (run,) = self.store.read(RunsByKey((a_key(number),)))
        self.store.asked.clear()
        self.store.transact(lambda tx: tx.apply([Update(evolve(run, last_row=run.last_row + 1))]))

    @property
    def asked(self) -> list[set[str]]:
        """The runs of each query to the store."""
        return [set(query.keys) for query in self.store.asked if isinstance(query, RunsByKey)]

    @property
    def is_listening(self) -> bool:
        """Return whether there is a new listener thread."""
        started = set(threading.enumerate()) - self._before
        return any(thread.name == "holdfast-listener" for thread in started)

    def close(self) -> None:
        for listener in self._opened:
            listener.close()


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def hint(number: int) -> RunEnded:
    return RunEnded(run=a_key(number))


def new_rows(number: int) -> HistoryGrew:
    return HistoryGrew(run=a_key(number))


# Runs that end --------------------------------------------------------------------------------------------------


def test_a_hint_wakes_exactly_those_who_wait_for_that_run(world: World) -> None:
    world.create(1, 2)
    first, also_first, second = (world.listener.when_ended(a_key(number)) for number in (1, 1, 2))
    world.end(2)
    world.end(1)
    world.transport.say(hint(1))

    assert first.result(SOON).key == also_first.result(SOON).key == a_key(1)
    assert world.asked == [{a_key(1)}]
    assert not second.done()


def test_a_hint_of_a_run_that_goes_on_wakes_nobody(world: World) -> None:
    world.create(1)
    waiting = world.listener.when_ended(a_key(1))
    world.transport.say(hint(1))
    world.transport.settled()

    assert not waiting.done()


def test_a_hint_of_a_run_that_nobody_waits_for_asks_nothing(world: World) -> None:
    world.create(1, 2)
    world.listener.when_ended(a_key(1))
    world.transport.say(hint(2))
    world.transport.settled()

    assert world.asked == []


def test_new_rows_wake_who_waits_for_rows_and_cost_who_waits_for_the_end_no_query(world: World) -> None:
    world.create(1, 2)
    end, row = world.listener.when_ended(a_key(1)), world.listener.when_past(a_key(2), 0)
    world.append(2)
    world.transport.say(new_rows(1))
    world.transport.say(new_rows(2))

    assert row.result(SOON).key == a_key(2)
    assert world.asked == [{a_key(2)}]
    assert not end.done()


def test_who_waits_for_rows_is_woken_by_the_end_of_the_run(world: World) -> None:
    world.create(1)
    row = world.listener.when_past(a_key(1), 10)
    world.end(1)
    world.transport.say(hint(1))

    assert row.result(SOON).status is RunStatus.COMPLETED


def test_when_all_that_is_known_is_that_something_changed_all_are_looked_at_in_one_question(
    world: World,
) -> None:
    world.create(1, 2, 3)
    waiting = [world.listener.when_ended(a_key(number)) for number in (1, 2, 3)]
    world.end(3)
    world.transport.say(None)

    assert waiting[2].result(SOON).key == a_key(3)
    assert world.asked == [{a_key(1), a_key(2), a_key(3)}]


def test_a_hint_that_was_lost_is_made_up_for_when_nothing_was_heard_for_a_while(world: World) -> None:
    world.create(1)
    waiting = world.listener.when_ended(a_key(1))
    world.end(1)
    world.transport.say()

    assert waiting.result(SOON).status is RunStatus.COMPLETED


def test_a_hint_that_was_lost_is_made_up_for_however_much_else_is_heard(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy system never times out waiting for hints."""
    monkeypatch.setattr(listener_module, "POLL_FLOOR", 0.05)
    world.create(1)
    waiting = world.listener.when_ended(a_key(1))
    world.end(1)
    until = time.monotonic() + SOON
    while not waiting.done() and time.monotonic() < until:
        world.transport.say(A_JOB)
        world.transport.settled()

    assert waiting.done()


def test_while_nobody_waits_the_store_is_not_asked(world: World) -> None:
    world.listener.add_worker(lambda: None)
    for _ in range(3):
        world.transport.say()
        world.transport.say(hint(1), None)
    world.transport.settled()

    assert world.asked == []


def test_more_runs_than_fit_into_one_question_are_asked_for_in_several(world: World) -> None:
    world.create(*range(1_500))
    waiting = [world.listener.when_ended(a_key(number)) for number in range(1_500)]
    world.end(1_499)
    world.transport.say(None)

    assert waiting[-1].result(SOON).key == a_key(1_499)
    assert [len(keys) for keys in world.asked] == [1_000, 500]


def test_whoever_gives_up_waiting_is_forgotten(world: World) -> None:
    world.create(1, 2)
    given_up, waiting = world.listener.when_ended(a_key(1)), world.listener.when_ended(a_key(2))
    given_up.cancel()
    world.end(2)
    world.transport.say(None)
    waiting.result(SOON)

    assert world.asked == [{a_key(2)}]


def test_what_is_heard_is_acknowledged_after_it_was_dealt_with(world: World) -> None:
    world.create(1)
    waiting = world.listener.when_ended(a_key(1))
    world.end(1)
    world.transport.say(hint(1), A_JOB)

    assert world.transport.acknowledged.get(timeout=SOON) == "0"
    assert waiting.done()
    assert world.transport.acknowledged.get(timeout=SOON) == "1"


def test_on_a_bad_carrier_everybody_is_told_in_the_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "POLL_FLOOR", 0.05)
    transport = FaultyTransport(MemoryTransport(), 1, loses=0.5, repeats=0.3, delays=0.3, reorders=0.3)
    listener = world.open(transport=transport)
    world.create(*range(50))
    waiting = [listener.when_ended(a_key(number)) for number in range(50)]
    for number in range(50):
        world.end(number)
        transport.announce([hint(number)])

    assert [future.result(SOON).key for future in waiting] == [a_key(number) for number in range(50)]
    assert transport.fired["lost"] > 0


# Workers --------------------------------------------------------------------------------------------------------


def heard_by(world: World) -> "Callable[[], int]":
    """Add a worker; the returned function counts its wake-ups."""
    woken: list[None] = []
    world.listener.add_worker(lambda: woken.append(None))
    return lambda: len(woken)


def test_word_of_jobs_wakes_every_worker_once_for_all_that_is_heard_together(world: World) -> None:
    one, another = heard_by(world), heard_by(world)
    world.transport.say(A_JOB, A_JOB, hint(1))
    world.transport.settled()

    assert one() == another() == 1


@pytest.mark.parametrize(
    ("queues", "told", "wakes"),
    [
        ({"default"}, (A_JOB,), True),
        ({"other", "default"}, (A_JOB,), True),
        ({"other"}, (A_JOB,), False),
        ({"other"}, (A_JOB, evolve(A_JOB, queue="other")), True),
        ({"other"}, (evolve(A_JOB, queue=""),), True),
        ({"other"}, (None,), True),
        ({"other"}, (hint(1),), False),
    ],
)
def test_a_worker_of_some_queues_is_woken_by_jobs_of_these_or_of_unknown_ones(
    world: World, queues: set[str], told: tuple[Hint | None, ...], wakes: bool
) -> None:
    woken: list[None] = []
    world.listener.add_worker(lambda: woken.append(None), queues=frozenset(queues))
    world.transport.say(*told)
    world.transport.settled()

    assert bool(woken) == wakes


def test_word_of_runs_wakes_no_worker(world: World) -> None:
    woken = heard_by(world)
    world.transport.say(hint(1), new_rows(2))
    world.transport.settled()

    assert woken() == 0


def test_workers_get_the_runs_that_ended_and_the_histories_that_grew(world: World) -> None:
    told: list[tuple[frozenset[str], frozenset[str]]] = []
    world.listener.add_worker(lambda: None, lambda ended, grew: told.append((ended, grew)))
    world.transport.say(hint(1), A_JOB, new_rows(3), hint(2))
    world.transport.say(A_JOB, None)
    world.transport.say(new_rows(2))
    world.transport.settled()

    assert told[0] == (frozenset({a_key(1), a_key(2)}), frozenset({a_key(3)}))
    assert told[1] == (frozenset(), frozenset({a_key(2)}))
    assert len(told) == 3  # the last is that of the test's own


def test_that_something_changed_wakes_workers(world: World) -> None:
    woken = heard_by(world)
    world.transport.say(None)
    world.transport.settled()

    assert woken() == 1


def test_a_worker_that_was_removed_is_not_woken(world: World) -> None:
    woken: list[None] = []

    def wake() -> None:
        woken.append(None)

    world.listener.add_worker(wake)
    world.listener.remove_worker(wake)
    world.listener.remove_worker(wake)
    world.transport.say(A_JOB)
    world.transport.settled()

    assert woken == []


class Queue(Scripted):
    """A queue that gives each hint to one receiver of all processes."""

    delivers_run_hints = False


def test_what_goes_to_one_receiver_is_taken_only_where_there_is_a_worker(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "POLL_FLOOR", 0.01)
    transport = Queue()
    listener = world.open(transport=transport)
    transport.say(A_JOB)
    world.create(1)
    waiting = listener.when_ended(a_key(1))
    world.end(1)
    assert waiting.result(SOON).key == a_key(1)
    assert transport.received == 0

    woken = threading.Event()
    listener.add_worker(woken.set)
    assert woken.wait(SOON)
    assert transport.acknowledged.get(timeout=SOON) == "0"


# Faults ---------------------------------------------------------------------------------------------------------


def wait_until_notified(world: World, listener: ThreadedHintListener) -> None:
    world.create(1)
    waiting = listener.when_ended(a_key(1))
    world.end(1)
    world.transport.say(hint(1))
    world.transport.say(None)
    assert waiting.result(SOON).key == a_key(1)


def test_a_store_that_does_not_answer_is_asked_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "POLL_FLOOR", 0.01)
    plan = FaultPlan([Fault.FAILS_BEFORE])
    wait_until_notified(world, world.open(persistence=FaultyPersistence(world.store, plan)))

    assert plan.fired == {Fault.FAILS_BEFORE: 1}


@pytest.mark.parametrize("error", [UnavailableError("away"), RuntimeError("a bug")])
def test_a_carrier_that_fails_is_listened_to_again(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(listener_module, "POLL_FLOOR", 0.01)
    world.transport.fail(error)

    wait_until_notified(world, world.listener)


@pytest.mark.parametrize("error", [UnavailableError("away"), RuntimeError("a bug")])
def test_while_a_carrier_can_not_be_heard_those_who_wait_are_told_all_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    monkeypatch.setattr(listener_module, "POLL_FLOOR", 0.01)
    world.create(1)
    waiting = world.listener.when_ended(a_key(1))
    world.end(1)
    for _ in range(3):
        world.transport.fail(error)

    assert waiting.result(SOON).key == a_key(1)
    assert caplog.text.count("nothing is heard now") <= 1


def test_a_carrier_that_fails_is_given_a_moment_before_it_is_asked_again(world: World) -> None:
    for _ in range(100):
        world.transport.fail(UnavailableError("away"))
    world.listener.add_worker(lambda: None)
    time.sleep(0.05)

    assert world.transport.received == 1


# The end --------------------------------------------------------------------------------------------------------


def test_nobody_listens_before_anybody_waits(world: World) -> None:
    assert not world.is_listening
    world.listener.when_ended(a_key(1))
    assert world.is_listening


def test_when_it_is_closed_its_thread_ends_and_whoever_waits_is_let_go(world: World) -> None:
    waiting = world.listener.when_ended(a_key(1))
    world.listener.close()
    world.listener.close()

    with pytest.raises(CancelledError):
        waiting.result(SOON)
    assert world.transport.closed.is_set()
    assert not world.is_listening


def test_after_it_was_closed_nobody_waits_in_vain(world: World) -> None:
    world.listener.close()
    waiting: Future[Run] = world.listener.when_ended(a_key(1))

    assert waiting.cancelled()
    assert not world.is_listening


def test_closing_interrupts_a_real_transport_s_wait() -> None:
    world = World()
    transport = MemoryTransport()
    listener = world.open(transport=transport)
    listener.when_ended(a_key(1))
    began = time.monotonic()
    world.close()

    assert time.monotonic() - began < listener_module.POLL_FLOOR
    assert not world.is_listening


class _ClosedByAnother(MemoryTransport):
    """A transport that is closed while a listener receives from it, and counts the receives."""

    def __init__(self) -> None:
        super().__init__()
        self.close()
        self.asked = 0

    @override
    def receive(self, limit: int, wait: float, /) -> Sequence[Delivery]:
        self.asked += 1
        return super().receive(limit, wait)


@pytest.mark.slow
def test_a_transport_that_somebody_else_has_closed_is_not_asked_without_a_rest(world: World) -> None:
    transport = _ClosedByAnother()
    listener = ThreadedHintListener(world.store, transport)
    listener.add_worker(lambda: None)
    while not transport.asked:
        time.sleep(0.001)
    asked = transport.asked
    time.sleep(5 * listener_module.IDLE_PAUSE)
    again = transport.asked - asked
    listener.close()

    # Without a rest it is asked tens of thousands of times.
    assert again <= 10
