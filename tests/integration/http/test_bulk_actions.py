"""Actions on all runs that match a filter: a preview, then page after page."""

from typing import Any

import pytest

from holdfast import Engine
from tests.integration.http.api import Api
from tests.integration.http.programs import broken, report

pytestmark = pytest.mark.anyio

FILTER = {"workflow": "report"}


async def previewed(api: Api, action: str, which: Any = FILTER) -> dict[str, Any]:
    """The preview of an action."""
    found: dict[str, Any] = await api.post("bulk/preview", {"action": action, "filter": which})
    return found


async def carried_out(api: Api, action: str, cursor: str, **fields: Any) -> list[dict[str, Any]]:
    """The answers to all requests of an action."""
    answers: list[dict[str, Any]] = []
    body = {"filter": FILTER, "reason": "stop", **fields}
    while cursor:
        answer = await api.post(f"bulk/{action}", {**body, "cursor": cursor}, by=fields.pop("by", "all"))
        answers.append(answer)
        cursor = answer["next"]
    return answers


def started(engine: Engine, number: int) -> list[str]:
    """Start runs, the oldest first."""
    return [engine.sync.start(report(1), id=f"r{one}").id for one in range(number)]


async def test_a_bulk_action_is_counted_first_and_then_takes_page_after_page(
    api: Api, engine: Engine
) -> None:
    ids = started(engine, 5)
    engine.sync.start(broken("x"), id="other")

    preview = await previewed(api, "cancel")
    before = await api.get("runs?status=cancelled")
    answers = await carried_out(api, "cancel", preview["cursor"], limit=2)
    cancelled = await api.get("runs?status=cancelled")
    run = await api.get("runs/r0")

    assert (preview["total"], preview["more"], preview["run_ids"]) == (5, False, ids)
    assert sum(preview["by_status"].values()) == 5
    assert before["items"] == []
    assert [one["changed"] for one in answers] == [2, 2, 1]
    assert {one["id"] for one in cancelled["items"]} == set(ids)
    assert run["cancelled_by"]["id"] == "ann"


async def test_single_runs_are_named_by_their_ids(api: Api, engine: Engine) -> None:
    started(engine, 4)
    which = {"ids": ["r2", "r0", "absent"]}
    preview = await previewed(api, "cancel", which)
    (answer,) = await carried_out(api, "cancel", preview["cursor"], filter=which)
    listed = await api.get("runs?ids=r2&ids=r3&ids=absent")

    assert (preview["run_ids"], answer["changed"]) == (["r0", "r2"], 2)
    assert [one["id"] for one in listed["items"]] == ["r3", "r2"]
    assert [one["status"] for one in listed["items"]] == ["running", "cancelled"]


@pytest.mark.parametrize("ids", [[], [""], [str(number) for number in range(101)]])
async def test_no_ids_are_not_all_runs(api: Api, engine: Engine, ids: list[str]) -> None:
    started(engine, 1)
    body = {"action": "cancel", "filter": {"workflow": "report", "ids": ids}}
    refused = await api.send("POST", "bulk/preview", body)
    assert (refused.status_code, "ids has" in refused.text) == (400, True)


async def test_a_request_that_is_repeated_changes_nothing_twice(api: Api, engine: Engine) -> None:
    started(engine, 3)
    cursor = (await previewed(api, "terminate"))["cursor"]
    body = {"filter": FILTER, "cursor": cursor, "limit": 2}

    first = await api.post("bulk/terminate", body)
    again = await api.post("bulk/terminate", body)
    third = await api.post("bulk/terminate", body)

    assert [one["changed"] for one in (first, again, third)] == [2, 1, 0]
    assert first["next"]
    assert third["next"] is None


async def test_runs_that_start_after_the_preview_are_left_alone(api: Api, engine: Engine) -> None:
    started(engine, 1)
    cursor = (await previewed(api, "pause"))["cursor"]
    engine.sync.start(report(1), id="later")

    (answer,) = await carried_out(api, "pause", cursor)

    assert answer["changed"] == 1
    assert (await api.get("runs/later"))["status"] != "paused"


async def test_a_rerun_of_many_does_not_rerun_what_it_started(api: Api, engine: Engine) -> None:
    for run_id in started(engine, 3):
        engine.sync.handle(report, run_id).terminate()
    which = {**FILTER, "status": ["cancelled"]}
    cursor = (await previewed(api, "rerun", which))["cursor"]
    body = {"filter": which, "limit": 2, "stage": "reported"}

    first = await api.post("bulk/rerun", {**body, "cursor": cursor})
    second = await api.post("bulk/rerun", {**body, "cursor": first["next"]})

    assert (first["changed"] + second["changed"], second["next"]) == (3, None)
    assert [(await api.get(f"runs/r{one}"))["generation"] for one in range(3)] == [2, 2, 2]


async def test_a_run_that_is_refused_holds_up_no_other(api: Api, engine: Engine) -> None:
    engine.sync.register_sink("audit")  # never delivered to, so no run can be removed
    started(engine, 2)
    for one in range(2):
        engine.sync.handle(report, f"r{one}").terminate()

    (answer,) = await carried_out(api, "remove", (await previewed(api, "remove"))["cursor"])

    assert (answer["refused"], answer["changed"]) == (2, 0)
    assert {one["code"] for one in answer["refusals"]} == {"remove_refused"}


@pytest.mark.parametrize(
    ("action", "body"),
    [
        ("preview", {"action": "cancel", "filter": {}}),
        ("preview", {"action": "cancel", "filter": {"status": ["completed"]}}),
        ("cancel", {"filter": FILTER, "cursor": ""}),
        ("cancel", {"filter": FILTER, "cursor": "x.1"}),
        ("cancel", {"filter": {"workflow": "broken"}, "cursor": "of the preview"}),
        ("terminate", {"filter": FILTER, "cursor": "of the preview"}),
    ],
    ids=str,
)
async def test_an_action_that_was_not_previewed_is_refused(
    api: Api, engine: Engine, action: str, body: dict[str, Any]
) -> None:
    """No condition, a status that excludes the action, no cursor, or that of another filter or action."""
    started(engine, 1)
    cursor = (await previewed(api, "cancel"))["cursor"]
    if body.get("cursor") == "of the preview":
        body = {**body, "cursor": cursor}

    response = await api.send("POST", f"bulk/{action}", body)

    assert (response.status_code, response.json()["code"]) == (400, "invalid_filter")
    assert (await api.get("runs?status=cancelled"))["items"] == []
