"""Runs over HTTP: start, wait, list, read, act."""

from typing import Any

import pytest

from holdfast import Worker
from tests.integration.http.api import Api

pytestmark = pytest.mark.anyio


async def start(api: Api, workflow: str, input: object, id: str, wait: int = 20, **fields: object) -> Any:
    body = {"workflow": workflow, "input": input, "id": id, **fields}
    return await api.post("runs", body, headers={"Prefer": f"wait={wait}"})


async def test_a_start_that_waits_is_answered_with_the_result(api: Api, worker: Worker) -> None:
    body = {
        "workflow": "order",
        "input": {"order": {"number": 17}},
        "id": "order/17",
        "attributes": {"tier": "gold"},
        "headers": {"traceparent": "00-1"},
    }

    response = await api.send("POST", "runs", body, headers={"Prefer": "wait=20"})

    assert response.status_code == 201
    assert response.headers["preference-applied"] == "wait=20"
    assert response.headers["location"] == "/v1/namespaces/shop/runs/order%2F17"
    started = response.json()
    assert (started["status"], started["created"]) == ("completed", True)
    assert started["result"].endswith(" 17")
    run = await api.get("runs/order%2F17")
    assert (run["id"], run["status"], run["attributes"]) == ("order/17", "completed", {"tier": "gold"})
    assert run["headers"] == {"traceparent": "00-1"}
    assert "headers" not in (await api.get("runs"))["items"][0]
    assert run["started_by"] == {"kind": "user", "id": "ann", "version": ""}
    assert (await api.get("runs/order%2F17/result"))["result"] == started["result"]
    assert (await api.get("runs/order%2F17/input"))["value"] == {"order": {"number": 17, "note": ""}}


async def test_a_run_that_fails_has_an_error_in_place_of_a_result(api: Api, worker: Worker) -> None:
    started = await start(api, "broken", {"text": "x"}, "one")

    assert (started["status"], started["result"]) == ("failed", None)
    assert started["error"]["type"] == "ValueError"
    assert (await api.get("runs/one/why"))["reasons"][0]["code"] == "ended"


