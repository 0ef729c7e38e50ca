"""Workflows whose code the server lacks: listed, started and updated by what their workers have registered."""

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import Engine, Worker
from holdfast.kernel.commands import WorkflowRegister, WorkflowSchemas
from holdfast.ports.json import compact
from tests.integration.http.api import NAMESPACE, Api
from tests.integration.http.programs import WORKFLOWS, game

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
    assert found["game"]["updates"]["Board.move"]["arguments"]["required"] == ["to"]
    assert found["game"]["updates"]["Board.move"]["reply"] == {"type": "integer"}
    assert found["approved"]["updates"] == {}
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


WRONG: list[tuple[dict[str, object], tuple[str, str]]] = [
    ({"to": 1}, ("$.to", "expected string, got integer")),
    ({}, ("$.to", "required field is missing")),
    ({"to": "e4", "from": "e2"}, ("$.from", "unknown field")),
]


@pytest.mark.parametrize(("arguments", "problem"), WRONG)
async def test_arguments_that_an_update_does_not_take_are_refused_without_code(
    server: Api, engine: Engine, arguments: object, problem: tuple[str, str]
) -> None:
    await server.post("runs", {"workflow": "game", "id": "one"})
    body = {"workflow": "game", "id": "two", "if_active": "return", "arguments": arguments}

    for path, sent in (
        ("runs/one/updates/Board.move", {"arguments": arguments}),
        ("updates/Board.move", body),
        ("updates/Board.move", {**body, "id": "one"}),
    ):
        response = await server.send("POST", path, sent)
        assert (response.status_code, response.json()["code"]) == (400, "invalid_value")
        assert "update 'Board.move' of workflow 'game'" in response.json()["detail"]
        assert [(one["path"], one["message"]) for one in response.json()["errors"]] == [problem]
    assert [one["id"] for one in (await server.get("runs"))["items"]] == ["one"]
    assert "update.received" not in {one.type for one in engine.sync.handle(game, "one").history()}


@pytest.mark.parametrize(("arguments", "problem"), WRONG)
async def test_with_the_code_an_update_that_does_not_fit_starts_nothing(
    api: Api, arguments: object, problem: tuple[str, str]
) -> None:
    body = {"workflow": "game", "id": "two", "arguments": arguments}
    response = await api.send("POST", "updates/Board.move", body)

    assert (response.status_code, response.json()["code"]) == (400, "invalid_value")
    (found,) = response.json()["errors"]
    assert found["path"] == problem[0]
    assert (await api.get("runs"))["items"] == []


async def test_updates_that_fit_are_carried_out_without_code(server: Api) -> None:
    wait = {"Prefer": "wait=20"}
    body = {"workflow": "game", "id": "one", "if_active": "return", "arguments": {"to": "e4"}}
    first = await server.post("updates/Board.move", body, headers=wait)
    second = await server.post("updates/Board.move", {**body, "arguments": {"to": "e5"}}, headers=wait)
    third = await server.post(
        "runs/one/updates/Board.move", {"arguments": {"to": "d4"}}, headers={**wait, "Idempotency-Key": "k"}
    )

    assert [one["reply"] for one in (first, second, third)] == [1, 2, 3]


async def test_an_update_that_was_sent_already_is_not_checked_again(server: Api, engine: Engine) -> None:
    """A version with other updates may have been registered between the two requests."""
    key = {"headers": {"Idempotency-Key": "k", "Prefer": "wait=20"}}
    body = {"workflow": "game", "id": "one", "arguments": {"to": "e4"}}
    update = {"arguments": {"to": "e5"}}
    start = await server.post("updates/Board.move", body, **key)
    sent = await server.post(
        "runs/one/updates/Board.move", update, headers={**key["headers"], "Idempotency-Key": "u"}
    )
    other = compact({"updates": {"Board.move": {"arguments": {"type": "integer"}, "reply": {}}}})
    rows = (WorkflowSchemas(workflow="game", version=game.plan().version, schemas=other),)
    engine.core.kernel.dispatch(WorkflowRegister(namespace=NAMESPACE, workflows=rows))

    assert await server.post("updates/Board.move", body, **key) == start
    again = await server.post(
        "runs/one/updates/Board.move", update, headers={**key["headers"], "Idempotency-Key": "u"}
    )
    assert again == sent
    assert (await server.send("POST", "runs/one/updates/Board.move", update)).status_code == 400


async def test_what_another_release_has_registered_has_no_updates_and_checks_none(
    server: Api, engine: Engine
) -> None:
    await server.post("runs", {"workflow": "game", "id": "one"})
    old = compact({"input": {}, "output": {}})
    rows = (WorkflowSchemas(workflow="game", version=game.plan().version, schemas=old),)
    engine.core.kernel.dispatch(WorkflowRegister(namespace=NAMESPACE, workflows=rows))

    assert (await listed(server))["game"]["updates"] == {}
    sent = await server.send("POST", "runs/one/updates/Board.move", {"arguments": {"to": 1}})
    assert sent.status_code == 200
    unknown = await server.send("POST", "runs/one/updates/Other.move", {"arguments": {"to": 1}})
    assert unknown.status_code == 200


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
