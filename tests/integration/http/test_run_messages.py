"""The messages of a run over HTTP and on its page: page by page, newest first, with their states."""

from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

from holdfast import Channel, Engine, Worker, sleep, workflow
from holdfast.kernel.commands import ChannelMessage, RunSignal
from holdfast.ports.records.values import Payload
from tests.integration.hosts.polling import until
from tests.integration.http.api import NAMESPACE, Api
from tests.integration.http.pages.form_person import BASE, Person

pytestmark = pytest.mark.anyio

number = Channel("number", int)
SENT = 7


@workflow
async def adds(most: int) -> int:
    found = 0
    for _ in range(most):
        found += await number.receive()
    await sleep(3_600)
    return found


@pytest.fixture
def url(tmp_path: Path, new_sqlite: Callable[[Path], str]) -> str:
    """One store is enough: the engine's own tests have the others."""
    return new_sqlite(tmp_path / "holdfast.db")


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    opened = Engine.open(url, workflows=[adds], namespace=NAMESPACE)
    with opened.sync as engine, Worker(opened):
        run = engine.start(adds(SENT), id="one")
        for one in range(SENT):
            run.signal(number(one), idempotency_key=f"key-{one}")
        for _ in range(3_000):
            if all(one.state == "received" for one in run.messages()):
                break
            anyio.run(anyio.sleep, 0.01)
        run.signal(number(0))  # which the function does not wait for
        yield opened


@pytest.fixture
def api(engine: Engine) -> Api:
    return Api(engine)


async def test_they_are_read_page_by_page_newest_first(api: Api) -> None:
    first = await api.get("runs/one/messages?limit=3")
    second = await api.get(f"runs/one/messages?limit=3&after={first['next']}")
    third = await api.get(f"runs/one/messages?limit=3&after={second['next']}")

    found = [*first["items"], *second["items"], *third["items"]]
    assert third["next"] is None
    assert {one["channel"] for one in found} == {"number"}
    assert [one["state"] for one in found] == ["unread", *(["received"] * SENT)]
    assert [one["key"] for one in found] == [None, *(f"key-{one}" for one in reversed(range(SENT)))]
    numbers = [one["number"] for one in found]
    assert numbers == sorted(numbers, reverse=True)
    everything = api.engine.sync.handle(adds, "one").messages()
    assert [one.number for one in reversed(everything)] == numbers


async def test_a_generation_has_its_own(api: Api) -> None:
    api.engine.sync.handle(adds, "one").cancel()
    api.engine.sync.handle(adds, "one").rerun_from(None)
    again = (await api.get("runs/one/messages"))["items"]
    before = (await api.get("runs/one/messages?generation=1"))["items"]
    assert (again[0]["generation"], before[0]["generation"]) == (2, 1)
    assert before[0]["state"] == "handed_on"
    assert again[0]["state"] == "unread"


async def test_why_one_was_refused_is_what_user_code_wrote(api: Api) -> None:
    run = api.engine.sync.start(adds(1), id="two")
    unchecked = ChannelMessage(channel="number", payload=Payload(inline='"none"'), checked=False)
    api.engine.client.dispatch(RunSignal(namespace=NAMESPACE, run_id="two", signal=unchecked))
    await until(lambda: run.messages()[0].state == "refused")

    (shown,) = (await api.get("runs/two/messages"))["items"]
    (hidden,) = (await api.get("runs/two/messages", by="read"))["items"]
    assert shown["state"] == hidden["state"] == "refused"
    assert "int" in shown["why"]
    assert hidden["why"] is None


@pytest.mark.parametrize(
    "query", ["after=0", "after=x", "limit=0", "limit=1001", "generation=0", "state=unread"]
)
async def test_a_query_that_cannot_be_is_refused(api: Api, query: str) -> None:
    assert (await api.send("GET", f"runs/one/messages?{query}")).status_code == 400
    assert (await api.send("GET", "runs/none/messages")).status_code == 404


async def test_its_page_shows_them_with_links_to_their_rows(engine: Engine) -> None:
    engine.sync.start(adds(60), id="many")
    for one in range(60):
        engine.sync.handle(adds, "many").signal(number(one))
    person = Person(engine)
    seen = await person.opens("runs/one?tab=messages")
    newest = await person.opens("runs/many?tab=messages")
    (following,) = [one for one in newest.addresses() if "after=" in one]
    older = await person.opens(following.removeprefix(f"{BASE}/"))

    text = " ".join(seen.text.split())
    assert text.count("received") >= SENT
    assert "unread" in text
    row = engine.sync.handle(adds, "one").messages()[0].number
    assert f"{BASE}/runs/one?generation=1&tab=history&row={row}" in seen.addresses()
    shown = engine.sync.handle(adds, "many").messages()
    assert f"{BASE}/runs/many?generation=1&tab=history&row={shown[0].number}" not in newest.addresses()
    assert f"{BASE}/runs/many?generation=1&tab=history&row={shown[0].number}" in older.addresses()
    await person.opens("runs/one?tab=messages&after=x")  # a place that is none begins at the newest
