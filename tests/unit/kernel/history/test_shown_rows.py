"""What of a history row is shown and sent to sinks."""

import pytest

from holdfast.kernel.history import events
from holdfast.ports.records.history import HistoryRow


def row(type: str, data: str | None) -> HistoryRow:
    return HistoryRow(run="r", number=3, type=type, at=0, data=data)


@pytest.mark.parametrize("kind", ["step.completed", "step.failed"])
def test_arguments_of_a_step_are_not_shown(kind: str) -> None:
    stored = row(kind, '{"call":"1","given":"[1]","new":true,"step":"pay"}')
    assert events.shown_data(stored) == '{"call":"1","new":true,"step":"pay"}'
    assert events.shown_facts(stored) == {"call": "1", "new": True, "step": "pay"}
    assert events.facts_of(stored)["given"] == "[1]"


@pytest.mark.parametrize("kind", ["step.retrying", "stage.completed", "step.of_a_newer_version"])
def test_rows_of_other_types_are_shown_as_they_are_stored(kind: str) -> None:
    stored = row(kind, '{"given": "[1]", "call": "1"}')
    assert events.shown_data(stored) == stored.data
    assert events.shown_facts(stored) == {"given": "[1]", "call": "1"}


def test_a_row_without_data_has_no_facts() -> None:
    assert events.shown_data(row("step.completed", None)) is None
    assert events.shown_facts(row("step.completed", None)) == {}


@pytest.mark.parametrize("data", ["{", "[]", "1"])
def test_data_that_is_no_object_is_refused(data: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        events.shown_facts(row("run.paused", data))


def test_the_job_of_an_event() -> None:
    assert events.job_of(events.StageCompleted(attempt=1, job=4)) == 4
    assert events.job_of(events.StepCompleted(call="1", step="pay", attempt=1)) is None
    assert events.job_of(events.RunPaused()) is None
