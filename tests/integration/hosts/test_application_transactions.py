"""Commands in a transaction of the application: they take place if, and only if, it commits."""

import asyncio
import contextlib
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, cast

import psycopg
import pytest
from sqlalchemy import create_engine, event, insert, text
from sqlalchemy.engine import make_url
from sqlalchemy.orm import Session

from holdfast import Every
from holdfast.adapters.sql.retry import CONFLICTS_MAX
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.client.sync_transactional_engine import STARTS_MAX
from holdfast.hosts.execution.threads import CALLS_MAX
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.schedules import Schedule
from holdfast.ports.errors import (
    ConflictError,
    HoldfastError,
    IdempotencyConflictError,
    InvalidArgumentError,
    InvalidTransactionError,
    RunExistsError,
    RunNotFoundError,
    ScheduleExistsError,
    UnavailableError,
    WrongStoreError,
)
from holdfast.ports.records.run import RunStatus
from holdfast.ports.transport import Hint
from tests.integration.hosts.application_connections import ASYNC, KINDS, ONLY_POSTGRES, Given, opened
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.seats import SEATS, Seats
from tests.postgres import fresh_database

SOON: Final = timedelta(minutes=2)
DAILY: Final = Every(timedelta(days=1))

paid = Channel("paid", int)


@workflow
async def ship(order: int) -> int:
    return order


@workflow
async def sell(order: int) -> int:
    return order + await paid.receive()


@workflow
async def note(text: str) -> int:
    return len(text)


seen: Final[list[list[int]]] = []


@workflow
async def report(order: int) -> int:
    seen[-1].append(order)
    return order


_IN_FAST_SUITE: Final = ("Session", "AsyncSession", "psycopg", "Django")
"""One way for each kind of code: sync and async, with SQLAlchemy and without."""


def _marks(store: str, kind: str) -> list[pytest.MarkDecorator]:
    marks = [pytest.mark.service] if store == "postgres" else []
    return marks if kind in _IN_FAST_SUITE else [*marks, pytest.mark.slow]


_PAIRS: Final = [
    pytest.param((store, kind), marks=_marks(store, kind), id=f"{store}-{kind}")
    for store in ("sqlite", "postgres")
    for kind in KINDS
    if store == "postgres" or kind not in ONLY_POSTGRES
]
every_kind: Final = pytest.mark.parametrize("pair", _PAIRS)
_on_postgres: Final = [pytest.param(("postgres", "Session"), marks=pytest.mark.service, id="postgres")]
on_postgres: Final = pytest.mark.parametrize("pair", _on_postgres)
on_both: Final = pytest.mark.parametrize(
    "pair", [pytest.param(("sqlite", "Session"), id="sqlite"), *_on_postgres]
)


@pytest.fixture
def pair() -> tuple[str, str]:
    """The store, and the kind of the application's connection."""
    return "sqlite", "Session"


@pytest.fixture
def url(
    request: pytest.FixtureRequest, pair: tuple[str, str], tmp_path: Path, new_sqlite: Callable[[Path], str]
) -> str:
    if pair[0] == "sqlite":
        return new_sqlite(tmp_path / "holdfast.db")
    found: str = request.getfixturevalue("shared_database")
    return found


@pytest.fixture
def engine(open_engine: OpenEngine, seats: Seats) -> Iterator[Engine]:
    del seats
    engine = open_engine(ship, sell, note, report)
    with engine.sync:
        yield engine


@pytest.fixture
def given(pair: tuple[str, str], url: str, engine: Engine) -> Iterator[Given]:
    """A transaction of the application."""
    del engine
    with opened(pair[1], url) as given:
        yield given


def book(given: Given, seats: Seats, seat: str) -> None:
    given.execute(f"INSERT INTO test_seats VALUES ('{seats.owner}', '{seat}')")


def ids(engine: Engine) -> list[str]:
    return sorted(run.id for run in engine.sync.runs())


@pytest.mark.slow
@every_kind
def test_a_run_is_started_if_the_transaction_commits(given: Given, engine: Engine, seats: Seats) -> None:
    book(given, seats, "a1")
    run = given.within(engine).start(ship(7), attributes={"seat": "a1"})
    book(given, seats, "a2")
    assert ids(engine) == []
    with pytest.raises(RunNotFoundError):
        engine.sync.handle(ship, run.id).info()
    given.commit()

    assert (ids(engine), seats.taken) == ([run.id], ["a1", "a2"])
    assert engine.sync.handle(ship, run.id).input() == {"order": 7}
    with Worker(engine):
        assert engine.sync.handle(ship, run.id).result(timeout=SOON) == 7


