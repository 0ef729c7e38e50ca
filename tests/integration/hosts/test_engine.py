"""The engine and its handles, on every store."""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import anyio
import attrs
import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.client.run_handle import RunHandle
from holdfast.hosts.wiring import hint_listener
from holdfast.hosts.wiring.stores import Stores, open_stores
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.calls import Call
from holdfast.kernel.authoring.concurrency import Concurrency
from holdfast.kernel.authoring.options import StartOptions
from holdfast.kernel.commands import RunCreate
from holdfast.ports.actors import Actor
from holdfast.ports.errors import (
    CommandError,
    DefinitionError,
    EngineClosedError,
    HoldfastError,
    IdempotencyConflictError,
    InvalidArgumentError,
    InvalidFilterError,
    InvalidNamespaceError,
    InvalidValueError,
    RunCancelledError,
    RunExistsError,
    RunFailedError,
    RunNotFoundError,
    SchemaError,
    UnavailableError,
    UnknownWorkflowError,
    UnstorableValueError,
)
from holdfast.ports.persistence import Persistence, Query, Transaction
from holdfast.ports.queries.runs import FindRun
from holdfast.ports.queries.store import CountAll, StoreCounts
from holdfast.ports.records.run import RunStatus
from holdfast.ports.records.values import Payload
from holdfast.testing.conformance.threads import in_threads
from tests.integration.counts.call_counter import counting_engine
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.pipelines import FAILING, SIMPLE, TEXT, WIDE
from tests.integration.hosts.polling import until

R = TypeVar("R")

SOON = timedelta(minutes=2)
LARGE = "x" * 100_000


def counts(engine: Engine) -> StoreCounts:
    engine.core.connect()
    return engine.core.stores.persistence.read(CountAll(engine.core.namespace))


# Sync -----------------------------------------------------------------------------------------------------------


def test_a_run_is_started_watched_and_waited_for_without_an_event_loop(open_engine: OpenEngine) -> None:
    engine = open_engine(SIMPLE)
    handle = engine.sync.start(SIMPLE(4), id="order-1", attributes={"who": "me"})
    before = handle.info()
    with Worker(engine):
        assert handle.result(timeout=SOON) == 8
        assert engine.sync.run(SIMPLE(5)) == 10
    after = engine.sync.handle(SIMPLE, "order-1").info()

    assert (before.id, before.generation, before.workflow, before.version) == ("order-1", 1, "simple", "1")
    assert (before.status, before.ended_at, before.error) == (RunStatus.RUNNING, None, None)
    assert before.attributes == {"who": "me"}
    assert after.status is RunStatus.COMPLETED
    assert after.ended_at is not None
    assert before.created_at <= after.ended_at == after.updated_at
    assert after.created_at.utcoffset() == timedelta(0)


def test_a_run_that_failed_says_where_and_why(open_engine: OpenEngine) -> None:
    engine = open_engine(FAILING)
    with Worker(engine), pytest.raises(RunFailedError) as raised:
        engine.sync.run(FAILING(7))

    assert raised.value.error == "stage 'fail', attempt 1: ValueError: no 7"
    info = engine.sync.handle(FAILING, raised.value.run_id).info()
    assert (info.status, info.end_cause) == (RunStatus.FAILED, raised.value.error)


@pytest.mark.parametrize("how", ["cancel", "terminate"])
def test_a_run_is_ended_once_and_whoever_waits_is_told_why(open_engine: OpenEngine, how: str) -> None:
    engine = open_engine(SIMPLE)
    handle = engine.sync.start(SIMPLE(1))
    told: list[Exception] = []

    def wait() -> None:
        try:
            handle.result(timeout=SOON)
        except RunCancelledError as error:
            told.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    ended = getattr(handle, how)(reason="enough")
    waiting.join()

    assert (ended.status, ended.changed) == (RunStatus.CANCELLED, True)
    assert not getattr(handle, how)(reason="again").changed
    assert [str(error).rpartition(": ")[2] for error in told] == ["enough"]
    with pytest.raises(RunCancelledError, match="enough"):
        handle.result()


