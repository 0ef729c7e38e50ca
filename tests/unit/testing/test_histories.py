"""Recorded histories stay the same until the workflow changes."""

import json
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast import Engine, Pipeline, Retry, StageContext, Worker, stage
from holdfast.testing import World, check_history, recorded


@stage(retry=Retry(attempts=2, wait=timedelta(0)))
def once_more(ctx: StageContext, x: int) -> int:
    if ctx.attempt == 1:
        raise ConnectionError("away")
    return x + 1


@stage
def spread(x: int) -> list[str]:
    return ["a" * 70_000] * x


INNER = Pipeline("inner", input=int).pipe(once_more)
OUTER = Pipeline("outer", input=int).pipe(stage(INNER)).pipe(once_more)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "holdfast.testing")


def of_a_world(seed: int) -> str:
    with World(ids=seed, start=datetime(2026, 1, 1 + seed, tzinfo=UTC)) as world:
        run = world.start(OUTER(1))
        run.result()
        return recorded(run)


def test_times_ids_and_hosts_make_no_difference() -> None:
    first = of_a_world(1)
    assert first == of_a_world(2)
    events = json.loads(first)["events"]
    assert events[1] == {"event": "stage.started", "stage": "inner", "run": "<id 1>/inner"}
    assert events[-2] == {"event": "stage.completed", "stage": "once_more", "attempt": 2, "value": 3}


def test_a_worker_records_the_same_as_a_world() -> None:
    with Engine.open("memory://", workflows=[OUTER]).sync as engine, Worker(engine, poll_interval=0.05):
        run = engine.start(OUTER(1))
        assert run.result(timeout=timedelta(seconds=60)) == 3
        assert recorded(run) == of_a_world(1)


def test_the_ends_of_runs_are_recorded_and_large_values_by_their_hash() -> None:
    with World() as world:
        world.stub(once_more).fails(ValueError("no"))
        run = world.start(INNER(1))
        world.run_until_quiet()
        data = json.loads(recorded(run))
        assert data["status"] == "failed"
        assert data["error"] == "stage 'once_more', attempt 2: ValueError: no"
        assert "traceback" not in recorded(run)

        large = world.start(Pipeline("large", input=int).pipe(spread)(2))
        large.result()
        assert json.loads(recorded(large))["events"][1]["value"].startswith("<140007 characters, sha256 ")


def test_a_history_is_one_event_a_line() -> None:
    lines = of_a_world(1).splitlines()
    assert lines[:5] == [
        "{",
        '  "format": 1,',
        '  "workflow": "outer@1",',
        '  "status": "completed",',
        '  "events": [',
    ]
    assert sum('"event": ' in line for line in lines) == len(json.loads("\n".join(lines))["events"])


def test_a_file_is_written_when_that_is_wanted_and_compared_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "golden" / "run.json"
    text = of_a_world(1)
    with pytest.raises(AssertionError, match=r"golden history .* does not exist; .*--holdfast-update"):
        check_history(text, path)
    assert not path.parent.exists()
    assert check_history(text, path, update=True)
    assert path.read_text() == text
    assert not check_history(text, path, update=True)
    assert not check_history(text, path)


def test_a_difference_is_told_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    check_history(of_a_world(1), path, update=True)
    with World() as world:
        world.stub(once_more).returns(9)
        run = world.start(OUTER(1))
        run.result()
        with pytest.raises(AssertionError) as told:
            check_history(recorded(run), path)

    lines = str(told.value).splitlines()
    assert "--- golden run.json" in lines
    assert '-    {"event": "stage.completed", "stage": "once_more", "attempt": 2, "value": 3},' in lines
    assert '+    {"event": "stage.completed", "stage": "once_more", "attempt": 1, "value": 9},' in lines
    assert "--holdfast-update" in lines[-1]
