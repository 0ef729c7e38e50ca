"""Settings of PostgreSQL sessions that Holdfast sets, whatever URL, environment and role say; authentication."""

import re
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final
from urllib.parse import quote, urlsplit
from uuid import uuid4

import anyio
import psycopg
import pytest
from sqlalchemy import Connection, text

from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.adapters.sql.postgresql.connection import PostgresDatabase
from holdfast.adapters.sql.postgresql.listen_notify import PostgresTransport
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.steps import step
from holdfast.ports.errors import AccessDeniedError, HoldfastError, InvalidUrlError, SchemaError
from holdfast.ports.queries.store import SchemaVersion

pytestmark = [pytest.mark.service, pytest.mark.anyio]

ID: Final = "bestellung-für-Łódź-№5"
EVIL: Final = {
    "bytea_output": "escape",
    "client_encoding": "latin1",
    "datestyle": "German, DMY",
    "default_transaction_deferrable": "on",
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
    "extra_float_digits": "-15",
    "intervalstyle": "iso_8601",
    "standard_conforming_strings": "off",
    "synchronous_commit": "off",
    "timezone": "Pacific/Chatham",
}
OURS: Final = {
    "bytea_output": "hex",
    "client_encoding": "UTF8",
    "datestyle": "ISO",
    "default_transaction_deferrable": "off",
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "extra_float_digits": "1",
    "intervalstyle": "postgres",
    "standard_conforming_strings": "on",
    "synchronous_commit": "on",
    "timezone": "UTC",
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@step.in_transaction
def book(db: Connection, seat: str) -> str:
    db.execute(text("SET client_encoding = 'latin1'"))
    db.execute(text("SET search_path = pg_catalog"))
    db.execute(text("SET standard_conforming_strings = off"))
    db.execute(text("INSERT INTO public.seats VALUES (:seat)"), {"seat": seat})
    return f"{ID} \\n {seat}"


@workflow
async def journey() -> list[str]:
    return [await book("a"), await book("b")]


@contextmanager
def a_role(url: str, **settings: str) -> Generator[tuple[str, psycopg.Connection]]:
    """A role with settings and all rights in a database: its URL, and a connection of the server's owner."""
    name = f"role_{uuid4().hex}"
    parts = urlsplit(url)
    database = parts.path.strip("/")
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'x'".encode())
        owner.execute(f"GRANT ALL ON SCHEMA public TO {name}".encode())
        owner.execute(f'GRANT ALL ON DATABASE "{database}" TO {name}'.encode())
        for setting, value in settings.items():
            owner.execute(f"ALTER ROLE {name} SET {setting} = '{value}'".encode())
        try:
            yield parts._replace(netloc=f"{name}:x@{parts.netloc.rpartition('@')[2]}").geturl(), owner
        finally:
            owner.execute(f"DROP OWNED BY {name} CASCADE".encode())
            owner.execute(f"DROP ROLE {name}".encode())


def with_evil_settings(url: str) -> dict[str, str]:
    """Return the URL with the settings, in each way in which a URL can have them."""
    words = " ".join(f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in EVIL.items())
    long_words = " ".join(f"--{name}={value.replace(' ', chr(92) + ' ')}" for name, value in EVIL.items())
    return {
        "parameter": f"{url}?client_encoding=latin1",
        "options": f"{url}?options={quote(words)}",
        "long options": f"{url}?options={quote(long_words)}&client_encoding=sql_ascii",
    }


def settings_of(url: str) -> dict[str, str]:
    database = PostgresDatabase(url)
    try:
        with database.writer(5.0) as link:
            names = ", ".join(f"current_setting('{name}')" for name in OURS)
            (values,) = link.query(f"SELECT {names}")
            found = {name: str(value) for name, value in zip(OURS, values, strict=True)}
            return {**found, "datestyle": found["datestyle"].partition(",")[0]}
    finally:
        database.close()


def test_a_session_has_what_must_be_ours_whatever_the_role_says(postgres_database: str) -> None:
    with a_role(postgres_database, **EVIL) as (url, _):
        found = settings_of(url)

    assert found == OURS


@pytest.mark.parametrize("way", ["parameter", "options", "long options"])
def test_a_session_has_what_must_be_ours_whatever_the_url_says(postgres_database: str, way: str) -> None:
    found = settings_of(with_evil_settings(postgres_database)[way])

    assert found == OURS


def test_a_session_has_what_must_be_ours_whatever_the_environment_says(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "latin1")
    monkeypatch.setenv("PGOPTIONS", "-c standard_conforming_strings=off -c synchronous_commit=off")
    monkeypatch.setenv("PGTZ", "Pacific/Chatham")
    monkeypatch.setenv("PGDATESTYLE", "German")

    assert settings_of(postgres_database) == OURS


def test_a_commit_that_waits_for_more_than_a_disk_goes_on_doing_so(postgres_database: str) -> None:
    for level in ("local", "remote_write", "remote_apply"):
        assert (
            settings_of(f"{postgres_database}?options=-csynchronous_commit%3D{level}")["synchronous_commit"]
            == level
        )


@pytest.mark.slow
def test_where_nothing_can_be_set_for_a_session_it_is_set_for_each_transaction(
    postgres_database: str,
) -> None:
    with a_role(postgres_database, **EVIL) as (url, _):
        database = PostgresDatabase(url, session_settings=False)
        with database.writer(5.0) as link:
            link.begin()
            ((commits, strings, isolation, read_only),) = link.query(
                "SELECT current_setting('synchronous_commit'), current_setting('standard_conforming_strings'),"
                " current_setting('transaction_isolation'), current_setting('transaction_read_only')"
            )
        database.close()

    assert (commits, strings, isolation, read_only) == ("on", "on", "read committed", "off")


@pytest.mark.slow
def test_tables_are_made_where_nothing_can_be_set_for_a_session(postgres_database: str) -> None:
    with a_role(postgres_database, **EVIL) as (url, _):
        store = SqlPersistence(url, session_settings=False)
        store.setup()
        assert store.read(SchemaVersion()) is not None
        store.close()


def test_our_rows_in_a_transaction_of_a_step_have_what_must_be_ours(postgres_database: str) -> None:
    ours = {name: value for name, value in OURS.items() if not name.startswith("default_transaction")}
    with a_role(postgres_database, **EVIL) as (url, _):
        database = PostgresDatabase(url)
        with database.shared(5.0) as shared:
            for name in ("datestyle", "timezone"):
                shared.connection.execute(text(f"SET {name} = '{EVIL[name]}'"))
            shared.link.begin()
            asked = ", ".join(f"split_part(current_setting('{name}'), ',', 1)" for name in ours)
            (values,) = shared.link.query(f"SELECT {asked}")
        database.close()

    assert dict(zip(ours, values, strict=True)) == ours


@pytest.mark.slow
@pytest.mark.parametrize("way", ["parameter", "options", "long options", "role"])
def test_an_id_is_one_run_however_the_url_is_written(postgres_with_tables: str, way: str) -> None:
    with a_role(postgres_with_tables, client_encoding="latin1") as (of_role, owner):
        owner.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO PUBLIC")
        urls = {**with_evil_settings(postgres_with_tables), "role": of_role}
        for url in (postgres_with_tables, urls[way]):
            with Engine.open(url, workflows=[journey], migrate=False).sync as engine:
                run = engine.start(journey(), id=ID, if_exists="return")
                assert run.id == ID
                assert [info.id for info in engine.runs()] == [ID]


@pytest.mark.slow
async def test_steps_in_transactions_and_migrations_may_write_whatever_the_role_says(
    postgres_database: str,
) -> None:
    with a_role(postgres_database, **EVIL) as (url, owner):
        began = time.monotonic()
        engine = Engine.open(url, workflows=[journey])
        engine.core.stores.persistence.setup()
        assert time.monotonic() - began < 10
        owner.execute("CREATE TABLE public.seats (seat text PRIMARY KEY)")
        owner.execute("GRANT ALL ON public.seats TO PUBLIC")
        async with engine, Worker(engine):
            run = await engine.start(journey(), id=ID)
            with anyio.fail_after(60):
                assert await run.result() == [f"{ID} \\n a", f"{ID} \\n b"]

        assert owner.execute("SELECT id, status FROM holdfast_runs").fetchall() == [(ID, "completed")]
        assert owner.execute("SELECT seat FROM public.seats ORDER BY seat").fetchall() == [("a",), ("b",)]


@pytest.mark.slow
def test_hints_are_heard_in_any_encoding(postgres_database: str) -> None:
    transport = PostgresTransport(f"{postgres_database}?client_encoding=latin1")
    assert transport._settings["client_encoding"] == "UTF8"  # pyright: ignore[reportPrivateUsage]
    transport.close()


# Who is let in ------------------------------------------------------------------------------------------------------


def failing(url: str, call: Callable[[SqlPersistence], object]) -> tuple[HoldfastError, float]:
    store = SqlPersistence(url)
    began = time.monotonic()
    try:
        call(store)
    except HoldfastError as error:
        return error, time.monotonic() - began
    finally:
        store.close()
    raise AssertionError("it has worked")


def read(store: SqlPersistence) -> object:
    return store.read(SchemaVersion())


def set_up(store: SqlPersistence) -> object:
    store.setup()
    return None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "kind", "words"),
    [
        ("_gone", SchemaError, "does not exist.*create it"),
        ("?user=nobody_at_all", AccessDeniedError, "role"),
        ("?options=-cno_such_setting%3D1", InvalidUrlError, "no_such_setting"),
        ("?options=-cwork_mem%3Dmuch", InvalidUrlError, "work_mem"),
        ("?options=nonsense", InvalidUrlError, "command-line argument"),
        ("?sslmode=require", InvalidUrlError, "SSL"),
    ],
)
@pytest.mark.parametrize("call", [read, set_up])
def test_what_will_not_change_by_itself_is_not_tried_again(
    postgres_database: str,
    more: str,
    kind: type[HoldfastError],
    words: str,
    call: Callable[[SqlPersistence], object],
) -> None:
    error, seconds = failing(f"{postgres_database}{more}", call)

    assert type(error) is kind, error
    assert re.search(words, str(error), re.DOTALL)
    assert seconds < 2