@pytest.mark.anyio
async def test_a_timeout_that_is_no_time_is_refused_at_once(open_engine: OpenEngine) -> None:
    engine = open_engine(SIMPLE)
    handle = engine.sync.start(SIMPLE(1))
    wrong: Any = "3"

    with pytest.raises(InvalidArgumentError, match="timeout is '3'; it must be a timedelta or a number"):
        handle.result(timeout=wrong)
    with pytest.raises(InvalidArgumentError, match="timeout is '3'; it must be a timedelta or a number"):
        await engine.handle(SIMPLE, handle.id).result(timeout=wrong)


def test_what_is_no_call_is_not_started(open_engine: OpenEngine) -> None:
    engine = open_engine(SIMPLE)
    wrong: list[Any] = [SIMPLE, None]

    with pytest.raises(TypeError, match=rf"call it with its input: {SIMPLE.name}\(\.\.\.\)"):
        engine.sync.start(wrong[0])
    with pytest.raises(TypeError, match=r"expects the call of a workflow, .* got None"):
        engine.sync.start(wrong[1])


def test_a_paused_run_rests_until_it_is_resumed(open_engine: OpenEngine) -> None:
    engine = open_engine(SIMPLE)
    handle = engine.sync.start(SIMPLE(1))
    paused = handle.pause(reason="look")
    assert (paused.status, paused.changed) == (RunStatus.PAUSED, True)
    assert not handle.pause().changed

    with Worker(engine) as worker:
        other = engine.sync.start(SIMPLE(2))
        assert other.result(timeout=SOON) == 4
        assert handle.info().status is RunStatus.PAUSED
        assert worker.stats().started == 1
        assert handle.resume().changed
        assert handle.result(timeout=SOON) == 2

    assert [event.type for event in handle.history()][1:3] == ["run.paused", "run.resumed"]
    assert not handle.pause().changed
    assert not handle.resume().changed


@pytest.mark.anyio
async def test_async_code_pauses_and_resumes_too(open_engine: OpenEngine) -> None:
    engine = open_engine(SIMPLE)
    handle = await engine.start(SIMPLE(1))

    assert (await handle.pause(reason="look")).status is RunStatus.PAUSED
    assert (await handle.resume()).status is RunStatus.RUNNING


def test_a_run_that_there_is_not_is_not_found(open_engine: OpenEngine) -> None:
    handle = open_engine(SIMPLE).sync.handle(SIMPLE, "nothing")

    for ask in (
        *(handle.info, handle.result),
        *(handle.pause, handle.resume, handle.cancel, handle.terminate),
    ):
        with pytest.raises(RunNotFoundError, match="nothing"):
            ask()


def test_waiting_can_end_before_the_run_which_goes_on(open_engine: OpenEngine) -> None:
    engine = open_engine(SIMPLE)
    handle = engine.sync.start(SIMPLE(1))

    for timeout in (timedelta(0), timedelta(milliseconds=20)):
        with pytest.raises(TimeoutError, match="it continues"):
            handle.result(timeout=timeout)
    with Worker(engine):
        assert handle.result(timeout=SOON) == 2


def test_runs_are_listed_newest_first_by_workflow_and_status(open_engine: OpenEngine) -> None:
    engine = open_engine(SIMPLE, FAILING)
    first, second, third = (engine.sync.start(call).id for call in (SIMPLE(1), FAILING(1), SIMPLE(2)))
    engine.sync.handle(SIMPLE, first).cancel()

    def ids(**asked: object) -> list[str]:
        return [info.id for info in engine.sync.runs(**asked)]  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    assert ids() == [third, second, first]
    assert ids(workflow=SIMPLE) == [third, first]
    assert ids(status="cancelled") == ids(status=RunStatus.CANCELLED) == [first]
    assert ids(workflow=FAILING, status="cancelled") == []
    assert ids(workflow="simple") == [third, first]
    assert ids(workflow="nobody's") == []
    assert ids(status=["cancelled", RunStatus.RUNNING], oldest_first=True) == [first, second, third]
    with pytest.raises(InvalidFilterError, match="unheard"):
        ids(status="unheard-of")


