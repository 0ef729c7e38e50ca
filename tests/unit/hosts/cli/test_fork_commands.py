"""A forked run on the command line: export, replay, upgrade check, debug, why."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import anyio
import pytest

from holdfast import Engine, Worker
from holdfast.hosts.cli.exit_codes import Exit
from holdfast.hosts.functions.history_document import RunHistory
from tests.unit.hosts.cli.conftest import CommandLine

BEFORE = """
from datetime import timedelta
from holdfast import Engine, sleep, step, workflow

@step
def charge(what: str) -> str:
    return f"receipt of {what}"

@step
def pack(what: str) -> str:
    return what

@workflow
async def fulfil(order: str) -> list[str]:
    first = await charge(order)
    second = await pack(order)
    await sleep(timedelta(days=30))
    return [first, second]

engine = Engine.open("URL", workflows=[fulfil])
"""
AFTER = BEFORE.replace("second = await pack(order)", "second = await charge(order)")


@pytest.fixture
def shop(
    holdfast: CommandLine, tmp_path: Path, new_sqlite: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[CommandLine]:
    """A store with a run that was forked from its second step, keeps rows 1 and 2, and sleeps."""
    url = new_sqlite(tmp_path / "shop.db")
    (tmp_path / "fork_before.py").write_text(BEFORE.replace("URL", url))
    (tmp_path / "fork_after.py").write_text(AFTER.replace("URL", url))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in ("fork_before", "fork_after"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    module: Any = import_module("fork_before")

    async def until_it_sleeps() -> None:
        engine = Engine.open(url, workflows=[module.fulfil])
        async with engine, Worker(engine):
            run = await engine.start(module.fulfil("a"), id="order-1", if_exists="return")
            while (await run.why())[0].until is None:  # noqa: ASYNC110
                await anyio.sleep(0.01)

    anyio.run(until_it_sleeps)
    answer = holdfast("run", "rerun", "fork_before:engine", "order-1", "--from", "pack")
    assert (answer.code, answer.out) == (
        0,
        "order-1 runs again from pack, as generation 2; generation 1 was terminated\n",
    )
    anyio.run(until_it_sleeps)
    yield holdfast
    for name in ("fork_before", "fork_after"):
        sys.modules.pop(name, None)


def test_its_history_has_the_rows_that_it_keeps_and_its_own(shop: CommandLine, tmp_path: Path) -> None:
    assert (
        shop("history", "export", "fork_before:engine", "order-1", "-o", "h.json").out == "h.json: 4 rows\n"
    )
    history = RunHistory.from_json((tmp_path / "h.json").read_text())
    assert (history.generation, history.status) == (2, "running")
    told = [(row.number, row.type) for row in history.rows]
    assert told == [(1, "run.created"), (2, "step.completed"), (3, "run.created"), (4, "step.completed")]


@pytest.mark.slow
def test_it_is_replayed_with_what_it_keeps(shop: CommandLine) -> None:
    shop("history", "export", "fork_before:engine", "order-1", "-o", "h.json")
    same = shop("replay", "h.json", "-m", "fork_before")
    assert same.code == Exit.OK
    assert same.out.startswith(
        "compatible h.json: run order-1 of fulfil@1, 4 rows: it waits for a timer until"
    )
    other = shop("replay", "h.json", "-m", "fork_after", "--json")
    assert (other.code, other.json[0]["row"], other.json[0]["call"]) == (Exit.DIVERGED, 4, "2")


@pytest.mark.slow
def test_it_is_checked_before_an_upgrade(shop: CommandLine) -> None:
    answer = shop("check-upgrade", "fork_before:engine")
    assert (answer.code, answer.out) == (Exit.OK, "1 of 1 open runs: 1 compatible\n")
    answer = shop("check-upgrade", "fork_after:engine")
    assert answer.code == Exit.DIVERGED
    assert answer.out.startswith(
        "diverges at row 4 order-1 of fulfil@1, 4 rows: row 4 of the history records"
    )


@pytest.mark.slow
def test_it_is_stepped_through_from_its_beginning(shop: CommandLine, tmp_path: Path) -> None:
    shop("history", "export", "fork_before:engine", "order-1", "-o", "h.json")
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.hosts.cli.main", "debug", "h.json", "-m", "fork_before"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTHONBREAK")},
        input="n\np first\nn\np second\nc\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == Exit.OK, done.stderr
    assert "'receipt of a'" in done.stdout
    assert "'a'" in done.stdout
    assert "it waits for a timer until" in done.stdout


@pytest.mark.slow
def test_why_and_show_say_where_it_is(shop: CommandLine) -> None:
    assert "(at fork_before.py:17 in fulfil) sleeps" in shop("why", "fork_before:engine", "order-1").out
    shown = shop("run", "show", "fork_before:engine", "order-1", "--json").json
    assert [(one["step"], one["kept_of"]) for one in shown["steps"]] == [("charge", 1), ("pack", None)]
    before = shop("run", "show", "fork_before:engine", "order-1", "--generation", "1", "--json").json
    assert before["status"] == "cancelled"
