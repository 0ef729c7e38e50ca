"""`holdfast history export`, `holdfast replay` and `holdfast check-upgrade`."""

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
from holdfast import Engine
from holdfast.kernel.authoring.functions import sleep, workflow
from holdfast.kernel.authoring.steps import step

@step
def charge(order: str) -> str:
    return f"receipt of {order}"

@step
def pack(order: str) -> int:
    return len(order)

@workflow
async def fulfil(order: str) -> int:
    breakpoint()
    await charge(order)
    await sleep(timedelta(days=30))
    return await pack(order)

@workflow
async def hurry(order: str) -> int:
    return await pack(order)

engine = Engine.open("URL", workflows=[fulfil, hurry])
"""
AFTER = BEFORE.replace("await charge(order)", "await pack(order)").replace("[fulfil, hurry]", "[fulfil]")


@pytest.fixture
def shop(
    holdfast: CommandLine, tmp_path: Path, new_sqlite: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[CommandLine]:
    """Two modules, before and after a change, and a store with a run of each workflow from before it."""
    url = new_sqlite(tmp_path / "shop.db")
    (tmp_path / "before.py").write_text(BEFORE.replace("URL", url))
    (tmp_path / "after.py").write_text(AFTER.replace("URL", url))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("PYTHONBREAKPOINT", "0")
    before: Any = import_module("before")

    async def fill() -> None:
        engine = Engine.open(url, workflows=[before.fulfil, before.hurry])
        async with engine, Worker(engine):
            await engine.start(before.fulfil("a"), id="order-1")
            await engine.run(before.hurry("b"), id="order-2")
            while len(await engine.handle(before.fulfil, "order-1").history()) < 2:  # noqa: ASYNC110
                await anyio.sleep(0.01)

    anyio.run(fill)
    monkeypatch.delenv("PYTHONBREAKPOINT")
    yield holdfast
    for name in ("before", "after"):
        sys.modules.pop(name, None)


def test_a_history_is_written_to_stdout_or_to_a_file(shop: CommandLine, tmp_path: Path) -> None:
    answer = shop("history", "export", "before:engine", "order-1")
    assert answer.code == Exit.OK
    history = RunHistory.from_json(answer.out)
    assert (history.id, history.workflow, len(history.rows)) == ("order-1", "fulfil", 2)

    assert shop("history", "export", "before:engine", "order-1", "-o", "h.json").out == "h.json: 2 rows\n"
    assert (tmp_path / "h.json").read_text() == answer.out
    again = shop("history", "export", "before:engine", "order-1", "-o", "h.json", "--json")
    assert (again.code, again.error["code"]) == (Exit.REFUSED, "file_exists")
    assert shop("history", "export", "before:engine", "order-9").code == Exit.NOT_FOUND
    assert shop("history", "export", "before:engine", "order-1", "-o", "no/h.json").code == Exit.USAGE
    told = shop("history", "export", "before:engine", "order-2", "-o", "i.json", "--json").json
    assert told == {"id": "order-2", "file": "i.json", "rows": 4, "status": "completed"}


def test_a_history_is_replayed_by_the_code_of_a_module(shop: CommandLine) -> None:
    shop("history", "export", "before:engine", "order-1", "-o", "h.json")
    shop("history", "export", "before:engine", "order-2", "-o", "i.json")
    same = shop("replay", "h.json", "i.json", "-m", "before")
    assert same.code == Exit.OK
    waits, ended = same.out.splitlines()
    assert waits.startswith(
        "compatible h.json: run order-1 of fulfil@1, 2 rows: it waits for a timer until 20"
    )
    assert ended == "compatible i.json: run order-2 of hurry@1, 4 rows: it returns 1, as recorded"

    other = shop("replay", "h.json", "i.json", "-m", "after:engine", "--json")
    assert other.code == Exit.DIVERGED
    differs, missing = other.json
    assert (differs["verdict"], differs["row"], differs["call"]) == ("diverges", 2, "1")
    assert differs["recorded"].startswith("step 'charge' (before.py:")
    assert differs["requested"].startswith("the code requests step 'pack' (after.py:")
    assert (missing["verdict"], missing["file"]) == ("no_code", "i.json")
    assert shop("replay", "i.json", "-m", "after:fulfil").code == Exit.NOT_FOUND


def test_the_code_is_that_of_the_environment_if_nothing_is_said(
    shop: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop("history", "export", "before:engine", "order-2", "-o", "i.json")
    assert shop("replay", "i.json").code == Exit.USAGE
    monkeypatch.setenv("HOLDFAST_ENGINE", "before:engine")
    assert shop("replay", "i.json").code == Exit.OK


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("none.json", "-m", "before"), "none.json cannot be read: No such file"),
        (("before.py", "-m", "before"), "before.py: this history can't be used: it is not JSON"),
        (("shop.db", "-m", "before"), "shop.db is not a text file"),
        (
            ("none.json", "-m", "before.py"),
            "'before.py' is the name of a file, not of a module: write before",
        ),
        (("none.json", "-m", "nowhere"), "no module 'nowhere'"),
        (("none.json", "-m", "before:nothing"), "'before' has no 'nothing'"),
        (("none.json", "-m", "before:charge"), "before:charge has no workflows, and no engine"),
        (("none.json", "-m", "be fore"), "'be fore' is not a module: write MODULE"),
        (("-m", "before"), "Missing argument"),
    ],
)
def test_what_can_not_be_replayed_is_wrong_usage(
    shop: CommandLine, words: tuple[str, ...], problem: str
) -> None:
    answer = shop("replay", *words)
    assert answer.code == Exit.USAGE
    assert problem in answer.err


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (("-", "-m", "before"), Exit.USAGE, "the debugger reads stdin"),
        (("h.json", "-m", "before:hurry"), Exit.NOT_FOUND, "'fulfil@1' is not registered"),
        (("none.json", "-m", "before"), Exit.USAGE, "cannot be read"),
    ],
)
def test_what_can_not_be_stepped_through_is_told(
    shop: CommandLine, words: tuple[str, ...], code: Exit, problem: str
) -> None:
    shop("history", "export", "before:engine", "order-1", "-o", "h.json")
    answer = shop("debug", *words)
    assert answer.code == code
    assert problem in answer.err


def test_open_runs_are_checked_before_an_upgrade(shop: CommandLine) -> None:
    answer = shop("check-upgrade", "before:engine")
    assert answer.code == Exit.OK
    assert answer.out == "1 of 1 open runs: 1 compatible\n"

    answer = shop("check-upgrade", "after:engine")
    assert answer.code == Exit.DIVERGED
    line, total = answer.out.splitlines()
    assert line.startswith("diverges at row 2 order-1 of fulfil@1, 2 rows: row 2 of the history records step")
    assert total == "1 of 1 open runs: 1 diverges"

    found = shop("check-upgrade", "after:engine", "--json").json
    assert (found["compatible"], found["runs"], found["checked"]) == (False, 1, 1)
    assert found["counts"] == {"diverges": 1}
    assert found["found"][0]["run_id"] == "order-1"
    assert shop("check-upgrade", "after:engine", "--workflow", "hurry").code == Exit.OK


@pytest.mark.slow
def test_runs_without_code_have_an_exit_code_of_their_own(shop: CommandLine) -> None:
    shop("run", "start", "before:engine", "hurry", '{"order": "c"}', "--id", "order-3")
    words = ("check-upgrade", "after:engine", "--workflow", "hurry")
    assert shop(*words).code == Exit.NOT_FOUND
    assert shop(*words, "--known-only").code == Exit.OK
    assert shop("check-upgrade", "after:engine", "--limit", "1", "--sample", "newest").code == Exit.NOT_FOUND
    assert shop("check-upgrade", "after:engine", "--limit", "0").code == Exit.DIVERGED


def test_a_check_needs_tables_and_makes_none(shop: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "shop.db").unlink()
    answer = shop("check-upgrade", "before:engine")
    assert answer.code == Exit.SCHEMA
    assert "holdfast db upgrade" in answer.err
