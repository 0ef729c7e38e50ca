"""Waits and streams, over a real server."""

import threading
import time
from collections.abc import Iterator, MutableMapping
from itertools import islice
from typing import Any

import anyio
import httpx
import pytest
from typing_extensions import override

from holdfast import Engine, Worker
from holdfast.errors import UnavailableError
from holdfast.hosts.http import live_reads, run_events
from holdfast.hosts.http.operations import ServerEvent
from holdfast.hosts.http.problems import HttpError
from holdfast.hosts.http.run_events import HistoryReader
from holdfast.http import HttpServer, Principal, asgi_app
from holdfast.ports.queries.history import HistoryOf
from tests.integration.http.api import NAMESPACE, PRINCIPALS
from tests.integration.http.live import Event, served, stream
from tests.integration.http.programs import Order, approval, approved, report

RUNS = f"/v1/namespaces/{NAMESPACE}/runs"


@pytest.fixture
def server(engine: Engine) -> HttpServer:
    return asgi_app(engine)


@pytest.fixture
def client(server: HttpServer) -> Iterator[httpx.Client]:
    with served(server) as url, httpx.Client(base_url=url, timeout=20) as client:
        yield client


def history_of(engine: Engine, run_id: str, generation: int = 1) -> list[tuple[str, str]]:
    """The ids and types of the events that a stream of a generation has."""
    handle = engine.sync.handle(report, run_id)
    rows = handle.history(generation=generation)
    return [(f"{generation}/{row.number}", row.type) for row in rows]


def seen(events: list[Event]) -> list[tuple[str | None, str]]:
    return [(one.id, one.type) for one in events if one.type not in {"end", "generation"}]


@pytest.mark.slow
def test_a_stream_has_every_row_once_and_ends(client: httpx.Client, engine: Engine, worker: Worker) -> None:
    engine.sync.start(approved(Order(1)), id="one")
    with stream(client, f"{RUNS}/one/history") as events:
        found = list(islice(events, 2))
        engine.sync.handle(approved, "one").signal(approval(True))
        found += events

    assert seen(found) == history_of(engine, "one")
    end = found[-1]
    assert (end.id, end.type, end.data["status"]) == (None, "end", "completed")
    again = client.get(
        f"{RUNS}/one/history", headers={"Accept": "text/event-stream", "Last-Event-ID": found[-2].id or ""}
    )
    assert (again.status_code, again.content) == (204, b"")


@pytest.mark.slow
def test_no_row_is_lost_or_repeated_over_reconnects_and_reruns(
    client: httpx.Client, engine: Engine, worker: Worker
) -> None:
    """The client leaves after every second event; in between, the run is run again."""
    run = engine.sync.start(report(1), id="one")
    run.result()
    run.rerun_from("reported")
    run.result()
    run.rerun_from()
    run.result()
    found: list[Event] = []
    while not found or found[-1].type != "end":
        last = next((one.id for one in reversed(found) if one.id), None)
        with stream(client, f"{RUNS}/one/history?generation=1", last) as events:
            found += islice(events, 2)

    expected = [row for generation in (1, 2, 3) for row in history_of(engine, "one", generation)]
    assert seen(found) == expected
    assert [one.data["generation"] for one in found if one.type == "generation"] == [2, 3]


@pytest.mark.slow
def test_a_stream_survives_a_restart_of_the_server(engine: Engine, worker: Worker) -> None:
    engine.sync.start(approved(Order(1)), id="one")
    with (
        served(asgi_app(engine)) as url,
        httpx.Client(base_url=url, timeout=20) as client,
        stream(client, f"{RUNS}/one/history") as events,
    ):
        found = list(islice(events, 2))
    engine.sync.handle(approved, "one").signal(approval(True))
    with (
        served(asgi_app(engine)) as url,
        httpx.Client(base_url=url, timeout=20) as client,
        stream(client, f"{RUNS}/one/history", found[-1].id) as events,
    ):
        found += events

    assert seen(found) == history_of(engine, "one")


