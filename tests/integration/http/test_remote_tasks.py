"""The protocol of remote workers: claims, heartbeats, outcomes, and who may send them."""

import asyncio
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from typing import Any, Final

import anyio
import attrs
import httpx
import pytest

from holdfast import Engine, Retry, Worker, step, workflow
from holdfast.errors import RemoteStepError
from holdfast.hosts.http import remote_tasks
from holdfast.hosts.http.task_tokens import token_from
from holdfast.kernel.commands import JobClaim
from holdfast.ports.changes import Update
from holdfast.ports.persistence import Transaction
from holdfast.ports.tables import JOBS
from tests.integration.http.api import NAMESPACE, Api

pytestmark = pytest.mark.anyio
OWN: Final[dict[str, Any]] = {"by": "work"}


@step(queue="tools", retry=Retry(attempts=2))
async def shout(text: str) -> str:
    raise AssertionError("only remote workers run it")


@workflow
async def loud(text: str) -> str:
    try:
        return await shout(text)
    except RemoteStepError as error:
        return f"{error.error_code} / {error.error_type} / {error.message}"


@step(queue="tools", retry=Retry(attempts=5))
async def insist(text: str) -> str:
    raise AssertionError("only remote workers run it")


@workflow
async def stubborn(text: str) -> str:
    return await insist(text)


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    opened = Engine.open(url, workflows=[loud, stubborn], namespace=NAMESPACE)
    with opened.sync, Worker(opened, only_queues=["default"]):
        yield opened


async def register(api: Api, by: str = "work") -> str:
    body = {"name": "tests", "steps": ["shout", "insist"], "queues": ["tools"]}
    worker: str = (await api.post("workers", body, by=by))["worker"]
    return worker


async def claim(
    api: Api, worker: str, key: str | None = None, wait: int = 20, limit: int = 5
) -> list[dict[str, Any]]:
    headers = {"Prefer": f"wait={wait}", **({} if key is None else {"Idempotency-Key": key})}
    reply = await api.post(f"workers/{worker}/claim", {"limit": limit}, headers=headers, **OWN)
    tasks: list[dict[str, Any]] = reply["tasks"]
    return tasks


async def settle(api: Api, task: dict[str, Any], how: str, body: object, by: str = "work") -> httpx.Response:
    return await api.send("POST", f"tasks/{task['token']}/{how}", body, by=by)


async def test_an_output_reaches_the_function_once(api: Api) -> None:
    run = await api.engine.start(
        loud("hi"), id="one", attributes={"tenant": "acme"}, headers={"traceparent": "00-1"}
    )
    (task,) = await claim(api, await register(api))

    wrong = await settle(api, task, "complete", {"output": 5})
    first, again = [await settle(api, task, "complete", {"output": "HI"}) for _ in range(2)]
    other = await settle(api, task, "complete", {"output": "HO"})

    assert (task["step"], task["input"], task["run_id"]) == ("shout", {"text": "hi"}, "one")
    assert (task["attempt"], task["max_attempts"], task["lost_attempts"]) == (1, 2, 0)
    assert (task["attributes"], task["headers"]) == ({"tenant": "acme"}, {"traceparent": "00-1"})
    assert (wrong.status_code, wrong.json()["code"]) == (400, "invalid_value")
    assert first.json() == again.json() == {"status": "settled", "retry_at": None}
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_conflict")
    assert await run.result() == "HI"
    assert [row.type for row in await run.history()].count("step.completed") == 1