@every_kind
def test_nothing_of_it_remains_after_a_rollback(given: Given, engine: Engine, seats: Seats) -> None:
    engine.sync.start(sell(1), id="sale")
    within = given.within(engine)
    book(given, seats, "a1")
    within.start(ship(1), id="one", idempotency_key="key")
    within.start_all([ship(2), ship(3)])
    within.signal("sale", paid(5))
    within.cancel("sale")
    within.create_schedule(Schedule("daily", ship(1), when=DAILY))
    given.rollback()

    assert (ids(engine), seats.taken) == (["sale"], [])
    assert engine.sync.handle(sell, "sale").messages() == []
    assert engine.sync.handle(sell, "sale").info().status is RunStatus.RUNNING
    assert list(engine.sync.schedules()) == []
    assert engine.sync.start(ship(1), id="one", idempotency_key="key").id == "one"


@every_kind
def test_a_start_may_be_the_first_statement_of_the_transaction(given: Given, engine: Engine) -> None:
    """Of SQLite, a savepoint outside a transaction would be one, and its release a commit."""
    given.within(engine).start(ship(1), id="one")
    assert ids(engine) == []
    given.rollback()
    assert ids(engine) == []


@every_kind
def test_a_refused_command_leaves_the_transaction_usable(given: Given, engine: Engine, seats: Seats) -> None:
    engine.sync.start(ship(1), id="old", idempotency_key="used")
    engine.sync.create_schedule(Schedule("daily", ship(1), when=DAILY))
    within = given.within(engine)
    book(given, seats, "a1")
    refused: list[tuple[type[HoldfastError], Callable[[], object]]] = [
        (RunExistsError, lambda: within.start(ship(1), id="old")),
        (IdempotencyConflictError, lambda: within.start(ship(2), idempotency_key="used")),
        (RunNotFoundError, lambda: within.signal("nobody", paid(1))),
        (RunNotFoundError, lambda: within.cancel("nobody")),
        (ScheduleExistsError, lambda: within.create_schedule(Schedule("daily", ship(1), when=DAILY))),
        (InvalidArgumentError, lambda: within.start(ship)),
        (InvalidArgumentError, lambda: within.start_all([ship(1)] * (STARTS_MAX + 1))),
    ]
    for error, command in refused:
        with pytest.raises(error):
            command()
    within.start(ship(1), id="new")
    book(given, seats, "a2")
    given.commit()

    assert (ids(engine), seats.taken) == (["new", "old"], ["a1", "a2"])


@every_kind
def test_a_run_gets_messages_of_the_transaction_that_starts_it(given: Given, engine: Engine) -> None:
    within = given.within(engine)
    within.start(sell(1), id="sale")
    within.signal("sale", paid(5), idempotency_key="payment")
    within.signal("sale", paid(5), idempotency_key="payment")
    given.commit()

    (message,) = engine.sync.handle(sell, "sale").messages()
    assert message.channel == "paid"
    with Worker(engine):
        assert engine.sync.handle(sell, "sale").result(timeout=SOON) == 6


@every_kind
def test_schedules_and_cancellations_take_place_with_the_commit(given: Given, engine: Engine) -> None:
    engine.sync.start(ship(1), id="old")
    engine.sync.create_schedule(Schedule("old", ship(1), when=DAILY))
    within = given.within(engine)
    within.cancel("old", reason="the order is void")
    within.create_schedule(Schedule("new", ship(1), when=DAILY))
    assert within.remove_schedule("old")
    assert not within.remove_schedule("unknown")
    assert [schedule.name for schedule in engine.sync.schedules()] == ["old"]
    given.commit()

    assert [schedule.name for schedule in engine.sync.schedules()] == ["new"]
    assert engine.sync.handle(ship, "old").info().status is RunStatus.CANCELLING


@every_kind
def test_many_runs_start_together_or_not_at_all(given: Given, engine: Engine) -> None:
    engine.sync.start(ship(9), idempotency_key="keys/1")
    within = given.within(engine)
    with pytest.raises(IdempotencyConflictError):
        within.start_all([ship(1), ship(2), ship(3)], idempotency_key="keys")
    assert within.start_all([]) == []
    runs = within.start_all([ship(1), sell(2)], idempotency_key="others")
    given.commit()

    assert {run.id for run in runs} < set(ids(engine))
    assert len(ids(engine)) == 3


