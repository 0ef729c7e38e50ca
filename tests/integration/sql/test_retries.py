"""Transactions are retried when the database asks for it, and not when the work raises."""

import threading
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.adapters.sql.retry import CONFLICTS_MAX
from holdfast.ports.changes import Insert, Update
from holdfast.ports.errors import ConflictError, HoldfastError, RefusedError, SchemaError, UnavailableError
from holdfast.ports.persistence import Transaction
from holdfast.ports.queries.history import HistoryOf
from holdfast.ports.queries.runs import ListRuns, RunFilter, RunsByKey
from holdfast.ports.queries.store import SchemaVersion, StoreTime
from holdfast.ports.tables import RUNS
from holdfast.testing.conformance.builders import NAMESPACE, a_key, a_row, a_run
from holdfast.testing.conformance.threads import in_threads

OpenStore = Callable[..., SqlPersistence]


@pytest.mark.slow
def test_a_conflict_that_does_not_go_away_reaches_the_caller(store: SqlPersistence) -> None:
    store.transact(lambda tx: tx.apply([Insert(a_run(1))]))
    tries: list[int] = []

    def work(tx: Transaction) -> None:
        tries.append(1)
        tx.apply([Insert(a_run(1))])

    with pytest.raises(ConflictError):
        store.transact(work)
    assert len(tries) == CONFLICTS_MAX == 30


@pytest.mark.slow
def test_what_can_not_be_stored_is_refused(store: SqlPersistence) -> None:
    with pytest.raises(RefusedError):
        store.transact(lambda tx: tx.apply([Insert(a_run(1, priority=2**70))]))
    with pytest.raises(RefusedError):
        store.transact(lambda tx: tx.apply([Insert(a_run(1, workflow="\ud800"))]))
    assert store.read(ListRuns(RunFilter(namespace=NAMESPACE))) == ()


@pytest.mark.slow
def test_an_update_of_a_row_that_is_not_there_is_not_lost_in_silence(store: SqlPersistence) -> None:
    with pytest.raises(HoldfastError, match="holdfast_runs"):
        store.transact(lambda tx: tx.apply([Update(a_run(1))]))


@pytest.mark.slow
def test_work_that_swallows_an_error_of_the_database_is_not_committed(store: SqlPersistence) -> None:
    store.transact(lambda tx: tx.apply([Insert(a_run(1))]))

    def work(tx: Transaction) -> None:
        tx.apply([Insert(a_run(2))])
        try:
            tx.apply([Insert(a_run(1))])
        except ConflictError:
            return

    with pytest.raises(ConflictError):
        store.transact(work)
    assert store.read(RunsByKey((a_key(2),))) == ()


@pytest.mark.slow
def test_a_transaction_can_not_be_used_afterwards(store: SqlPersistence) -> None:
    kept = store.transact(lambda tx: tx)

    with pytest.raises(HoldfastError):
        kept.lock(RUNS, [a_key(1)])


def test_without_tables_the_error_says_what_to_do(url: str, open_store: OpenStore) -> None:
    store = open_store(url)

    assert store.read(SchemaVersion()) is None
    with pytest.raises(SchemaError, match="holdfast db upgrade"):
        store.read(RunsByKey((a_key(1),)))


@pytest.mark.slow
def test_a_locked_file_is_waited_for_until_the_deadline(
    sqlite_with_tables: str, open_store: OpenStore
) -> None:
    store, busy = open_store(sqlite_with_tables, deadline=0.4), open_store(sqlite_with_tables)

    def work(tx: Transaction) -> None:
        tx.lock(RUNS, [a_key(1)])
        with pytest.raises(UnavailableError, match="locked"):
            store.transact(lambda tx: tx.lock(RUNS, [a_key(1)]))
        assert store.read(RunsByKey((a_key(1),))) == ()

    busy.transact(work)


