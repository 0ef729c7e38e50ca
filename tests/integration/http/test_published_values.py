"""All values that a function publishes, read and followed over HTTP: each once and in order."""

import threading
import time
from collections.abc import Iterator
from itertools import islice

import attrs
import httpx
import pytest

from holdfast import Channel, Engine, Worker, continue_as_new, publish, step, workflow
from holdfast.errors import AccessDeniedError, InvalidValueError, RunNotFoundError
from holdfast.http import asgi_app
from holdfast.remote import SyncClient
from tests.integration.http.api import NAMESPACE, Api, authenticate
from tests.integration.http.live import Event, served, stream
from tests.integration.http.lossy import LossyTransport

SOON = 120
VALUES = f"/v1/namespaces/{NAMESPACE}/runs/one/published/state/values"
go_on = Channel("go_on", bool)


@attrs.frozen
class State:
    """A value that is published."""

    number: int


@step
def noted(number: int) -> int:
    return number


@workflow
async def counted(first: int = 0) -> int:
    """Publish three values, and continue as new if the message says so."""
    for number in range(first, first + 3):
        publish("state", State(number))
        publish("other", number)
        await noted(number)
    if await go_on.receive():
        return await continue_as_new(counted(first + 3))
    return first


@workflow
async def silent() -> bool:
    return await go_on.receive()


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    opened = Engine.open(url, workflows=[counted, silent], namespace=NAMESPACE)
    with opened.sync:
        yield opened


@pytest.fixture
def server(engine: Engine) -> Iterator[str]:
    with served(asgi_app(engine, authenticate=authenticate)) as at:
        yield at


@pytest.fixture
def client(server: str) -> Iterator[SyncClient]:
    with SyncClient(server, key="all", namespace=NAMESPACE) as opened:
        yield opened


@pytest.fixture
def raw(server: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server, timeout=20, headers={"Authorization": "Bearer all"}) as opened:
        yield opened


def finished(engine: Engine, generations: int = 2) -> None:
    """Run `counted` as run `one` to its end."""
    run = engine.sync.start(counted(), id="one")
    for generation in range(1, generations + 1):
        run.signal(go_on(generation < generations))
        while run.info().generation == generation < generations and run.info().status == "running":
            time.sleep(0.01)
    run.result(timeout=SOON)


def seen(events: list[Event]) -> list[int]:
    return [one.data["value"]["number"] for one in events if one.type == "value"]


def test_values_have_their_type_and_order(client: SyncClient, engine: Engine, worker: Worker) -> None:
    finished(engine)
    run, own = client.handle("one"), engine.sync.handle(counted, "one")
    for follow in (False, True):
        for name in ("state", "other", "absent"):
            found = list(run.published_values(name, follow=follow))
            assert found == list(own.published_values(name, follow=follow)), (name, follow)
    typed: list[State] = list(run.published_values("state", State, follow=True))

    assert typed[-3:] == [State(3), State(4), State(5)]
    with pytest.raises(InvalidValueError):
        list(run.published_values("state", int))
    with pytest.raises(RunNotFoundError):
        list(client.handle("absent").published_values("state"))


def test_values_are_followed_into_the_next_generation(
    client: SyncClient, engine: Engine, worker: Worker
) -> None:
    run = engine.sync.start(counted(), id="one")
    values = client.handle("one").published_values("state", State, follow=True)

    assert list(islice(values, 3)) == [State(0), State(1), State(2)]
    run.signal(go_on(True))
    assert list(islice(values, 3)) == [State(3), State(4), State(5)]
    run.signal(go_on(False))
    assert list(values) == []


def test_no_value_is_lost_or_repeated_over_a_connection_that_breaks(
    server: str, engine: Engine, worker: Worker
) -> None:
    finished(engine)
    for cut_after in range(1, 6):
        with httpx.Client(transport=LossyTransport(cut_after=cut_after)) as http:
            client = SyncClient(server, key="all", namespace=NAMESPACE, http=http)
            found = client.handle("one").published_values("other", follow=True)
            own = engine.sync.handle(counted, "one").published_values("other")
            assert list(found) == list(own)


@pytest.mark.slow
def test_a_stream_continues_after_each_event_on_any_server_and_a_rerun_does_not_change_it(
    engine: Engine, worker: Worker
) -> None:
    finished(engine, 3)
    last, found = "1/0", list[Event]()
    rerun = False
    while not found or found[-1].type != "end":
        with (
            served(asgi_app(engine)) as at,
            httpx.Client(base_url=at, timeout=20) as http,
            stream(http, VALUES, last) as events,
        ):
            event = next(events)
        found.append(event)
        last = event.id or last
        if len(found) == 4 and not rerun:
            rerun = True
            engine.sync.handle(counted, "one").rerun_from(row=2)
        if len(seen(found)) == 9:
            break

    assert seen(found) == list(range(9))
    assert len({one.id for one in found}) == 9
    with served(asgi_app(engine)) as at, httpx.Client(base_url=at, timeout=20) as http:
        headers = {"Accept": "text/event-stream", "Last-Event-ID": last}
        assert http.get(VALUES, headers=headers).status_code == 204


def test_pages_follow_one_another_and_say_where_to_continue(
    raw: httpx.Client, engine: Engine, worker: Worker
) -> None:
    finished(engine)
    first = raw.get(f"{VALUES}?limit=2&after=1/0").json()
    second = raw.get(f"{VALUES}?limit=100&after={first['next']}").json()
    third = raw.get(f"{VALUES}?after={second['place']}").json()

    assert [one["value"]["number"] for one in (*first["items"], *second["items"])] == list(range(6))
    assert (first["ended"], second["ended"], second["next"]) == (False, True, None)
    assert (third["items"], third["ended"]) == ([], True)


def test_a_wait_ends_with_the_first_value_or_the_end_of_the_run(
    client: SyncClient, engine: Engine, worker: Worker
) -> None:
    quiet = engine.sync.start(silent(), id="quiet")
    found: list[object] = []
    waits = [
        threading.Thread(target=lambda: found.append(client.handle("late").wait_for_published("state"))),
        threading.Thread(target=lambda: found.append(client.handle("quiet").wait_for_published("state"))),
    ]
    engine.sync.start(counted(), id="late")
    with pytest.raises(TimeoutError, match="'quiet' has published nothing as 'state' within"):
        client.handle("quiet").wait_for_published("state", timeout=0)
    for wait in waits:
        wait.start()
    quiet.signal(go_on(True))
    for wait in waits:
        wait.join()
    state = client.handle("late").wait_for_published("state", State, timeout=SOON)

    assert None in found
    assert len(found) == 2
    assert isinstance(state, State)


@pytest.mark.anyio
async def test_a_place_that_is_none_is_refused(api: Api, engine: Engine) -> None:
    engine.sync.start(counted(), id="one")
    for place, status, code in (
        ("1", 400, "invalid_filter"),
        ("a/1", 400, "invalid_filter"),
        ("0/1", 404, "run_not_found"),
        ("7/1", 404, "run_not_found"),
    ):
        answer = await api.send("GET", f"{VALUES}?after={place}")
        assert (answer.status_code, answer.json()["code"]) == (status, code)
    headers = {"Accept": "text/event-stream", "Last-Event-ID": "one"}
    assert (await api.send("GET", VALUES, headers=headers)).status_code == 400


def test_values_need_the_scope_payloads(server: str, engine: Engine) -> None:
    engine.sync.start(counted(), id="one")
    with (
        SyncClient(server, key="read", namespace=NAMESPACE) as client,
        pytest.raises(AccessDeniedError, match="'payloads'"),
    ):
        list(client.handle("one").published_values("state"))
