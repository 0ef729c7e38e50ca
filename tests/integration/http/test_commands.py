"""The commands of the kernel over HTTP."""

from typing import Any

import pytest

from holdfast.hosts.http.command_operations import FOR_ALL_NAMESPACES, SCOPES
from holdfast.kernel.commands import Command, OperatorCommand
from holdfast.kernel.rules.registry import RULES
from tests.integration.http.api import Api

pytestmark = pytest.mark.anyio


def create(id: str, **fields: object) -> dict[str, Any]:
    return {"type": "run.create", "workflow": "report", "input": {"inline": "1"}, "id": id, **fields}


async def ids(api: Api) -> list[str]:
    return [one["id"] for one in (await api.get("runs?oldest_first=true"))["items"]]


async def test_commands_are_carried_out_in_order_each_by_itself(api: Api) -> None:
    cancel = {"type": "run.cancel", "run_id": "a", "reason": "enough"}
    answers = (await api.post("commands", {"commands": [create("a"), create("a"), cancel, create("b")]}))[
        "answers"
    ]

    assert [one["reply"] is None for one in answers] == [False, True, False, False]
    assert answers[0]["reply"]["run_id"] == "a"
    assert (answers[1]["problem"]["status"], answers[1]["problem"]["code"]) == (409, "run_exists")
    assert answers[2]["reply"]["status"] == "cancelled"
    run = await api.get("runs/a")
    assert (run["cancelled_by"]["id"], run["started_by"]["id"]) == ("ann", "ann")
    assert await ids(api) == ["a", "b"]


async def test_atomic_commands_are_carried_out_all_or_none(api: Api) -> None:
    await api.post("commands", {"commands": [create("a")]})
    refused = await api.send("POST", "commands", {"commands": [create("b"), create("a")], "atomic": True})

    assert (refused.status_code, refused.json()["code"]) == (409, "run_exists")
    assert await ids(api) == ["a"]
    key = {"idempotency_key": "k"}
    both = {"commands": [create("b", **key), create("c")], "atomic": True}
    assert len((await api.post("commands", both))["answers"]) == 2
    assert await ids(api) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ({"type": "job.claim"}, 400),
        ({"type": "session.open"}, 400),
        ({"type": "schedule.fire"}, 400),
        ({"type": "unknown"}, 400),
        ({}, 400),
        (create("a", namespace="other"), 400),
        (create("a", actor={"kind": "user", "id": "eve", "version": ""}), 400),
        (create("a", input={"blob": "shop/x/y"}), 400),
        (create("a", input={"inline": "not json"}), 400),
        (create("a", input={"inline": "[" * 100_000}), 400),
        (create("a", signals=[{"channel": "c", "payload": {"blob": "x"}}]), 400),
        (create("a", scheduled='{"schedule":"x"}'), 400),
        (create("a", start_at=10**40), 400),
        (create("a", unknown=1), 400),
        (create("\x00"), 200),
        (
            {
                "type": "schedule.put",
                "schedule": "s",
                "timing": "{}",
                "policy": {},
                "start": create("", namespace="other"),
            },
            400,
        ),
    ],
    ids=lambda one: str(one)[:60],
)
async def test_a_command_that_only_hosts_may_send_is_refused(
    api: Api, command: dict[str, Any], status: int
) -> None:
    response = await api.send("POST", "commands", {"commands": [create("first"), command]})

    assert response.status_code == status, response.text
    if status == 200:
        assert response.json()["answers"][1]["problem"]["code"] == "invalid_command"
    else:
        assert await ids(api) == []


async def test_a_batch_has_1_to_500_commands(api: Api) -> None:
    for commands in ([], [create(f"r{number}") for number in range(501)]):
        response = await api.send("POST", "commands", {"commands": commands})
        assert (response.status_code, response.json()["code"]) == (400, "invalid_request")


def test_every_command_of_an_operator_has_a_scope() -> None:
    """And no command of a worker has one: what is new is refused until it is listed. Nobody signs others in."""
    commands: set[type[Command[Any]]] = {one for one in RULES if issubclass(one, OperatorCommand)}

    missing = {one.type for one in commands} - {*SCOPES, *FOR_ALL_NAMESPACES}
    assert missing == {"browser_session.create"}
    assert set(SCOPES) <= {one.type for one in RULES}
