"""API keys, the audit log, namespaces, workers and queues over HTTP."""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, Final

import anyio
import httpx
import pytest

from holdfast import Engine, Worker
from holdfast.http import ALL_NAMESPACES, Scope, asgi_app
from tests.integration.http.api import NAMESPACE, Api
from tests.integration.http.programs import report
from tests.integration.http.responses import check_response
from tests.integration.http.test_runs import start

pytestmark = pytest.mark.anyio

ADMIN: Final[dict[str, Any]] = {"scopes": [*Scope], "namespaces": [ALL_NAMESPACES]}
FIRST: Final[dict[str, Any]] = {**ADMIN, "label": "me"}


def local_client(engine: Engine, address: str = "127.0.0.1") -> httpx.AsyncClient:
    """Return a client of a server with its own authentication."""
    transport = httpx.ASGITransport(app=asgi_app(engine), client=(address, 1))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


async def test_the_first_key_can_be_created_from_this_machine_once(engine: Engine) -> None:
    async with local_client(engine) as client:
        useless = await client.post("/v1/keys", json={**FIRST, "scopes": ["read"]})
        refused = await client.post("/v1/keys", json={**FIRST, "namespaces": [NAMESPACE]})
        created = await client.post("/v1/keys", json=FIRST)
        again = await client.post("/v1/keys", json={**FIRST, "label": "other"})
        key = {"Authorization": f"Bearer {created.json()['text']}"}
        with_key = await client.get("/v1", headers=key)
    async with local_client(engine, "10.0.0.1") as client:
        elsewhere = await client.post("/v1/keys", json=FIRST)
        with_key_elsewhere = await client.get("/v1", headers=key)

    assert [useless.json()["code"], refused.json()["code"]] == ["invalid_argument"] * 2
    assert created.status_code == 200
    assert created.headers["cache-control"] == "no-store"
    # The server may still take this machine for one without keys, for up to three seconds.
    assert again.json()["code"] in {"credential_exists", "unauthenticated"}
    assert elsewhere.status_code == 401
    assert with_key.json()["principal"] == with_key_elsewhere.json()["principal"] == "me"
    assert [one.label for one in engine.sync.keys.list()] == ["me"]
    for response in (useless, created, again, elsewhere, with_key):
        check_response(response)


async def test_commands_create_no_first_key(engine: Engine) -> None:
    """The operation on keys sees to it that the first one may administer the others; a command does not."""
    command = {
        "type": "credential.create",
        "id": "a" * 12,
        "label": "a",
        "hash": "0" * 64,
        "scopes": ["read"],
    }
    async with local_client(engine) as client:
        refused = await client.post(
            f"/v1/namespaces/{NAMESPACE}/commands", json={"commands": [{**command, "namespaces": ["*"]}]}
        )
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert "POST /v1/keys" in refused.json()["detail"]
    assert list(engine.sync.keys.list()) == []


async def test_of_first_keys_at_once_one_is_created(engine: Engine) -> None:
    async def one(label: str) -> httpx.Response:
        async with local_client(engine) as client:
            return await client.post("/v1/keys", json={**FIRST, "label": label})

    def in_thread(label: str) -> httpx.Response:
        return anyio.run(one, label)

    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(in_thread, ["k0", "k1", "k2", "k3"]))

    assert [one.status_code for one in answers].count(200) == 1
    assert len(engine.sync.keys.list()) == 1


async def test_keys_are_created_rotated_and_revoked_and_shown_once(api: Api) -> None:
    wanted = {"label": "ci", "scopes": ["read", "start"], "namespaces": ["shop"]}
    created = await api.post("/v1/keys", wanted)
    same = await api.post("/v1/keys", wanted)
    other = await api.send("POST", "/v1/keys", {**wanted, "scopes": ["admin"]})
    rotated = await api.post("/v1/keys/ci/rotate", {"grace_seconds": 3_600})
    await api.post("/v1/keys", {**wanted, "label": "b"})
    first = await api.get("/v1/keys?limit=1")
    second = await api.get(f"/v1/keys?limit=1&after={first['next']}")
    revoked = await api.send("DELETE", f"/v1/keys/{created['info']['id']}?reason=leaked")
    unknown = await api.send("POST", "/v1/keys/ci/rotate")
    audit = await api.send("GET", "/v1/audit?limit=3")

    assert created["text"].startswith("hf_")
    assert (created["created"], same["created"], same["text"]) == (True, False, None)
    assert (other.status_code, other.json()["code"]) == (409, "credential_exists")
    assert rotated["text"] not in {created["text"], None}
    assert rotated["info"]["previous_until"] is not None
    assert [one["label"] for one in (*first["items"], *second["items"])] == ["ci", "b"]
    assert second["next"] is None
    assert revoked.json()["revoked_at"] is not None
    assert (unknown.status_code, unknown.json()["code"]) == (404, "credential_not_found")
    entries = audit.json()["items"]
    assert [one["action"] for one in entries] == [
        "credential.revoke",
        "credential.create",
        "credential.rotate",
    ]
    assert entries[0]["request_id"] == revoked.headers["x-request-id"]
    assert (entries[0]["actor"]["id"], entries[0]["details"]) == ("ann", {"reason": "leaked"})
    rest = await api.get(f"/v1/audit?after={audit.json()['next']}")
    assert [one["target"] for one in rest["items"]] == ["ci"]
    for text in (created["text"], rotated["text"]):
        secret = text.split("_", 2)[2]
        assert secret[:43] not in audit.text + str(first) + str(second) + str(rest)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"label": "", "scopes": ["read"], "namespaces": ["shop"]},
        {"label": "a b", "scopes": ["read"], "namespaces": ["shop"]},
        {"label": "a", "scopes": ["root"], "namespaces": ["shop"]},
        {"label": "a", "scopes": [], "namespaces": ["shop"]},
        {"label": "a", "scopes": ["read"], "namespaces": []},
        {"label": "a", "scopes": ["read"], "namespaces": ["../x"]},
        {"label": "a", "scopes": ["read"], "namespaces": ["shop"], "expires_at": "2001-01-01T00:00:00Z"},
        {"label": "a", "scopes": ["read"], "namespaces": ["shop"], "hash": "0" * 64},
    ],
    ids=str,
)
async def test_a_key_that_can_not_be_is_refused(api: Api, body: object) -> None:
    response = await api.send("POST", "/v1/keys", body)

    assert response.status_code == 400, response.text
    assert (await api.get("/v1/keys"))["items"] == []


