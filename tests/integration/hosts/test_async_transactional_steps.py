"""Transactional steps with async bodies: an `AsyncSession` or an `AsyncConnection` in a transaction of the store."""

import asyncio
import contextlib
import importlib.util
import threading
from datetime import timedelta
from typing import Any, cast

import anyio
import pytest
from sqlalchemy import insert, select, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from holdfast.adapters.sql import user_transactions
from holdfast.adapters.sql.errors import TransientError
from holdfast.adapters.sql.user_transactions import JoinedTransaction
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.step_context import step_context
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.commands import RunTerminate
from holdfast.ports.errors import NoTransactionError, RunCancelledError, TransactionEndedError
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.polling import until
from tests.integration.hosts.seats import SEATS, Seats

SOON = timedelta(minutes=2)

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick")]

CALLS: list[str] = []
REACHED = threading.Event()
GO_ON = threading.Event()


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    CALLS.clear()
    REACHED.clear()
    GO_ON.clear()


class Base(DeclarativeBase):
    """The tables of the application."""


class Seat(Base):
    """A seat, as an object of the application."""

    __tablename__ = "test_seats"
    owner: Mapped[str] = mapped_column(primary_key=True)
    seat: Mapped[str] = mapped_column(primary_key=True)


async def take(db: AsyncConnection | AsyncSession, owner: str, seat: str) -> None:
    CALLS.append(f"{seat} {step_context().attempt}")
    await db.execute(insert(SEATS).values(owner=owner, seat=seat))


@step.in_transaction
async def book(db: AsyncConnection, owner: str, seat: str, *, row: int = 1) -> str:
    await take(db, owner, f"{seat}{row}")
    return f"ticket for {seat}{row}"


@step(retry=Retry(attempts=2, wait=timedelta(milliseconds=10))).in_transaction
async def book_in_session(db: AsyncSession, owner: str, seat: str) -> str:
    await take(db, owner, seat)
    if step_context().attempt == 1:
        raise ConnectionError("the network")
    db.add(Seat(owner=owner, seat=f"{seat}+"))  # flushed before the commit
    return f"ticket for {seat}"


@workflow
async def journey(owner: str) -> list[str]:
    return [await book(owner, "a", row=7), await book_in_session(owner, "b")]


async def test_what_a_step_writes_is_there_with_its_row(open_engine: OpenEngine, seats: Seats) -> None:
    engine = open_engine(journey)
    async with Worker(engine):
        run = await engine.start(journey(seats.owner))
        with anyio.fail_after(SOON.seconds):
            assert await run.result() == ["ticket for a7", "ticket for b"]
        types = [event.type for event in await run.history()]
    assert seats.taken == ["a7", "b", "b+"]
    assert CALLS == ["a7 1", "b 1", "b 2"]
    steps = [kind for kind in types if kind.startswith("step")]
    assert steps == ["step.completed", "step.retrying", "step.completed"]


async def test_what_a_body_raises_after_it_wrote_is_rolled_back(
    open_engine: OpenEngine, seats: Seats
) -> None:
    @step(retry=Retry(attempts=1)).in_transaction
    async def fail(db: AsyncSession, owner: str) -> None:
        await take(db, owner, "x")
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
    async def meddle(db: AsyncConnection, owner: str) -> None:
        await take(db, owner, "x")
        if kind == "commit":
            await db.commit()
        if kind == "rollback":
            await db.rollback()
            await take(db, owner, "y")
        with contextlib.suppress(TransactionEndedError):
            await db.commit()

    @step.in_transaction
    async def meddle_in_session(db: AsyncSession, owner: str) -> None:
        await take(db, owner, "x")
        await db.rollback()

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


async def test_what_sessions_can_do_works_in_a_step(open_engine: OpenEngine, seats: Seats) -> None:
    @step.in_transaction
    async def all_ways(db: AsyncSession, owner: str) -> list[str]:
        async with db.begin():
            await take(db, owner, "begun")
        with contextlib.suppress(ValueError):
            async with db.begin_nested():
                await take(db, owner, "undone")
                raise ValueError
        await take(await db.connection(), owner, "connection")
        await db.run_sync(lambda session: session.add(Seat(owner=owner, seat="sync")))
        await asyncio.sleep(0.01)
        await db.commit()
        in_text = text("SELECT seat FROM test_seats WHERE owner = :owner")
        assert sorted((await db.execute(in_text, {"owner": owner})).scalars()) == [
            "begun",
            "connection",
            "sync",
        ]
        assert (await db.scalars(select(Seat.seat).where(Seat.owner == owner))).all()
        connection = await db.connection()
        assert (await connection.execute(select(SEATS.c.seat).where(SEATS.c.owner == owner))).all()
        assert (await connection.exec_driver_sql("SELECT 1")).scalar_one() == 1
        rows = await db.stream(select(Seat).where(Seat.owner == owner))
        return sorted([seat.seat async for seat in rows.scalars()])

    @workflow
    async def thorough(owner: str) -> list[str]:
        return await all_ways(owner)

    engine = open_engine(thorough)
    async with Worker(engine):
        with anyio.fail_after(SOON.seconds):
            assert await engine.run(thorough(seats.owner)) == ["begun", "connection", "sync"]
    assert seats.taken == ["begun", "connection", "sync"]


