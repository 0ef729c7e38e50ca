"""A transaction whose commit response is lost has happened once, and returns its result."""

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import psycopg
import pytest

from holdfast.adapters.sql import persistence
from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.adapters.sql.postgresql.connection import ANSWER_SECONDS, PostgresDatabase
from holdfast.adapters.sql.postgresql.link import PostgresLink
from holdfast.adapters.sql.pruning import RECEIPT_AGE
from holdfast.ports.changes import Insert
from holdfast.ports.errors import UnavailableError
from holdfast.ports.persistence import Transaction
from holdfast.ports.queries.history import HistoryOf
from holdfast.ports.queries.store import StoreTime
from holdfast.ports.tables import RUNS
from holdfast.testing.conformance.builders import a_key, a_row, a_run
from tests.integration.sql.proxy import Mode, Proxy

pytestmark = pytest.mark.service

OpenStore = Callable[..., SqlPersistence]


class Appending:
    """Work that appends a history row numbered by its executions, and returns that number."""

    def __init__(self) -> None:
        self.tries = 0

    def __call__(self, tx: Transaction) -> int:
        self.tries += 1
        (run,) = tx.lock(RUNS, [a_key(1)])
        tx.apply([Insert(a_row(run.key, self.tries))])
        return self.tries


@pytest.fixture
def postgres_database(postgres_with_tables: str) -> str:
    """The database behind the proxy, with tables."""
    return postgres_with_tables


@pytest.fixture
def store(proxy: Proxy, open_store: OpenStore) -> SqlPersistence:
    store = open_store(proxy.url, deadline=20.0)
    store.transact(lambda tx: tx.apply([Insert(a_run(1))]))
    return store


def numbers_of(store: SqlPersistence) -> list[int]:
    return [row.number for row in store.read(HistoryOf(a_key(1)))]


@pytest.mark.slow
def test_a_commit_whose_answer_is_lost_happens_once(proxy: Proxy, store: SqlPersistence) -> None:
    work = Appending()
    proxy.fail("cut after commit")

    result = store.transact(work)

    assert (result, work.tries) == (1, 1)
    assert numbers_of(store) == [1]


@pytest.mark.slow
def test_a_commit_whose_answer_never_comes_happens_once(proxy: Proxy, store: SqlPersistence) -> None:
    work = Appending()
    proxy.fail("swallow commit")

    result = store.transact(work)

    assert (result, work.tries) == (1, 1)
    assert numbers_of(store) == [1]


@pytest.mark.slow
def test_a_commit_that_the_server_never_got_is_repeated(proxy: Proxy, store: SqlPersistence) -> None:
    work = Appending()
    proxy.fail("cut before commit")

    result = store.transact(work)

    assert (result, work.tries) == (2, 2)
    assert numbers_of(store) == [2]


def test_commits_lost_again_and_again_leave_one_effect(proxy: Proxy, store: SqlPersistence) -> None:
    work = Appending()
    proxy.fail("cut before commit", times=3)

    assert store.transact(work) == 4
    assert numbers_of(store) == [4]


@pytest.mark.slow
def test_a_lost_answer_is_remembered_while_the_database_is_away(proxy: Proxy, store: SqlPersistence) -> None:
    work = Appending()
    proxy.fail("cut after commit", then="refuse")
    healer = threading.Timer(0.5, proxy.heal)
    healer.start()

    result = store.transact(work)
    healer.join()

    assert (result, work.tries) == (1, 1)
    assert numbers_of(store) == [1]


@pytest.mark.slow
def test_the_result_of_the_try_that_was_stored_is_returned(proxy: Proxy, store: SqlPersistence) -> None:
    work = Appending()
    proxy.fail("cut before commit", then="cut after commit")

    assert store.transact(work) == 2
    assert numbers_of(store) == [2]


@pytest.mark.slow
def test_a_transaction_that_changed_nothing_needs_no_answer(proxy: Proxy, store: SqlPersistence) -> None:
    tries: list[int] = []

    def work(tx: Transaction) -> str:
        tries.append(1)
        return tx.lock(RUNS, [a_key(1)])[0].key

    proxy.fail("cut before commit")

    assert a_key(1) == store.transact(work)
    assert len(tries) == 1