@pytest.mark.slow
def test_a_wait_is_answered_when_the_run_changes(
    client: httpx.Client, engine: Engine, worker: Worker
) -> None:
    handle = engine.sync.start(approved(Order(1)), id="one")
    while not handle.why() or handle.info().status != "running":
        time.sleep(0.01)
    waits = {"Prefer": "wait=20"}
    first = client.get(f"{RUNS}/one")
    rows = client.get(f"{RUNS}/one/history").json()["items"]
    answers: dict[str, httpx.Response] = {}

    def wait(name: str, path: str, **headers: str) -> threading.Thread:
        def get() -> None:
            answers[name] = client.get(f"{RUNS}/one{path}", headers={**waits, **headers})

        thread = threading.Thread(target=get)
        thread.start()
        return thread

    etag = {"If-None-Match": first.headers["etag"]}
    threads = [
        wait("run", "", **etag),
        wait("history", f"/history?after={rows[-1]['number']}"),
        wait("result", "/result"),
    ]
    handle.signal(approval(True))
    for thread in threads:
        thread.join()

    assert answers["run"].status_code == 200
    assert answers["history"].json()["items"]
    assert answers["result"].json()["result"] == "1 True"
    assert {one.headers["preference-applied"] for one in answers.values()} == {"wait=20"}


@pytest.mark.slow
def test_a_wait_that_is_over_is_answered_with_what_there_is(client: httpx.Client, engine: Engine) -> None:
    engine.sync.start(report(1), id="one")
    etag = client.get(f"{RUNS}/one").headers["etag"]
    began = time.monotonic()

    unchanged = client.get(f"{RUNS}/one", headers={"If-None-Match": etag, "Prefer": "wait=1"})
    active = client.get(f"{RUNS}/one/result", headers={"Prefer": "respond-async, wait=1"})

    assert unchanged.status_code == 304
    assert (active.status_code, active.json()["status"]) == (200, "running")
    assert time.monotonic() - began >= 2
    engine.sync.handle(report, "one").terminate()
    ended = client.get(f"{RUNS}/one")
    at_once = time.monotonic()
    same = client.get(f"{RUNS}/one", headers={"If-None-Match": ended.headers["etag"], "Prefer": "wait=20"})
    assert same.status_code == 304
    assert time.monotonic() - at_once < 5


@pytest.mark.slow
def test_waits_hold_no_threads(client: httpx.Client, engine: Engine, server: HttpServer) -> None:
    engine.sync.start(report(1), id="one")
    before = threading.active_count()
    limits = httpx.Limits(max_connections=None)
    with httpx.Client(base_url=client.base_url, timeout=20, limits=limits) as many:
        waiting = [
            threading.Thread(
                target=many.get, args=(f"{RUNS}/one/result",), kwargs={"headers": {"Prefer": "wait=15"}}
            )
            for _ in range(60)
        ]
        for thread in waiting:
            thread.start()
        while server.open_reads < len(waiting):
            time.sleep(0.01)
        time.sleep(0.2)
        assert threading.active_count() - before - len(waiting) < 45  # the limit of calls is 40
        engine.sync.handle(report, "one").terminate()
        for thread in waiting:
            thread.join()


def test_a_stop_ends_streams_and_waits(engine: Engine) -> None:
    engine.sync.start(report(1), id="one")
    server = asgi_app(engine)
    answers: list[httpx.Response] = []
    with served(server) as url, httpx.Client(base_url=url, timeout=20) as client:
        waiting = threading.Thread(
            target=lambda: answers.append(client.get(f"{RUNS}/one/result", headers={"Prefer": "wait=15"}))
        )
        with stream(client, f"{RUNS}/one/history") as events:
            next(events)
            waiting.start()
            while server.open_reads < 2:
                time.sleep(0.01)
            began = time.monotonic()
            server.stop()
            list(events)
            waiting.join()
            assert time.monotonic() - began < 3
        assert answers[0].json()["status"] == "running"
        refused = client.get(f"{RUNS}/one/history", headers={"Accept": "text/event-stream"})
        assert (refused.status_code, refused.json()["code"]) == (503, "shutting_down")
        assert client.get(f"{RUNS}/one").status_code == 200


