"""Events of a whole namespace over HTTP: each once and in one order, over lost answers, two servers, and kills."""

import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from holdfast import Engine, Worker
from holdfast.hosts.events import sink_reads
from holdfast.hosts.http import shared_reads
from holdfast.hosts.maintenance.doctor import doctor
from holdfast.http import Scope, asgi_app
from holdfast.testing.sink import MemorySink
from tests.integration.http.api import NAMESPACE, PRINCIPALS, Api
from tests.integration.http.live import events_in, served
from tests.integration.http.programs import CANARY, WORKFLOWS, Order, approval, approved, report
from tests.integration.http.test_serve import SHOP, free_port, serving

EVENTS = "sinks/audit/events"


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=[pytest.mark.service, pytest.mark.other_store])]
)
def url(request: pytest.FixtureRequest, tmp_path: Path, new_sqlite: Callable[[Path], str]) -> str:
    """A store of each kind: several servers read one sink at once."""
    if request.param == "postgres":
        found: str = request.getfixturevalue("postgres_database")
        return found
    return new_sqlite(tmp_path / "holdfast.db")


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is due is looked up often, for the speed of the tests."""
    monkeypatch.setattr(shared_reads, "READ_SECONDS", 0.02)


def rows_of(engine: Engine, *runs: str) -> dict[str, list[int]]:
    """The numbers of the history rows of runs."""
    handles = {one: engine.sync.handle(report, one) for one in runs}
    return {one: [row.number for row in handle.history()] for one, handle in handles.items()}


def by_run(events: list[Any]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for event in events:
        found[event["run_id"]].append(event["number"])
    return dict(found)


@pytest.mark.anyio
async def test_batches_have_every_event_once(api: Api, engine: Engine) -> None:
    await api.send("PUT", "sinks/audit", {})
    for name in ("one", "two", "three"):
        engine.sync.start(report(1), id=name)
        engine.sync.handle(report, name).cancel()
    found: list[Any] = []
    page = await api.get(f"{EVENTS}?limit=4")
    while page["items"]:
        found += page["items"]
        page = await api.get(f"{EVENTS}?limit=4&after={page['next']}")

    assert by_run(found) == rows_of(engine, "one", "two", "three")
    assert len({one["cursor"] for one in found}) == len({one["id"] for one in found}) == len(found)
    assert (await api.get(f"{EVENTS}?after={page['next']}")) == page


@pytest.mark.anyio
async def test_a_batch_is_repeated_until_it_is_acknowledged(api: Api, engine: Engine) -> None:
    await api.send("PUT", "sinks/audit", {})
    engine.sync.start(report(1), id="one")
    first = await api.get(EVENTS)
    engine.sync.handle(report, "one").cancel()

    assert await api.get(EVENTS) == first
    (sink,) = (await api.get("sinks"))["items"]
    assert (sink["unacknowledged"], sink["read_at"] is not None) == (1, True)
    done = await api.send("POST", "sinks/audit/acknowledge", {"cursor": first["next"]})
    assert done.status_code == 204
    second = await api.get(EVENTS)
    assert [one["type"] for one in second["items"]] == ["run.cancelled"]
    assert second["items"][-1]["cursor"] == second["next"]


@pytest.mark.anyio
async def test_reading_goes_on_in_the_middle_of_a_batch(api: Api, engine: Engine) -> None:
    await api.send("PUT", "sinks/audit", {})
    for name in ("one", "two"):
        engine.sync.start(report(1), id=name)
    whole = await api.get(EVENTS)
    rest = await api.get(f"{EVENTS}?after={whole['items'][0]['cursor']}")

    assert rest == {"items": whole["items"][1:], "next": whole["next"]}
    assert await api.get(EVENTS) == whole


@pytest.mark.anyio
async def test_a_cursor_of_an_older_batch_is_refused(api: Api, engine: Engine) -> None:
    await api.send("PUT", "sinks/audit", {})
    engine.sync.start(report(1), id="one")
    first = await api.get(EVENTS)
    engine.sync.handle(report, "one").cancel()
    await api.get(f"{EVENTS}?after={first['next']}")
    await api.send("POST", "sinks/audit/acknowledge", {"cursor": first["next"].replace(".1", ".2")})

    refused = await api.send("GET", f"{EVENTS}?after={first['next']}")
    assert (refused.status_code, refused.json()["code"]) == (409, "sink_cursor")
    for wrong in ("x", "k", "k.1.2", "..", "k.-1"):
        malformed = await api.send("GET", f"{EVENTS}?after={wrong}")
        assert (malformed.status_code, malformed.json()["code"]) == (400, "invalid_filter"), wrong
    unknown = await api.send("GET", "sinks/none/events")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "sink_not_found")


@pytest.mark.anyio
async def test_events_of_other_types_are_passed_over(api: Api, engine: Engine) -> None:
    await api.send("PUT", "sinks/audit", {"types": ["run.cancelled"]})
    for number in range(5):
        engine.sync.start(report(1), id=str(number))
    engine.sync.handle(report, "4").cancel()

    page = await api.get(f"{EVENTS}?limit=1")
    assert [(one["type"], one["run_id"]) for one in page["items"]] == [("run.cancelled", "4")]


@pytest.mark.anyio
async def test_a_client_that_got_no_answer_reads_on_though_batches_were_passed_over(
    api: Api, engine: Engine
) -> None:
    """The lost answer may have passed over any number of batches without an event of the sink's types."""
    await api.send("PUT", "sinks/audit", {"types": ["run.cancelled"]})
    place: str | None = None
    for turn in range(3):
        for number in range(4):
            engine.sync.start(report(1), id=f"{turn} {number}")
        engine.sync.handle(report, f"{turn} 3").cancel()
        after = "" if place is None else f"&after={place}"

        lost = await api.get(f"{EVENTS}?limit=1{after}")
        again = await api.get(f"{EVENTS}?limit=1{after}")

        assert again == lost
        assert [one["run_id"] for one in again["items"]] == [f"{turn} 3"]
        place = again["next"]
        for _ in range(2):  # nothing is left, however often that is read
            empty = await api.get(f"{EVENTS}?limit=1&after={place}")
            assert empty["items"] == []
            assert (await api.get(f"{EVENTS}?limit=1&after={empty['next']}"))["items"] == []


