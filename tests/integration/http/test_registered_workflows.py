"""Workflows whose code the server lacks: listed and started by what their workers have registered."""

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import Engine, Worker
from tests.integration.http.api import NAMESPACE, Api
from tests.integration.http.programs import WORKFLOWS

pytestmark = pytest.mark.anyio


@pytest.fixture
def bare(url: str, engine: Engine) -> Iterator[Engine]:
    """An engine without workflows on the store of the one with them."""
    if url == "memory://":
        pytest.skip("a store in memory has one engine")
    opened = Engine.open(url, workflows=[], namespace=NAMESPACE)
    with opened.sync:
        yield opened


@pytest.fixture
def server(bare: Engine, worker: Worker) -> Api:
    """A client of the server without workflows, beside a worker that has them."""
    return Api(bare)


async def listed(api: Api, query: str = "") -> dict[str, Any]:
    return {one["name"]: one for one in (await api.get(f"workflows{query}"))["items"]}


async def test_a_server_without_code_lists_workflows_with_their_schemas(server: Api, api: Api) -> None:
    found, own = await listed(server), await listed(api)

    assert sorted(found) == sorted(own) == sorted(one.name for one in WORKFLOWS)
    assert {one["has_code"] for one in found.values()} == {False}
    assert {one["has_code"] for one in own.values()} == {True}
    hidden = {"has_code": None}
    assert [{**found[name], **hidden} for name in found] == [{**own[name], **hidden} for name in found]
    approved = found["approved"]
    assert approved["input"]["properties"]["order"]["required"] == ["number"]
    assert (approved["kind"], approved["signals"]) == ("function", {"approval": {"type": "boolean"}})
    assert (found["report"]["kind"], found["report"]["input"]) == ("pipeline", {"type": "integer"})


async def test_the_list_has_pages_and_a_filter(server: Api, api: Api) -> None:
    for client in (server, api):
        names: list[str] = []
        query = "?limit=4"
        while query:
            page = await client.get(f"workflows{query}")
            names += [one["name"] for one in page["items"]]
            query = f"?limit=4&after={page['next']}" if page["next"] else ""
        assert names == sorted(one.name for one in WORKFLOWS)
        assert list(await listed(client, "?name=order")) == ["order"]


async def test_a_server_without_code_starts_runs_and_sends_messages(server: Api) -> None:
    body = {"workflow": "approved", "input": {"order": {"number": 7}}, "id": "one"}
    key = {"headers": {"Idempotency-Key": "k"}}
    first = await server.post("runs", body, **key)
    again = await server.post("runs", body, **key)
    wrong = await server.send("POST", "runs/one/signals/approval", {"message": "yes"})
    await server.post("runs/one/signals/approval", {"message": True})
    ended = await server.get("runs/one/result", headers={"Prefer": "wait=20"})
    run = await server.get("runs/one")

    assert (first["created"], again["run_id"]) == (True, "one")
    assert (wrong.status_code, wrong.json()["code"]) == (400, "invalid_value")
    assert wrong.json()["errors"] == [{"path": "$", "message": "expected boolean, got string"}]
    assert (ended["status"], ended["result"]) == ("completed", "7 True")
    assert run["started_by"]["id"] == "ann"


@pytest.mark.parametrize(
    ("workflow", "input", "problem"),
    [
        ("order", {"order": {"number": "x"}}, ("$.order.number", "expected integer, got string")),
        ("order", {}, ("$.order", "required field is missing")),
        ("order", {"order": {"number": 1, "nte": ""}}, ("$.order.nte", "unknown field")),
        ("report", None, ("$", "expected integer, got null")),
    ],
)
async def test_an_input_that_does_not_fit_is_refused_with_its_place(
    server: Api, workflow: str, input: object, problem: tuple[str, str]
) -> None:
    response = await server.send("POST", "runs", {"workflow": workflow, "input": input})

    assert (response.status_code, response.json()["code"]) == (400, "invalid_value")
    assert [(one["path"], one["message"]) for one in response.json()["errors"]] == [problem]
    assert (await server.get("runs"))["items"] == []


async def test_what_no_worker_has_registered_is_unknown(server: Api) -> None:
    for body in ({"workflow": "nothing"}, {"workflow": "report", "version": "9", "input": 1}):
        response = await server.send("POST", "runs", body)
        assert (response.status_code, response.json()["code"]) == (404, "unknown_workflow")


async def test_a_deleted_namespace_has_no_workflows(server: Api, worker: Worker) -> None:
    worker.stop()
    await server.send("DELETE", "/v1/namespaces/shop?purge=true")

    assert await listed(server) == {}
