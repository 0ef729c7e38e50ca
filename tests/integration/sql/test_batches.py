"""A batch takes the same number of statements and round trips for one row and for many."""

from collections import Counter
from collections.abc import Callable

import pytest
from attrs import evolve

from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.ports.changes import Change, Delete, Insert, Update
from holdfast.ports.errors import HoldfastError
from holdfast.ports.persistence import Transaction
from holdfast.ports.queries.history import HistoryOf
from holdfast.ports.queries.values import LoadValues
from holdfast.ports.records.run import RunName
from holdfast.ports.records.values import Payload
from holdfast.ports.searches import ClaimableJobs, JobsOfRuns, LatestRuns, QueueClaim
from holdfast.ports.tables import HISTORY, JOBS, LEADERS, REPLIES, RUNS, SESSIONS
from holdfast.testing.conformance.builders import (
    DEFINITION,
    NAMESPACE,
    QUEUE,
    a_completed_row,
    a_job,
    a_key,
    a_leader_lease,
    a_note,
    a_page,
    a_plan,
    a_reply,
    a_row,
    a_run,
    a_session,
)
from tests.integration.counts.statement_counter import watch_statements
from tests.integration.sql.proxy import Proxy

OpenStore = Callable[..., SqlPersistence]


def everything(numbers: range) -> list[Change]:
    """Return one change of each kind for each number."""
    changes: list[Change] = []
    for number in numbers:
        changes += [
            Insert(a_run(number)),
            Insert(a_job(number)),
            Insert(a_row(number)),
            Insert(a_page(number)),
            Insert(a_plan(number)),
            Insert(a_reply(f"key-{number}")),
            Insert(a_session(number)),
            Insert(a_leader_lease(f"duty-{number}")),
            Insert(a_note(number, number)),
        ]
    return changes


def use_everything(numbers: range) -> Callable[[Transaction], None]:
    def work(tx: Transaction) -> None:
        keys = [a_key(number) for number in numbers]
        found = tx.lock(RUNS, keys)
        latest = tx.find(LatestRuns([RunName(NAMESPACE, f"run-{number}") for number in numbers]))
        jobs = tx.lock(JOBS, [a_job(number).key for number in numbers])
        assert len(numbers) == len(found) == len(latest) == len(jobs) == len(tx.find(JobsOfRuns(keys)))
        tx.get(REPLIES, [(NAMESPACE, f"key-{number}") for number in numbers])
        tx.lock(SESSIONS, [a_session(number).id for number in numbers])
        tx.lock(LEADERS, [f"duty-{number}" for number in numbers])
        tx.find(
            ClaimableJobs(
                NAMESPACE,
                [QueueClaim(queue=QUEUE, definitions=(DEFINITION,), limit=len(numbers))],
                len(numbers),
            )
        )
        changes: list[Change] = [Update(evolve(run, last_row=2)) for run in found]
        changes += [Insert(a_row(run.key, 2)) for run in found]
        half = len(jobs) // 2
        changes += [Update(evolve(job, attempts=1)) for job in jobs[:half]]
        changes += [Delete(JOBS, job.key) for job in jobs[half:]]
        tx.apply(changes)

    return work


def load_everything(store: SqlPersistence, numbers: range) -> None:
    references: list[tuple[str, int | tuple[object, ...]]] = []
    for number in numbers:
        references += [(a_key(number), 1), (a_key(number), ("item", "bill", 0, 0))]
        references += [(a_key(number), ("map", "bill", 1, 2))]
    assert len(references) == len(store.read(LoadValues(tuple(references))))


def run_all(store: SqlPersistence, numbers: range) -> None:
    store.transact(lambda tx: tx.apply(everything(numbers)))
    store.transact(use_everything(numbers))
    load_everything(store, numbers)