def test_a_missing_right_is_an_error_of_its_own_and_not_tried_again(postgres_with_tables: str) -> None:
    with a_role(postgres_with_tables) as (url, owner):
        error, seconds = failing(url, SqlPersistence.prune_receipts)
        assert type(error) is AccessDeniedError
        assert "permission denied for table" in str(error)
        assert "grant" in str(error)
        assert seconds < 2
    with a_role(postgres_with_tables) as (url, owner):
        owner.execute("DROP TABLE holdfast_version")
        owner.execute(f"REVOKE CREATE ON SCHEMA public FROM {urlsplit(url).username}".encode())
        owner.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        error, seconds = failing(url, set_up)
        assert type(error) is AccessDeniedError, error
        assert seconds < 2


@pytest.mark.slow
async def test_a_worker_goes_on_by_itself_once_it_is_granted_what_it_lacked(
    postgres_with_tables: str,
) -> None:
    with a_role(postgres_with_tables) as (url, owner):
        owner.execute("CREATE TABLE public.seats (seat text PRIMARY KEY)")
        owner.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO PUBLIC")
        engine = Engine.open(url, workflows=[journey], migrate=False)
        async with engine, Worker(engine):
            owner.execute("REVOKE INSERT ON holdfast_history FROM PUBLIC")
            other = Engine.open(postgres_with_tables, workflows=[journey], migrate=False)
            async with other:
                await other.start(journey(), id=ID)
                await anyio.sleep(0.7)
                assert (await other.handle(journey, ID).info()).status == "running"
            owner.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO PUBLIC")
            with anyio.fail_after(60):
                assert await engine.handle(journey, ID).result() == [f"{ID} \\n a", f"{ID} \\n b"]