async def test_a_start_with_a_key_is_carried_out_once(api: Api) -> None:
    body: dict[str, Any] = {"workflow": "report", "input": 1}
    headers = {"Idempotency-Key": "k"}
    first, again = [await api.post("runs", body, headers=headers) for _ in range(2)]

    assert first == again
    assert (await api.get("runs:count"))["total"] == 1
    other = await api.send("POST", "runs", {**body, "input": 2}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_conflict")


async def test_an_existing_id_is_refused_or_returned(api: Api) -> None:
    body = {"workflow": "report", "input": 1, "id": "one"}
    await api.post("runs", body)

    refused = await api.send("POST", "runs", body)
    returned = await api.send("POST", "runs", {**body, "if_exists": "return"})

    assert (refused.status_code, refused.json()["code"]) == (409, "run_exists")
    assert (returned.status_code, returned.json()["created"]) == (200, False)
    assert "location" not in returned.headers


async def test_a_start_that_returns_an_ended_run_has_its_result(api: Api, worker: Worker) -> None:
    for _ in range(2):
        started = await start(api, "report", 7, "one", if_exists="return")
        assert (started["status"], started["result"]) == ("completed", 7)


async def test_all_options_of_a_start_arrive(api: Api) -> None:
    body = {
        "workflow": "approved",
        "version": "1",
        "input": {"order": {"number": 1}},
        "id": "one",
        "queue": "fast",
        "priority": 5,
        "start_at": "2100-01-01T00:00:00+01:00",
        "deadline_seconds": 90.5,
        "attributes": {"a": "b"},
        "annotations": {"note": [1, 2]},
        "concurrency": {"key": "k", "limit": 2, "full": "wait"},
        "signals": [{"channel": "approval", "message": True}],
    }
    await api.post("runs", body)

    run = await api.get("runs/one")
    shown = {
        name: run[name] for name in ("queue", "priority", "start_at", "concurrency_key", "concurrency_limit")
    }
    assert shown == {
        "queue": "fast",
        "priority": 5,
        "start_at": "2099-12-31T23:00:00.000000Z",
        "concurrency_key": "k",
        "concurrency_limit": 2,
    }
    assert run["deadline"] == "2099-12-31T23:01:30.500000Z"
    assert [one["value"] for one in run["annotations"]] == [[1, 2]]
    assert run["unread"] == [2]


async def test_a_list_has_pages_and_filters(api: Api) -> None:
    for number in range(5):
        tier = "gold" if number % 2 else "blue"
        await start(api, "report", number, f"run-{number}", wait=0, attributes={"tier": tier})

    listed: list[str] = []
    path: str | None = "runs?limit=2"
    while path is not None:
        page = await api.get(path)
        listed += [one["id"] for one in page["items"]]
        path = f"runs?limit=2&after={page['next']}" if page["next"] else None
    assert listed == [f"run-{number}" for number in (4, 3, 2, 1, 0)]

    gold = await api.get("runs?attributes[tier]=gold&oldest_first=true&status=running&status=pending")
    assert [one["id"] for one in gold["items"]] == ["run-1", "run-3"]
    assert (await api.get("runs?status=failed"))["items"] == []
    count = await api.get("runs:count?attributes[tier]=blue")
    assert count == {"total": 3, "by_status": {"running": 3}, "more": False}


async def test_a_document_that_has_not_changed_is_not_sent_again(api: Api) -> None:
    await start(api, "report", 1, "one", wait=0)
    etags: dict[str, str] = {}
    for path in ("runs/one", "runs", "runs/one/why"):
        etags[path] = (await api.send("GET", path)).headers["etag"]
        again = await api.send("GET", path, headers={"If-None-Match": f'W/"x", {etags[path]}'})
        assert (again.status_code, again.headers["etag"]) == (304, etags[path])

    await api.post("runs/one/pause")
    for path, etag in etags.items():
        assert (await api.send("GET", path, headers={"If-None-Match": etag})).status_code == 200


async def test_actions_are_those_of_the_principal_and_say_what_they_did(api: Api) -> None:
    await start(api, "report", 1, "one", wait=0)

    paused = await api.post("runs/one/pause", {"reason": "wait for ann"})
    again = await api.post("runs/one/pause")
    resumed = await api.post("runs/one/resume")
    cancelled = await api.post("runs/one/cancel", {"reason": "enough"})

    assert paused == {"run_id": "one", "status": "paused", "changed": True}
    assert again["changed"] is False
    assert resumed["status"] == "running"
    assert cancelled["status"] == "cancelled"
    run = await api.get("runs/one")
    assert run["cancelled_by"]["id"] == "ann"
    assert run["error"]["message"] == "enough"
    assert (await api.send("POST", "runs/two/cancel")).json()["code"] == "run_not_found"


async def test_an_action_on_another_generation_is_refused(api: Api) -> None:
    await start(api, "report", 1, "one", wait=0)
    await api.post("runs/one/terminate", headers={"If-Match": '"g1"'})
    await api.post("runs/one/rerun", {"reason": "again"}, headers={"If-Match": '"g1"'})

    for action in ("cancel", "terminate", "pause", "resume", "rerun"):
        late = await api.send("POST", f"runs/one/{action}", headers={"If-Match": '"g1"'})
        assert (late.status_code, late.json()["code"]) == (412, "generation_changed"), action
    assert (await api.get("runs/one"))["status"] == "running"


async def test_a_rerun_does_what_its_preview_shows(api: Api, worker: Worker) -> None:
    await start(api, "report", 1, "one")

    shown = await api.get("runs/one/rerun-preview?stage=reported")
    rerun = await api.post("runs/one/rerun", {"stage": "reported", "reason": "again"})

    assert (shown["generation"], shown["again"]) == (2, ["reported"])
    assert (rerun["generation"], rerun["started"], rerun["runs"]) == (2, True, ["reported"])
    wrong = await api.send("POST", "runs/one/rerun", {"stage": "unknown"})
    assert (wrong.status_code, wrong.json()["code"]) == (409, "rerun_refused")
    assert (await api.get("runs/one?generation=1"))["generation"] == 1
    assert (await api.send("GET", "runs/one?generation=9")).status_code == 404


async def test_a_durable_function_gets_messages_updates_and_queries(api: Api, worker: Worker) -> None:
    await start(api, "game", None, "one", wait=0)
    waits = {"Prefer": "wait=20"}

    moved = await api.post("runs/one/updates/Board.move", {"arguments": {"to": "e4"}}, headers=waits)
    failed = await api.send(
        "POST", "runs/one/updates/Board.move", {"arguments": {"to": "nowhere"}}, headers=waits
    )
    asked = await api.post("runs/one/queries/Board.all")
    unknown = await api.send("POST", "runs/one/queries/Board.none")
    wrong = await api.send("POST", "runs/one/signals/other", {"message": True})
    sent = await api.post("runs/one/signals/approval", {"message": True}, headers={"Idempotency-Key": "s"})

    assert (moved["is_done"], moved["reply"]) == (True, 1)
    assert (failed.status_code, failed.json()["code"]) == (424, "update_failed")
    assert asked == {"value": ["e4"]}
    assert unknown.json()["code"] == "not_exposed"
    assert sent["channel"] == "approval"
    assert (wrong.status_code, wrong.json()["code"]) == (409, "unknown_channel")
    ended = await api.get("runs/one/result", headers=waits)
    assert ended["result"] == ["e4"]


async def test_what_a_run_reports_can_be_read(api: Api, worker: Worker) -> None:
    await start(api, "report", 1, "one")
    await api.post("runs/one/annotations", {"values": {"verdict": "good"}, "key": "k"})
    again = await api.post("runs/one/annotations", {"values": {"verdict": "good"}, "key": "k"})

    assert again["stored"] == 0
    annotations = await api.get("runs/one/annotations?name=verdict")
    assert [one["actor"]["id"] for one in annotations["items"]][1:] == ["ann"]
    assert [one["number"] for one in (await api.get("runs/one/history?limit=2"))["items"]] == [1, 2]
    last = await api.get("runs/one/history?after=2&limit=1000")
    assert (last["items"][-1]["type"], last["next"]) == ("run.completed", None)
    assert (await api.get("runs/one/logs?level=info"))["items"][0]["fields"]["amount"]
    assert (await api.get("runs/one/children"))["items"] == []
    assert (await api.get("runs/one/published/state"))["value"] is None


async def test_an_ended_run_can_be_removed(api: Api) -> None:
    await start(api, "report", 1, "one", wait=0)

    early = await api.send("DELETE", "runs/one")
    await api.post("runs/one/terminate")
    removed = await api.send("DELETE", "runs/one")

    assert (early.status_code, early.json()["code"]) == (409, "remove_refused")
    assert removed.json() == {"removed": True}
    assert (await api.send("GET", "runs/one")).status_code == 404


async def test_a_workflow_that_the_server_lacks_is_not_found(api: Api) -> None:
    response = await api.send("POST", "runs", {"workflow": "unknown"})

    assert (response.status_code, response.json()["code"]) == (404, "unknown_workflow")
    assert (await api.get("workflows"))["items"][0]["name"] == "approved"


async def test_an_input_of_another_type_is_refused_with_its_path(api: Api) -> None:
    response = await api.send("POST", "runs", {"workflow": "order", "input": {"order": {"number": "x"}}})

    assert response.status_code == 400
    problem = response.json()
    assert problem["code"] == "invalid_value"
    assert "number" in problem["errors"][0]["path"]
    assert (await api.get(problem["type"]))["title"] == problem["title"]


async def test_each_namespace_has_its_own_runs_and_keys(api: Api) -> None:
    body, headers = {"workflow": "report", "input": 1, "id": "one"}, {"Idempotency-Key": "k"}
    other = "/v1/namespaces/other"
    here = await api.send("POST", "runs", body, headers=headers)
    there = await api.send("POST", f"{other}/runs", {**body, "input": 2}, headers=headers)

    assert (here.status_code, there.status_code) == (201, 201)
    assert there.headers["location"] == f"{other}/runs/one"
    assert (await api.get(f"{other}/runs/one"))["namespace"] == "other"
    assert (await api.get(f"{other}/runs/one/input"))["value"] == 2
    await api.post(f"{other}/runs/one/terminate")
    assert (await api.get("runs/one"))["status"] == "running"
    outcome = await api.get(f"{other}/runs/one/result", headers={"Prefer": "wait=20"})
    assert outcome["status"] == "cancelled"
    assert (await api.get("/v1/namespaces/third/runs"))["items"] == []
    wrong = await api.send("GET", "/v1/namespaces/..%2Fx/runs")
    assert (wrong.status_code, wrong.json()["code"]) == (400, "invalid_namespace")
