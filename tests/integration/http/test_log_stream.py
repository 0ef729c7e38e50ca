"""The log of a run as a stream: every line once, however late it is stored, and whoever the client reaches."""

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import islice
from random import Random

import httpx
import pytest

from holdfast import Engine, NotReady, Pipeline, StageContext, Suspended, Worker, stage, suspend
from holdfast.errors import RunNotFoundError
from holdfast.http import HttpServer, asgi_app
from holdfast.ports.changes import Insert
from holdfast.ports.clock import micros
from holdfast.ports.json import canonical
from holdfast.ports.queries.run_output import LogOf, NewestLine
from holdfast.ports.records.history import OutputRow
from holdfast.remote import SyncClient
from tests.integration.http.api import NAMESPACE, Api, authenticate
from tests.integration.http.live import Event, events_in, served, stream
from tests.integration.http.lossy import LossyTransport

SECOND = 1_000_000
LOGS = f"/v1/namespaces/{NAMESPACE}/runs/one/logs"


@stage
def logged(ctx: StageContext[None], number: int) -> int:
    for line in range(number):
        ctx.log(f"line {line}", level="warning" if line % 2 else "info")
    return number


@stage.external
def rent(ctx: StageContext[None], number: int) -> Suspended[str, str]:
    return suspend(f"machine {number}", check_after=timedelta(hours=1), key="rented")


@rent.check(timeout=timedelta(seconds=30))
def checked(ctx: StageContext[None], machine: str) -> str | NotReady:
    return NotReady()


@checked.cancel
def rented(ctx: StageContext[None], machine: str) -> None:
    ctx.log(f"{machine} is given back")


many = Pipeline("many", input=int).pipe(logged)


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    opened = Engine.open(url, workflows=[many], namespace=NAMESPACE)
    with opened.sync:
        yield opened


@pytest.fixture
def server(engine: Engine) -> HttpServer:
    return asgi_app(engine)


@pytest.fixture
def client(server: HttpServer) -> Iterator[httpx.Client]:
    with served(server) as at, httpx.Client(base_url=at, timeout=20) as opened:
        yield opened


def key_of(engine: Engine, run_id: str = "one") -> str:
    """Return the key of the newest generation of a run."""
    return engine.sync.handle(many, run_id).row().key


def say(engine: Engine, *texts: str, late: float = 0.0, level: str = "info") -> None:
    """Store log lines of run `one` as a worker does, which were logged `late` seconds ago."""
    at = micros(engine.core.adapters.clock.now()) - int(late * SECOND)
    rows = [
        OutputRow(
            id=engine.core.stores.ids.new(),
            run=key_of(engine),
            job=1,
            epoch=1,
            at=at + number,
            kind="log",
            data=canonical({"level": level, "message": text, "stage": "logged"}),
        )
        for number, text in enumerate(texts)
    ]
    engine.core.stores.persistence.transact(lambda tx: tx.apply([Insert(row) for row in rows]))


def texts(events: list[Event]) -> list[str]:
    return [one.data["message"] for one in events if one.type == "line"]


@pytest.mark.slow
def test_a_line_that_is_stored_late_comes_after_those_that_were_sent(
    client: httpx.Client, engine: Engine
) -> None:
    engine.sync.start(many(1), id="one")
    say(engine, "a", "b")
    with stream(client, LOGS) as events:
        found = list(islice(events, 2))
        say(engine, "late", late=3_600)
        found.append(next(events))
        say(engine, "c")
        found.append(next(events))

    assert texts(found) == ["a", "b", "late", "c"]
    assert [one.id for one in found] == ["1/1", "1/2", "1/3", "1/4"]
    assert [line.message for line in engine.sync.handle(many, "one").logs()] == ["late", "a", "b", "c"]


@pytest.mark.slow
def test_a_client_that_leaves_after_every_event_gets_every_line_once_on_any_server_and_over_reruns(
    engine: Engine, worker: Worker
) -> None:
    """Each event is read from another server. Lines are stored in between, late ones too, and the run is run again."""
    run = engine.sync.start(many(3), id="one")
    run.result(timeout=60)
    found: list[Event] = []
    last, generation, is_over = "1/0", 1, False
    while not is_over:
        headers = {"Accept": "text/event-stream", "Last-Event-ID": last}
        with (
            served(asgi_app(engine)) as at,
            httpx.Client(base_url=at, timeout=20) as http,
            http.stream("GET", LOGS, headers=headers) as response,
        ):
            is_over = response.status_code == 204
            found += islice(events_in(response.iter_lines()), 1)
        last = found[-1].id or last
        if len(found) in {2, 4, 6} and generation < 3:
            generation += 1
            run.rerun_from()
            run.result(timeout=60)

    expected = [(f"{one}/{line}", f"line {line - 1}") for one in (1, 2, 3) for line in (1, 2, 3)]
    assert [(one.id, one.data["message"]) for one in found if one.type == "line"] == expected
    assert [one.data["generation"] for one in found if one.type == "generation"] == [2, 3]


def test_no_line_is_lost_or_repeated_while_workers_store_at_the_same_time(
    client: httpx.Client, engine: Engine
) -> None:
    engine.sync.start(many(1), id="one")
    writers, each = 4, 12

    def write(writer: int) -> None:
        for turn in range(each):
            say(engine, f"{writer} {turn} a", f"{writer} {turn} b", late=Random(turn).random() * 30)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(writers)]
    for thread in threads:
        thread.start()
    found: list[Event] = []
    last = "1/0"
    while len(found) < 2 * writers * each:
        with stream(client, LOGS, last) as events:
            found += islice(events, 7 if len(found) + 7 <= 2 * writers * each else 1)
        last = found[-1].id or last
    for thread in threads:
        thread.join()

    every = [f"{writer} {turn} {one}" for writer in range(writers) for turn in range(each) for one in "ab"]
    assert sorted(texts(found)) == sorted(every)
    places = [int((one.id or "").partition("/")[2]) for one in found]
    assert places == sorted(set(places))


