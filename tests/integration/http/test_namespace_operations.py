"""Schedules, limits, sinks and dead letters over HTTP."""

from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Engine, Every, Schedule
from tests.integration.http.api import Api
from tests.integration.http.programs import report
from tests.sinks import dead_letter

pytestmark = pytest.mark.anyio


async def test_schedules_can_be_read_paused_triggered_and_removed(api: Api, engine: Engine) -> None:
    for name in ("a", "b", "c/d"):
        engine.sync.create_schedule(Schedule(name, report(1), when=Every(timedelta(days=365))))

    first = await api.get("schedules?limit=2")
    second = await api.get(f"schedules?after={first['next']}")
    assert [one["name"] for one in (*first["items"], *second["items"])] == ["a", "b", "c/d"]
    assert second["next"] is None
    assert len((await api.get("schedules/c%2Fd/next?count=3"))["items"]) == 3
    paused = await api.post("schedules/a/pause", {"reason": "holidays"})
    assert (paused["state"], paused["paused_by"], paused["pause_reason"]) == (
        "paused",
        "user ann",
        "holidays",
    )
    assert (await api.get("schedules/a/why"))["reasons"][0]["code"] == "paused"
    assert (await api.post("schedules/a/resume", {"make_up": True}))["state"] != "paused"
    triggered = await api.post("schedules/c%2Fd/trigger", {"overlap": "allow"})
    run = await api.get(f"runs/{triggered['run_id'].replace('/', '%2F')}")
    assert run["scheduled"]["name"] == "c/d"
    now = datetime.now(UTC)
    past = {"start": (now - timedelta(days=1)).isoformat(), "end": (now + timedelta(days=9)).isoformat()}
    refused = await api.send("POST", "schedules/a/backfill", past)
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_argument")
    assert (await api.send("DELETE", "schedules/a")).json() == {"removed": True}
    gone = await api.send("GET", "schedules/a")
    assert (gone.status_code, gone.json()["code"]) == (404, "schedule_not_found")


async def test_a_queue_can_be_paused_and_a_limit_set(api: Api) -> None:
    paused = await api.send("PUT", "limits/queue:default", {"paused": True, "reason": "move"})
    assert (paused.json()["is_paused"], paused.json()["actor"]["id"]) == (True, "ann")
    rate = await api.send("PUT", "limits/rate:model%2Facme", {"rate": {"limit": 5, "period_seconds": 60}})
    assert (rate.json()["rate_limit"], rate.json()["rate_period_seconds"]) == (5, 60)
    names = [one["name"] for one in (await api.get("limits"))["items"]]
    assert names == ["queue:default", "rate:model/acme"]
    cleared = await api.send("DELETE", "limits/queue:default?reason=done")
    assert cleared.json()["is_paused"] is False
    assert (await api.get("limits/queue:default"))["is_set"] is False
    for name, body in (
        ("unknown:x", {"slots": 1}),
        ("queue:default", {"slots": 1}),
        ("run:k", {"slots": -1}),
    ):
        assert (await api.send("PUT", f"limits/{name}", body)).status_code == 400, name


async def test_sinks_can_be_registered_and_removed(api: Api) -> None:
    registered = await api.send("PUT", "sinks/audit", {"types": ["run.failed"]})
    assert registered.json()["registered_by"]["id"] == "ann"
    other = await api.send("PUT", "sinks/audit", {"types": ["run.completed"]})
    assert (other.status_code, other.json()["code"]) == (409, "sink_exists")
    assert [one["name"] for one in (await api.get("sinks"))["items"]] == ["audit"]
    assert await api.get("dead-letters?sink=audit") == {"items": [], "next": None}
    assert (await api.post("dead-letters/replay", {"sink": "audit"})) == {"replayed": 0, "more": False}
    unknown = await api.send("GET", "dead-letters?sink=unknown")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "sink_not_found")
    assert (await api.send("DELETE", "sinks/audit")).json() == {"removed": True}
    assert (await api.send("DELETE", "sinks/audit")).json() == {"removed": False}


async def test_dead_letters_have_pages_that_follow_a_cursor(api: Api, engine: Engine) -> None:
    for sink in ("audit", "billing"):
        engine.sync.register_sink(sink)
    for name in ("a", "b"):
        engine.sync.start(report(1), id=name)
    for sink in ("audit", "billing"):
        dead_letter(engine.core, sink, "no")

    found: list[tuple[str, str]] = []
    path = "dead-letters?limit=1"
    while path:
        page = await api.get(path)
        found += [(one["sink"], one["run_id"]) for one in page["items"]]
        path = f"dead-letters?limit=1&after={page['next']}" if page["next"] else ""
    bad = await api.send("GET", "dead-letters?after=x")
    replayed = await api.post("dead-letters/replay", {"run_id": "b"})

    assert found == [(sink, run) for sink in ("audit", "billing") for run in ("a", "b")]
    assert (bad.status_code, bad.json()["code"]) == (400, "invalid_filter")
    assert replayed == {"replayed": 2, "more": False}


async def test_external_work_that_nothing_waits_for_is_not_found(api: Api) -> None:
    response = await api.send("POST", "wakes/k%2F1")

    assert (response.status_code, response.json()["code"]) == (409, "nothing_to_wake")
