"""The pytest plugin, in a pytest of its own."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

WORKFLOW = """
import pytest
from holdfast import Pipeline, stage
from holdfast.testing import World

@stage
def double(x: int) -> int:
    return 2 * x

PIPELINE = Pipeline("doubling", input=int).pipe(double)
"""


def run_pytest(folder: Path, code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run pytest on a file with only the plugin, registered in this environment or not."""
    (folder / "test_it.py").write_text(WORKFLOW + code)
    plugins = ("-p", "no:holdfast", "-p", "holdfast.testing.pytest_plugin", "-p", "no:cacheprovider")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--strict-markers", "-W", "error", *plugins, *arguments],
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


@pytest.mark.slow
def test_a_test_gets_a_world_of_its_own(tmp_path: Path) -> None:
    code = """
@pytest.mark.parametrize("n", [1, 2])
def test_double(world: World, n: int) -> None:
    assert world.run(PIPELINE(n), id="the same") == 2 * n
"""
    done = run_pytest(tmp_path, code)
    assert done.returncode == 0, done.stdout


GOLDEN = """
def test_double(world, golden_history):
    run = world.start(PIPELINE(3))
    run.result()
    golden_history(run)
    golden_history(run, "once more")
"""


@pytest.mark.slow
def test_golden_histories_are_missed_written_and_compared(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, GOLDEN)
    assert done.returncode == 1
    assert "does not exist; pytest --holdfast-update" in done.stdout
    assert not (tmp_path / "golden").exists()

    done = run_pytest(tmp_path, GOLDEN, "--holdfast-update")
    assert done.returncode == 0, done.stdout
    path = tmp_path / "golden" / "test_it" / "test_double.json"
    assert done.stdout.count("golden history written: ") == 2
    assert json.loads(path.read_text())["events"][1]["value"] == 6
    assert path.with_name("test_double-once_more.json").exists()

    done = run_pytest(tmp_path, GOLDEN)
    assert done.returncode == 0, done.stdout
    assert "written" not in done.stdout


@pytest.mark.slow
def test_a_difference_is_shown_and_nothing_else(tmp_path: Path) -> None:
    run_pytest(tmp_path, GOLDEN, "--holdfast-update")
    done = run_pytest(tmp_path, GOLDEN.replace("PIPELINE(3)", "PIPELINE(4)"))
    assert done.returncode == 1
    assert '-    {"event": "stage.completed", "stage": "double", "attempt": 1, "value": 6},' in done.stdout
    assert '+    {"event": "stage.completed", "stage": "double", "attempt": 1, "value": 8},' in done.stdout
    assert "histories.py" not in done.stdout


@pytest.mark.slow
def test_each_parameter_has_a_golden_file_of_its_own(tmp_path: Path) -> None:
    code = """
PARAMETERS = ["a/b", "a b", "a_b", "a_b_", "1.5-x"]

@pytest.mark.parametrize("what", PARAMETERS)
def test_double(world, golden_history, what):
    run = world.start(PIPELINE(PARAMETERS.index(what)))
    run.result()
    golden_history(run)
"""
    for options in (["--holdfast-update"], []):
        done = run_pytest(tmp_path, code, *options)
        assert done.returncode == 0, done.stdout
    files = sorted(path.name for path in (tmp_path / "golden" / "test_it").iterdir())
    assert len(files) == 5
    assert {"test_double_a_b.json", "test_double_1.5-x.json"} < set(files), "ordinary names have no digest"
    assert sum(bool(re.fullmatch(r"test_double_a_b-[0-9a-f]{8}\.json", file)) for file in files) == 3


REPLAYED = """
from holdfast import step, workflow

@step
def charge(order: str) -> str:
    return f"receipt of {order}"

@workflow
async def fulfil(order: str) -> str:
    return await charge(order)

def test_fulfil(world, golden_replay):
    def record():
        run = world.start(fulfil("a"))
        run.result()
        return run

    replayed = golden_replay(record, fulfil, name="1.0")
    assert replayed.output == '"receipt of a"'
"""


