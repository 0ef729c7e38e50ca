"""What a principal sees, and who may do what in the cases that no table has."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast import Engine, Every, Schedule, Worker
from holdfast.hosts.http.table import OPERATIONS
from holdfast.http import Scope, asgi_app
from tests.integration.http.api import NAMESPACE, Api
from tests.integration.http.programs import CANARY, Order, order
from tests.integration.http.responses import check_response
from tests.integration.http.sample_requests import path_of
from tests.integration.http.test_runs import start

pytestmark = pytest.mark.anyio


@pytest.fixture
def url(tmp_path: Path, new_sqlite: Callable[[Path], str]) -> str:
    """One store is enough: rights are decided before a store is used."""
    return new_sqlite(tmp_path / "holdfast.db")


@pytest.mark.slow
async def test_what_user_code_wrote_is_not_seen_with_read_alone(
    api: Api, engine: Engine, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    """The same documents with `payloads` too show it: the test would notice a workflow that writes nothing."""
    await start(api, "order", {"order": {"number": 1, "note": CANARY}}, "done", headers={"of": CANARY})
    await start(api, "broken", {"text": CANARY}, "failed")
    await start(api, "report", 1, "reported")
    await start(api, "retried", 1, "retried", wait=2)
    await start(api, "approved", {"order": {"number": 1, "note": CANARY}}, "waiting", wait=1)

    scheduled = Schedule("queue:fast", order(Order(1, CANARY)), when=Every(timedelta(days=365)))
    engine.sync.create_schedule(scheduled)

    seen: dict[str, set[str]] = {"read": set(), "all": set()}
    for run_id in ("done", "failed", "reported", "retried", "waiting"):
        for operation in OPERATIONS:
            if operation.scope is not Scope.READ or operation.method != "GET":
                continue
            path = path_of(operation).replace("/one", f"/{run_id}")
            for by, found in seen.items():
                streams = operation.stream is not None and run_id not in {
                    "retried",
                    "waiting",
                }  # these have not ended
                accepts: tuple[dict[str, str], ...] = (
                    ({}, {"Accept": "text/event-stream"}) if streams else ({},)
                )
                for headers in accepts:
                    response = await api.send("GET", path, by=by, headers={**headers, "Prefer": "wait=0"})
                    if CANARY in response.text:
                        found.add(operation.name)

    assert seen["read"] == set()
    assert seen["all"] >= {"run.list", "run.get", "run.why", "run.history", "schedule.get"}
    assert CANARY not in "".join(one.getMessage() for one in caplog.records if one.name == "holdfast.http")


async def test_a_start_without_payloads_shows_no_result(api: Api, worker: Worker) -> None:
    body = {"workflow": "order", "input": {"order": {"number": 1}}}
    response = await api.send("POST", "runs", body, by="start", headers={"Prefer": "wait=20"})

    assert (response.json()["status"], response.json()["result"]) == ("completed", None)


async def test_commands_need_the_scope_of_each(api: Api) -> None:
    await start(api, "report", 1, "one", wait=0)
    cancel, remove = {"type": "run.cancel", "run_id": "one"}, {"type": "run.remove", "run_id": "one"}

    refused = await api.send("POST", "commands", {"commands": [cancel, remove]}, by="operate")
    repair = await api.send("POST", "commands", {"commands": [{"type": "run.repair"}]}, by="admin")

    assert (refused.status_code, repair.status_code) == (403, 403)
    assert "'admin'" in refused.json()["detail"]
    assert (await api.get("runs/one"))["status"] == "running"
    assert (await api.send("POST", "commands", {"commands": [{"type": "run.repair"}]})).status_code == 200


@pytest.mark.parametrize(
    ("given", "status", "code"),
    [
        ({}, 200, None),
        ({"client": ("::1", 1)}, 200, None),
        ({"client": ("10.0.0.7", 1)}, 401, "unauthenticated"),
        ({"base_url": "http://holdfast.test"}, 200, None),
        ({"base_url": "http://evil.example"}, 403, "foreign_origin"),
        ({"headers": {"Host": "evil.example"}}, 403, "foreign_origin"),
        ({"headers": {"Origin": "http://localhost:8080"}}, 200, None),
        ({"headers": {"Origin": "http://localhost:3000"}}, 403, "foreign_origin"),
        ({"headers": {"Origin": "null"}}, 403, "foreign_origin"),
        ({"headers": {"Sec-Fetch-Site": "cross-site"}}, 403, "foreign_origin"),
        ({"headers": {"Sec-Fetch-Site": "same-site"}}, 403, "foreign_origin"),
        ({"headers": {"Sec-Fetch-Site": "same-origin"}}, 200, None),
        ({"headers": {"X-Forwarded-For": "10.0.0.7"}}, 401, "unauthenticated"),
        ({"headers": {"Authorization": "Bearer x"}}, 401, "unauthenticated"),
    ],
    ids=str,
)
async def test_without_credentials_only_this_machine_is_answered(
    engine: Engine, given: dict[str, Any], status: int, code: str | None
) -> None:
    """The other forms of these headers are in the tests of `LoopbackAccess`."""
    app = asgi_app(engine, allowed_hosts=["holdfast.test"])
    transport = httpx.ASGITransport(app=app, client=given.get("client", ("127.0.0.1", 1)))
    url = given.get("base_url", "http://localhost:8080")
    async with httpx.AsyncClient(transport=transport, base_url=url) as client:
        response = await client.get(f"/v1/namespaces/{NAMESPACE}/runs", headers=given.get("headers"))

    check_response(response)
    assert (response.status_code, response.json().get("code")) == (status, code)


async def test_a_path_is_decoded_once_and_compared_as_it_is(api: Api) -> None:
    upper = await api.send("GET", f"/v1/namespaces/{NAMESPACE.upper()}/runs", by="read")
    assert upper.status_code == 404
    escaped = await api.send("GET", "/v1/namespaces/%73hop/%72uns", by="read")
    assert escaped.status_code == 200
    assert (await api.send("GET", "/v1/namespaces/%73hop/%72uns", by="work")).status_code == 403