def test_runs_are_listed_by_what_they_were_started_with_and_by_time(open_engine: OpenEngine) -> None:
    engine = open_engine(SIMPLE).sync
    first = engine.start(SIMPLE(1), attributes={"who": "me", "what": "x"}).info()
    second = engine.start(SIMPLE(1), attributes={"who": "me"}).info()
    third = engine.start(SIMPLE(1)).info()

    assert list(engine.runs(attributes={"who": "me"})) == [second, first]
    assert list(engine.runs(attributes={"who": "me", "what": "x"})) == [first]
    assert list(engine.runs(attributes={"who": "m"})) == []
    assert list(engine.runs(attributes={})) == [third, second, first]
    assert list(engine.runs(since=second.created_at)) == [third, second]
    assert list(engine.runs(until=second.created_at, oldest_first=True)) == [first]


def test_a_list_of_runs_goes_on_where_another_one_ended(open_engine: OpenEngine) -> None:
    engine = open_engine(SIMPLE).sync
    ids = [engine.start(SIMPLE(1)).id for _ in range(5)]

    page = list(engine.runs(limit=2))
    engine.start(SIMPLE(1))
    rest = list(engine.runs(after=page[-1].cursor))

    assert [info.id for info in (*page, *rest)] == ids[::-1]
    assert [info.id for info in engine.runs(after=rest[-1].cursor, oldest_first=True, limit=3)] == ids[1:4]


def test_runs_are_counted_by_status(open_engine: OpenEngine) -> None:
    engine = open_engine(SIMPLE, FAILING).sync
    engine.start(SIMPLE(1), attributes={"who": "me"}).cancel()
    for call in (SIMPLE(1), SIMPLE(1), FAILING(1)):
        engine.start(call)

    none = dict.fromkeys(RunStatus, 0)
    assert engine.count() == {**none, RunStatus.RUNNING: 3, RunStatus.CANCELLED: 1}
    assert engine.count(workflow=SIMPLE, status="running") == {"running": 2}
    assert engine.count(status=["failed", "cancelled"]) == {"failed": 0, "cancelled": 1}
    assert engine.count(attributes={"who": "me"}) == {**none, RunStatus.CANCELLED: 1}
    assert engine.count(attributes={"who": "you"}) == none


def test_more_runs_than_fit_on_a_page_are_listed_each_once(open_engine: OpenEngine) -> None:
    engine = open_engine(SIMPLE)
    created = engine.kernel.dispatch_many(
        [
            RunCreate(namespace=engine.core.namespace, workflow="simple", input=Payload(inline="1"))
            for _ in range(250)
        ]
    )
    ids = [answer.run_id for answer in created if not isinstance(answer, CommandError)]

    assert [info.id for info in engine.sync.runs()] == sorted(ids, reverse=True)


def test_namespaces_do_not_see_each_other(open_engine: OpenEngine, url: str, namespace: str) -> None:
    ours, theirs = open_engine(SIMPLE), open_engine(SIMPLE, namespace=f"{namespace}-theirs")
    if url == "memory://":
        pytest.skip("two engines in memory are two stores")
    ours.sync.start(SIMPLE(1), id="x", idempotency_key="k")

    with pytest.raises(RunNotFoundError):
        theirs.sync.handle(SIMPLE, "x").info()
    assert list(theirs.sync.runs()) == []
    assert theirs.sync.start(SIMPLE(2), id="x", idempotency_key="k").info().id == "x"


# Starting -------------------------------------------------------------------------------------------------------


