"""The same workflows on SQLite and PostgreSQL workers, in Lambda and in the simulator: equal histories."""

import json
import logging
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import pytest

from holdfast import Engine
from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.hosts.wiring.stores import open_stores
from holdfast.testing.histories import recorded
from tests.aws import FakeAws
from tests.cloud import Cloud, Mortal
from tests.poll_intervals import rest_at_once
from tests.portable_workflows import ORDER_IS_FREE, PLAYS, RACES, checks
from tests.simulation.test_corpus import CrashAt, played
from tests.virtual_time import Play, StillClock, carry_out, worker_of

Seen = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "holdfast")
    checks.clear()


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make functions sleep at every wait: virtual time stands still while they are driven."""
    rest_at_once(monkeypatch)


def seen(runs: list[SyncRunHandle[Any]]) -> Seen:
    """Return the histories and outcomes of runs."""
    return [json.loads(recorded(run), object_hook=_without_place) for run in runs]


def _without_place(data: dict[str, Any]) -> dict[str, Any]:
    """Remove the stack frames between Holdfast and a failed step, and the name of a child's parent."""
    if "traceback" in data:
        data["traceback"] = str(data["traceback"]).splitlines()[-1]
    if "run" in data:
        data["run"] = str(data["run"]).partition("/")[2]
    return data


def by_worker(url: str, namespace: str, blobs: Path, monkeypatch: pytest.MonkeyPatch) -> Seen:
    clock = StillClock()
    opened = open_stores(url, f"file://{blobs}")
    stores = attrs.evolve(opened, persistence=Mortal(opened.persistence), clock=clock)
    workflows = list({id(play.call.definition): play.call.definition for play in PLAYS}.values())
    engine = Engine.on(stores, workflows=workflows, namespace=namespace)
    with closing(opened.persistence), closing(engine.core), worker_of(engine, monkeypatch) as work:
        return seen(carry_out(engine, PLAYS, clock, work))


def by_lambda(aws: FakeAws, url: str, namespace: str, blobs: Path) -> Seen:
    clock = StillClock()
    workflows = list({id(play.call.definition): play.call.definition for play in PLAYS}.values())
    cloud = Cloud(aws, url, namespace, workflows, blobs=f"file://{blobs}", clock=clock)

    def work() -> None:
        cloud.tick()
        while cloud.source.poll():
            pass

    with closing(cloud):
        found = seen(carry_out(cloud.engine, PLAYS, clock, work))
    assert cloud.source.invocations > len(PLAYS) / 10
    return found


def by_simulator(play: Play) -> dict[str, Any]:
    checks.clear()
    trial, _ = played(play.call, play.told, CrashAt(0, after_commits=False))
    return seen([trial.handles[0]])[0]


@pytest.mark.slow
@pytest.mark.service
@pytest.mark.sized
def test_a_workflow_is_the_same_wherever_it_runs(
    aws: FakeAws,
    shared_database: str,
    namespace: str,
    tmp_path: Path,
    new_sqlite: Callable[[Path], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ways: dict[str, Seen] = {}
    ways["worker, SQLite"] = by_worker(
        new_sqlite(tmp_path / "holdfast.db"), namespace, tmp_path / "1", monkeypatch
    )
    checks.clear()
    ways["worker, PostgreSQL"] = by_worker(shared_database, f"{namespace}-w", tmp_path / "2", monkeypatch)
    checks.clear()
    ways["Lambda, PostgreSQL"] = by_lambda(aws, shared_database, f"{namespace}-l", tmp_path / "3")
    ways["simulator"] = [by_simulator(play) for play in PLAYS]

    differences = [
        (play.call.definition.name, {way: found[number] for way, found in ways.items()})
        for number, play in enumerate(PLAYS)
        if len({as_compared(play, found[number]) for found in ways.values()}) > 1
    ]
    assert differences == []
    exact = [play for play in PLAYS if play.call.definition.name not in {*ORDER_IS_FREE, *RACES}]
    forks = [
        found for found in ways["simulator"] if any("rerun_of" in str(event) for event in found["events"])
    ]
    assert len(forks) >= 12
    assert len(PLAYS) >= 80
    assert len(exact) >= 50


def as_compared(play: Play, found: dict[str, Any]) -> str:
    """Return the parts of a run that must be equal: all events, in order unless the workflow leaves the order open."""
    name = play.call.definition.name
    if name in RACES:
        return str(found["status"])
    if name in ORDER_IS_FREE:
        found = {**found, "events": sorted(map(json.dumps, found["events"]))}
    return json.dumps(found)
