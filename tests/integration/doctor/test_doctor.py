"""The doctor's checks beyond single runs, its options, and no findings in a healthy store."""

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Final

import anyio
import pytest

from holdfast import Concurrency
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.maintenance.doctor import scan
from holdfast.hosts.worker.worker import Worker
from holdfast.ports.records.run import RunStatus
from holdfast.testing.sink import MemorySink
from tests.integration.doctor.conftest import ALL, LARGE, LATER, PARENT, SIMPLE, TEXT, WIDE, Scene, said

pytestmark = pytest.mark.usefixtures("quick")

BUSY_FOR: Final = 3.0
"""Seconds."""


# What is not a run ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_rows_of_a_run_that_is_gone_are_seen(scene: Scene) -> None:
    """They are left alone: their value is unknown."""
    ((key,),) = scene.sql("SELECT key FROM holdfast_runs WHERE id = 'new'")
    scene.sql("DELETE FROM holdfast_runs WHERE key = '{new}'")

    for repair in (False, True):
        diagnosis = scene.engine.doctor(repair=repair)
        assert said(diagnosis) == {("orphan", key), ("O4", "audit")}
        (orphan,) = [one for one in diagnosis.findings if one.code == "orphan"]
        assert orphan.text.endswith("history, jobs")
    assert len(scene.sql(f"SELECT 1 FROM holdfast_jobs WHERE run = '{key}'")) == 1


def test_notes_of_nothing_are_seen(scene: Scene) -> None:
    scene.sql(
        "INSERT INTO holdfast_attempt_output (run, id, job, epoch, at, kind, data, call) "
        "VALUES ('0', 'n', 1, 1, 1, 'log', '1', '')"
    )

    assert scene.found() == {("orphan", "0")}


def test_a_run_that_waits_for_a_run_that_is_gone_is_told_with_what_to_do(scene: Scene) -> None:
    scene.sql("DELETE FROM holdfast_history WHERE run = '{child}'")
    scene.sql("DELETE FROM holdfast_jobs WHERE run = '{child}'")
    scene.sql("DELETE FROM holdfast_outbox WHERE run = '{child}'")
    scene.sql("DELETE FROM holdfast_runs WHERE key = '{child}'")

    assert scene.found(repair=True) == {("S7", "parent")}


def test_a_sink_that_knows_more_than_there_is_is_seen(scene: Scene) -> None:
    scene.sql("UPDATE holdfast_outbox SET head_row = 99 WHERE run = '{new}'")

    assert scene.found(repair=True) == {("O4", "audit")}


def test_dead_letters_are_seen(scene: Scene) -> None:
    scene.sql(
        "UPDATE holdfast_outbox SET state = 'dead_lettered', due_at = NULL, refused_row = 1, dead_lettered_at = 1, "
        "error = 'no' WHERE run IN ('{new}', '{half}')"
    )

    assert scene.found(repair=True) == {("dead_letter", "new"), ("dead_letter", "half")}


def test_a_sink_that_takes_nothing_is_seen(scene: Scene) -> None:
    """Only where workers run, and after a while: any delivery may fail once."""
    scene.sql("UPDATE holdfast_sinks SET failures = 3, error = 'down'")
    assert scene.found() == set()
    scene.sql("UPDATE holdfast_sinks SET created_at = 1")

    (finding,) = scene.engine.doctor().findings
    assert (finding.code, finding.key, finding.namespace) == ("sink", "audit", "default")
    assert "down" in finding.text


def test_events_that_nobody_sends_are_seen(scene: Scene) -> None:
    scene.sql("UPDATE holdfast_outbox SET due_at = 1 WHERE run IN ('{new}', '{half}')")

    (finding,) = scene.engine.doctor().findings
    assert (finding.code, finding.key, "2 runs" in finding.text) == ("sink", "audit", True)


def test_nothing_is_late_where_nobody_works(scene: Scene) -> None:
    scene.sql("UPDATE holdfast_jobs SET wake_at = 1 WHERE run = '{retrying}'")
    scene.sql("UPDATE holdfast_outbox SET due_at = 1")
    assert {code for code, _ in scene.found()} == {"T3", "sink"}
    scene.sql("UPDATE holdfast_sessions SET expires_at = 1")

    assert scene.found() == set()


# Blobs ------------------------------------------------------------------------------------------------------------


def _blob(scene: Scene) -> Path:
    """Return the only blob."""
    (path,) = [path for path in scene.blobs.rglob("*") if path.is_file() and path.stat().st_size > len(LARGE)]
    return path


@pytest.mark.parametrize("damage", ["gone", "torn"])
def test_a_blob_that_can_not_be_read_is_seen_if_that_is_asked_for(scene: Scene, damage: str) -> None:
    path = _blob(scene)
    path.unlink()
    if damage == "torn":
        path.write_bytes(b"other")
    assert scene.found() == set()

    assert scene.found(blobs=True, repair=True) == {("B1", "large")}


def test_an_engine_without_blobs_can_not_say_that_they_are_there(scene: Scene) -> None:
    other = Engine.open(scene.url, blobs=f"file://{scene.blobs}-of-others")
    try:
        assert said(other.sync.doctor(blobs=True)) == {("B1", "large")}
    finally:
        other.core.close()