def test_an_id_that_is_taken_is_refused_or_gives_the_run_that_there_is(open_engine: OpenEngine) -> None:
    engine = open_engine(SIMPLE)
    first = engine.sync.start(SIMPLE(1), id="x").info()

    with pytest.raises(RunExistsError):
        engine.sync.start(SIMPLE(2), id="x")
    again = engine.sync.start(SIMPLE(2), id="x", if_exists="return")
    assert again.info() == first
    assert counts(engine).runs == {"running": 1}


@pytest.mark.parametrize("text", ["small", LARGE], ids=["small", "large"])
def test_starting_twice_with_one_key_starts_once(open_engine: OpenEngine, text: str) -> None:
    engine = open_engine(TEXT)
    ids = {engine.sync.start(TEXT(text), idempotency_key="k").id for _ in range(3)}

    assert len(ids) == 1
    assert counts(engine).runs == {"running": 1}
    with pytest.raises(IdempotencyConflictError):
        engine.sync.start(TEXT(text + "!"), idempotency_key="k")


@pytest.mark.slow
def test_many_are_started_together_each_as_it_would_be_alone(open_engine: OpenEngine) -> None:
    """More than fit in one transaction, in order, of several workflows."""
    engine = open_engine(SIMPLE, TEXT)
    calls: list[Call[int]] = [SIMPLE(number) for number in range(700)]
    handles = engine.sync.start_all([*calls, TEXT(LARGE)], attributes={"batch": "7"}, priority=2)

    assert len({one.id for one in handles}) == 701
    assert {one.info().attributes["batch"] for one in handles[::100]} == {"7"}
    with Worker(engine):
        assert [one.result(timeout=SOON) for one in handles[-3:]] == [2 * 698, 2 * 699, len(LARGE)]
    assert engine.sync.start_all([]) == []


def test_five_hundred_are_started_in_as_many_calls_of_the_store_as_one(url: str, namespace: str) -> None:
    engine, counting = counting_engine(url, namespace, SIMPLE)
    with engine.sync as runs:
        runs.start(SIMPLE(0))
        calls: list[int] = []
        for many in (1, 500):
            before = counting.calls
            runs.start_all([SIMPLE(number) for number in range(many)])
            calls.append(counting.calls - before)
    assert calls[0] == calls[1] == 1


def test_starting_many_twice_with_one_key_starts_each_once(open_engine: OpenEngine) -> None:
    engine = open_engine(SIMPLE)
    calls = [SIMPLE(number) for number in range(5)]
    first = engine.sync.start_all(calls[:3], idempotency_key="import")
    again = engine.sync.start_all(calls, idempotency_key="import")

    assert [one.id for one in again[:3]] == [one.id for one in first]
    assert counts(engine).runs == {"running": 5}
    with pytest.raises(IdempotencyConflictError):
        engine.sync.start_all([SIMPLE(8), SIMPLE(9)], idempotency_key="import")
    with pytest.raises(IdempotencyConflictError):
        engine.sync.start_all([*calls[:4], SIMPLE(9), SIMPLE(10)], idempotency_key="import")
    assert counts(engine).runs == {"running": 6}


def test_of_many_none_is_started_if_one_can_not_be(open_engine: OpenEngine) -> None:
    engine = open_engine(SIMPLE)
    bad: list[Any] = [SIMPLE("one"), SIMPLE, TEXT("x")]  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    for one, error in zip(bad, (InvalidValueError, InvalidArgumentError, UnknownWorkflowError), strict=True):
        with pytest.raises(error):
            engine.sync.start_all([SIMPLE(1), one])
    with pytest.raises(InvalidArgumentError, match="start_all"):
        engine.sync.start_all([SIMPLE(1)], id="x")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert counts(engine).runs == {}