@pytest.mark.slow
def test_a_commit_is_not_repeated_once_its_receipt_may_be_gone(
    proxy: Proxy, store: SqlPersistence, postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the caller would wait: the work would be done twice."""
    monkeypatch.setattr(persistence, "DOUBT_SECONDS", 0.5, raising=False)
    work = Appending()

    def forget() -> None:
        with psycopg.connect(postgres_database, autocommit=True) as connection:
            connection.execute("DELETE FROM holdfast_commit_receipts")
        proxy.heal()

    proxy.fail("cut after commit", then="refuse")
    healer = threading.Timer(1.0, forget)
    healer.start()
    with pytest.raises(UnavailableError, match="whether it took place"):
        store.transact(work)
    healer.join()

    assert work.tries == 1
    assert numbers_of(store) == [1]


@pytest.mark.slow
@pytest.mark.parametrize("passed", [(3600.0, 3600.0), (0.0, 3600.0)], ids=["awake", "suspended"])
def test_the_time_in_which_a_machine_was_suspended_counts(
    passed: tuple[float, float], proxy: Proxy, store: SqlPersistence, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Appending()
    now = (0.0, 0.0)

    def put_off(tx: Transaction) -> int:
        nonlocal now
        result = work(tx)
        now = passed
        return result

    monkeypatch.setattr(persistence, "clocks", lambda: now)
    proxy.fail("cut after commit")
    with pytest.raises(UnavailableError, match="whether it took place"):
        store.transact(put_off)
    assert numbers_of(store) == [1]


@pytest.mark.slow
def test_the_time_that_it_takes_to_get_a_connection_counts(
    proxy: Proxy, store: SqlPersistence, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Appending()
    now = (0.0, 0.0)
    writer = PostgresDatabase.writer
    taken: list[float] = []

    def taken_late(database: PostgresDatabase, seconds: float) -> AbstractContextManager[PostgresLink]:
        nonlocal now
        taken.append(seconds)
        if work.tries:
            now = (3600.0, 3600.0)
        return writer(database, seconds)

    monkeypatch.setattr(persistence, "clocks", lambda: now)
    monkeypatch.setattr(PostgresDatabase, "writer", taken_late)
    proxy.fail("cut after commit")
    with pytest.raises(UnavailableError, match="whether it took place"):
        store.transact(work)
    assert (work.tries, len(taken)) == (1, 2)
    assert numbers_of(store) == [1]


def test_commits_are_in_doubt_for_less_time_than_receipts_are_kept() -> None:
    assert persistence.DOUBT_SECONDS * 1_000_000 < RECEIPT_AGE


@pytest.mark.slow
def test_receipts_are_pruned_after_an_hour_and_not_before(
    store: SqlPersistence, postgres_database: str
) -> None:
    for _ in range(2):
        store.transact(Appending())
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("UPDATE holdfast_commit_receipts SET at = at - 3590000000")
        assert store.prune_receipts() == 0
        connection.execute(
            "UPDATE holdfast_commit_receipts SET at = at - 11000000 "
            "WHERE id IN (SELECT min(id) FROM holdfast_commit_receipts)"
        )

    assert store.prune_receipts() == 1
    assert store.prune_receipts() == 0


@pytest.mark.slow
def test_a_connection_that_falls_silent_is_given_up(proxy: Proxy, store: SqlPersistence) -> None:
    database = PostgresDatabase(proxy.url, answer_seconds=0.5)
    with pytest.raises(UnavailableError), database.writer(1.0) as link:
        link.query("SELECT 1")
        proxy.fail("blackhole")
        link.query("SELECT 1")
    proxy.heal()
    with database.writer(1.0) as link:
        assert link.query("SELECT 1") == [(1,)]
    database.close()


@pytest.mark.slow
def test_when_the_database_is_gone_the_deadline_ends_the_call(proxy: Proxy, open_store: OpenStore) -> None:
    store = open_store(proxy.url, deadline=0.5)
    proxy.fail("refuse")

    with pytest.raises(UnavailableError, match=r"0\.5 seconds"):
        store.read(StoreTime())


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["blackhole", "trickle"])
def test_an_answer_that_does_not_come_is_not_waited_for_beyond_the_deadline(
    proxy: Proxy, open_store: OpenStore, fault: Mode
) -> None:
    store = open_store(proxy.url, deadline=0.6)
    store.read(StoreTime())
    proxy.fail(fault)
    began = time.monotonic()

    with pytest.raises(UnavailableError, match=r"0\.6 seconds"):
        store.read(StoreTime())

    assert time.monotonic() - began < ANSWER_SECONDS, "only the connection's own limit has ended it"


@pytest.mark.slow
def test_after_connections_were_cut_calls_go_on(proxy: Proxy, store: SqlPersistence) -> None:
    for _ in range(3):
        assert store.read(StoreTime())
        proxy.cut()
    assert store.read(StoreTime())
