"""Transactional steps: their writes are committed with their history row, or not at all."""

import contextlib
import threading
from datetime import timedelta
from typing import Any, cast

import anyio
import psycopg
import pytest
from sqlalchemy import Connection, insert, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from holdfast.adapters.sql.errors import TransientError
from holdfast.adapters.sql.user_transactions import JoinedTransaction
from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.step_context import step_context
from holdfast.kernel.authoring.steps import Step, step
from holdfast.kernel.commands import RunTerminate
from holdfast.ports.errors import (
    DefinitionError,
    NoTransactionError,
    RunCancelledError,
    RunFailedError,
    TransactionEndedError,
)
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.polling import until
from tests.integration.hosts.seats import SEATS, Seats

SOON = timedelta(minutes=2)

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick")]

CALLS: list[str] = []
REACHED = threading.Event()
GO_ON = threading.Event()


@pytest.fixture
def anyio_backend() -> str:
    """One backend is enough: workers are tested on both elsewhere."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    CALLS.clear()
    REACHED.clear()
    GO_ON.clear()


def take(db: Connection | Session, owner: str, seat: str) -> None:
    CALLS.append(f"{seat} {step_context().attempt}")
    db.execute(insert(SEATS).values(owner=owner, seat=seat))


@step.in_transaction
def book(db: Connection, owner: str, seat: str, *, row: int = 1) -> str:
    take(db, owner, f"{seat}{row}")
    return f"ticket for {seat}{row}"


@step(retry=Retry(attempts=2, wait=timedelta(milliseconds=10))).in_transaction
def book_in_session(db: Session, owner: str, seat: str) -> str:
    take(db, owner, seat)
    if step_context().attempt == 1:
        raise ConnectionError("the network")
    return f"ticket for {seat}"


@workflow
async def journey(owner: str) -> list[str]:
    return [await book(owner, "a", row=7), await book_in_session(owner, "b")]


def types_of(run: SyncRunHandle[object]) -> list[str]:
    return [event.type for event in run.history()]


async def test_what_a_step_writes_is_there_with_its_row(open_engine: OpenEngine, seats: Seats) -> None:
    engine = open_engine(journey)
    async with Worker(engine):
        run = await engine.start(journey(seats.owner))
        with anyio.fail_after(SOON.seconds):
            assert await run.result() == ["ticket for a7", "ticket for b"]
    assert seats.taken == ["a7", "b"]
    assert CALLS == ["a7 1", "b 1", "b 2"]
    steps = [kind for kind in types_of(engine.sync.handle(journey, run.id)) if kind.startswith("step")]
    assert steps == ["step.completed", "step.retrying", "step.completed"]


async def test_what_a_body_raises_after_it_wrote_is_rolled_back(
    open_engine: OpenEngine, seats: Seats
) -> None:
    @step(retry=Retry(attempts=1)).in_transaction
    def fail(db: Connection, owner: str) -> None:
        take(db, owner, "x")
        raise ValueError("no such seat")

    @workflow
    async def failing(owner: str) -> str:
        try:
            await fail(owner)
        except ValueError as error:
            return f"caught {error}"
        return "nothing"

    engine = open_engine(failing)
    async with Worker(engine):
        with anyio.fail_after(SOON.seconds):
            assert await engine.run(failing(seats.owner)) == "caught no such seat"
    assert CALLS == ["x 1"]
    assert seats.taken == []


@pytest.mark.parametrize("kind", ["commit", "rollback", "caught", "session"])
async def test_a_body_that_ends_its_transaction_is_rolled_back(
    open_engine: OpenEngine, seats: Seats, kind: str
) -> None:
    @step.in_transaction
    def meddle(db: Connection, owner: str) -> None:
        take(db, owner, "x")
        if kind == "commit":
            db.commit()
        if kind == "rollback":
            db.rollback()
            take(db, owner, "y")
        with contextlib.suppress(TransactionEndedError):
            db.commit()

    @step.in_transaction
    def meddle_in_session(db: Session, owner: str) -> None:
        take(db, owner, "x")
        db.rollback()

    @workflow
    async def meddling(owner: str) -> str:
        try:
            await (meddle_in_session if kind == "session" else meddle)(owner)
        except TransactionEndedError as error:
            return type(error).__name__
        return "nothing"

    engine = open_engine(meddling)
    async with Worker(engine):
        with anyio.fail_after(SOON.seconds):
            assert await engine.run(meddling(seats.owner)) == "TransactionEndedError"
    assert len(CALLS) <= 2
    assert seats.taken == []


async def test_a_session_may_commit_what_is_then_committed_with_the_step(
    open_engine: OpenEngine, seats: Seats
) -> None:
    @step.in_transaction
    def twice(db: Session, owner: str) -> int:
        take(db, owner, "x")
        db.commit()
        with db.begin_nested() as part:
            take(db, owner, "y")
            part.rollback()
        return 2

    @workflow
    async def patient(owner: str) -> int:
        return await twice(owner)

    engine = open_engine(patient)
    async with Worker(engine):
        with anyio.fail_after(SOON.seconds):
            assert await engine.run(patient(seats.owner)) == 2
    assert seats.taken == ["x"]


async def test_results_that_a_body_leaves_unread_do_not_hold_up_the_next_one(
    open_engine: OpenEngine, seats: Seats
) -> None:
    kept: list[object] = []

    @step(retry=Retry(attempts=2, wait=timedelta(milliseconds=10))).in_transaction
    def leave(db: Connection, owner: str) -> None:
        for seat in ("x", "y", "z"):
            take(db, owner, f"{seat}{step_context().attempt}")
        kept.append(db.execute(select(SEATS.c.seat).where(SEATS.c.owner == owner)))
        if step_context().attempt == 1:
            raise ConnectionError("the network")

    @workflow
    async def careless(owner: str) -> None:
        await leave(owner)
        await book(owner, "a")

    engine = open_engine(careless)
    async with Worker(engine):
        with anyio.fail_after(SOON.seconds):
            await engine.run(careless(seats.owner))
    assert len(kept) == 2
    assert seats.taken == ["a1", "x2", "y2", "z2"]


@step.in_transaction
def planning(db: Connection) -> list[str]:
    names = ("enable_seqscan", "enable_hashjoin", "enable_mergejoin", "jit")
    return [str(db.exec_driver_sql(f"SHOW {name}").scalar()) for name in names]


async def test_statements_of_steps_are_planned_as_the_server_plans_others(
    open_engine: OpenEngine, url: str
) -> None:
    if not url.startswith("postgresql"):
        pytest.skip("it plans all statements alike")

    @workflow
    async def asks() -> list[str]:
        return await planning()

    engine = open_engine(asks)
    async with Worker(engine):
        with anyio.fail_after(SOON.seconds):
            assert await engine.run(asks()) == ["on"] * 4


@step(retry=Retry(attempts=3, wait=timedelta(0))).in_transaction
def slow(db: Connection, owner: str) -> str:
    if step_context().attempt == 1:
        REACHED.set()
        assert GO_ON.wait(SOON.seconds)
    take(db, owner, "slow")
    return "done"


async def test_what_a_step_of_a_run_that_is_over_did_is_rolled_back(
    open_engine: OpenEngine, seats: Seats, url: str
) -> None:
    if url.startswith("sqlite"):
        pytest.skip("nobody else writes to a SQLite file meanwhile")

    @workflow
    async def zombie(owner: str) -> str:
        return await slow(owner)

    engine = open_engine(zombie)
    async with Worker(engine):
        run = await engine.start(zombie(seats.owner), id="x")
        await anyio.to_thread.run_sync(REACHED.wait)
        engine.core.kernel.dispatch(RunTerminate(namespace=engine.core.namespace, run_id="x"))
        GO_ON.set()
        with anyio.fail_after(SOON.seconds), pytest.raises(RunCancelledError):
            await run.result()
        await until(lambda: bool(CALLS))
    assert seats.taken == []
    assert "step.completed" not in types_of(engine.sync.handle(zombie, "x"))


@pytest.mark.slow
async def test_a_step_that_is_given_up_commits_nothing_later(open_engine: OpenEngine, seats: Seats) -> None:
    # On a busy machine the body begins late, and must still reach the point before it is given up.
    hasty: Step[[str], str] = slow.options(timeout=timedelta(milliseconds=500))

    @workflow
    async def impatient(owner: str) -> str:
        return await hasty(owner)

    async def let_go() -> None:
        await anyio.to_thread.run_sync(REACHED.wait, SOON.seconds)
        await anyio.sleep(0.6)  # it has timed out by then; if not, this shows nothing
        GO_ON.set()

    engine = open_engine(impatient)
    async with Worker(engine), anyio.create_task_group() as group:
        group.start_soon(let_go)
        with anyio.fail_after(SOON.seconds):
            assert await engine.run(impatient(seats.owner)) == "done"
    assert seats.taken == ["slow"]


@pytest.mark.parametrize(("arrived", "forgotten"), [(True, False), (True, True), (False, False)])
async def test_a_commit_whose_answer_is_lost_is_looked_for(
    open_engine: OpenEngine,
    seats: Seats,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    arrived: bool,
    forgotten: bool,
) -> None:
    if url.startswith("sqlite") and arrived:
        pytest.skip("there is no way on which an answer could be lost")
    commit = JoinedTransaction.commit
    lost: list[bool] = []

    def commit_without_answer(transaction: JoinedTransaction) -> None:
        if lost:
            return commit(transaction)
        lost.append(arrived)
        if arrived:
            commit(transaction)
            if forgotten:  # as after an hour
                with psycopg.connect(url, autocommit=True) as connection:
                    connection.execute("DELETE FROM holdfast_commit_receipts")
        else:  # the connection breaks on the way, and the server rolls back
            cast("Connection", transaction.given).invalidate()
        raise TransientError("lost on purpose")

    monkeypatch.setattr(JoinedTransaction, "commit", commit_without_answer)

    @workflow
    async def lucky(owner: str) -> str:
        return await book(owner, "a")

    engine = open_engine(lucky)
    async with Worker(engine):
        with anyio.fail_after(SOON.seconds):
            run = await engine.start(lucky(seats.owner))
            assert await run.result() == "ticket for a1"
        rows = [event.type for event in await run.history() if event.type.startswith("step.")]
    assert lost == [arrived]
    assert rows == (["step.completed"] if arrived else ["step.retrying", "step.completed"])
    assert (["a1 1"] if arrived else ["a1 1", "a1 2"]) == CALLS
    assert seats.taken == ["a1"]


async def test_a_store_in_memory_says_so_before_the_body_is_called(open_engine: OpenEngine, url: str) -> None:
    if url != "memory://":
        pytest.skip("it is a database")
    engine = open_engine(journey)
    async with Worker(engine):
        with (
            anyio.fail_after(SOON.seconds),
            pytest.raises(RunFailedError, match="no transactions to share; use one in a SQL database"),
        ):
            await engine.run(journey("nobody"))
    assert CALLS == []


async def test_something_else_than_the_store_gives_is_refused_before_the_body_is_called(
    open_engine: OpenEngine, seats: Seats
) -> None:
    class Cursor:
        def in_transaction(self) -> bool:
            raise NotImplementedError

        def begin_nested(self) -> object:
            raise NotImplementedError

    @step.in_transaction
    def strange(db: Cursor) -> None:
        CALLS.append("strange")

    strange.body.__annotations__["db"] = Cursor

    @workflow
    async def stranger() -> str:
        try:
            await strange()
        except NoTransactionError as error:
            return str(error)
        return "nothing"

    engine = open_engine(stranger)
    async with Worker(engine):
        with anyio.fail_after(SOON.seconds):
            assert "provides a sqlalchemy.Connection, a Session" in await engine.run(stranger())
    assert CALLS == []


async def test_outside_of_a_workflow_there_is_no_transaction() -> None:
    with pytest.raises(NoTransactionError, match=r"book\.body\(connection"):
        await book("nobody", "a")


def test_what_can_be_no_step_in_a_transaction_is_refused() -> None:
    async def asynchronous(db: Connection) -> None: ...

    def synchronous(db: AsyncSession) -> None: ...

    def without() -> None: ...

    def of_another_kind(db: str) -> None: ...

    in_transaction = cast("Any", step).in_transaction
    for wrong, problem in (
        (asynchronous, "is an async function .* as sqlalchemy.ext.asyncio.AsyncConnection"),
        (synchronous, "is a sync function .* as sqlalchemy.Connection"),
        (without, "annotate"),
        (of_another_kind, "'db'"),
    ):
        with pytest.raises(DefinitionError, match=problem):
            in_transaction(wrong)
