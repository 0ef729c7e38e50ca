"""`/metrics`: what Prometheus sees of the store and of the process; the access log; `/readyz`."""

import logging
from typing import Any, cast

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast import Engine, Worker
from holdfast.errors import UnavailableError
from holdfast.hosts.http.table import OPERATIONS
from holdfast.http import asgi_app
from holdfast.metrics import Metrics
from tests.integration.http.api import NAMESPACE, Api, authenticate
from tests.integration.http.live import served, stream
from tests.integration.http.programs import CANARY, Order, approved, report
from tests.integration.http.test_runs import start

pytestmark = pytest.mark.anyio


@pytest.fixture
def metrics(engine: Engine) -> Metrics:
    return Metrics(engine)


@pytest.fixture
def measured(engine: Engine, metrics: Metrics) -> Api:
    return Api(engine, metrics=metrics)


def samples(text: str) -> dict[tuple[str, str], float]:
    """Return the values by name and labels, in the form `a=1,b=2`, sorted by label."""
    return {
        (one.name, ",".join(f"{name}={value}" for name, value in sorted(one.labels.items()))): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def exposed(metrics: Metrics) -> dict[tuple[str, str], float]:
    return samples(metrics.expose().content.decode())


async def scraped(api: Api) -> dict[tuple[str, str], float]:
    response = await api.send("GET", "/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return samples(response.text)


@pytest.mark.slow
async def test_the_process_counts_what_it_runs_and_answers(
    engine: Engine, metrics: Metrics, measured: Api
) -> None:
    worker = Worker(engine)
    metrics.add_worker(worker)
    with worker:
        await start(measured, "order", {"order": {"number": 1}}, "one")
        await start(measured, "broken", {"text": "a"}, "two")
        await start(measured, "report", 1, "three")
    await measured.send("GET", "runs/none")
    await measured.send("GET", "runs", by="unknown")
    await measured.send("GET", "runs", by="start")

    found = await scraped(measured)

    of_body = "holdfast_body_seconds_count"
    assert found[of_body, "node=charge,outcome=completed,workflow=order"] == 1
    assert found[of_body, "node=broken_step,outcome=failed,workflow=broken"] == 1
    assert found[of_body, "node=reported,outcome=completed,workflow=report"] == 1
    assert found["holdfast_attempts_total", "outcome=failed"] == 1
    assert found["holdfast_attempts_total", "outcome=completed"] == 2
    assert found["holdfast_bodies_running", ""] == 0
    assert found["holdfast_commands_total", "command=run.create,outcome=done"] == 3
    assert found["holdfast_commit_seconds_count", ""] > 3
    assert found["holdfast_worker_settled_total", ""] == worker.stats().settled
    of_request = "holdfast_http_request_seconds_count"
    assert found[of_request, "operation=run.get,status=4xx"] == 1
    assert found[of_request, "operation=run.list,status=4xx"] == 2
    assert found["holdfast_auth_failures_total", "kind=unauthenticated"] == 1
    assert found["holdfast_auth_failures_total", "kind=forbidden"] == 1
    assert CANARY not in str(found)


async def test_requests_beyond_the_limit_of_their_principal_are_counted(
    engine: Engine, metrics: Metrics
) -> None:
    limited = Api(engine, metrics=metrics, rate_limit=0.01)
    statuses = [(await limited.send("GET", "runs")).status_code for _ in range(3)]

    assert statuses == [200, 429, 429]
    assert exposed(metrics)["holdfast_rate_limited_total", ""] == 2


async def test_the_gauges_of_the_store_are_those_of_its_queues_and_workers(
    engine: Engine, measured: Api
) -> None:
    await start(measured, "approved", {"order": {"number": 1}}, "one", wait=0)
    await start(measured, "report", 1, "two", wait=0)
    other = engine.in_namespace("other").sync
    other.start(report(1), queue="slow")
    other.limits.set("queue:slow", paused=True)

    found = await scraped(measured)

    of_queue = f"namespace={NAMESPACE},queue=default"
    assert found["holdfast_store_up", ""] == 1
    assert found["holdfast_runs", f"namespace={NAMESPACE},status=running"] == 2
    assert found["holdfast_queue_jobs", f"{of_queue},state=queued"] == 2
    assert found["holdfast_queue_unserved_jobs", of_queue] == 2  # there is no worker
    assert found["holdfast_queue_oldest_seconds", of_queue] >= 0
    assert found["holdfast_queue_paused", of_queue] == 0
    assert found["holdfast_queue_paused", "namespace=other,queue=slow"] == 1
    assert found["holdfast_workers", f"namespace={NAMESPACE},state=live"] == 0
    assert found["holdfast_store_partial", ""] == 0


async def test_the_store_is_read_once_however_often_metrics_are_scraped(
    engine: Engine, measured: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await scraped(measured)
    reads: list[object] = []
    monkeypatch.setattr(engine.core.stores.persistence, "read", reads.append)
    await measured.send("GET", "/livez", by=None)
    second = await scraped(measured)

    assert reads == []
    name = "holdfast_workers", f"namespace={NAMESPACE},state=live"
    assert first[name] == second[name]
    request = "holdfast_http_request_seconds_count", "operation=server.live,status=2xx"
    assert request not in first
    assert second[request] == 1  # those of the process are always new


async def test_without_the_store_the_process_is_still_seen(
    engine: Engine, measured: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise UnavailableError("the server at 10.0.0.7 does not answer")

    await start(measured, "report", 1, "one", wait=0)
    monkeypatch.setattr(engine.core.stores.persistence, "read", fail)
    found = await scraped(measured)

    assert found["holdfast_store_up", ""] == 0
    assert found["holdfast_commands_total", "command=run.create,outcome=done"] == 1
    assert not [name for name, _ in found if name == "holdfast_runs"]


async def test_openmetrics_is_sent_to_those_who_ask_for_it(measured: Api) -> None:
    response = await measured.send(
        "GET", "/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"}
    )

    assert response.headers["content-type"].startswith("application/openmetrics-text")
    assert response.text.endswith("# EOF\n")


async def test_a_server_without_metrics_says_how_to_have_them(api: Api) -> None:
    response = await api.send("GET", "/metrics")

    assert (response.status_code, response.json()["code"]) == (404, "not_found")
    assert "metrics=Metrics(engine)" in response.json()["detail"]


def test_streams_are_counted_while_they_are_open(engine: Engine, metrics: Metrics) -> None:
    engine.sync.start(approved(Order(1)), id="one")
    app = asgi_app(engine, authenticate=authenticate, metrics=metrics)
    headers = {"Authorization": "Bearer all"}
    path = f"/v1/namespaces/{NAMESPACE}/runs/one/history"
    (name,) = (one.name for one in OPERATIONS if one.can_stream and one.path.endswith("/history"))
    streams = "holdfast_streams_open", f"operation={name}"
    with served(app) as url, httpx.Client(headers=headers, timeout=20) as client:
        with stream(client, f"{url}{path}") as events:
            next(events)
            assert exposed(metrics)[streams] == 1
        app.stop()
    assert exposed(metrics)[streams] == 0
    assert ("holdfast_http_request_seconds_count", f"operation={name},status=2xx") not in exposed(metrics)


def logged(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [one for one in caplog.records if one.name == "holdfast.http.access"]


async def test_a_request_is_logged_without_what_it_carries(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast")
    body = {"workflow": "order", "input": {"order": {"number": 1, "note": CANARY}}, "id": CANARY}
    sent = await api.send("POST", "runs", body)
    await api.send("GET", f"runs?workflow={CANARY}")
    await api.send("GET", f"/v1/namespaces/{CANARY}/runs", by="read")
    await api.send("GET", f"/{CANARY}", by=None)

    records = logged(caplog)
    assert [(one.operation, one.status, one.principal, one.namespace) for one in records] == [
        ("run.start", 201, "ann", NAMESPACE),
        ("run.list", 200, "ann", NAMESPACE),
        ("run.list", 404, "read", None),
        ("none", 404, None, None),
    ]
    assert sent.headers["x-request-id"] == records[0].request_id
    assert len({one.request_id for one in records}) == 4
    assert all(one.ms >= 0 for one in records)
    shown = [str(cast("object", vars(one))) for one in records]
    assert not [one for one in shown if CANARY in one]


async def test_probes_are_logged_for_debugging_only(measured: Api, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "holdfast")
    for path in ("/livez", "/readyz", "/metrics"):
        await measured.send("GET", path)

    assert [(one.operation, one.levelno) for one in logged(caplog)] == [
        (name, logging.DEBUG) for name in ("server.live", "server.ready", "server.metrics")
    ]


async def test_readiness_reads_the_store_once_a_second(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[object] = []
    monkeypatch.setattr(api.engine.core.stores.persistence, "read", reads.append)
    for _ in range(5):
        assert (await api.send("GET", "/readyz", by=None)).json() == {"status": "ok"}

    assert len(reads) in {1, 2}  # 2 if this took a second
