"""Golden histories: every release replays them with the code with which their runs started."""

from pathlib import Path

import attrs
import pytest

from holdfast.client import RunHistory
from holdfast.testing import replay
from tests.golden.begun import CALLS, WAITING, WORKFLOWS
from tests.golden.exported import FOLDER

HISTORIES = sorted(FOLDER.glob("*.json"))


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_there_is_one_of_each_workflow_from_each_python(python: str) -> None:
    found = [path.stem.rpartition("-") for path in HISTORIES]
    assert {name for name, _, version in found if version.startswith(f"{python}.")} == set(CALLS)


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_a_golden_history_is_replayed_to_where_it_was(path: Path) -> None:
    replayed = replay(path, *WORKFLOWS)
    if replayed.history.workflow in WAITING:
        assert replayed.ended is None
        assert replayed.waits_for
    else:
        assert replayed.as_recorded


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_a_golden_history_is_replayed_at_every_row_of_it(path: Path) -> None:
    history = RunHistory.from_json(path.read_text())
    for end in range(1, len(history.rows)):
        replayed = replay(attrs.evolve(history, rows=history.rows[:end]), *WORKFLOWS)
        assert not replayed.is_stuck


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_a_golden_history_is_written_again_as_it_is(path: Path) -> None:
    text = path.read_text()
    assert RunHistory.from_json(text).to_json() == text


def test_all_that_functions_are_told_is_in_one_of_them() -> None:
    kinds = {row.type for path in HISTORIES for row in RunHistory.from_json(path.read_text()).rows}
    assert kinds >= {
        *("clock.read", "patch.marked", "signal.received", "timer.fired", "value.published"),
        *("child.started", "signal.sent", "cancel.sent", "child.completed", "child.failed"),
        *("step.completed", "step.failed", "step.retrying", "step.queued", "step.cancelled"),
        *("update.received", "update.completed"),
    }