@pytest.mark.slow
@pytest.mark.service
def test_a_deadlock_is_resolved_by_running_one_work_again(
    postgres_with_tables: str, open_store: OpenStore
) -> None:
    store = open_store(postgres_with_tables)
    store.transact(lambda tx: tx.apply([Insert(a_run(1)), Insert(a_run(2))]))
    meeting = threading.Barrier(2)
    tries = [0, 0]

    def lock_both(number: int) -> None:
        def work(tx: Transaction) -> None:
            tries[number] += 1
            tx.lock(RUNS, [a_key(1 + number)])
            if tries[number] == 1:
                meeting.wait(10)
            tx.lock(RUNS, [a_key(2 - number)])
            tx.apply([Insert(a_row(a_key(1), 10 + number))])

        store.transact(work)

    in_threads(2, lock_both)

    assert [row.number for row in store.read(HistoryOf(a_key(1)))] == [10, 11]
    assert sum(tries) >= 3


@pytest.mark.slow
@pytest.mark.service
def test_a_lock_that_is_not_given_in_time_is_tried_again(
    postgres_with_tables: str, open_store: OpenStore
) -> None:
    store = open_store(postgres_with_tables)
    store.transact(lambda tx: tx.apply([Insert(a_run(1))]))
    with psycopg.connect(postgres_with_tables) as holder:
        holder.execute("SELECT * FROM holdfast_runs FOR UPDATE")
        release = threading.Timer(2.5, holder.rollback)
        release.start()
        tries: list[int] = []

        def work(tx: Transaction) -> str:
            tries.append(1)
            return tx.lock(RUNS, [a_key(1)])[0].key

        assert a_key(1) == store.transact(work)
        assert len(tries) == 2
        release.join()


@pytest.mark.slow
@pytest.mark.service
def test_a_terminated_session_is_replaced(postgres_with_tables: str, open_store: OpenStore) -> None:
    store = open_store(postgres_with_tables)
    killer = psycopg.connect(postgres_with_tables, autocommit=True)
    tries: list[int] = []

    def work(tx: Transaction) -> None:
        tries.append(1)
        tx.lock(RUNS, [a_key(1)])
        if len(tries) == 1:
            killer.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'holdfast' AND datname = current_database()"
            )
        tx.apply([Insert(a_run(1))])

    store.transact(work)
    killer.close()

    assert len(tries) == 2
    assert len(store.read(RunsByKey((a_key(1),)))) == 1


@pytest.mark.slow
@pytest.mark.service
def test_the_time_zone_of_sessions_does_not_matter(postgres_database: str, open_store: OpenStore) -> None:
    utc = open_store(f"{postgres_database}?options=-ctimezone%3DUTC")
    far = open_store(f"{postgres_database}?options=-ctimezone%3DPacific%2FKiritimati")

    first, second, third = utc.read(StoreTime()), far.read(StoreTime()), utc.read(StoreTime())

    assert first is not None
    assert second is not None
    assert third is not None
    assert first <= second <= third


@pytest.mark.slow
@pytest.mark.service
@pytest.mark.parametrize("options", [{"session_settings": False}, {"pipeline": False}])
def test_options_for_poolers_change_nothing_else(
    postgres_with_tables: str, open_store: OpenStore, options: dict[str, bool]
) -> None:
    store = open_store(postgres_with_tables, **options)
    store.transact(lambda tx: tx.apply([Insert(a_run(1)), Insert(a_row(a_key(1), 1))]))

    with pytest.raises(ConflictError):
        store.transact(lambda tx: tx.apply([Insert(a_run(2)), Insert(a_run(1))]))
    assert [a_key(1)] == [run.key for run in store.transact(lambda tx: tx.lock(RUNS, [a_key(1), a_key(2)]))]


def test_the_file_is_for_its_owner_only(sqlite_url: str, open_store: OpenStore) -> None:
    open_store(sqlite_url).setup()

    assert Path(sqlite_url.removeprefix("sqlite:///")).stat().st_mode & 0o777 == 0o600