@pytest.mark.slow
def test_a_client_that_leaves_is_noticed(client: httpx.Client, engine: Engine, server: HttpServer) -> None:
    engine.sync.start(report(1), id="one")
    with stream(client, f"{RUNS}/one/history") as events:
        next(events)
        assert server.open_reads == 1
    with pytest.raises(httpx.ReadTimeout):
        client.get(f"{RUNS}/one/result", headers={"Prefer": "wait=30"}, timeout=0.3)
    until = time.monotonic() + 10
    while server.open_reads and time.monotonic() < until:
        time.sleep(0.01)
    assert server.open_reads == 0


@pytest.mark.slow
def test_a_stream_and_a_wait_end_when_their_credential_does(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_reads, "CHECK_SECONDS", 0.1)
    engine.sync.start(report(1), id="one")
    principals = [PRINCIPALS["all"]]

    async def authenticate(_: object) -> Principal | None:
        return principals[0] if principals else None

    server = asgi_app(engine, authenticate=authenticate)
    answers: list[httpx.Response] = []
    with (
        served(server) as url,
        httpx.Client(base_url=url, timeout=20) as client,
        stream(client, f"{RUNS}/one/history") as events,
    ):
        next(events)
        waiting = threading.Thread(
            target=lambda: answers.append(
                httpx.get(f"{url}{RUNS}/one/result", headers={"Prefer": "wait=50"}, timeout=60)
            )
        )
        waiting.start()
        until = time.monotonic() + 20
        while server.open_reads < 2 and time.monotonic() < until:
            time.sleep(0.01)
        principals.clear()
        assert "end" not in {one.type for one in events}
        waiting.join(20)
    assert [one.status_code for one in answers] == [401]
    assert server.open_reads == 0


@pytest.mark.slow
def test_an_open_stream_is_closed_within_five_seconds_after_its_key_was_revoked(engine: Engine) -> None:
    engine.sync.start(report(1), id="one")
    keys = engine.sync.keys
    headers = {"Authorization": f"Bearer {keys.create('ci', scopes=['read']).text}"}
    with (
        served(asgi_app(engine)) as url,
        httpx.Client(base_url=url, timeout=20, headers=headers) as client,
        stream(client, f"{RUNS}/one/history") as events,
    ):
        next(events)
        time.sleep(2)  # its key is in the cache then, with most of its time left
        assert client.get(f"{RUNS}/one").status_code == 200
        began = time.monotonic()
        keys.revoke("ci")
        assert "end" not in {one.type for one in events}
        assert time.monotonic() - began < 5


def test_a_reader_that_does_not_read_is_disconnected(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_reads, "SEND_SECONDS", 0.1)
    engine.sync.start(report(1), id="one")
    server = asgi_app(engine)
    sent: list[str] = []

    async def receive() -> dict[str, object]:
        if sent:
            await anyio.sleep_forever()
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message["type"])
        if len(sent) > 1:
            await anyio.sleep_forever()

    async def ask() -> None:
        with anyio.fail_after(60):
            await server(history_request("one"), receive, send)

    anyio.run(ask)
    assert sent == ["http.response.start", "http.response.body", "http.response.body"]
    assert server.open_reads == 0