@pytest.mark.anyio
async def test_a_read_that_finds_only_other_types_is_continued_from_where_it_was(
    api: Api, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_reads, "_EMPTY_MAX", 2)
    await api.send("PUT", "sinks/audit", {"types": ["run.cancelled"]})
    for number in range(9):
        engine.sync.start(report(1), id=str(number))
    engine.sync.handle(report, "8").cancel()
    place, found = "", list[str]()
    for _ in range(12):
        page = await api.get(f"{EVENTS}?limit=1{f'&after={place}' if place else ''}")
        found += [one["run_id"] for one in page["items"]]
        place = page["next"]

    assert found == ["8"]


@pytest.mark.anyio
async def test_a_wait_is_answered_with_the_next_events(api: Api, engine: Engine) -> None:
    await api.send("PUT", "sinks/audit", {})
    empty = await api.get(EVENTS)
    starting = threading.Timer(0.1, lambda: engine.sync.start(report(1), id="one"))
    starting.start()
    page = await api.get(f"{EVENTS}?after={empty['next']}", headers={"Prefer": "wait=20"})
    starting.join()

    assert [one["type"] for one in page["items"]] == ["run.created"]


@pytest.mark.anyio
async def test_rows_that_a_process_stored_before_it_knew_the_sink_are_found(
    api: Api, engine: Engine, url: str
) -> None:
    """A process learns of a sink within seconds. Reads sweep, as the hosts that deliver do."""
    engine.sync.start(report(1), id="before")
    with Engine.open(url, workflows=WORKFLOWS, namespace=NAMESPACE).sync as other:
        other.register_sink("audit", since=other.handle(report, "before").info().created_at)

        page = await api.get(EVENTS)
    assert [one["run_id"] for one in page["items"]] == ["before"]


@pytest.mark.anyio
async def test_data_needs_the_scope_payloads(engine: Engine) -> None:
    principal = PRINCIPALS["operate"]
    assert Scope.PAYLOADS not in principal.scopes
    api = Api(engine)
    await api.send("PUT", "sinks/audit", {})
    engine.sync.start(report(1), id="one")
    engine.sync.handle(report, "one").cancel(reason=CANARY)

    hidden = await api.send("GET", EVENTS, by="operate")
    shown = await api.send("GET", EVENTS)
    assert [one["data"] for one in hidden.json()["items"]] == [None, None]
    assert CANARY in shown.text
    assert (await api.send("GET", EVENTS, by="read")).status_code == 403


def test_workers_deliver_nothing_to_a_sink_that_is_read(engine: Engine) -> None:
    engine.sync.register_sink("audit")
    engine.sync.start(report(1), id="one")
    sink_reads.read_batch(engine.core, "audit", None, 10)
    engine.sync.start(report(1), id="two")
    sink = MemorySink()
    engine.sync.flush({"audit": sink})

    assert sink.events == ()


