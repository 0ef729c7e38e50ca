"""Hints by LISTEN/NOTIFY and by watching the SQLite file."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typing_extensions import override

from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.adapters.sql.postgresql.listen_notify import PostgresTransport
from holdfast.adapters.sql.sqlite.connection import sqlite_path
from holdfast.adapters.sql.sqlite.file_watch import SqliteTransport
from holdfast.ports.changes import Insert
from holdfast.ports.transport import Hint, JobHint, JobTransport, RunEnded
from holdfast.testing.conformance.builders import a_run
from holdfast.testing.conformance.transport import JobTransportContract
from tests.integration.sql.proxy import Proxy


def a_hint(number: int) -> Hint:
    return JobHint(job=f"run.{number}", epoch=number, queue="main")


class TestSqliteTransport(JobTransportContract):
    """Within one process."""

    @pytest.fixture(autouse=True)
    def own_folder(self, tmp_path: Path) -> None:
        self.path = tmp_path / "holdfast.db"

    @override
    def make_transport(self) -> JobTransport:
        return SqliteTransport(self.path)


@pytest.mark.service
class TestPostgresTransport(JobTransportContract):
    """Through the server."""

    @pytest.fixture(autouse=True)
    def own_server(self, postgres_database: str) -> None:
        self.url = postgres_database

    @override
    def make_transport(self) -> JobTransport:
        transport = PostgresTransport(self.url)
        listening(transport)
        return transport


def listening(transport: PostgresTransport) -> None:
    """Wait until it receives its own hint."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        transport.announce([RunEnded(run="hello")])
        if heard := transport.receive(1_000, 0.2):
            while transport.receive(1_000, 0.05):
                pass
            for delivery in heard:
                transport.ack(delivery.receipt)
            return
    raise AssertionError("it does not listen")


@pytest.fixture
def pair(proxy: Proxy, postgres_database: str) -> Iterator[tuple[PostgresTransport, PostgresTransport]]:
    """A sender, and a receiver behind the proxy."""
    sender = PostgresTransport(postgres_database)
    receiver = PostgresTransport(proxy.url, liveness_seconds=0.3)
    listening(receiver)
    yield sender, receiver
    sender.close()
    receiver.close()


@pytest.mark.slow
@pytest.mark.service
def test_hints_reach_other_processes_soon(pair: tuple[PostgresTransport, PostgresTransport]) -> None:
    sender, receiver = pair
    sender.announce([a_hint(1)])
    assert receiver.receive(10, 5.0)
    started = time.monotonic()
    sender.announce([a_hint(2)])

    assert [a_hint(2)] == [delivery.hint for delivery in receiver.receive(10, 5.0)]
    assert time.monotonic() - started < 3


@pytest.mark.slow
@pytest.mark.service
def test_many_hints_are_sent_in_messages_that_fit(pair: tuple[PostgresTransport, PostgresTransport]) -> None:
    sender, receiver = pair
    hints = [a_hint(number) for number in range(1_000)]
    sender.announce(hints)
    heard: list[Hint | None] = []
    while len(heard) < 1_000 and (deliveries := receiver.receive(300, 5.0)):
        heard += [delivery.hint for delivery in deliveries]

    assert hints == heard


@pytest.mark.slow
@pytest.mark.service
@pytest.mark.parametrize("fault", ["cut", pytest.param("blackhole", marks=pytest.mark.slow)])
def test_who_was_cut_off_is_told_that_something_may_have_changed(
    pair: tuple[PostgresTransport, PostgresTransport], proxy: Proxy, fault: str
) -> None:
    sender, receiver = pair
    if fault == "cut":
        proxy.cut()
    else:
        proxy.fail("blackhole")
        time.sleep(0.5)
        sender.announce([a_hint(1)])
        time.sleep(0.5)
        proxy.heal()

    assert [delivery.hint for delivery in receiver.receive(10, 20.0)] == [None]
    sender.announce([a_hint(2)])
    assert [a_hint(2)] == [delivery.hint for delivery in receiver.receive(10, 5.0)]


def test_a_carrier_that_is_not_there_raises_nothing() -> None:
    transport = PostgresTransport("postgresql://nobody@127.0.0.1:1/none")

    transport.announce([a_hint(1)])
    assert tuple(transport.receive(1, 0.1)) == ()
    started = time.monotonic()
    transport.close()
    assert time.monotonic() - started < 5


def test_a_commit_of_another_process_is_noticed(sqlite_with_tables: str) -> None:
    store = SqlPersistence(sqlite_with_tables)
    transport = SqliteTransport(sqlite_path(sqlite_with_tables))
    assert tuple(transport.receive(1, 0.05)) == ()
    store.transact(lambda tx: tx.apply([Insert(a_run(1))]))
    started = time.monotonic()

    assert [delivery.hint for delivery in transport.receive(1, 5.0)] == [None]
    assert time.monotonic() - started < 3
    assert tuple(transport.receive(1, 0.05)) == ()
    transport.close()
    store.close()