@pytest.mark.anyio
async def test_async_code_starts_many_too(open_engine: OpenEngine) -> None:
    engine = open_engine(SIMPLE)
    async with Worker(engine):
        handles = await engine.start_all(SIMPLE(number) for number in range(3))
        assert [await one.result(timeout=SOON) for one in handles] == [0, 2, 4]


@pytest.mark.anyio
async def test_a_generator_of_calls_runs_in_the_thread_of_its_event_loop(open_engine: OpenEngine) -> None:
    threads: list[threading.Thread] = []

    def calls() -> Iterator[Call[int]]:
        threads.append(threading.current_thread())
        yield SIMPLE(1)

    await open_engine(SIMPLE).start_all(calls())

    assert threads == [threading.current_thread()]


def test_many_at_once_who_start_with_one_key_start_one_run(open_engine: OpenEngine) -> None:
    engine = open_engine(SIMPLE)
    engine.core.connect()
    ids = in_threads(8, lambda _: engine.sync.start(SIMPLE(1), idempotency_key="k").id)

    assert len(set(ids)) == 1
    assert counts(engine).runs == {"running": 1}


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"id": ""}, InvalidArgumentError),
        ({"priority": 2**40}, InvalidArgumentError),
        ({"attributes": {"a": 1}}, InvalidArgumentError),
        ({"unknown": 1}, TypeError),
    ],
)
def test_options_that_can_not_be_are_refused_before_anything_is_stored(
    open_engine: OpenEngine, options: StartOptions, error: type[Exception]
) -> None:
    engine = open_engine(SIMPLE)
    with pytest.raises(error):
        engine.sync.start(SIMPLE(1), **options)

    assert counts(engine) == StoreCounts(runs={}, jobs={})


def test_an_input_that_can_not_be_is_refused_before_anything_is_stored(
    open_engine: OpenEngine, tmp_path: Path
) -> None:
    engine = open_engine(SIMPLE, TEXT)
    for text in ("nul \0", "half \ud800"):
        with pytest.raises(UnstorableValueError):
            engine.sync.start(TEXT(text))
    for call in (SIMPLE("7"), TEXT(b"bytes")):  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        with pytest.raises(InvalidValueError):
            engine.sync.start(call)
    with pytest.raises(UnknownWorkflowError):
        engine.sync.start(WIDE(1))

    assert counts(engine) == StoreCounts(runs={}, jobs={})
    assert not any(path.is_file() for path in (tmp_path / "blobs").rglob("*"))


@pytest.mark.parametrize("text", ["nul \0", "half \ud800", "two\nlines", "\x1b[31m", "\u2028"])
@pytest.mark.parametrize("option", ["id", "idempotency_key", "concurrency", "queue"])
def test_a_name_that_no_store_can_keep_or_no_line_show_is_refused_and_nothing_is_stored(
    open_engine: OpenEngine, option: str, text: str
) -> None:
    engine = open_engine(SIMPLE)
    engine.sync.start(SIMPLE(1))
    with pytest.raises(HoldfastError, match=r"character|letters"):
        given = Concurrency(text) if option == "concurrency" else text
        engine.sync.start(SIMPLE(1), **{option: given})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    assert counts(engine).runs == {"running": 1}


@pytest.mark.parametrize("id", ["x" * 256, "ünïcödé 😀", "with space", "'; DROP TABLE", "%s :id", "a/b.c"])
def test_any_other_name_is_kept_as_it_is(open_engine: OpenEngine, id: str) -> None:
    engine = open_engine(SIMPLE)
    engine.sync.start(SIMPLE(1), id=id)

    assert engine.sync.handle(SIMPLE, id).info().id == id
    assert [info.id for info in engine.sync.runs()] == [id]


