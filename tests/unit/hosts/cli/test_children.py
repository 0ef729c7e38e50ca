"""Child runs, parents, inputs and results on the command line."""

import re
import sys
from types import ModuleType

import anyio
import pytest

from holdfast import Engine, Worker, stage, step, workflow
from holdfast.kernel.authoring.pipelines import Pipeline
from tests.unit.hosts.cli.conftest import CommandLine

ENGINE = "family:engine"


@step
def count(number: int) -> int:
    return number + 1


@workflow
async def child(number: int) -> int:
    return await count(number)


@workflow
async def parent(children: int) -> list[int]:
    return [await child(number) for number in range(children)]


@stage
def double(text: str) -> str:
    return text * 2


TEXTS = Pipeline("texts", input=str).pipe(double)


@pytest.fixture
def family(holdfast: CommandLine, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """A store with a run that has started 25 child runs, and one of a pipeline."""
    engine = Engine.open("memory://", workflows=[parent, child, TEXTS])

    async def finish() -> None:
        async with engine, Worker(engine):
            run = await engine.start(parent(25), id="p")
            await run.result()
            await (await engine.start(TEXTS("ab"), id="t")).result()

    anyio.run(finish)
    module = ModuleType("family")
    module.__dict__["engine"] = engine
    monkeypatch.setitem(sys.modules, "family", module)
    return holdfast


PARENT = "p"


@pytest.mark.slow
def test_child_runs_are_listed_page_by_page(family: CommandLine) -> None:
    first = family("run", "children", ENGINE, PARENT, "--limit", "2")
    head, *rows = [line.split() for line in first.out.splitlines()]
    assert head == ["ID", "WORKFLOW", "STATUS", "STARTED", "ENDED", "BY"]
    assert [(row[1], row[2]) for row in rows] == [("child@1", "completed")] * 2
    assert "call 25 test_children.py:" in first.out
    (cursor,) = re.findall("More child runs: --after (.*)", first.err)
    second = family("run", "children", ENGINE, PARENT, "--after", cursor, "--json").json
    assert [one["call"] for one in second] == [str(number) for number in range(23, 0, -1)]
    assert second[0]["started_at"].endswith("Z")
    assert family("run", "children", ENGINE, PARENT, "--after", "x").code == 2
    assert family("run", "children", ENGINE, PARENT, "--generation", "2").code == 3
    assert family("run", "children", ENGINE, f"{PARENT}/1").err == "No child runs.\n"


@pytest.mark.slow
def test_a_run_is_shown_with_its_parent_and_newest_children(family: CommandLine) -> None:
    shown = family("run", "show", ENGINE, PARENT).out.splitlines()
    at = shown.index("Child runs")
    assert [line for line in shown[at:] if " child@1 " in line] == shown[at + 2 : at + 22]
    assert shown[at + 22] == "and earlier ones: `holdfast run children` lists all"
    document = family("run", "show", ENGINE, PARENT, "--json").json
    assert (len(document["children"]), document["has_more_children"], document["parent"]) == (20, True, None)

    of_child = family("run", "show", ENGINE, f"{PARENT}/1", "--json").json
    assert of_child["parent"] == {"id": PARENT, "generation": 1}
    text = family("run", "show", ENGINE, f"{PARENT}/1").out
    assert re.search(r"^Parent +p, generation 1$", text, re.MULTILINE)
    assert re.search(r"^1 +count +done .* → 1$", text, re.MULTILINE)
    listed = family("run", "list", ENGINE, "--json", "--workflow", "child", "--limit", "1").json
    assert listed[0]["parent"] == {"id": PARENT, "generation": 1}


@pytest.mark.slow
def test_a_preview_names_the_child_runs_that_new_ones_replace(family: CommandLine) -> None:
    shown = family("run", "rerun", ENGINE, PARENT, "--from", "24", "--preview").out
    assert re.search(r"^Starts +new child runs in place of p/24, p/25$", shown, re.MULTILINE)


@pytest.mark.slow
def test_inputs_and_results_are_json(family: CommandLine) -> None:
    assert family("run", "show", ENGINE, f"{PARENT}/3", "--input").out == '{"number":2}\n'
    assert family("run", "show", ENGINE, f"{PARENT}/3", "--result-of", "count").out == "3\n"
    assert family("run", "show", ENGINE, "t", "--input").out == '"ab"\n'
    assert family("run", "show", ENGINE, "t", "--result-of", "double").out == '"abab"\n'
    missing = family("run", "show", ENGINE, "t", "--result-of", "triple", "--json")
    assert (missing.code, missing.error["code"]) == (3, "result_missing")
    assert family("run", "show", ENGINE, "t", "--input", "--output").code == 2
    assert family("run", "show", ENGINE, "t", "--input", "--log").code == 2
