from collections import Counter

import pytest

from holdfast.adapters.memory.persistence import MemoryPersistence
from holdfast.ports.changes import Insert
from holdfast.ports.errors import ConflictError, UnavailableError
from holdfast.ports.persistence import Transaction
from holdfast.ports.queries.runs import RunsByKey
from holdfast.ports.tables import RUNS
from holdfast.testing.blobs import MemoryBlobStore
from holdfast.testing.conformance.blobs import key_of
from holdfast.testing.conformance.builders import a_key, a_run
from holdfast.testing.conformance.events import an_event
from holdfast.testing.conformance.persistence.case import put
from holdfast.testing.conformance.threads import in_threads
from holdfast.testing.faults import Fault, FaultPlan, FaultyBlobStore, FaultyPersistence, FaultySink
from holdfast.testing.sink import MemorySink

READ = RunsByKey((a_key(1),))


def test_a_plan_goes_through_its_faults_and_then_all_goes_well() -> None:
    plan = FaultPlan([None, Fault.LOST_ANSWER, Fault.FAILS_BEFORE])
    drawn = [plan.next(frozenset(Fault)) for _ in range(5)]

    assert drawn == [None, Fault.LOST_ANSWER, Fault.FAILS_BEFORE, None, None]
    assert plan.fired == {Fault.LOST_ANSWER: 1, Fault.FAILS_BEFORE: 1}


def test_a_fault_that_a_call_can_not_have_does_not_fire() -> None:
    plan = FaultPlan.always(Fault.RUNS_AGAIN)

    assert None is plan.next(frozenset({Fault.FAILS_BEFORE}))
    assert plan.fired == {}


@pytest.mark.slow
def test_a_seeded_plan_is_foreseeable_and_keeps_its_chances() -> None:
    def drawn(seed: int) -> list[Fault | None]:
        plan = FaultPlan.seeded(seed, fails_before=0.2, lost_answer=0.1, runs_again=0.3)
        return [plan.next(frozenset(Fault)) for _ in range(10_000)]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)
    shares = Counter(drawn(3))
    expected = {Fault.FAILS_BEFORE: 0.2, Fault.LOST_ANSWER: 0.1, Fault.RUNS_AGAIN: 0.3, None: 0.4}
    for fault, chance in expected.items():
        assert shares[fault] / 10_000 == pytest.approx(chance, abs=0.03)


def test_a_healed_plan_lets_all_go_well() -> None:
    plan = FaultPlan.always(Fault.FAILS_BEFORE)
    plan.next(frozenset(Fault))
    plan.heal()

    assert None is plan.next(frozenset(Fault))
    assert plan.fired == {Fault.FAILS_BEFORE: 1}


def test_a_plan_counts_the_faults_of_all_threads() -> None:
    plan = FaultPlan.always(Fault.FAILS_BEFORE)
    in_threads(4, lambda _: [plan.next(frozenset(Fault)) for _ in range(500)])

    assert plan.fired[Fault.FAILS_BEFORE] == 2_000


def test_a_transaction_that_fails_before_does_nothing() -> None:
    inner = MemoryPersistence()
    store = FaultyPersistence(inner, FaultPlan([Fault.FAILS_BEFORE]))
    with pytest.raises(UnavailableError):
        put(store, Insert(a_run()))

    assert inner.read(READ) == ()
    assert store.fired == {Fault.FAILS_BEFORE: 1}


def test_a_transaction_whose_answer_is_lost_was_made() -> None:
    inner = MemoryPersistence()
    store = FaultyPersistence(inner, FaultPlan([Fault.LOST_ANSWER]))
    with pytest.raises(UnavailableError):
        put(store, Insert(a_run()))

    assert (a_run(),) == inner.read(READ)
    assert store.fired == {Fault.LOST_ANSWER: 1}


def test_a_transaction_that_runs_again_is_made_once() -> None:
    inner = MemoryPersistence()
    store = FaultyPersistence(inner, FaultPlan([Fault.RUNS_AGAIN]))
    tries: list[int] = []

    def work(tx: Transaction) -> str:
        tries.append(len(tx.lock(RUNS, [a_key(1)])))
        tx.apply([Insert(a_run())])
        return "made"

    assert store.transact(work) == "made"
    assert tries == [0, 0]
    assert (a_run(),) == inner.read(READ)


def test_an_error_of_work_that_runs_again_goes_to_the_caller() -> None:
    store = FaultyPersistence(MemoryPersistence(), FaultPlan.always(Fault.RUNS_AGAIN))
    put(store, Insert(a_run()))

    with pytest.raises(ConflictError):
        put(store, Insert(a_run()))


def test_a_read_can_only_fail_before() -> None:
    store = FaultyPersistence(MemoryPersistence(), FaultPlan([Fault.FAILS_BEFORE, Fault.LOST_ANSWER]))
    with pytest.raises(UnavailableError):
        store.read(READ)

    assert store.read(READ) == ()
    assert store.fired == {Fault.FAILS_BEFORE: 1}


def test_setup_and_close_have_no_faults() -> None:
    store = FaultyPersistence(MemoryPersistence(), FaultPlan.always(Fault.FAILS_BEFORE))
    store.setup()
    store.close()

    assert store.fired == {}


def test_blobs_fail_before_and_after() -> None:
    inner = MemoryBlobStore()
    key = key_of(b"1")
    store = FaultyBlobStore(inner, FaultPlan([Fault.FAILS_BEFORE, Fault.LOST_ANSWER]))
    with pytest.raises(UnavailableError):
        store.put(key, b"1")
    assert not inner.exists(key)
    with pytest.raises(UnavailableError):
        store.put(key, b"1")
    assert inner.get(key) == b"1"
    store.put(key, b"1")

    assert store.fired == {Fault.FAILS_BEFORE: 1, Fault.LOST_ANSWER: 1}


def test_every_method_of_blobs_can_fail() -> None:
    inner = MemoryBlobStore()
    key = key_of(b"1")
    inner.put(key, b"1")
    plan = FaultPlan.always(Fault.FAILS_BEFORE)
    store = FaultyBlobStore(inner, plan)
    for attempt in (store.get, store.exists, store.delete):
        with pytest.raises(UnavailableError):
            attempt(key)
    with pytest.raises(UnavailableError):
        list(store.list(key))
    assert store.fired[Fault.FAILS_BEFORE] == 4
    plan.heal()

    assert (b"1", True, [key]) == (store.get(key), store.exists(key), list(store.list("")))
    store.delete(key)
    assert not inner.exists(key)


def test_a_sink_fails_before_and_after() -> None:
    inner = MemorySink()
    sink = FaultySink(inner, FaultPlan([Fault.FAILS_BEFORE, Fault.LOST_ANSWER]))
    for taken in (0, 1):
        with pytest.raises(UnavailableError):
            sink.emit([an_event()])
        assert taken == len(inner.events)
    sink.emit([an_event()])

    assert len(inner.events) == 2
    assert sink.fired == {Fault.FAILS_BEFORE: 1, Fault.LOST_ANSWER: 1}
