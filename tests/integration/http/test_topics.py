"""Topics over HTTP: messages are published and reach the runs that subscribed, and topics are listed."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import attrs
import pytest

from holdfast import Engine, Topic, Worker, workflow
from holdfast.errors import InvalidArgumentError, InvalidCommandError
from holdfast.http import asgi_app
from holdfast.kernel.commands.topics import PAYLOAD_MAX
from holdfast.ports.records.topic import MessageName, TopicMessageRow
from holdfast.ports.tables import TOPIC_MESSAGES
from holdfast.remote import SyncClient
from holdfast.workflows import TopicMessage
from tests.integration.hosts.polling import until
from tests.integration.http.api import NAMESPACE, Api, authenticate
from tests.integration.http.live import served

pytestmark = pytest.mark.anyio

SOON = 20.0


@attrs.frozen
class Order:
    number: int
    country: str = "nz"


orders = Topic("orders", Order, keys=("country",), keep=timedelta(days=1))
PATH = "topics/orders/messages"


@workflow
async def first_of(country: str) -> int:
    return (await orders.where(country=country).receive(timeout=SOON)).number


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """An engine with a function that subscribes."""
    opened = Engine.open(url, workflows=[first_of], namespace=NAMESPACE)
    with opened.sync:
        yield opened


def stored(engine: Engine, message_id: str) -> TopicMessageRow:
    """Return a message as it is stored."""
    name = MessageName(NAMESPACE, "orders", message_id)
    (row,) = engine.core.stores.persistence.transact(lambda tx: tx.get(TOPIC_MESSAGES, [name]))
    return row


async def test_a_message_reaches_the_run_that_selects_it(api: Api, engine: Engine) -> None:
    with Worker(engine):
        run = await api.post("runs", {"workflow": "first_of", "input": {"country": "fr"}, "id": "one"})
        # A message that the function can't read is skipped: nothing has checked it before.
        for message in ("no order", {"number": 8, "country": "fr"}):
            await api.post(PATH, {"message": message, "attributes": {"country": "fr"}})
        found = await api.send("GET", f"runs/{run['run_id']}/result", headers={"Prefer": f"wait={SOON:.0f}"})
    assert found.json()["result"] == 8


async def test_a_message_is_stored_with_what_the_request_has(api: Api, engine: Engine) -> None:
    body = {"message": {"number": 7, "text": "é"}, "attributes": {"country": "nz"}, "id": "m 1"}
    assert await api.post(PATH, {**body, "keep_seconds": 60.5}) == {"id": "m 1", "published": True}
    row = stored(engine, "m 1")
    assert (row.attributes, row.checked, row.sender) == ('{"country":"nz"}', 0, None)
    assert row.payload == '{"number":7,"text":"\\u00e9"}'
    assert row.expires_at - row.at == 60_500_000
    assert await api.post(PATH, {**body, "message": None}) == {"id": "m 1", "published": False}
    assert stored(engine, "m 1") == row
    null = await api.post(PATH, {"message": None})
    row = stored(engine, null["id"])
    assert (row.payload, row.attributes, row.expires_at - row.at) == ("null", "{}", 7 * 86_400_000_000)


async def test_a_request_with_a_key_is_carried_out_once(api: Api) -> None:
    headers = {"Idempotency-Key": "k"}
    first, again = [await api.post(PATH, {"message": 1}, headers=headers) for _ in range(2)]
    assert first == again == {"id": first["id"], "published": True}
    other = await api.send("POST", PATH, {"message": 2}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_conflict")
    assert (await api.get("topics"))["items"][0]["messages"] == 1


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        (
            f"topics/{'x' * 101}/messages",
            {"message": 1},
            "the name of a topic has 1 to 100 characters, not 101",
        ),
        (PATH, {}, "$.message: it is required"),
        (PATH, {"message": 1, "type": "x"}, "there is no field 'type'"),
        (PATH, {"message": 1, "attributes": {"a": 1}}, "$.attributes"),
        (PATH, {"message": 1, "attributes": ["a"]}, "$.attributes: expected an object"),
        (PATH, {"message": 1, "attributes": dict.fromkeys("abcde", "x")}, "at most 4 texts"),
        (PATH, {"message": 1, "attributes": {"a": "x" * 1_001}}, "up to 1,000 characters"),
        (PATH, {"message": "x" * PAYLOAD_MAX}, "a topic takes at most 262,144. Store large data elsewhere"),
        (PATH, {"message": 1, "id": ""}, "a text of 1 to 256 characters"),
        (PATH, {"message": 1, "id": "x" * 257}, "a text of 1 to 256 characters"),
        (PATH, {"message": 1, "id": "a\u0000b"}, "without NUL"),
        (PATH, {"message": 1, "id": "a\nb"}, "a control character"),
        (PATH, {"message": 1, "keep_seconds": 0}, "keep_seconds"),
        (PATH, {"message": 1, "keep_seconds": 367 * 86_400}, "keep_seconds"),
    ],
)
async def test_a_message_that_can_not_be_published_is_refused(
    api: Api, path: str, body: dict[str, Any], text: str
) -> None:
    refused = await api.send("POST", path, body)
    assert (refused.status_code, refused.headers["content-type"]) == (400, "application/problem+json")
    assert text in refused.json()["detail"]
    assert (await api.get("topics"))["items"] == []


async def test_topics_are_listed_page_by_page(api: Api) -> None:
    for name in ("a", "b", "c%2Fd"):
        await api.post(f"topics/{name}/messages", {"message": 1})
    first = await api.get("topics?limit=2")
    second = await api.get(f"topics?limit=2&after={first['next']}")
    assert [one["name"] for one in (*first["items"], *second["items"])] == ["a", "b", "c/d"]
    assert (first["next"], second["next"]) == ("b", None)
    assert second["items"] == [
        {
            "name": "c/d",
            "last": 1,
            "messages": 1,
            "undelivered": 0,
            "undelivered_since": None,
            "subscriptions": 0,
            "groups": [],
        }
    ]


async def test_who_may_start_runs_may_publish_and_who_reads_may_list(api: Api) -> None:
    for by in ("read", "operate", "work"):
        refused = await api.send("POST", PATH, {"message": 1}, by=by)
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden"), by
    await api.post(PATH, {"message": 1}, by="start")
    assert len((await api.get("topics", by="read"))["items"]) == 1
    assert (await api.send("GET", "topics", by="start")).status_code == 403


@pytest.mark.slow
def test_the_client_publishes_what_an_engine_publishes(engine: Engine) -> None:
    app = asgi_app(engine, authenticate=authenticate)
    with served(app) as url, SyncClient(url, key="all", namespace=NAMESPACE) as client, Worker(engine):
        run = engine.sync.start(first_of("nz"))
        first = client.publish(orders(Order(7)), id="m")
        again = client.publish(orders(Order(7)), id="m")
        assert (first.id, first.published, again.published) == ("m", True, False)
        assert run.result(timeout=SOON) == 7
        row = stored(engine, "m")
        assert (row.attributes, row.checked) == ('{"country":"nz"}', 0)
        assert row.expires_at - row.at == 86_400_000_000
        client.publish(TopicMessage("a/b", '{"number":7}'))
        assert [one.name for one in client.topics()] == ["a/b", "orders"]
        assert list(client.topics()) == list(engine.sync.topics())
        assert list(client.topics(after="a/b", limit=1)) == list(engine.sync.topics(after="a/b"))
        with pytest.raises(InvalidCommandError, match="the message is not JSON"):
            client.publish(TopicMessage("orders", "{"))
        with pytest.raises(InvalidArgumentError, match="256 characters"):
            client.publish(orders(Order(7)), id="")
        with pytest.raises(InvalidCommandError, match="at most 4 texts"):
            client.publish(TopicMessage("a", "1", attributes=dict.fromkeys("abcde", "x")))


async def test_a_topic_is_removed_in_pages(api: Api) -> None:
    """Each request takes one; with the key of an operator it is refused."""
    for number in range(3):
        await api.post(PATH, {"message": number})
    assert (await api.send("DELETE", "topics/orders", by="operate")).status_code == 403
    removed = await api.send("DELETE", "topics/orders", by="admin")
    assert (removed.status_code, removed.json()) == (200, {"rows": 3, "more": False})
    assert (await api.get("topics"))["items"] == []


async def test_a_topic_that_is_used_is_not_removed(api: Api, engine: Engine) -> None:
    with Worker(engine):
        await api.post("runs", {"workflow": "first_of", "input": {"country": "fr"}, "id": "one"})
        await until(lambda: any(one.subscriptions for one in engine.sync.topics()))
        refused = await api.send("DELETE", "topics/orders", by="admin")
    assert (refused.status_code, refused.json()["code"]) == (409, "topic_in_use")
