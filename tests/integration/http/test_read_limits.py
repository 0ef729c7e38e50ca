"""The limit of reads: a read that takes too long is stopped, and one whose client has left ends at once."""

import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import psycopg
import pytest

from holdfast import Engine
from holdfast.errors import InvalidArgumentError, ReadTimeoutError
from holdfast.hosts.wiring.caller_reads import CallerReads
from holdfast.http import asgi_app
from holdfast.ports.queries.outbox import ListSinks
from holdfast.ports.queries.store import SchemaVersion
from holdfast.ports.read_limits import limited_reads
from tests.integration.http.api import NAMESPACE
from tests.integration.http.live import served
from tests.integration.http.programs import WORKFLOWS, report
from tests.postgres import fresh_database

SINKS: Final = f"/v1/namespaces/{NAMESPACE}/sinks"
SHORT: Final = 0.2
SECONDS_MAX: Final = 200
ENDLESS: Final = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


def until(is_so: Callable[[], Any]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def sqlite_engine(tmp_path: Path, new_sqlite: Callable[[Path], str]) -> Iterator[Engine]:
    """An engine whose list of sinks never ends."""
    path = tmp_path / "holdfast.db"
    engine = Engine.open(new_sqlite(path), workflows=WORKFLOWS, namespace=NAMESPACE)
    with engine.sync:
        engine.sync.start(report(1), id="one")
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(
                "ALTER TABLE holdfast_sinks RENAME TO hidden; "
                f"CREATE VIEW holdfast_sinks AS SELECT hidden.* FROM ({ENDLESS}) LEFT JOIN hidden;"
            )
        yield engine


@pytest.fixture
def postgres_engine(postgres_url: str) -> Iterator[tuple[Engine, str]]:
    """An engine, and the URL of its database."""
    with fresh_database(postgres_url) as url:
        engine = Engine.open(url, workflows=WORKFLOWS, namespace=NAMESPACE)
        with engine.sync:
            engine.sync.start(report(1), id="one")
            yield engine, url


@contextmanager
def locked(url: str, table: str) -> Generator[Callable[[], int]]:
    """Lock a table, and provide a function that counts the statements of others which wait for it."""
    with psycopg.connect(url) as holder, psycopg.connect(url, autocommit=True) as watcher:
        holder.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())

        def waiting() -> int:
            found = watcher.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                "AND state = 'active' AND pid NOT IN (%s, %s)",
                (holder.info.backend_pid, watcher.info.backend_pid),
            ).fetchone()
            assert found is not None
            return int(found[0])

        yield waiting


@pytest.mark.slow
def test_a_read_that_takes_too_long_is_answered_with_what_to_do(sqlite_engine: Engine) -> None:
    with (
        served(asgi_app(sqlite_engine, read_timeout=SHORT)) as url,
        httpx.Client(base_url=url, timeout=SECONDS_MAX) as client,
    ):
        stopped = client.get(SINKS)
        after = client.get(f"/v1/namespaces/{NAMESPACE}/runs/one")

    problem = stopped.json()
    assert (stopped.status_code, problem["code"]) == (503, "read_timeout")
    assert stopped.headers["retry-after"]
    assert "longer than 0.2 s" in problem["detail"]
    assert "may be stored" not in problem["detail"]
    assert after.status_code == 200


@pytest.mark.slow
def test_a_change_whose_read_took_too_long_says_that_it_may_be_stored(sqlite_engine: Engine) -> None:
    with (
        served(asgi_app(sqlite_engine, read_timeout=SHORT)) as url,
        httpx.Client(base_url=url, timeout=SECONDS_MAX) as client,
    ):
        stopped = client.post(f"/v1/namespaces/{NAMESPACE}/dead-letters/replay", json={"sink": "audit"})

    assert (stopped.status_code, stopped.json()["code"]) == (503, "read_timeout")
    assert "may be stored" in stopped.json()["detail"]


@pytest.mark.slow
@pytest.mark.service
def test_postgresql_stops_a_read_at_its_limit(postgres_engine: tuple[Engine, str]) -> None:
    engine, database = postgres_engine
    with (
        served(asgi_app(engine, read_timeout=SHORT)) as url,
        httpx.Client(base_url=url, timeout=SECONDS_MAX) as client,
    ):
        client.get(SINKS)  # connects
        with locked(database, "holdfast_sinks") as waiting:
            stopped = client.get(SINKS)
            until(lambda: waiting() == 0)  # the answer does not wait until the statement has gone
        after = client.get(SINKS)

    assert (stopped.status_code, stopped.json()["code"]) == (503, "read_timeout")
    assert after.status_code == 200


@pytest.mark.slow
@pytest.mark.service
def test_a_client_that_leaves_takes_its_query_along(postgres_engine: tuple[Engine, str]) -> None:
    """The lock is held all the time, so nothing but a cancelled statement ends the wait before the limit."""
    engine, database = postgres_engine
    with served(asgi_app(engine, read_timeout=5)) as url, httpx.Client(base_url=url) as other:
        other.get(SINKS)  # connects
        with locked(database, "holdfast_sinks") as waiting:
            with pytest.raises(httpx.ReadTimeout):
                other.get(SINKS, timeout=0.3)
            began = time.monotonic()
            until(lambda: waiting() == 0)
            ended_before_its_limit = time.monotonic() - began < 4
        after = other.get(SINKS)

    assert ended_before_its_limit
    assert after.status_code == 200


def test_sqlite_stops_a_read_whose_caller_leaves_and_refuses_the_next(sqlite_engine: Engine) -> None:
    persistence = sqlite_engine.core.stores.persistence
    reads = CallerReads(SECONDS_MAX)
    leaves = threading.Timer(0.05, reads.abandon)
    with limited_reads(reads):
        leaves.start()
        with pytest.raises(ReadTimeoutError, match="has left"):
            persistence.read(ListSinks(NAMESPACE))
        with pytest.raises(ReadTimeoutError, match="has left"):
            persistence.read(SchemaVersion())
    leaves.join()

    assert persistence.read(SchemaVersion())


@pytest.mark.parametrize("seconds", [0, -1, 5.1, float("nan")])
def test_a_limit_has_a_range(sqlite_engine: Engine, seconds: float) -> None:
    with pytest.raises(InvalidArgumentError, match="at most 5"):
        asgi_app(sqlite_engine, read_timeout=seconds)


def test_reads_of_a_client_that_leaves_need_a_thread_only_if_some_are_being_made() -> None:
    idle, reading = CallerReads(SECONDS_MAX), CallerReads(SECONDS_MAX)
    stopped: list[str] = []

    assert idle.abandon_unless_reading()
    assert idle.is_abandoned
    with reading.interrupted_by(lambda: stopped.append("it")):
        assert not reading.abandon_unless_reading()
        assert not reading.is_abandoned
        assert stopped == []
        reading.abandon()
    assert stopped == ["it"]
    with idle.interrupted_by(lambda: stopped.append("late")):
        pass
    assert stopped == ["it", "late"]