# Async ----------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_run_is_started_watched_and_waited_for_in_an_event_loop(open_engine: OpenEngine) -> None:
    async with open_engine(SIMPLE, FAILING) as engine, Worker(engine):
        handle = await engine.start(SIMPLE(4), id="order-1")
        assert await handle.result(timeout=SOON) == 8
        assert (await handle.info()).status is RunStatus.COMPLETED
        assert await engine.run(SIMPLE(5)) == 10
        with pytest.raises(RunFailedError, match="no 7"):
            await engine.run(FAILING(7))
        assert len([info async for info in engine.runs()]) == 3
        assert [info.id async for info in engine.runs(workflow=SIMPLE)][-1] == "order-1"
        assert [info.id async for info in engine.runs(oldest_first=True, limit=1)] == ["order-1"]
        assert await engine.count(status=["completed", "failed"]) == {"completed": 2, "failed": 1}
        with pytest.raises(InvalidFilterError):
            engine.runs(limit=0)


@pytest.mark.anyio
async def test_waiting_in_an_event_loop_can_end_before_the_run(open_engine: OpenEngine) -> None:
    async with open_engine(SIMPLE) as engine:
        handle = await engine.start(SIMPLE(1))
        with pytest.raises(TimeoutError, match="it continues"):
            await handle.result(timeout=timedelta(milliseconds=20))
        with anyio.move_on_after(0.02) as scope:
            await handle.result()
        assert scope.cancelled_caught
        await handle.cancel(reason="enough")
        with pytest.raises(RunCancelledError, match="enough"):
            await handle.result(timeout=SOON)


@pytest.mark.anyio
async def test_when_the_engine_is_closed_nobody_waits_on(open_engine: OpenEngine) -> None:
    engine = open_engine(SIMPLE)
    handle, other = [await engine.start(SIMPLE(x)) for x in range(2)]
    told: list[BaseException] = []

    async def wait() -> None:
        try:
            await handle.result(timeout=SOON)
        except EngineClosedError as error:
            told.append(error)

    def wait_in_thread() -> None:
        try:
            engine.sync.handle(SIMPLE, other.id).result(timeout=SOON)
        except EngineClosedError as error:
            told.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        group.start_soon(anyio.to_thread.run_sync, wait_in_thread)
        await until(lambda: engine.core.listener.waiting == 2)
        await anyio.to_thread.run_sync(engine.core.close)

    assert ["closed" in str(error) for error in told] == [True, True]


# Many who wait --------------------------------------------------------------------------------------------------