def test_doctor_names_a_sink_whose_client_stays_away(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """No run that it has not read can be removed."""
    for name in ("done", "behind"):
        engine.sync.register_sink(name)
    engine.sync.start(report(1), id="one")
    for name in ("done", "behind"):
        read = sink_reads.read_batch(engine.core, name, None, 10)
        assert read.items
        if name == "done":
            sink_reads.acknowledge_batch(engine.core, name, sink_reads.cursor_from(read.next))
    assert engine.sync.doctor().is_sound
    monkeypatch.setattr(doctor, "LATE_AFTER", -timedelta(minutes=1))

    (found,) = (one for one in engine.sync.doctor().findings if "acknowledged" in one.text)
    assert found.text.startswith("sink 'behind': its client has not acknowledged 1 event ")
    assert [one.name for one in engine.sync.sinks()] == ["behind", "done"]


class Consumer:
    """A client that stores what it has read together with its cursor, and loses answers and connections."""

    def __init__(self, urls: list[str], path: str, seed: int, headers: dict[str, str] | None = None) -> None:
        self.found: list[Any] = []
        self._cursor: str | None = None
        self._urls = urls
        self._path = path
        self._random = Random(seed)
        self._headers = headers or {}
        self.lost = 0

    def read_once(self) -> None:
        """Read from any server, at once, after a wait, or as a stream; and lose some of it."""
        with suppress(httpx.TransportError), httpx.Client(timeout=20, headers=self._headers) as client:
            url = self._random.choice(self._urls) + self._path
            if self._random.random() < 0.5:
                self._read_page(client, url)
            else:
                self._read_stream(client, url)

    def _read_page(self, client: httpx.Client, url: str) -> None:
        parameters = {"limit": str(self._random.randint(1, 9))}
        if self._cursor is not None:
            parameters["after"] = self._cursor
        answer = client.get(
            url, params=parameters, headers={"Prefer": self._random.choice(["wait=0", "wait=1"])}
        )
        assert answer.status_code == 200, answer.text
        if not self.lost or self._random.random() < 0.3:
            self.lost += 1
            return
        page = answer.json()
        self.found += page["items"]
        self._cursor = page["next"]

    def _read_stream(self, client: httpx.Client, url: str) -> None:
        last = {} if self._cursor is None else {"Last-Event-ID": self._cursor}
        headers = {"Accept": "text/event-stream", **last}
        with client.stream("GET", url, headers=headers, timeout=0.3) as response:
            assert response.status_code == 200, response.read()
            for event in events_in(response.iter_lines()):
                if not self.lost or self._random.random() < 0.1:
                    self.lost += 1
                    return
                self.found.append(event.data)
                self._cursor = event.id


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_or_repeated_over_lost_answers_and_two_servers(
    engine: Engine, url: str, worker: Worker, seed: int
) -> None:
    engine.sync.register_sink("audit")
    runs = [f"r{number}" for number in range(12)]
    with Engine.open(url, workflows=WORKFLOWS, namespace=NAMESPACE).sync as other, ExitStack() as stack:
        urls = [stack.enter_context(served(asgi_app(one))) for one in (engine, other)]
        consumer = Consumer(urls, f"/v1/namespaces/{NAMESPACE}/{EVENTS}", seed)
        for name in runs:
            engine.sync.start(approved(Order(1)), id=name)
            consumer.read_once()
            engine.sync.handle(approved, name).signal(approval(True))
        for name in runs:
            engine.sync.handle(approved, name).result(timeout=120)
        expected = rows_of(engine, *runs)
        until = time.monotonic() + 30
        while sum(map(len, expected.values())) > len(consumer.found) and time.monotonic() < until:
            consumer.read_once()

    assert by_run(consumer.found) == expected
    assert consumer.lost > 0


@pytest.mark.slow
def test_nothing_is_lost_or_repeated_when_servers_are_killed(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    ports = [free_port(), free_port()]
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    with Engine.open(f"sqlite:///{tmp_path}/shop.db", workflows=[]).sync as engine, ExitStack() as stack:
        engine.register_sink("audit")
        processes = [stack.enter_context(serving(tmp_path, port, "--worker"))[0] for port in ports]
        consumer = Consumer(urls, f"/v1/namespaces/default/{EVENTS}", 3)
        for number in range(40):
            with httpx.Client(base_url=urls[number % 2 if number < 10 else 1], timeout=20) as client:
                body = {"workflow": "checkout", "input": {"cents": 5}, "id": f"r{number}"}
                assert client.post("/v1/namespaces/default/runs", json=body).status_code == 201
            if number == 10:
                os.kill(processes[0].pid, signal.SIGKILL)
            consumer.read_once()
            if number == 20:
                os.kill(processes[1].pid, signal.SIGKILL)
                processes[1].wait()
                consumer.read_once()
                stack.enter_context(serving(tmp_path, ports[1], "--worker"))
        expected: dict[str, list[int]] = {}
        with httpx.Client(base_url=f"{urls[1]}/v1/namespaces/default/runs", timeout=60) as client:
            for number in range(40):
                ended = client.get(f"/r{number}/result", headers={"Prefer": "wait=50"}).json()
                assert ended["status"] == "completed"
                rows = client.get(f"/r{number}/history").json()["items"]
                expected[f"r{number}"] = [row["number"] for row in rows]
        until = time.monotonic() + 60
        while sum(map(len, expected.values())) > len(consumer.found) and time.monotonic() < until:
            consumer.read_once()

    assert by_run(consumer.found) == expected


@pytest.mark.slow
def test_a_stream_ends_after_a_batch_and_says_when_to_connect_again(engine: Engine) -> None:
    engine.sync.register_sink("audit")
    engine.sync.start(report(1), id="one")
    with (
        served(asgi_app(engine)) as url,
        httpx.Client(base_url=url, timeout=20) as client,
        client.stream(
            "GET", f"/v1/namespaces/{NAMESPACE}/{EVENTS}", headers={"Accept": "text/event-stream"}
        ) as response,
    ):
        lines = list(response.iter_lines())
    assert lines[0] == "retry: 100"
    assert [one.type for one in events_in(iter(lines))] == ["run.created"]