@pytest.mark.slow
@pytest.mark.service
def test_the_number_of_statements_does_not_depend_on_the_number_of_rows(
    postgres_database: str, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(postgres_database)
    store.setup()
    store.transact(lambda tx: tx.lock(RUNS, [a_key(0)]))
    counted: Counter[str] = Counter()
    watch_statements(monkeypatch, lambda sql: counted.update((sql,)))
    run_all(store, range(10, 15))
    few = counted.copy()
    counted.clear()
    run_all(store, range(1_000, 1_500))

    assert few == counted
    # Two transactions wrote history.
    assert sum(times for sql, times in counted.items() if "INTO holdfast_history" in sql) == 2


@pytest.mark.slow
@pytest.mark.service
def test_a_transaction_that_locks_reads_and_writes_is_few_round_trips(
    proxy: Proxy, open_store: OpenStore
) -> None:
    store = open_store(proxy.url)
    store.setup()
    store.transact(lambda tx: tx.apply(everything(range(1, 11))))
    before = proxy.round_trips

    def work(tx: Transaction) -> None:
        numbers = range(1, 11)
        runs, jobs, sessions, _ = tx.lock_attempts(
            [a_key(number) for number in numbers],
            [a_job(number).key for number in numbers],
            [a_session(number).id for number in numbers],
        )
        assert len(runs) == len(jobs) == len(sessions) == 10
        tx.apply([*map(Update, map(a_run, numbers)), *(Delete(JOBS, job.key) for job in jobs)])

    store.transact(work)

    # BEGIN with the reads; a write for each of two tables, and the receipt, with COMMIT.
    assert proxy.round_trips - before == 2


@pytest.mark.slow
@pytest.mark.service
def test_a_transaction_that_only_adds_is_one_round_trip(proxy: Proxy, open_store: OpenStore) -> None:
    store = open_store(proxy.url)
    store.setup()
    before = proxy.round_trips

    store.transact(lambda tx: tx.apply(everything(range(1, 11))))

    assert proxy.round_trips - before == 1


@pytest.mark.slow
@pytest.mark.service
def test_what_was_not_locked_is_looked_for_before_the_commit(
    postgres_database: str, open_store: OpenStore
) -> None:
    """An update of a missing row changes nothing, which only the row count shows."""
    store = open_store(postgres_database)
    store.setup()
    store.transact(lambda tx: tx.apply([Insert(a_run(1))]))

    def work(tx: Transaction) -> None:
        (run,) = tx.lock_attempts([a_key(1)], [], []).runs
        tx.apply([Update(evolve(run, last_row=5)), Update(a_run(2))])

    with pytest.raises(HoldfastError, match="1 rows of holdfast_runs were to be updated, and 0 are there"):
        store.transact(work)

    assert [a_run(1)] == store.transact(lambda tx: tx.lock(RUNS, [a_key(1), a_key(2)]))


def test_large_batches_are_stored_as_they_are(store: SqlPersistence) -> None:
    texts = [
        '"\\u0000"',
        '"\\ud800"',
        '"ünïcödé \U0001f600"',
        '"%s %(rows)s :rows ?"',
        '"' + "x" * 100_000 + '"',
    ]
    rows = [a_completed_row(1, number + 1, output=text) for number, text in enumerate(texts)]
    rows += [a_row(1, number, payload=Payload(blob="a/b")) for number in range(6, 500)]
    store.transact(lambda tx: tx.apply([Insert(a_run(1)), *map(Insert, reversed(rows))]))

    assert tuple(rows) == store.read(HistoryOf(a_key(1)))


@pytest.mark.parametrize("other", [1, 2, 3])
@pytest.mark.parametrize("differ", [False, True], ids=["alike", "not alike"])
def test_rows_are_stored_as_they_are_whether_they_are_alike_or_not(
    store: SqlPersistence, other: int, differ: bool
) -> None:
    numbers = range(3)
    created = {number: evolve(a_run(number), priority=3) for number in numbers}
    jobs = {number: evolve(a_job(number, item=number), input=f"{number}") for number in numbers}
    payload = Payload(inline='{"a":"\\u00e9\\"\\\\"}')
    rows = {number: evolve(a_row(number), payload=payload) for number in numbers}
    if differ:
        number = other - 1
        created[number] = evolve(created[number], deadline=7, queue="other")
        jobs[number] = evolve(jobs[number], wake_at=5, queue="other")
        rows[number] = evolve(rows[number], payload=Payload(blob="place"), data='"other"')
    changes: list[Change] = [Insert(run) for run in created.values()]
    changes += [Insert(job) for job in jobs.values()]
    changes += [Insert(row) for row in rows.values()]
    store.transact(lambda tx: tx.apply(changes))

    keys = [run.key for run in created.values()]
    assert store.transact(lambda tx: tx.lock(RUNS, keys)) == list(created.values())
    assert store.transact(lambda tx: tx.find(JobsOfRuns(keys))) == list(jobs.values())
    places = [(row.run, row.number) for row in rows.values()]
    assert store.transact(lambda tx: tx.get(HISTORY, places)) == list(rows.values())