async def test_a_waiting_claim_listens_for_jobs_of_its_own_queues(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener, listened, waits = api.engine.core.listener, list[object](), anyio.Event()

    def add_worker(wake: Any, *, queues: frozenset[str] | None = None) -> None:
        listened.append(queues)
        add(wake, queues=queues)
        waits.set()

    add = listener.add_worker
    monkeypatch.setattr(listener, "add_worker", add_worker)
    worker = await register(api)
    async with anyio.create_task_group() as group:
        group.start_soon(claim, api, worker)
        await waits.wait()
        await api.engine.start(loud("hi"), id="one")

    assert listened == [frozenset({"tools"})]


async def test_a_repeated_claim_returns_what_the_first_one_leased(api: Api) -> None:
    worker = await register(api)
    assert await claim(api, worker, "a", wait=0) == []  # an empty claim does not use up its key
    for number in range(2):
        await api.engine.start(loud(f"hi {number}"))
    first = await claim(api, worker, "a", limit=1)
    assert await claim(api, worker, "a", limit=1) == first
    assert [one["token"] for one in await claim(api, worker, "b", limit=1)] != [first[0]["token"]]

    await settle(api, first[0], "complete", {"output": "HI"})
    assert await claim(api, worker, "a", limit=1, wait=0) == []


async def test_a_claim_that_another_worker_was_faster_than_claims_again(api: Api) -> None:
    """What such a claim leaves is an empty reply under its key."""
    worker = await register(api)
    core = api.engine.core

    def used(tx: Transaction) -> str:
        return remote_tasks.claim_key(tx, NAMESPACE, worker, "a").text  # its place in the store

    key = core.stores.persistence.transact(used)
    empty = JobClaim(namespace=NAMESPACE, session=worker, queue_claims=(), limit=1, idempotency_key=key)
    assert core.kernel.dispatch(empty).attempts == ()

    await api.engine.start(loud("hi"))
    tasks = await claim(api, worker, "a")
    assert len(tasks) == 1
    assert await claim(api, worker, "a") == tasks


async def test_a_suspect_does_not_run_beside_a_job_that_was_lost(api: Api) -> None:
    """And claims that leave it to others do not use up their keys."""
    runs = [await api.engine.start(loud("hi")) for _ in range(2)]
    worker = await register(api)
    (first,) = await claim(api, worker, limit=1)
    (second,) = await claim(api, worker, limit=1)
    await settle(api, second, "release", {})

    def lose(tx: Transaction) -> None:
        losses = {token_from(task["token"]).key: n for n, task in ((1, first), (2, second))}
        jobs = tx.lock(JOBS, tuple(losses))
        tx.apply(tuple(Update(attrs.evolve(job, lost_attempts=losses[job.key])) for job in jobs))

    api.engine.core.stores.persistence.transact(lose)
    assert await claim(api, worker, "a", wait=0) == []
    key = api.engine.core.stores.persistence.transact(
        lambda tx: remote_tasks.claim_key(tx, NAMESPACE, worker, "a")
    )
    assert key.text.endswith("/0")
    await settle(api, first, "complete", {"output": "HI"})
    (suspect,) = await claim(api, worker, "a")
    assert (suspect["run_id"], suspect["lost_attempts"]) == (second["run_id"], 2)
    await settle(api, suspect, "complete", {"output": "HI"})
    assert [await run.result() for run in runs] == ["HI", "HI"]


async def test_a_waiting_claim_gets_a_task_when_it_is_queued(api: Api) -> None:
    worker = await register(api)
    waiting = asyncio.create_task(claim(api, worker, "a"))
    for _ in range(1_000):
        if api.server.open_reads:
            break
        await asyncio.sleep(0.01)
    await api.engine.start(loud("hi"))
    assert len(await waiting) == 1
    assert api.server.open_reads == 0


@pytest.mark.slow
async def test_a_failure_is_retried_and_then_reaches_the_function(api: Api) -> None:
    run = await api.engine.start(loud("hi"))
    worker = await register(api)
    error = {"code": "busy", "type": "BusyError", "message": "later\0", "traceback": "line\0 1"}
    (task,) = await claim(api, worker)
    failed = await settle(api, task, "fail", {"error": error, "retry_after_seconds": 0.05})
    (second,) = await claim(api, worker)
    ended = await settle(api, second, "fail", {"error": error})

    assert failed.json()["retry_at"] is not None
    assert (second["attempt"], second["idempotency_key"]) == (2, task["idempotency_key"])
    assert ended.json() == {"status": "settled", "retry_at": None}
    assert await run.result() == "busy / BusyError / later\ufffd"


@pytest.mark.slow
async def test_a_step_is_tried_as_often_as_it_says(api: Api) -> None:
    run = await api.engine.start(stubborn("hi"))
    worker = await register(api)
    body = {"error": {"code": "busy", "message": "later"}, "retry_after_seconds": 0.01}
    for attempt in range(1, 5):
        (task,) = await claim(api, worker)
        assert (task["attempt"], task["max_attempts"]) == (attempt, 5)
        assert (await settle(api, task, "fail", body)).json()["retry_at"] is not None
    (task,) = await claim(api, worker)
    await settle(api, task, "complete", {"output": "HI"})
    assert await run.result() == "HI"


async def test_a_worker_that_holds_all_that_it_may_claims_no_more(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_tasks, "HELD_MAX", 2)
    for number in range(3):
        await api.engine.start(loud("hi"), id=f"r{number}")
    worker = await register(api)
    held = await claim(api, worker)
    while len(held) < 2:
        held += await claim(api, worker)
    assert await claim(api, worker, wait=0) == []
    await settle(api, held[0], "complete", {"output": "HI"})
    assert len(await claim(api, worker)) == 1


async def test_a_failure_can_be_final(api: Api) -> None:
    run = await api.engine.start(loud("hi"))
    (task,) = await claim(api, await register(api))
    body = {"error": {"code": "no", "message": "never"}, "retry": False}
    assert (await settle(api, task, "fail", body)).json()["retry_at"] is None
    assert await run.result() == "no /  / never"


async def test_a_released_task_does_not_count(api: Api) -> None:
    await api.engine.start(loud("hi"))
    worker = await register(api)
    (task,) = await claim(api, worker)
    assert (await settle(api, task, "release", {})).json() == {"status": "released", "retry_at": None}
    (again,) = await claim(api, worker)
    assert (again["attempt"], again["token"] != task["token"]) == (1, True)
    late = await settle(api, task, "complete", {"output": "LATE"})
    assert (late.status_code, late.json()["code"]) == (409, "lease_lost")


async def test_a_heartbeat_names_the_tasks_to_stop(api: Api) -> None:
    run = await api.engine.start(loud("hi"))
    worker = await register(api)
    (task,) = await claim(api, worker)
    holds = {"holds": [{"token": task["token"]}, {"token": "nonsense"}]}

    before = await api.post(f"workers/{worker}/heartbeat", holds, **OWN)
    await run.terminate()
    after = await api.post(f"workers/{worker}/heartbeat", holds, **OWN)

    assert before["stop"] == ["nonsense"]
    assert after["stop"] == [task["token"], "nonsense"]
    late = await settle(api, task, "complete", {"output": "LATE"})
    assert (late.status_code, late.json()["code"]) == (409, "lease_lost")


async def test_a_heartbeat_gives_back_what_was_claimed_a_lease_ago_and_is_not_listed(api: Api) -> None:
    await api.engine.start(loud("hi"))
    worker = await register(api)
    (task,) = await claim(api, worker)
    await api.post(f"workers/{worker}/heartbeat", {"holds": []}, **OWN)
    assert await claim(api, worker, wait=0) == []  # the answer to the claim may still be under way

    def age(tx: Transaction) -> None:
        (job,) = tx.lock(JOBS, (token_from(task["token"]).key,))
        tx.apply((Update(attrs.evolve(job, leased_at=(job.leased_at or 0) - 31_000_000)),))

    api.engine.core.stores.persistence.transact(age)
    listed = {"holds": [{"token": task["token"]}]}
    assert (await api.post(f"workers/{worker}/heartbeat", listed, **OWN))["stop"] == []
    await api.post(f"workers/{worker}/heartbeat", {"holds": []}, **OWN)
    (again,) = await claim(api, worker)
    assert again["attempt"] == 1


async def test_a_worker_that_leaves_gives_its_tasks_back(api: Api) -> None:
    await api.engine.start(loud("hi"))
    first, second = await register(api), await register(api)
    await claim(api, first)
    left = [(await api.send("DELETE", f"workers/{first}", **OWN)).json() for _ in range(2)]
    (task,) = await claim(api, second)
    after = await api.send("POST", f"workers/{first}/claim", {}, **OWN)

    assert left == [{"released": 1}, {"released": 0}]
    assert task["attempt"] == 1
    assert (after.status_code, after.json()["code"]) == (409, "session_lost")


async def test_workers_and_tasks_belong_to_their_principal(api: Api) -> None:
    run = await api.engine.start(loud("hi"))
    worker = await register(api)
    (task,) = await claim(api, worker)
    own = token_from(task["token"])
    foreign = await register(api, by="all")
    forged = [
        attrs.evolve(own, session=foreign).text,
        attrs.evolve(own, epoch=own.epoch + 1).text,
        attrs.evolve(own, epoch=own.epoch + 1, session=foreign).text,
        attrs.evolve(own, job="none.1").text,
        urlsafe_b64encode(b"a b").decode(),
        urlsafe_b64encode(f"{own.job} 0{own.epoch} {own.session}".encode()).decode().rstrip("="),
        "%C3%A9",
    ]

    for method, path in (("POST", "claim"), ("POST", "heartbeat"), ("DELETE", "")):
        refused = await api.send(method, f"workers/{worker}/{path}".rstrip("/"), by="all")
        assert (refused.status_code, refused.json()["code"]) == (409, "session_lost"), path
    for token in (task["token"], *forged):
        for how, body in (
            ("complete", {"output": "MINE"}),
            ("fail", {"error": {"code": "a", "message": "b"}}),
            ("release", {}),
        ):
            refused = await api.send("POST", f"tasks/{token}/{how}", body, by="all")
            assert (refused.status_code, refused.json()["code"]) == (409, "lease_lost"), (token, how)

    await settle(api, task, "complete", {"output": "HI"})
    assert await run.result() == "HI"


async def test_sessions_of_other_programs_are_not_reached(api: Api) -> None:
    """The worker of the function is in the registry, and has no principal."""
    await api.engine.start(loud("hi"))
    await claim(api, worker := await register(api))
    (info,) = [one async for one in api.engine.workers() if one.session != worker]
    assert info.principal is None
    for by in ("work", "all"):
        refused = await api.send("POST", f"workers/{info.session}/heartbeat", {}, by=by)
        assert refused.json()["code"] == "session_lost"


async def settle_together(
    api: Api, outcomes: list[dict[str, Any]], by: str = "work"
) -> tuple[int, list[dict[str, Any]]]:
    """Send outcomes together; return the status, and the answers as `{"settled": ...}` or `{"problem": code}`."""
    response = await api.send("POST", "tasks:settle", {"outcomes": outcomes}, by=by)
    answers = response.json().get("answers", ())
    return response.status_code, [
        {"settled": one["settled"]["status"]} if one["settled"] else {"problem": one["problem"]["code"]}
        for one in answers
    ]


async def test_outcomes_are_settled_together_and_each_by_itself(api: Api) -> None:
    runs = [await api.engine.start(loud(text)) for text in ("a", "b", "c", "d", "e")]
    worker = await register(api)
    tasks: dict[str, str] = {}
    while len(tasks) < len(runs):
        tasks |= {task["input"]["text"]: task["token"] for task in await claim(api, worker)}
    await api.send("POST", f"tasks/{tasks['e']}/complete", {"output": "E"}, **OWN)
    wrong = {"error": {"code": "busy", "message": "not now"}, "retry": False}
    outcomes: list[dict[str, Any]] = [
        {"token": tasks["a"], "complete": {"output": "A"}},
        {"token": tasks["b"], "complete": {"output": 5}},
        {"token": tasks["c"], "fail": wrong},
        {"token": "bm9uZQ", "complete": {"output": "X"}},
        {"token": tasks["d"], "complete": {"reference": "none"}},
        {"token": tasks["e"], "complete": {"output": "other"}},
    ]

    status, first = await settle_together(api, outcomes)
    again = await settle_together(api, outcomes)

    assert (status, first) == (
        200,
        [
            {"settled": "settled"},
            {"problem": "invalid_value"},
            {"settled": "settled"},
            {"problem": "lease_lost"},
            {"problem": "invalid_request"},
            {"problem": "idempotency_conflict"},
        ],
    )
    assert again == (status, first)
    await settle_together(api, [{"token": tasks[one], "complete": {"output": one.upper()}} for one in "bd"])
    results = [await run.result() for run in runs]
    assert results == ["A", "B", "busy /  / not now", "D", "E"]


async def test_outcomes_of_tasks_of_others_are_refused(api: Api) -> None:
    run = await api.engine.start(loud("hi"))
    (task,) = await claim(api, await register(api))
    outcome = {"token": task["token"], "complete": {"output": "MINE"}}
    assert await settle_together(api, [outcome], by="all") == (200, [{"problem": "lease_lost"}])
    await settle(api, task, "complete", {"output": "HI"})
    assert await run.result() == "HI"


@pytest.mark.parametrize(
    "outcomes",
    [
        [],
        [{"token": "a"}],
        [{"token": "a", "complete": {}, "fail": {"error": {"code": "a", "message": "b"}}}],
        [{"token": "a", "complete": {}}, {"token": "a", "complete": {}}],
        [{"token": str(one), "complete": {}} for one in range(101)],
        [{"complete": {}}],
    ],
    ids=["none", "without", "both", "twice", "too many", "no token"],
)
async def test_malformed_outcomes_are_refused_together(api: Api, outcomes: list[dict[str, Any]]) -> None:
    assert await settle_together(api, outcomes) == (400, [])


async def test_keys_of_tasks_cannot_be_used_up_by_others(api: Api) -> None:
    cancel = {"type": "run.cancel", "run_id": "one", "idempotency_key": "task/x"}
    header = {"Idempotency-Key": "task/x"}
    for refused in (
        await api.send("POST", "runs", {"workflow": "loud", "input": {"text": "a"}}, headers=header),
        await api.send("POST", "commands", {"commands": [cancel]}),
    ):
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid_request")
        assert "task/" in refused.json()["detail"]


async def test_large_values_pass_through_the_server(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of inputs that do not fit into one answer, some are given back."""
    long = "x" * 100_000
    runs = [await api.engine.start(loud(long)) for _ in range(2)]
    worker = await register(api)
    monkeypatch.setattr(remote_tasks, "MAX_VALUE_BYTES", 150_000)
    for _ in runs:
        (task,) = await claim(api, worker)
        assert (task["input"], task["attempt"]) == ({"text": long}, 1)
        for _ in range(2):
            done = await settle(api, task, "complete", {"output": long.upper()})
            assert done.status_code == 200
    assert [await run.result() for run in runs] == [long.upper()] * 2


@pytest.mark.parametrize(
    "body",
    [
        {"steps": [], "queues": ["tools"]},
        {"steps": ["shout"], "queues": []},
        {"steps": ["shop@1"], "queues": ["tools"]},
        {"steps": ["a\nb"], "queues": ["tools"]},
        {"steps": ["s"] * 201, "queues": ["tools"]},
        {"steps": ["s" * 250 + str(n) for n in range(100)], "queues": ["tools"]},
        {"steps": ["shout"], "queues": ["tools"], "lease_seconds": 1},
        {"steps": ["shout"], "queues": ["tools"], "concurrency": 0},
        {"steps": ["shout"], "queues": ["tools"], "name": "a\0"},
        {"steps": ["shout"]},
    ],
    ids=lambda body: str(body)[:50],
)
async def test_a_malformed_registration_is_refused(api: Api, body: object) -> None:
    refused = await api.send("POST", "workers", body, **OWN)
    assert refused.status_code == 400, refused.text
    assert [one async for one in api.engine.workers() if one.principal is not None] == []


MALFORMED: Final[list[tuple[str, object]]] = [
    ("fail", {}),
    ("fail", {"error": "boom"}),
    ("fail", {"error": {"code": "a", "message": "b"}, "retry_after_seconds": -1}),
    ("release", {"delay_seconds": 10**9}),
    ("complete", {"result": 1}),
    ("complete", {"output": {"a": {"$": [[]]}}}),
]


@pytest.mark.parametrize(("how", "body"), MALFORMED, ids=str)
async def test_a_malformed_outcome_is_refused_and_the_task_stays(api: Api, how: str, body: object) -> None:
    run = await api.engine.start(loud("hi"))
    (task,) = await claim(api, await register(api))
    assert (await settle(api, task, how, body)).status_code == 400
    assert (await settle(api, task, "complete", {"output": "HI"})).status_code == 200
    assert await run.result() == "HI"
