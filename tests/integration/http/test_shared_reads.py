"""Documents and lists as streams, and waits for them: one read for all who watch the same."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from holdfast import Engine, Worker
from holdfast.errors import RunFailedError
from holdfast.hosts.http import shared_reads
from holdfast.hosts.http.answers import etag_of
from holdfast.hosts.http.problems import HttpError
from holdfast.hosts.http.shared_reads import SharedReads, Watcher
from holdfast.http import HttpServer, asgi_app
from holdfast.ports.errors import UnavailableError
from holdfast.ports.queries.runs import ListRuns
from holdfast.ports.records.run import Run
from tests.integration.http.api import NAMESPACE, authenticate
from tests.integration.http.live import served, stream
from tests.integration.http.programs import CANARY, Order, approval, approved, broken, report

ROOT = f"/v1/namespaces/{NAMESPACE}"
RUNS = f"{ROOT}/runs"


@pytest.fixture
def url(tmp_path: Path, new_sqlite: Callable[[Path], str]) -> str:
    """One store is enough: the reads are the same as without a stream."""
    return new_sqlite(tmp_path / "holdfast.db")


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents are read often, for the speed of the tests."""
    monkeypatch.setattr(shared_reads, "READ_SECONDS", 0.02)
    monkeypatch.setattr(shared_reads, "READS_PER_SECOND", 1_000.0)
    monkeypatch.setattr(shared_reads, "LOAD_MAX", 1.0)


@pytest.fixture
def server(engine: Engine) -> HttpServer:
    return asgi_app(engine, authenticate=authenticate)


@pytest.fixture
def client(server: HttpServer) -> Iterator[httpx.Client]:
    headers = {"Authorization": "Bearer all"}
    with served(server) as url, httpx.Client(base_url=url, timeout=20, headers=headers) as client:
        yield client


def ids(page: Any) -> list[str]:
    return [one["id"] for one in page["items"]]


def test_a_stream_of_a_list_has_the_page_whenever_it_changes(client: httpx.Client, engine: Engine) -> None:
    engine.sync.start(report(1), id="one")
    with stream(client, f"{RUNS}?workflow=report&limit=2") as events:
        first = next(events)
        engine.sync.start(approved(Order(1)), id="another workflow")
        engine.sync.start(report(1), id="two")
        second = next(events)

    assert [(one.type, ids(one.data)) for one in (first, second)] == [
        ("changed", ["one"]),
        ("changed", ["two", "one"]),
    ]
    assert client.get(f"{RUNS}?workflow=report&limit=2").headers["etag"] == f'W/"{second.id}"'


def test_a_reconnection_gets_the_document_only_if_it_has_changed(
    client: httpx.Client, engine: Engine
) -> None:
    engine.sync.start(report(1), id="one")
    with stream(client, RUNS) as events:
        first = next(events)
    with stream(client, RUNS, first.id) as events:
        engine.sync.start(report(1), id="two")
        assert ids(next(events).data) == ["two", "one"]
    with stream(client, RUNS, first.id) as events:
        assert ids(next(events).data) == ["two", "one"]


@pytest.mark.parametrize("path", ["queues", "schedules", "workers", "limits", "sinks", "workflows"])
def test_other_lists_have_streams_too(client: httpx.Client, path: str) -> None:
    with stream(client, f"{ROOT}/{path}") as events:
        assert next(events).data == client.get(f"{ROOT}/{path}").json()


def test_the_document_of_a_run_is_sent_when_its_history_grows(
    client: httpx.Client, engine: Engine, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_reads, "RUN_SECONDS", 3_600.0)
    engine.sync.start(approved(Order(1)), id="one")
    with stream(client, f"{RUNS}/one") as events:
        found = [next(events).data["status"]]
        engine.sync.handle(approved, "one").signal(approval(True))
        while found[-1] != "completed":
            found.append(next(events).data["status"])