@pytest.mark.slow
def test_an_idle_stream_is_kept_open_by_comments_and_reads_nothing(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[float] = []

    class CountingReader(HistoryReader):
        @override
        def read(self) -> list[ServerEvent]:
            reads.append(time.monotonic())
            return super().read()

    monkeypatch.setattr(run_events, "HistoryReader", CountingReader)
    for name in ("PING_SECONDS", "CHECK_SECONDS"):
        monkeypatch.setattr(live_reads, name, 0.02)
    engine.sync.start(report(1), id="one")
    with served(asgi_app(engine)) as url, httpx.Client(base_url=url, timeout=20) as client:
        headers = {"Accept": "text/event-stream"}
        with client.stream("GET", f"{RUNS}/one/history", headers=headers) as response:
            lines = response.iter_lines()
            assert next(lines) == "retry: 1000"
            comments = [line for line in islice(lines, 60) if line.startswith(":")]

    assert len(comments) > 10
    assert len(reads) <= 3


@pytest.mark.slow
def test_an_idle_stream_does_not_read_its_history(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The listener reads for all of them."""
    monkeypatch.setattr(live_reads, "CHECK_SECONDS", 0.01)
    monkeypatch.setattr(live_reads, "PING_SECONDS", 0.01)
    persistence = engine.core.stores.persistence
    read, reads = persistence.read, list[object]()

    def counted(query: Any) -> Any:
        if isinstance(query, HistoryOf):
            reads.append(query)
        return read(query)

    monkeypatch.setattr(persistence, "read", counted)
    engine.sync.start(approved(Order(1)), id="one")
    with served(asgi_app(engine)) as url, httpx.Client(base_url=url, timeout=20) as client:
        headers = {"Accept": "text/event-stream"}
        with client.stream("GET", f"{RUNS}/one/history", headers=headers) as response:
            lines = response.iter_lines()
            pings = (line for line in lines if line.startswith(": ping"))
            assert len(list(islice(pings, 10))) == 10
            before = len(reads)
            assert len(list(islice(pings, 10))) == 10

    assert before <= 3  # the rows so far, and one read after each look of the listener
    assert len(reads) <= before + 1


def test_there_are_only_so_many_streams_and_waits(
    client: httpx.Client, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_reads, "OPEN_MAX", 1)
    engine.sync.start(report(1), id="one")
    with stream(client, f"{RUNS}/one/history") as events:
        next(events)
        refused = client.get(f"{RUNS}/one/history", headers={"Accept": "text/event-stream"})
        assert (refused.status_code, refused.json()["code"]) == (503, "too_many_streams")
        assert refused.headers["retry-after"] == "2"
        at_once = client.get(f"{RUNS}/one/result", headers={"Prefer": "wait=20"})
        assert (at_once.status_code, at_once.json()["status"]) == (200, "running")
        assert "preference-applied" not in at_once.headers


def test_a_start_is_answered_though_its_wait_fails(
    client: httpx.Client, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that gets an error would start another run."""

    def fail(*_: object) -> None:
        raise UnavailableError("the store is away")

    monkeypatch.setattr(live_reads, "find_run", fail)
    answer = client.post(RUNS, json={"workflow": "report", "input": 1}, headers={"Prefer": "wait=20"})

    assert (answer.status_code, answer.json()["status"]) == (201, "running")


def test_a_place_that_is_none_is_refused(client: httpx.Client, engine: Engine) -> None:
    engine.sync.start(report(1), id="one")
    headers = {"Accept": "text/event-stream"}
    for last, status in (("x", 400), ("1", 400), ("0/1", 404), ("2/1", 404), ("1/9999999999", 400)):
        refused = client.get(f"{RUNS}/one/history", headers={**headers, "Last-Event-ID": last})
        assert refused.status_code == status, last
    assert client.get(f"{RUNS}/two/history", headers=headers).status_code == 404


def history_request(run_id: str) -> dict[str, Any]:
    return {
        "type": "http",
        "method": "GET",
        "path": f"{RUNS}/{run_id}/history",
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"accept", b"text/event-stream")],
        "client": ("127.0.0.1", 1),
    }


@pytest.mark.anyio
async def test_a_check_that_can_not_be_made_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was started is not answered with an error because the store was away for one check of the key."""
    monkeypatch.setattr(live_reads, "CHECK_SECONDS", 0.0)
    checks: list[Exception] = [
        UnavailableError("away"),
        UnavailableError("away"),
        HttpError("unauthenticated"),
    ]

    async def check() -> None:
        raise checks.pop(0)

    with pytest.raises(HttpError):
        await live_reads.checked_again(check)
    assert checks == []