@pytest.mark.slow
def test_histories_for_replays_are_missed_recorded_once_and_replayed(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, REPLAYED)
    assert done.returncode == 1
    assert "does not exist; pytest --holdfast-update" in done.stdout
    assert not (tmp_path / "golden").exists()

    done = run_pytest(tmp_path, REPLAYED, "--holdfast-update")
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("golden history written: ") == 1
    path = tmp_path / "golden" / "test_it" / "test_fulfil-1.0.history.json"
    text = path.read_text()
    assert json.loads(text)["holdfast_history"] == 1

    changed = REPLAYED.replace("return await charge(order)", "return await charge(await charge(order))")
    done = run_pytest(tmp_path, changed, "--holdfast-update")
    assert done.returncode == 1
    assert "the code waits for step 'charge' (test_it.py:" in done.stdout
    assert "replaying.py" not in done.stdout
    assert path.read_text() == text, "it is never written again"


@pytest.mark.slow
def test_a_second_history_of_a_test_needs_a_name(tmp_path: Path) -> None:
    code = GOLDEN.replace(', "once more"', "")
    done = run_pytest(tmp_path, code, "--holdfast-update")
    assert done.returncode == 1
    assert "needs a name" in done.stdout


@pytest.mark.slow
def test_the_traceback_of_a_stage_that_failed_is_shown(tmp_path: Path) -> None:
    code = """
def test_double(world: World) -> None:
    world.stub(double).does(lambda x: 1 // 0)
    world.run(PIPELINE(1))
"""
    done = run_pytest(tmp_path, code)
    assert done.returncode == 1
    assert "stage double of run" in done.stdout
    assert "ZeroDivisionError" in done.stdout


SIMULATION = """
@pytest.mark.holdfast_seeds(4)
def test_marked(simulate):
    print("marked", simulate(PIPELINE(1)).seeds)

def test_said(simulate):
    print("said", simulate(PIPELINE(1), seeds=[3, 5, 9]).seeds)

def test_plain(simulate):
    print("plain", simulate(PIPELINE(1)).seeds)
"""


def seeds_of(folder: Path, *arguments: str) -> dict[str, int]:
    done = run_pytest(folder, SIMULATION, "-s", *arguments)
    assert done.returncode == 0, done.stdout
    return {name: int(seeds) for name, seeds in re.findall(r"\b(marked|said|plain) (\d+)", done.stdout)}


@pytest.mark.slow
def test_seeds_are_said_by_the_command_line_the_test_or_its_mark(tmp_path: Path) -> None:
    assert seeds_of(tmp_path) == {"marked": 4, "said": 3, "plain": 100}
    assert seeds_of(tmp_path, "--holdfast-seeds=7") == dict.fromkeys(("marked", "said", "plain"), 7)
    assert seeds_of(tmp_path, "--holdfast-seeds=7", "--holdfast-seed=8") == dict.fromkeys(
        ("marked", "said", "plain"), 1
    )


@pytest.mark.slow
def test_a_failed_simulation_shows_what_happened_and_not_the_simulator(tmp_path: Path) -> None:
    code = """
from holdfast.testing import Effects

effects = Effects()

@stage
def charge(x: int) -> int:
    effects.happen("charge")
    return x

def test_charge(simulate):
    simulate(Pipeline("charging", input=int).pipe(charge)(1), effects=effects)
"""
    done = run_pytest(tmp_path, code)
    assert done.returncode == 1
    assert "'charge' happened twice; expected once" in done.stdout
    assert "EFFECT charge" in done.stdout
    assert "simulating.py" not in done.stdout


@pytest.mark.slow
def test_the_plugin_imports_nothing_before_it_is_needed(tmp_path: Path) -> None:
    code = """
import sys
import holdfast.testing.pytest_plugin
ours = sorted(name for name in sys.modules if name.startswith("holdfast"))
assert ours == ["holdfast", "holdfast.testing", "holdfast.testing.pytest_plugin"], ours
assert not {"attrs", "cattrs", "sqlalchemy", "anyio", "hypothesis"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=60)


@pytest.mark.slow
def test_simulations_that_see_no_effects_are_named(tmp_path: Path) -> None:
    done = run_pytest(
        tmp_path,
        """
from holdfast.testing import Effects

effects = Effects()

@stage
def charge(x: int) -> int:
    effects.happen("charge")
    return x

def test_without(simulate):
    simulate(PIPELINE(1), seeds=2)

def test_with_some(simulate):
    simulate(Pipeline("charging", input=int).pipe(charge)(1), seeds=[1], effects=effects, same=lambda _: 1)
""",
    )
    named = [line for line in done.stdout.splitlines() if "simulated without effects" in line]

    assert [line.partition(" ")[0] for line in named] == ["test_it.py::test_without"], done.stdout