@step(retry=Retry(attempts=3, wait=timedelta(0))).in_transaction
async def slow(db: AsyncSession, owner: str) -> str:
    if step_context().attempt == 1:
        REACHED.set()
        await asyncio.to_thread(GO_ON.wait, SOON.seconds)
    await take(db, owner, "slow")
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
        types = [event.type for event in await run.history()]
    assert seats.taken == []
    assert "step.completed" not in types


@pytest.mark.slow
async def test_a_body_that_times_out_is_cancelled_and_commits_nothing(
    open_engine: OpenEngine, seats: Seats
) -> None:
    @step(retry=Retry(attempts=2, wait=timedelta(0)), timeout=timedelta(seconds=1)).in_transaction
    async def hangs(db: AsyncSession, owner: str) -> str:
        await take(db, owner, "seat")
        if step_context().attempt == 1:
            try:
                await asyncio.sleep(3_600)
            except asyncio.CancelledError:
                CALLS.append("cancelled")
                raise
        return "done"

    @workflow
    async def impatient(owner: str) -> str:
        return await hangs(owner)

    engine = open_engine(impatient)
    async with Worker(engine):
        with anyio.fail_after(SOON.seconds):
            assert await engine.run(impatient(seats.owner)) == "done"
    assert CALLS == ["seat 1", "cancelled", "seat 2"]
    assert seats.taken == ["seat"]


@pytest.mark.slow
async def test_a_body_without_a_pause_is_stopped_at_its_next_statement(
    open_engine: OpenEngine, seats: Seats
) -> None:
    reached = threading.Event()  # of its own: a body that is given up may go on for a moment after the test

    @step(retry=Retry(attempts=2, wait=timedelta(0)), timeout=timedelta(seconds=1)).in_transaction
    async def busy(db: AsyncSession, owner: str) -> str:
        attempt = step_context().attempt
        while attempt == 1:
            await db.execute(select(SEATS.c.seat).where(SEATS.c.owner == owner))
            reached.set()
        await take(db, owner, "seat")
        return "done"

    @workflow
    async def stubborn(owner: str) -> str:
        return await busy(owner)

    engine = open_engine(stubborn)
    async with Worker(engine):
        with anyio.fail_after(SOON.seconds):
            assert await engine.run(stubborn(seats.owner)) == "done"
    assert reached.is_set()
    assert CALLS == ["seat 2"]


async def test_a_body_of_a_cancelled_run_is_cancelled(
    open_engine: OpenEngine, seats: Seats, url: str
) -> None:
    if url.startswith("sqlite"):
        pytest.skip("the body holds the write lock, which the cancellation would wait for")

    @step.in_transaction
    async def waits(db: AsyncSession, owner: str) -> None:
        await take(db, owner, "seat")
        REACHED.set()
        try:
            await asyncio.sleep(3_600)
        finally:
            CALLS.append("cleaned up")

    @workflow
    async def cancelled(owner: str) -> None:
        await waits(owner)

    engine = open_engine(cancelled)
    async with Worker(engine):
        run = await engine.start(cancelled(seats.owner))
        await anyio.to_thread.run_sync(REACHED.wait)
        await run.cancel()
        with anyio.fail_after(SOON.seconds), pytest.raises(RunCancelledError):
            await run.result()
        await until(lambda: "cleaned up" in CALLS)
    assert seats.taken == []


async def test_a_commit_whose_answer_is_lost_is_looked_for(
    open_engine: OpenEngine, seats: Seats, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if url.startswith("sqlite"):
        pytest.skip("there is no way on which an answer could be lost")
    commit = JoinedTransaction.commit
    lost: list[bool] = []

    def commit_without_answer(transaction: JoinedTransaction) -> None:
        commit(transaction)
        if not lost:
            lost.append(True)
            raise TransientError("lost on purpose")

    monkeypatch.setattr(JoinedTransaction, "commit", commit_without_answer)

    @workflow
    async def lucky(owner: str) -> str:
        return await book(owner, "a")

    engine = open_engine(lucky)
    async with Worker(engine):
        with anyio.fail_after(SOON.seconds):
            assert await engine.run(lucky(seats.owner)) == "ticket for a1"
    assert (lost, CALLS, seats.taken) == ([True], ["a1 1"], ["a1"])


async def test_without_greenlet_it_says_which_extra_is_missing(
    open_engine: OpenEngine, seats: Seats, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_spec(name: str) -> object:
        return None if name == "greenlet" else importlib.util.find_spec(name)

    monkeypatch.setattr(user_transactions, "find_spec", find_spec)

    @workflow
    async def poor(owner: str) -> str:
        try:
            return await book(owner, "a")
        except NoTransactionError as error:
            return str(error)

    engine = open_engine(poor)
    async with Worker(engine):
        with anyio.fail_after(SOON.seconds):
            assert 'pip install "holdfast[asyncio]"' in await engine.run(poor(seats.owner))
    assert CALLS == []


async def test_statements_of_one_body_do_not_hold_up_the_worker(
    open_engine: OpenEngine, seats: Seats
) -> None:
    """The body has a loop of its own: even code that blocks it leaves the worker's loop alone."""
    loops: list[object] = []

    @step.in_transaction
    async def blocks(db: AsyncSession, owner: str) -> None:
        loops.append(asyncio.get_running_loop())
        await take(db, owner, "seat")

    @workflow
    async def blocking(owner: str) -> None:
        await blocks(owner)

    engine = open_engine(blocking)
    async with Worker(engine):
        with anyio.fail_after(SOON.seconds):
            await engine.run(blocking(seats.owner))
    mine = cast("Any", anyio.lowlevel.current_token()).native_token
    assert loops[0] is not mine