# How it is asked --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "what"), [("0001", "start over"), ("2026_01_01", "newer"), ("9999", "newer")]
)
def test_tables_of_another_version_are_all_that_is_told(scene: Scene, version: str, what: str) -> None:
    """Nothing is read from them, and they are not upgraded: other processes may use them."""
    ((newest,),) = scene.sql("SELECT version_num FROM holdfast_version")
    scene.sql(f"UPDATE holdfast_version SET version_num = '{version}'")
    other = Engine.open(scene.url, workflows=ALL)
    try:
        diagnosis = other.sync.doctor(repair=True)
    finally:
        other.core.close()

    (finding,) = diagnosis.findings
    assert (finding.code, what in finding.advice, diagnosis.runs) == ("schema", True, 0)
    assert newest in finding.text
    assert scene.sql("SELECT version_num FROM holdfast_version") == [(version,)]


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    engine = Engine.open(f"sqlite:///{tmp_path}/nothing.db")
    (finding,) = engine.sync.doctor().findings
    engine.core.close()

    assert finding.code == "schema"
    assert list(tmp_path.iterdir()) == []


def test_a_store_in_memory_can_be_looked_at_too() -> None:
    with Engine.open("memory://", workflows=ALL).sync as engine:
        engine.start(SIMPLE(1))
        diagnosis = engine.doctor(repair=True, blobs=True)

    assert (diagnosis.runs, diagnosis.findings, diagnosis.blobs) == (1, (), 0)


def test_all_findings_are_counted_and_some_are_listed(scene: Scene) -> None:
    scene.sql("UPDATE holdfast_runs SET open_jobs = 9 WHERE status = 'running'")

    diagnosis = scene.engine.doctor(limit=2)
    assert (dict(diagnosis.found), len(diagnosis.findings), diagnosis.repaired) == ({"S7": 6}, 2, 0)
    repaired = scene.engine.doctor(limit=0, repair=True)
    assert (dict(repaired.found), repaired.findings, repaired.repaired) == ({"S7": 6}, (), 6)
    assert repaired.is_sound
    with pytest.raises(ValueError, match="limit"):
        scene.engine.doctor(limit=-1)


@pytest.mark.slow
def test_it_looks_at_its_own_namespace_and_at_others_if_it_is_told_to(scene: Scene) -> None:
    other = Engine.open(scene.url, workflows=ALL, namespace="tenant-2")
    try:
        before = scene.engine.doctor().runs
        other.sync.start(SIMPLE(1), id="theirs")
        scene.sql("DELETE FROM holdfast_jobs WHERE run = '{theirs}'")
        own = scene.engine.doctor(repair=True)
        assert (own.findings, own.runs) == ((), before)
        (theirs,) = other.sync.doctor().findings
        assert (theirs.namespace, theirs.run_id, theirs.repaired) == ("tenant-2", "theirs", False)
        both = scene.engine.doctor(repair=True, all_namespaces=True)
        (finding,) = both.findings
        assert (finding.namespace, finding.run_id, finding.repaired) == ("tenant-2", "theirs", True)
        assert both.runs == before + 1
    finally:
        other.core.close()


def test_an_event_loop_can_ask(scene: Scene) -> None:
    async def ask() -> int:
        return (await scene.opened.doctor(limit=1, blobs=True)).runs

    assert anyio.run(ask) == 11


@pytest.mark.slow
def test_what_is_broken_is_found_on_whatever_page_it_is(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs may depend on runs of other pages, and histories have pages of their own."""
    monkeypatch.setattr(scan, "PAGE_RUNS", 2)
    monkeypatch.setattr(scan, "PART_ROWS", 3)
    monkeypatch.setattr(scan, "ROWS_AT_ONCE", 2)
    assert scene.found(blobs=True) == set()
    scene.sql("DELETE FROM holdfast_jobs WHERE run IN ('{child}', '{half}', '{later}', '{new}')")
    scene.sql("DELETE FROM holdfast_attempt_output")
    scene.sql(
        "INSERT INTO holdfast_attempt_output (run, id, job, epoch, at, kind, data, call) "
        "VALUES ('Z', 'n', 1, 1, 1, 'log', '1', '')"
    )

    assert scene.found() == {("S7", "parent"), ("S7", "half"), ("S7", "new"), ("orphan", "Z")}


# No false alarms --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_busy_database_is_sound(empty: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that change during the scan are checked again, in small pages."""
    monkeypatch.setattr(scan, "PAGE_RUNS", 7)
    engine = empty.engine
    engine.register_sink("audit")
    stop = threading.Event()
    started: list[str] = []

    def start() -> None:
        number = 0
        while not stop.wait(0.005):
            number += 1
            engine.start(WIDE(number % 7), id=f"w{number}", concurrency=Concurrency("k", limit=5))
            engine.start(PARENT(number), id=f"p{number}")
            engine.start(LATER(1), id=f"l{number}", start_at=datetime.now(UTC) + timedelta(seconds=0.1))
            started.append(f"p{number}")
            if number % 5 == 0:
                engine.start(TEXT("x" * 70_000), id=f"t{number}")
                engine.handle(SIMPLE, f"p{number - 3}").cancel()
                engine.rerun_all(status=RunStatus.CANCELLED, limit=2)
                engine.remove_all(status=RunStatus.COMPLETED, limit=3)

    thread = threading.Thread(target=start)
    looks = seen = 0
    with Worker(engine, lease=5, sinks={"audit": MemorySink()}):
        thread.start()
        end = monotonic() + BUSY_FOR
        while monotonic() < end:
            diagnosis = engine.doctor(blobs=True)
            assert diagnosis.findings == ()
            looks += 1
            seen = max(seen, diagnosis.runs)
        stop.set()
        thread.join()

    assert looks >= 3, "it was hardly looked at"
    assert seen >= 20, "there was hardly anything to look at"
    assert engine.doctor(blobs=True).findings == ()