@every_kind
def test_a_savepoint_of_the_application_takes_its_commands_with_it(given: Given, engine: Engine) -> None:
    within = given.within(engine)
    within.start(ship(1), id="kept")
    given.execute("SAVEPOINT ours")
    within.start(ship(1), id="dropped")
    given.execute("ROLLBACK TO SAVEPOINT ours")
    given.commit()
    assert ids(engine) == ["kept"]


@every_kind
def test_an_engine_for_an_actor_or_a_namespace_stays_one(
    given: Given, engine: Engine, namespace: str
) -> None:
    del namespace
    other = engine.in_namespace(f"other-{secrets.token_hex(4)}")
    given.within(other).start(ship(1), id="there")
    given.commit()
    assert ids(engine) == []
    assert ids(other) == ["there"]


@every_kind
def test_values_arrive_as_they_were_given(given: Given, engine: Engine) -> None:
    name, long = "é%(x)s:name'\"\\", "é%(x)s :name %% '\"\\ " * 10_000
    within = given.within(engine)
    within.start(note(long), id=name, attributes={"a:b": "%(key)s :x 'q'"})
    given.commit()

    (run,) = engine.sync.runs(attributes={"a:b": "%(key)s :x 'q'"})
    assert (run.id, run.attributes) == (name, {"a:b": "%(key)s :x 'q'"})
    assert engine.sync.handle(note, name).input() == {"text": long}


@pytest.mark.slow
@on_both
def test_no_body_begins_before_the_commit(given: Given, engine: Engine) -> None:
    begun: list[int] = []
    seen.append(begun)
    with Worker(engine, poll_interval=0.02):
        run = given.within(engine).start(report(1))
        time.sleep(0.3)  # the worker looks fifteen times
        assert begun == []
        given.commit()
        assert engine.sync.handle(report, run.id).result(timeout=SOON) == 1
    assert begun == [1]