class Counting:
    """A store that counts queries."""

    def __init__(self, inner: Persistence) -> None:
        self._inner = inner
        self.asked: list[object] = []

    def setup(self) -> None:
        self._inner.setup()

    def transact(self, work: Callable[[Transaction], R], /) -> R:
        return self._inner.transact(work)

    def read(self, query: Query[R], /) -> R:
        self.asked.append(query)
        return self._inner.read(query)

    def prune(self, before: int, /) -> int:
        return self._inner.prune(before)

    def close(self) -> None:
        self._inner.close()


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_five_hundred_wait_at_once_without_asking_again_and_again(
    url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While nothing happens there is one query in each interval for all of them together."""
    monkeypatch.setattr(hint_listener, "POLL_FLOOR", 0.1)
    stores: Stores = open_stores(url)
    counting = Counting(stores.persistence)
    engine = Engine.on(attrs.evolve(stores, persistence=counting), workflows=[SIMPLE], namespace=namespace)
    results: list[int] = []
    idle, floors = 0, 0.0  # questions, and the intervals that they took

    async def wait(handle: RunHandle[int]) -> None:
        results.append(await handle.result(timeout=SOON))

    async with engine:
        calls: list[Call[int]] = [SIMPLE(x) for x in range(500)]
        commands = [engine.client.create(call, {}) for call in calls]
        created = await anyio.to_thread.run_sync(engine.kernel.dispatch_many, commands)
        handles = [
            engine.handle(SIMPLE, answer.run_id) for answer in created if not isinstance(answer, CommandError)
        ]
        async with anyio.create_task_group() as group:
            for handle in handles:
                group.start_soon(wait, handle)
            # Each looks at its run before and after it begins to wait.
            await until(lambda: sum(isinstance(query, FindRun) for query in counting.asked) == 1_000)
            counting.asked.clear()
            began = time.monotonic()
            await until(lambda: len(counting.asked) >= 3)
            idle = len(counting.asked)
            floors = (time.monotonic() - began) / hint_listener.POLL_FLOOR
            async with Worker(engine):
                await until(lambda: len(results) == 500)

    assert sorted(results) == [2 * x for x in range(500)]
    assert idle <= floors + 1


# Opening --------------------------------------------------------------------------------------------------------


def test_opening_an_engine_connects_to_nothing(tmp_path: Path) -> None:
    engine = Engine.open(f"sqlite:///{tmp_path}/later/holdfast.db", workflows=[SIMPLE])
    Engine.open("postgresql://nobody@127.0.0.1:1/nothing", workflows=[SIMPLE])
    assert not (tmp_path / "later").exists()
    with pytest.raises(UnavailableError, match="No such file or directory"):
        engine.sync.start(SIMPLE(1))

    (tmp_path / "later").mkdir()
    engine.sync.start(SIMPLE(1))
    assert (tmp_path / "later" / "holdfast.db").exists()
    engine.core.close()


def test_tables_are_not_made_by_an_engine_that_is_told_not_to(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/holdfast.db"
    careful = Engine.open(url, workflows=[SIMPLE], migrate=False)
    with pytest.raises(SchemaError, match=r"does not exist.*db upgrade"):
        careful.sync.start(SIMPLE(1))
    with pytest.raises(SchemaError, match=r"does not exist.*db upgrade"), Worker(careful):
        pass

    with Engine.open(url, workflows=[SIMPLE]).sync as engine:
        engine.start(SIMPLE(1))
    assert len(list(careful.sync.runs())) == 1
    careful.core.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "advice"),
    [
        ("0018", "pre-release.*start over"),
        ("2026_01_01", "does not know.*install the version"),
        ("9999_12_31", "install the version"),
    ],
)
def test_an_engine_that_makes_no_tables_works_with_those_of_its_version_only(
    tmp_path: Path, version: str, advice: str
) -> None:
    url = f"sqlite:///{tmp_path}/holdfast.db"
    with Engine.open(url, workflows=[SIMPLE]).sync as engine:
        engine.start(SIMPLE(1))
    with closing(sqlite3.connect(tmp_path / "holdfast.db", isolation_level=None)) as tables:
        tables.execute("UPDATE holdfast_version SET version_num = ?", (version,))

    careful = Engine.open(url, workflows=[SIMPLE], migrate=False)
    with pytest.raises(SchemaError, match=advice):
        careful.sync.start(SIMPLE(1))
    careful.core.close()


def test_two_workflows_of_one_name_and_version_are_refused() -> None:
    with pytest.raises(DefinitionError, match="rename one"):
        Engine.open(
            "memory://", workflows=[SIMPLE, type(SIMPLE)("simple", input=int).pipe(FAILING.bodies["fail"])]
        )


@pytest.mark.slow
def test_an_engine_can_be_used_in_another_namespace(tmp_path: Path) -> None:
    """It shares the connections and the code; runs, keys and handles are those of the other namespace."""
    url = f"sqlite:///{tmp_path / 'namespaces.db'}"
    with Engine.open(url, workflows=[TEXT]).sync as engine:
        other = engine.in_namespace("other").acting_as(Actor("user", "ann"))
        run = other.start(TEXT("x"), id="one", idempotency_key="k")
        engine.start(TEXT("y"), id="two", idempotency_key="k")

        assert run.info().namespace == "other"
        assert [one.id for one in other.runs()] == ["one"]
        assert [one.id for one in engine.runs()] == ["two"]
        assert engine.in_namespace("default").core is engine.core
        with pytest.raises(InvalidNamespaceError):
            engine.in_namespace("no/slash")
