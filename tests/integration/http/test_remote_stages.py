"""Remote stages: pipelines whose stages are run by remote workers, over the protocol of tasks."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

import anyio
import attrs
import httpx
import pytest

from holdfast import Engine, Pipeline, Retry, StageContext, Worker, stage
from holdfast.errors import RunFailedError
from holdfast.hosts.http import live_reads
from holdfast.hosts.http.task_tokens import token_from
from holdfast.hosts.maintenance.doctor.doctor import LATE_AFTER
from holdfast.ports.changes import Update
from holdfast.ports.persistence import Transaction
from holdfast.ports.records.job import Job
from holdfast.ports.tables import JOBS
from tests.integration.http.api import NAMESPACE, Api

pytestmark = pytest.mark.anyio
BY: Final[dict[str, Any]] = {"by": "work"}
MINUTE: Final = 60_000_000


@attrs.frozen
class Voice:
    language: str = "en"


QUICK: Final = Retry(attempts=1)
PATIENT: Final = Retry(
    attempts=2,
    wait=0,
    give_up_on=(KeyError,),
    by_error={OSError: Retry(attempts=4, wait=0), TimeoutError: QUICK},
)


@stage(remote=True, queue="tools", retry=PATIENT)
def shout(text: str) -> str: ...  # type: ignore[empty-body]


@stage(remote=True, queue="tools", retry=Retry(wait=0), timeout=60, timeout_total=600, heartbeat_timeout=300)
def read(context: StageContext[Voice], text: str) -> str: ...  # type: ignore[empty-body]


@stage
def words(text: str) -> list[str]:
    return text.split()


@stage
def joined(texts: list[str]) -> str:
    return " ".join(texts)


loud = Pipeline("loud", input=str).pipe(words).map(shout).pipe(joined)
aloud = Pipeline("aloud", input=str).pipe(read.configure(Voice("de")))
once = Pipeline("once", input=str).pipe(shout)
TASK: Final = ("loud", "shout")


@pytest.fixture
def engine(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setattr(live_reads, "CLAIM_SECONDS", 0.05)  # a retry is due without a hint
    opened = Engine.open(url, workflows=[loud, aloud, once], namespace=NAMESPACE)
    with opened.sync, Worker(opened, only_queues=["default", "tools"]):  # it never claims a remote stage
        yield opened


async def register(api: Api) -> str:
    body = {"stages": ["shout", "read"], "queues": ["tools"]}
    worker: str = (await api.post("workers", body, **BY))["worker"]
    return worker


async def claim(api: Api, worker: str, limit: int = 5, wait: int = 20) -> list[dict[str, Any]]:
    headers = {"Prefer": f"wait={wait}"}
    tasks: list[dict[str, Any]] = (
        await api.post(f"workers/{worker}/claim", {"limit": limit}, headers=headers, **BY)
    )["tasks"]
    return tasks


async def settle(api: Api, task: Mapping[str, Any], how: str, body: object) -> httpx.Response:
    return await api.send("POST", f"tasks/{task['token']}/{how}", body, **BY)


def change(api: Api, task: Mapping[str, Any], **fields: Any) -> None:
    """Change the job of a task in the store."""

    def write(tx: Transaction) -> None:
        (job,) = tx.lock(JOBS, (token_from(task["token"]).key,))
        tx.apply((Update(attrs.evolve(job, **fields)),))

    api.engine.core.stores.persistence.transact(write)


def job_of(api: Api, task: Mapping[str, Any]) -> Job:
    def look(tx: Transaction) -> Job:
        (job,) = tx.get(JOBS, (token_from(task["token"]).key,))
        return job

    return api.engine.core.stores.persistence.transact(look)


def error(kind: str, **fields: Any) -> dict[str, Any]:
    return {"error": {"code": "busy", "type": kind, "message": "later"}, **fields}


async def test_the_items_of_a_map_are_tasks(api: Api) -> None:
    run = await api.engine.start(loud("a b c"), id="one")
    worker = await register(api)
    done: dict[int, dict[str, Any]] = {}
    while len(done) < 3:
        for task in await claim(api, worker):
            done[task["item"]] = task
            body = {"output": task["input"].upper()}
            first, again = [(await settle(api, task, "complete", body)).json() for _ in range(2)]
            assert first == again == {"status": "settled", "retry_at": None}

    assert await run.result() == "A B C"
    task = done[1]
    assert (task["stage"], task["step"], task["call"], task["workflow"]) == ("shout", None, "shout", "loud")
    assert (task["attempt"], task["max_attempts"], task["config"]) == (1, 4, None)
    assert task["idempotency_key"].endswith("/shout/1")
    assert task["retry"] == {"rules": ["OSError", "TimeoutError"], "give_up_on": ["KeyError"]}
    types = [row.type for row in await run.history() if row.stage == "shout"]
    assert types.count("stage.completed") == 3


async def test_an_output_of_another_type_is_refused_and_the_task_stays(api: Api) -> None:
    run = await api.engine.start(once("a"))
    (task,) = await claim(api, await register(api))
    refused = await settle(api, task, "complete", {"output": 5})
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_value")
    await settle(api, task, "complete", {"output": "A"})
    assert await run.result() == "A"


@pytest.mark.parametrize(
    ("report", "tries"),
    [
        (error("ValueError"), 2),
        (error("OSError"), 4),
        (error("ConnectionError", matched="OSError"), 4),
        (error("OSError", matched=""), 2),
        (error("KeyError"), 1),
        (error("ValueError", retry=False), 1),
    ],
    ids=["usual", "by its name", "by its base", "none", "given up", "final"],
)
async def test_the_policy_decides_how_often_a_stage_is_tried(
    api: Api, report: dict[str, Any], tries: int
) -> None:
    """The worker says what was raised, and never when it is tried again."""
    run = await api.engine.start(once("a"))
    worker = await register(api)
    for number in range(1, tries + 1):
        (task,) = await claim(api, worker)
        assert task["attempt"] == number
        retry_at = (await settle(api, task, "fail", report)).json()["retry_at"]
        assert (retry_at is None) == (number == tries)
    with pytest.raises(RunFailedError, match="later"):
        await run.result()


async def test_a_worker_gets_the_config_and_the_time_of_an_attempt(api: Api) -> None:
    run = await api.engine.start(aloud("a"))
    (task,) = await claim(api, await register(api))
    assert (task["config"], task["input"], task["timeout_seconds"]) == ({"language": "de"}, "a", 60.0)
    await settle(api, task, "complete", {"output": "A"})
    assert await run.result() == "A"


async def test_an_attempt_that_takes_too_long_is_ended_at_a_heartbeat(api: Api) -> None:
    """First its own time is over, then that of all attempts."""
    run = await api.engine.start(aloud("a"))
    worker = await register(api)
    (task,) = await claim(api, worker)
    holds = {"holds": [{"token": task["token"]}]}
    assert (await api.post(f"workers/{worker}/heartbeat", holds, **BY))["stop"] == []
    change(api, task, leased_at=(job_of(api, task).leased_at or 0) - MINUTE)
    assert (await api.post(f"workers/{worker}/heartbeat", holds, **BY))["stop"] == [task["token"]]
    late = await settle(api, task, "complete", {"output": "LATE"})
    assert (late.status_code, late.json()["code"]) == (409, "lease_lost")

    (again,) = await claim(api, worker)
    change(api, again, first_claimed_at=(job_of(api, again).first_claimed_at or 0) - 10 * MINUTE)
    holds = {"holds": [{"token": again["token"]}]}
    assert (await api.post(f"workers/{worker}/heartbeat", holds, **BY))["stop"] == [again["token"]]
    with pytest.raises(RunFailedError, match="within the 0:10:00 for all"):
        await run.result()
    codes = [row.data["code"] for row in await run.history() if row.type == "stage.retrying" and row.data]
    assert codes == ["timeout"]


async def test_heartbeats_of_the_worker_are_those_of_its_stages(api: Api) -> None:
    await api.engine.start(aloud("a"))
    worker = await register(api)
    (task,) = await claim(api, worker)
    earlier = (job_of(api, task).heartbeat_by or 0) - 1_000_000  # it is not overdue yet
    change(api, task, heartbeat_by=earlier)
    holds = {"holds": [{"token": task["token"]}]}
    await api.post(f"workers/{worker}/heartbeat", holds, **BY)
    assert (job_of(api, task).heartbeat_by or 0) > earlier > 0


async def test_a_task_that_is_given_back_does_not_count(api: Api) -> None:
    await api.engine.start(once("a"))
    worker = await register(api)
    (task,) = await claim(api, worker)
    assert (await settle(api, task, "release", {})).json()["status"] == "released"
    (again,) = await claim(api, worker)
    assert (again["attempt"], again["token"] != task["token"]) == (1, True)
    late = await settle(api, task, "complete", {"output": "LATE"})
    assert (late.status_code, late.json()["code"]) == (409, "lease_lost")


async def test_why_and_doctor_report_a_remote_stage_without_workers(api: Api) -> None:
    """`why` at once, and the doctor once jobs have waited for long."""
    while not [one async for one in api.engine.workers()]:  # noqa: ASYNC110  # it registers in another thread
        await anyio.sleep(0.02)
    run = await api.engine.start(once("a"))
    (reason,) = await run.why()
    assert "runs the remote stage 'shout' and serves the queue 'tools'" in reason.text
    assert "No live worker does" in reason.text
    assert (await api.engine.doctor()).is_sound

    worker = await register(api)
    (task,) = await claim(api, worker)
    await settle(api, task, "release", {})
    past = job_of(api, task).queue_position - 2 * LATE_AFTER // timedelta(microseconds=1)
    change(api, task, queue_position=past)
    assert (await api.engine.doctor()).is_sound  # a worker is there
    await api.send("DELETE", f"workers/{worker}", **BY)
    (finding,) = (await api.engine.doctor()).findings
    assert (finding.code, finding.key) == ("unserved", "tools")
    assert "the remote stage 'shout'" in finding.text