async def test_namespaces_have_quotas_and_are_deleted_when_they_are_empty(api: Api) -> None:
    created = await api.post("/v1/namespaces", {"name": "shop", "note": "tests", "max_active_runs": 1})
    await start(api, "approved", {"order": {"number": 1}}, "one", wait=0)
    over = await api.send("POST", "runs", {"workflow": "report", "input": 1})
    details = await api.get("/v1/namespaces/shop")
    in_use = await api.send("DELETE", "/v1/namespaces/shop")
    purged = await api.send("DELETE", "/v1/namespaces/shop?purge=true")
    bad = await api.send("POST", "/v1/namespaces", {"name": "../x"})

    assert (created["is_created"], created["max_active_runs"]) == (True, 1)
    assert (over.status_code, over.json()["code"]) == (429, "quota_exceeded")
    assert details["runs"] in ({"running": 1}, {"pending": 1})
    assert (in_use.status_code, in_use.json()["code"]) == (409, "namespace_in_use")
    nothing_left = {"remaining": 0, "next": None}
    assert purged.json() == {"deleted": True, **nothing_left}
    assert (await api.send("DELETE", "/v1/namespaces/shop")).json() == {"deleted": False, **nothing_left}
    assert (bad.status_code, bad.json()["code"]) == (400, "invalid_namespace")
    audit = await api.get("/v1/audit?namespace=shop")
    assert {"namespace.create", "namespace.delete"} <= {one["action"] for one in audit["items"]}


async def test_a_purge_takes_as_many_requests_as_it_needs(api: Api, engine: Engine) -> None:
    """Each goes through two schedules, sinks or runs. The third answer is lost, so the purge begins anew."""
    engine.sync.register_sink("audit")
    for number in range(5):
        engine.sync.start(report(number), id=f"r{number}")
    path, after, remaining = "/v1/namespaces/shop?purge=true&limit=2", "", [6]
    answer: dict[str, Any] = {}
    while not after or remaining[-1]:
        answer = (await api.send("DELETE", f"{path}{after}")).json()
        remaining.append(answer["remaining"])
        after = "" if len(remaining) == 4 else f"&after={answer['next']}"

    assert answer == {"deleted": True, "remaining": 0, "next": None}
    assert remaining == sorted(remaining, reverse=True)
    assert all(before - left <= 2 for before, left in pairwise(remaining))
    assert await api.get("runs") == {"items": [], "next": None}
    bad = await api.send("DELETE", f"{path}&after=x")
    assert (bad.status_code, bad.json()["code"]) == (400, "invalid_filter")


async def test_a_principal_sees_the_namespaces_in_its_reach(api: Api) -> None:
    for name in ("a", "b", "shop"):
        await api.post("/v1/namespaces", {"name": name})

    first = await api.get("/v1/namespaces?limit=2")
    second = await api.get(f"/v1/namespaces?after={first['next']}")
    assert [one["name"] for one in (*first["items"], *second["items"])] == ["a", "b", "shop"]
    assert second["next"] is None
    assert [one["name"] for one in (await api.get("/v1/namespaces", by="read"))["items"]] == ["shop"]
    foreign = (await api.get("/v1/namespaces", by="foreign"))["items"]
    assert [(one["name"], one["is_created"]) for one in foreign] == [("elsewhere", False)]
    assert (await api.get("/v1/namespaces?after=shop", by="read"))["items"] == []


@pytest.mark.slow
async def test_workers_and_queues_are_listed_and_a_queue_is_paused(api: Api, worker: Worker) -> None:
    await start(api, "report", 1, "one")

    (listed,) = (await api.get("workers"))["items"]
    assert (listed["is_live"], listed["language"]) == (True, "python")
    assert any(one.startswith("report@") for one in listed["definitions"])
    assert (await api.get(f"workers?after={listed['session']}"))["items"] == []
    paused = await api.post("queues/default/pause", {"reason": "move"})
    assert (paused["is_paused"], paused["actor"]["id"], paused["reason"]) == (True, "ann", "move")
    queues = {one["name"]: one["is_paused"] for one in (await api.get("queues"))["items"]}
    assert queues["default"] is True
    await start(api, "report", 1, "two", wait=0)
    assert (await api.get("runs/two"))["status"] in {"pending", "running"}
    assert (await api.post("queues/default/resume"))["is_paused"] is False
    outcome = await api.get("runs/two/result", headers={"Prefer": "wait=20"})
    assert outcome["status"] == "completed"
    refused = await api.send("POST", "queues/%0a/pause")
    assert refused.status_code == 404