class Announced:
    """What is announced to workers."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hints: list[Hint] = []
        self.has_one = threading.Event()
        engine.core.connect()
        monkeypatch.setattr(engine.core.kernel, "_transport", self)

    def announce(self, hints: Any) -> None:
        self.hints += hints
        self.has_one.set()


SESSIONS: Final = {
    "Session",
    "scoped_session",
    "AsyncSession",
    "psycopg AsyncSession",
    "psycopg2 Session",
    "Django",
}


@every_kind
def test_workers_are_notified_after_the_commit_where_the_connection_reports_it(
    given: Given, engine: Engine, pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    announced = Announced(engine, monkeypatch)
    within = given.within(engine)
    within.start(ship(1), id="one")
    given.execute("SAVEPOINT ours")
    given.execute("RELEASE SAVEPOINT ours")
    assert announced.hints == []
    given.commit()

    if pair[1] in SESSIONS:
        assert announced.has_one.wait(60)
        assert len(announced.hints) == 1


@every_kind
def test_workers_are_not_notified_after_a_rollback(
    given: Given, engine: Engine, pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    announced = Announced(engine, monkeypatch)
    given.within(engine).start(ship(1), id="one")
    given.rollback()
    if pair[1] in SESSIONS - {"Django"}:  # an atomic block can't be begun again here
        given.within(engine).start(ship(1), id="two")
        given.commit()
        assert announced.has_one.wait(60)
        assert len(announced.hints) == 1
    else:
        assert announced.hints == []


def test_a_savepoint_of_a_session_that_commits_is_no_commit(
    engine: Engine, url: str, seats: Seats, monkeypatch: pytest.MonkeyPatch
) -> None:
    announced = Announced(engine, monkeypatch)
    with Session(create_engine(url)) as session:
        # The sqlite3 module begins a transaction with the first statement that writes, and not with a savepoint.
        writes = insert(SEATS).values(owner=seats.owner, seat="a1")
        session.execute(writes)
        with session.begin_nested():
            engine.sync.within(session).start(ship(1), id="one")
        assert announced.hints == []
        session.rollback()
        assert announced.hints == []
        session.execute(writes)
        with session.begin_nested():
            engine.sync.within(session).start(ship(1), id="two")
        session.commit()
        assert announced.has_one.wait(60)
    assert (ids(engine), len(announced.hints)) == (["two"], 1)


# What can't be used


@pytest.mark.slow
@every_kind
def test_a_connection_of_another_store_is_refused(
    given: Given,
    engine: Engine,
    open_engine: OpenEngine,
    pair: tuple[str, str],
    tmp_path: Path,
    postgres_url: str,
) -> None:
    del engine, open_engine
    with contextlib.ExitStack() as stack:
        if pair[0] == "sqlite":
            theirs = f"sqlite:///{tmp_path}/other.db"
        else:
            theirs = stack.enter_context(fresh_database(postgres_url))
        other = Engine.open(theirs, workflows=[ship])
        with other.sync:
            with pytest.raises(
                WrongStoreError, match="use a connection to the database that the engine opens"
            ):
                given.within(other).start(ship(1), id="lost")
            assert ids(other) == []
        given.execute("SELECT 1")


@on_both
def test_a_database_without_the_tables_is_refused(
    engine: Engine, pair: tuple[str, str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    empty = f"sqlite:///{tmp_path}/empty.db"
    if pair[0] == "postgres":
        empty = request.getfixturevalue("postgres_database")
    with opened("Session", empty) as given:
        with pytest.raises(WrongStoreError, match="without the tables of Holdfast"):
            given.within(engine).start(ship(1))
        given.execute("SELECT 1")


@on_postgres
def test_a_connection_of_another_kind_of_database_is_refused(engine: Engine, tmp_path: Path) -> None:
    with (
        opened("Session", f"sqlite:///{tmp_path}/other.db") as given,
        pytest.raises(WrongStoreError, match="is to sqlite, and the store is in postgresql"),
    ):
        given.within(engine).start(ship(1))


def test_what_is_no_connection_is_refused(engine: Engine, url: str) -> None:
    for nothing in (None, 1, url, object(), create_engine(url), Session):
        with pytest.raises(InvalidArgumentError, match="give a SQLAlchemy Session or Connection"):
            engine.sync.within(nothing)


def test_sync_and_async_connections_are_not_mixed_up(engine: Engine, url: str) -> None:
    with opened("AsyncSession", url) as given:
        with pytest.raises(InvalidArgumentError, match=r"AsyncSession is for async code: use `engine.within"):
            engine.sync.within(given.connection)
        with pytest.raises(InvalidArgumentError, match="no event loop of asyncio is running"):
            engine.within(given.connection)

    async def mix() -> None:
        engine.within(Session(create_engine(url)))

    with pytest.raises(InvalidArgumentError, match=r"is no async connection: use `engine.sync.within"):
        asyncio.run(mix())


def test_a_store_in_memory_has_no_transactions_of_others(url: str) -> None:
    with (
        Engine.open("memory://", workflows=[ship]).sync as engine,
        Session(create_engine(url)) as session,
        pytest.raises(InvalidTransactionError, match="use one in PostgreSQL or SQLite"),
    ):
        engine.within(session)


def _autocommit(pair: tuple[str, str], url: str, stack: contextlib.ExitStack) -> list[Any]:
    sqlalchemy = create_engine(
        url.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT"
    )
    stack.callback(sqlalchemy.dispose)
    plain: Any = (
        sqlite3.connect(make_url(url).database or "", isolation_level=None)
        if pair[0] == "sqlite"
        else psycopg.connect(url, autocommit=True)
    )
    stack.callback(plain.close)
    return [plain, stack.enter_context(sqlalchemy.connect()), stack.enter_context(Session(sqlalchemy))]


@on_both
def test_without_a_transaction_nothing_is_stored(engine: Engine, url: str, pair: tuple[str, str]) -> None:
    with contextlib.ExitStack() as stack:
        for connection in _autocommit(pair, url, stack):
            with pytest.raises(InvalidTransactionError, match="no transaction is open"):
                engine.sync.within(connection).start(ship(1))
    with opened("Django", url) as given:
        given.execute("SELECT 1")
        given.commit()
        with pytest.raises(InvalidTransactionError, match="no transaction is open"):
            given.within(engine).start(ship(1))
    assert ids(engine) == []


@on_both
def test_a_transaction_of_autocommit_that_was_begun_is_used(
    engine: Engine, url: str, pair: tuple[str, str]
) -> None:
    with contextlib.ExitStack() as stack:
        plain = _autocommit(pair, url, stack)[0]
        for end, run_id in (("ROLLBACK", "one"), ("COMMIT", "two")):
            plain.execute("BEGIN")
            engine.sync.within(plain).start(ship(1), id=run_id)
            plain.execute(end)
    assert ids(engine) == ["two"]


_POSTGRES_KINDS: Final = pytest.mark.parametrize(
    "pair", [pytest.param(("postgres", kind), marks=pytest.mark.service, id=kind) for kind in KINDS]
)


@_POSTGRES_KINDS
def test_a_failed_or_read_only_transaction_is_a_clear_error(
    given: Given, engine: Engine, seats: Seats
) -> None:
    book(given, seats, "a1")
    given.execute("SAVEPOINT ours")
    with pytest.raises(Exception, match="missing_table"):
        given.execute("SELECT * FROM missing_table")
    with pytest.raises(InvalidTransactionError, match="it has failed already"):
        given.within(engine).start(ship(1))
    given.execute("ROLLBACK TO SAVEPOINT ours")
    given.execute("SET LOCAL transaction_read_only = on")
    with pytest.raises(InvalidTransactionError, match="it is read-only"):
        given.within(engine).start(ship(1))
    given.execute("ROLLBACK TO SAVEPOINT ours")
    given.within(engine).start(ship(1), id="one")
    given.commit()
    assert (ids(engine), seats.taken) == (["one"], ["a1"])


@_POSTGRES_KINDS
def test_no_setting_of_the_connection_is_changed(given: Given, engine: Engine) -> None:
    before = given.execute("SELECT name, setting FROM pg_settings ORDER BY name")
    within = given.within(engine)
    within.start(sell(1), id="sale")
    within.signal("sale", paid(1))
    after = given.execute("SELECT name, setting FROM pg_settings ORDER BY name")
    given.commit()
    changed = [(one, other) for one, other in zip(before, after, strict=True) if one != other]
    assert changed == []
    assert len(before) > 300


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
@on_postgres
def test_every_isolation_level_will_do(given: Given, engine: Engine, level: str) -> None:
    given.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
    given.execute("SELECT count(*) FROM test_seats")
    engine.sync.start(ship(1), id="later")  # committed after the snapshot of the transaction
    within = given.within(engine)
    within.start(ship(1), id="one")
    refusal = RunExistsError if level == "READ COMMITTED" else ConflictError
    with pytest.raises(refusal):
        within.start(ship(1), id="later")
    given.commit()
    assert ids(engine) == ["later", "one"]


@on_postgres
def test_starts_without_ids_and_keys_lock_nothing(url: str, open_engine: OpenEngine, seats: Seats) -> None:
    """Not even the first of a workflow, whose plan is stored with it, as the plan is stored on its own."""
    del seats
    for first in (True, False):
        new = workflow(name=f"new_{secrets.token_hex(4)}")(_new)
        engine = open_engine(new)
        with engine.sync, opened("Session", url) as one, opened("driver", url) as other:
            if not first:
                engine.sync.start(new(0))
            for given in (one, other):
                given.execute("SET LOCAL lock_timeout = '1ms'")
                given.within(engine).start(new(1))
            engine.sync.start(new(2))
            one.commit()
            other.rollback()
            assert engine.sync.count(workflow=new.name)[RunStatus.RUNNING] == 2 + (not first)


async def _new(order: int) -> int:
    return order


@on_postgres
def test_a_start_of_the_same_id_waits_for_the_end_of_the_transaction(
    given: Given, engine: Engine, url: str
) -> None:
    given.within(engine).start(ship(1), id="one")
    errors: list[Exception] = []

    def start() -> None:
        with opened("Session", url) as other:
            try:
                other.within(engine).start(ship(2), id="one")
            except HoldfastError as error:
                errors.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    given.commit()
    thread.join(60)
    assert [type(error) for error in errors] == [RunExistsError]
    assert engine.sync.handle(ship, "one").input() == {"order": 1}


@on_postgres
def test_a_lock_timeout_of_the_application_ends_a_command_only(
    given: Given, engine: Engine, url: str
) -> None:
    engine.sync.start(sell(1), id="sale")
    with opened("driver", url) as other:
        other.within(engine).signal("sale", paid(1))
        given.execute("SET LOCAL lock_timeout = '50ms'")
        with pytest.raises(UnavailableError, match="lock timeout"):
            given.within(engine).signal("sale", paid(2))
        given.within(engine).start(ship(1), id="one")
        given.commit()
        other.commit()
    assert len(engine.sync.handle(sell, "sale").messages()) == 1
    assert ids(engine) == ["one", "sale"]


def test_a_conflict_runs_the_command_again_but_not_for_ever(
    given: Given, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0
    kernel = engine.core.kernel
    carry_out = cast("Any", kernel)._carry_out

    def conflicting(*arguments: Any) -> Any:
        nonlocal tries
        tries += 1
        done = carry_out(*arguments)
        if tries % CONFLICTS_MAX:
            raise ConflictError("another was faster")
        return done

    monkeypatch.setattr(kernel, "_carry_out", conflicting)
    given.within(engine).start(ship(1), id="one")
    assert tries == CONFLICTS_MAX
    monkeypatch.setattr(kernel, "_carry_out", always_conflicting)
    with pytest.raises(ConflictError):
        given.within(engine).start(ship(1), id="two")
    given.commit()
    assert ids(engine) == ["one"]


def always_conflicting(*arguments: object) -> None:
    del arguments
    raise ConflictError("another was faster")


def test_sqlite_s_only_writer_holds_up_others_until_its_commit(
    given: Given, engine: Engine, seats: Seats
) -> None:
    book(given, seats, "a1")
    started: list[str] = []
    thread = threading.Thread(target=lambda: started.append(engine.sync.start(ship(1), id="other").id))
    thread.start()
    given.within(engine).start(ship(1), id="one")
    assert started == []
    given.commit()
    thread.join(60)
    assert ids(engine) == ["one", "other"]


@on_postgres
def test_a_start_is_a_savepoint_and_one_statement(engine: Engine, url: str) -> None:
    sqlalchemy = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    made: list[str] = []

    def note(*given: Any) -> None:
        made.append(given[2])

    event.listen(sqlalchemy, "before_cursor_execute", note)
    with Session(sqlalchemy) as session:
        session.execute(text("SELECT 1"))
        within = engine.sync.within(session)
        within.start(ship(0))  # the list of sinks is read once
        counts: list[int] = []
        for calls in (1, 100):
            made.clear()
            within.start_all([ship(1)] * calls)
            counts.append(len(made))
        session.commit()
    sqlalchemy.dispose()
    words = [" ".join(sql.split()[:2]) for sql in made]
    assert words == ["SAVEPOINT holdfast", "WITH written_0", "RELEASE SAVEPOINT"]
    assert counts == [3, 3]


# Calls that are cancelled, and calls at the same time

_ASYNC_PAIRS: Final = pytest.mark.parametrize(
    "pair",
    [
        pytest.param(
            (store, kind), marks=pytest.mark.service if store == "postgres" else (), id=f"{store}-{kind}"
        )
        for store in ("sqlite", "postgres")
        for kind in sorted(ASYNC)
        if store == "postgres" or kind not in ONLY_POSTGRES
    ],
)


@pytest.mark.slow
@_ASYNC_PAIRS
def test_a_cancelled_call_stores_nothing_and_leaves_the_connection_to_its_application(
    pair: tuple[str, str], url: str, engine: Engine, seats: Seats
) -> None:
    cancelled = 0
    for number in range(12):
        with opened(pair[1], url) as given:
            book(given, seats, f"lost{number}")

            async def start(given: Given = given, number: int = number) -> None:
                async with asyncio.timeout(0.0005 * number):
                    await engine.within(given.connection).start(note("x" * 300_000), id=f"lost{number}")

            with contextlib.suppress(TimeoutError, HoldfastError):
                given.run(start)
                cancelled -= 1
            cancelled += 1
            given.rollback()
            time.sleep(0.01)  # what is still under way would write now
            book(given, seats, f"kept{number}")
            given.within(engine).start(ship(1), id=f"kept{number}")
            given.commit()
    assert cancelled > 2
    assert ids(engine) == sorted(f"kept{number}" for number in range(12))
    assert seats.taken == sorted(f"kept{number}" for number in range(12))


@pytest.mark.parametrize("pair", [("sqlite", "AsyncSession"), ("sqlite", "AsyncConnection")])
def test_a_call_that_is_cancelled_within_a_statement_leaves_the_transaction_of_sqlite_open(
    pair: tuple[str, str], url: str, engine: Engine, seats: Seats
) -> None:
    """SQLAlchemy drops the connection of a cancelled statement. It holds its lock until it is collected."""
    with opened(pair[1], url) as given:
        book(given, seats, "before")

        async def start() -> None:
            connection = given.connection
            if pair[1] == "AsyncSession":
                connection = await connection.connection()
            driver: Any = (await connection.get_raw_connection()).driver_connection
            await driver.create_function("wait", 1, time.sleep)

            async def wait() -> None:
                async with driver.execute("SELECT wait(0.3)") as cursor:
                    await cursor.fetchall()

            async with asyncio.TaskGroup() as group:
                group.create_task(wait())
                await asyncio.sleep(
                    0.05
                )  # the next statement waits until the thread of the connection is free
                async with asyncio.timeout(0.05):
                    await engine.within(given.connection).start(ship(1), id="lost")

        with pytest.raises(ExceptionGroup) as raised:
            given.run(start)
        assert isinstance(raised.value.exceptions[0], TimeoutError)
        book(given, seats, "after")
        given.within(engine).start(ship(1), id="kept")
        given.commit()
    assert seats.taken == ["after", "before"]
    assert ids(engine) == ["kept"]


_POSTGRES_ASYNC: Final = pytest.mark.parametrize(
    "pair", [pytest.param(("postgres", kind), marks=pytest.mark.service, id=kind) for kind in sorted(ASYNC)]
)


@_POSTGRES_ASYNC
def test_a_call_that_waits_for_a_lock_is_cancelled_at_once(
    pair: tuple[str, str], url: str, engine: Engine
) -> None:
    with opened("driver", url) as holder, opened(pair[1], url) as given:
        holder.within(engine).start(ship(1), id="one")

        async def start() -> None:
            async with asyncio.timeout(0.1):
                await engine.within(given.connection).start(ship(2), id="one")

        with pytest.raises(TimeoutError):
            given.run(start)
        given.rollback()
        holder.commit()
        given.within(engine).start(ship(2), id="two")
        given.commit()
    assert ids(engine) == ["one", "two"]


@pytest.mark.slow
@on_postgres
def test_calls_that_wait_for_locks_hold_up_no_other_calls(url: str, engine: Engine) -> None:
    async def wait(entered: asyncio.Event) -> None:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            entered.set()
            await engine.within(connection).start(ship(1), id="one", if_exists="return")

    async def many(holder: Given) -> None:
        entered = [asyncio.Event() for _ in range(CALLS_MAX + 2)]
        async with asyncio.TaskGroup() as tasks:
            for one in entered:
                tasks.create_task(wait(one))
            for one in entered:
                await one.wait()
            async with asyncio.timeout(60):
                assert await engine.count() is not None
            holder.commit()

    with opened("driver", url) as holder:
        holder.within(engine).start(ship(1), id="one")
        asyncio.run(many(holder))
    assert ids(engine) == ["one"]


@pytest.mark.parametrize(
    "pair", [pytest.param(("postgres", "psycopg AsyncConnection"), marks=pytest.mark.service)]
)
def test_calls_at_the_same_time_on_one_connection_come_one_after_the_other(
    given: Given, engine: Engine
) -> None:
    engine.sync.start(ship(1), id="taken")

    async def start_all() -> list[object]:
        within = engine.within(given.connection)
        starts = (within.start(ship(1), id="taken" if one % 3 == 2 else f"r{one}") for one in range(9))
        return list(await asyncio.gather(*starts, return_exceptions=True))

    answers = given.run(start_all)
    given.commit()
    assert [type(answer) is RunExistsError for answer in answers] == [False, False, True] * 3
    assert ids(engine) == sorted(["taken", *(f"r{one}" for one in range(9) if one % 3 != 2)])


@_POSTGRES_KINDS
def test_a_connection_that_is_lost_is_a_clear_error(given: Given, engine: Engine, url: str) -> None:
    given.within(engine).start(ship(1), id="one")
    ((backend,),) = given.execute("SELECT pg_backend_pid()")
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (backend,))
    with pytest.raises(UnavailableError):
        given.within(engine).start(ship(1), id="two")
    with contextlib.suppress(Exception):
        given.rollback()
    assert ids(engine) == []


@on_postgres
def test_a_connection_in_pipeline_mode_is_refused(engine: Engine, url: str) -> None:
    with (
        psycopg.connect(url) as connection,
        connection.pipeline(),
        pytest.raises(InvalidTransactionError, match="in pipeline mode"),
    ):
        engine.sync.within(connection)