@pytest.mark.slow
def test_many_who_watch_one_list_cost_what_one_costs(
    client: httpx.Client, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list is read once a second while they come and watch, however many they are."""
    monkeypatch.setattr(shared_reads, "READ_SECONDS", 3_600.0)
    persistence = engine.core.stores.persistence
    read, reads = persistence.read, list[object]()

    def counted(query: Any) -> Any:
        if isinstance(query, ListRuns):
            reads.append(query)
        return read(query)

    monkeypatch.setattr(persistence, "read", counted)
    with ExitStack() as stack:
        opened = [stack.enter_context(stream(client, RUNS)) for _ in range(30)]
        assert len({next(one).id for one in opened}) == 1
        assert len(reads) == 1
        next(stack.enter_context(stream(client, f"{RUNS}?limit=7")))
        assert len(reads) == 2


@pytest.mark.slow
def test_who_may_see_less_gets_a_view_of_his_own(
    client: httpx.Client, engine: Engine, worker: Worker
) -> None:
    with pytest.raises(RunFailedError):
        engine.sync.run(broken(CANARY))
    with (
        stream(client, RUNS) as all_events,
        client.stream(
            "GET", RUNS, headers={"Authorization": "Bearer read", "Accept": "text/event-stream"}
        ) as response,
    ):
        assert CANARY in str(next(all_events).data)
        data = next(line for line in response.iter_lines() if line.startswith("data:"))
        assert '"items":[{' in data
        assert CANARY not in data


@pytest.mark.slow
def test_a_wait_for_a_list_is_answered_when_it_changes(client: httpx.Client, engine: Engine) -> None:
    engine.sync.start(report(1), id="one")
    etag = client.get(RUNS).headers["etag"]
    waits = {"If-None-Match": etag, "Prefer": "wait=20"}
    answers: list[httpx.Response] = []
    waiting = threading.Thread(target=lambda: answers.append(client.get(RUNS, headers=waits)))
    waiting.start()
    engine.sync.start(report(1), id="two")
    waiting.join()

    assert ids(answers[0].json()) == ["two", "one"]
    assert answers[0].headers["preference-applied"] == "wait=20"
    unchanged = {"If-None-Match": answers[0].headers["etag"], "Prefer": "wait=1"}
    assert client.get(RUNS, headers=unchanged).status_code == 304


def test_nothing_is_left_without_watchers(client: httpx.Client, engine: Engine, server: HttpServer) -> None:
    with stream(client, RUNS) as events:
        next(events)
        server.stop()
        list(events)
    until = time.monotonic() + 20
    while "holdfast-shared-reads" in {one.name for one in threading.enumerate()}:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert server.open_reads == 0


def test_the_stream_of_a_run_that_was_removed_ends(
    client: httpx.Client, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_reads, "RUN_SECONDS", 0.02)
    monkeypatch.setattr(shared_reads, "RUN_SHARE_SECONDS", 0.02)
    handle = engine.sync.start(report(1), id="one")
    with stream(client, f"{RUNS}/one") as events:
        next(events)
        handle.cancel()
        handle.remove()
        assert {one.data["status"] for one in islice(events, 2)} <= {"cancelled"}
    gone = client.get(f"{RUNS}/one", headers={"Accept": "text/event-stream"})
    assert (gone.status_code, gone.json()["code"]) == (404, "run_not_found")


@pytest.mark.slow
@pytest.mark.anyio
async def test_who_does_not_read_gets_the_newest_version_and_none_in_between() -> None:
    """Nothing is kept for it, so it costs nobody anything."""
    shared, number = SharedReads(time.monotonic), [0]
    slow, fast = Watcher(shared), Watcher(shared)

    def read() -> object:
        number[0] += number[0] < 50
        return {"number": number[0]}

    try:
        for one in (slow, fast):
            await anyio.to_thread.run_sync(shared.watch, one, "key", read)
        with anyio.fail_after(60):
            seen = ""
            while '"number":50' not in seen:
                seen = await fast.next(1)
            assert '"number":50' in await slow.next(1)
            assert await slow.next(0) == ""
        assert shared.number == 1
    finally:
        slow.close()
        fast.close()
    assert shared.number == 0


@pytest.mark.anyio
async def test_a_store_that_is_away_ends_no_stream() -> None:
    shared, faults = SharedReads(time.monotonic), [UnavailableError("away"), UnavailableError("away")]
    watcher, reads = Watcher(shared), list[int]()

    def read() -> object:
        reads.append(1)
        if len(reads) > 1 and faults:
            raise faults.pop()
        return {"number": len(reads)}

    try:
        await anyio.to_thread.run_sync(shared.watch, watcher, "key", read)
        with anyio.fail_after(60):
            assert '"number":1' in await watcher.next(1)
            assert '"number":4' in await watcher.next(1)
    finally:
        watcher.close()


@pytest.mark.anyio
async def test_a_client_that_has_a_newer_version_gets_no_older_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_reads, "READ_SECONDS", 60.0)
    shared, number = SharedReads(time.monotonic), [1]
    first, newer = Watcher(shared), Watcher(shared, shared_reads.id_of(etag_of({"number": 2})))

    def read() -> object:
        return {"number": number[0]}

    try:
        await anyio.to_thread.run_sync(shared.watch, first, "key", read)
        number[0] = 2
        await anyio.to_thread.run_sync(shared.watch, newer, "key", read)
        assert await newer.next(0) == ""
        assert '"number":2' in await first.next(1)
    finally:
        first.close()
        newer.close()


@pytest.mark.anyio
async def test_a_wait_that_begins_when_the_last_watcher_leaves_ends() -> None:
    shared, waits = SharedReads(time.monotonic), list[Future[Run]]()
    watcher = Watcher(shared)

    def grown() -> Future[Run]:
        watcher.close()
        waits.append(Future())
        return waits[-1]

    with suppress(HttpError):
        await anyio.to_thread.run_sync(lambda: shared.watch(watcher, "key", dict, grown))
    assert [one.cancelled() for one in waits] == [True]
    assert shared.number == 0