def test_a_follower_of_an_engine_gets_late_lines_too(engine: Engine) -> None:
    """Workers store lines late if the store was unavailable: also more than ten seconds late."""
    run = engine.sync.start(many(1), id="one")
    say(engine, "a")
    lines = run.logs(follow=True)
    found = [next(lines).message]
    say(engine, "late", late=60)
    found.append(next(lines).message)
    say(engine, "b")
    run.terminate()
    found += [line.message for line in lines]

    assert found == ["a", "late", "b"]


def test_filters_leave_lines_out_and_the_others_keep_their_places(
    client: httpx.Client, engine: Engine, worker: Worker
) -> None:
    engine.sync.start(many(4), id="one").result(timeout=60)
    with stream(client, f"{LOGS}?level=warning") as events:
        found = list(events)
    first = engine.sync.handle(many, "one").logs()
    with stream(client, f"{LOGS}?after={next(iter(first)).cursor}") as events:
        following = list(events)
    none = client.get(f"{LOGS}?stage=absent", headers={"Accept": "text/event-stream"})

    assert [(one.id, one.type) for one in found] == [("1/2", "line"), ("1/4", "line"), (None, "end")]
    assert texts(following) == ["line 1", "line 2", "line 3"]
    assert (none.status_code, none.content) == (204, b"")


def test_the_client_follows_over_connections_that_break(engine: Engine, worker: Worker) -> None:
    engine.sync.start(many(5), id="one").result(timeout=60)
    with served(asgi_app(engine, authenticate=authenticate)) as at:
        for cut_after in range(1, 5):
            with httpx.Client(transport=LossyTransport(cut_after=cut_after)) as http:
                remote = SyncClient(at, key="all", namespace=NAMESPACE, http=http)
                lines = remote.handle("one").logs(follow=True)
                assert [line.message for line in lines] == [f"line {number}" for number in range(5)]


def test_a_run_has_no_end_before_its_external_work_is_cancelled(url: str) -> None:
    """The function that cancels it may log, after the run has ended."""
    rents = Pipeline("rents", input=int).pipe(rented)
    opened = Engine.open(url, workflows=[rents], namespace=NAMESPACE)
    with opened.sync as engine, served(asgi_app(opened)) as at, httpx.Client(base_url=at, timeout=20) as http:
        run = engine.start(rents(7), id="one")
        with Worker(opened):
            while "stage.suspended" not in [row.type for row in run.history()]:
                time.sleep(0.01)
        run.terminate()
        with stream(http, LOGS) as events, Worker(opened):
            found = list(events)

    assert texts(found) == ["machine 7 is given back"]
    assert found[-1].type == "end"


def test_what_retention_has_removed_is_not_found(
    client: httpx.Client, engine: Engine, worker: Worker
) -> None:
    run = engine.sync.start(many(2), id="one")
    run.result(timeout=60)
    key = key_of(engine)
    with stream(client, LOGS) as events:
        first = next(events)
    run.remove()
    answer = client.get(LOGS, headers={"Accept": "text/event-stream", "Last-Event-ID": first.id or ""})

    assert (answer.status_code, answer.json()["code"]) == (404, "run_not_found")
    store = engine.core.stores.persistence
    assert (store.read(LogOf(key)), store.read(NewestLine(key))) == ((), 0)


def test_a_follower_of_a_run_that_is_removed_ends(engine: Engine) -> None:
    run = engine.sync.start(many(2), id="one")
    say(engine, "a")
    lines = run.logs(follow=True)
    assert next(lines).message == "a"
    run.terminate()
    run.remove()

    assert list(lines) == []
    with pytest.raises(RunNotFoundError):
        run.logs(follow=True)


@pytest.mark.slow
def test_many_who_follow_one_log_ask_once_a_second_whether_it_has_grown(
    client: httpx.Client,
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    new_reads: Callable[[type], list[object]],
) -> None:
    engine.sync.start(many(1), id="one")
    say(engine, "a")
    asked, read = new_reads(NewestLine), new_reads(LogOf)
    opened = [stream(client, LOGS) for _ in range(10)]
    entered = [(one, one.__enter__()) for one in opened]
    try:
        for _, events in entered:
            assert next(events).id == "1/1"
        time.sleep(1.0)
        before = len(asked), len(read)
        time.sleep(2.0)
        assert len(asked) - before[0] <= 4
        assert len(read) == before[1]
    finally:
        for one, _ in entered:
            one.__exit__(None, None, None)


@pytest.fixture
def new_reads(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Callable[[type], list[object]]:
    """Returns a function that records the queries of a class."""
    engine.core.connect()
    store = engine.core.stores.persistence

    def record(kind: type) -> list[object]:
        found: list[object] = []
        read = store.read

        def recorded(query: object) -> object:
            if isinstance(query, kind):
                found.append(query)
            return read(query)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType, reportUnknownVariableType]

        monkeypatch.setattr(store, "read", recorded)
        return found

    return record


@pytest.mark.anyio
async def test_a_place_that_is_none_is_refused(api: Api, engine: Engine) -> None:
    engine.sync.start(many(1), id="one")
    for place, status in (("one", 400), ("1", 400), ("0/1", 404), ("9/1", 404)):
        headers = {"Accept": "text/event-stream", "Last-Event-ID": place}
        assert (await api.send("GET", LOGS, headers=headers)).status_code == status
