"""Rows whose data is parsed in one go say the same as the events of the rows."""

from collections.abc import Mapping

import pytest

from holdfast.kernel.history import events
from holdfast.kernel.history.events.parsed_rows import completed_step, parse_rows
from holdfast.ports.errors import UnreadableRowError
from holdfast.ports.json import canonical
from holdfast.ports.records.history import HistoryRow

ERROR = events.RecordedError(type="ValueError", message="no", code="body_error")


def row_of(event: events.HistoryEvent, number: int = 1) -> HistoryRow:
    return HistoryRow(run="r", number=number, type=event.type, at=0, data=event.data)


@pytest.mark.parametrize(
    ("event", "is_requested"),
    [
        (events.StepCompleted(call="1", step="add", attempt=1), True),
        (events.StepCompleted(call="1", step="add", attempt=1, job=2), False),
        (events.StepStarted(call="1", step="add", attempt=1), True),
        (events.StepRetrying(call="1", step="add", attempt=1, error=ERROR), True),
        (events.StepRetrying(call="1", step="add", attempt=1, error=ERROR, job=2), False),
        (events.StepFailed(call="1", step="add", attempt=1, error=ERROR), True),
        (events.StepFailed(call="1", step="add", attempt=1, error=ERROR, job=2), False),
        (events.ChildFailed(call="1", run="c", code="run_exists", message="taken"), True),
        (events.ChildFailed(run="c", code="child_failed", message="no"), False),
        (events.ValuePublished(name="progress", number=1), True),
        (events.ValuePublished(name="progress", number=0), False),
        (events.TimerFired(call="1"), True),
        (events.UpdateCompleted(call="update3"), True),
        (events.MessagePublished(call="1", topic="orders", message="a"), True),
        (events.TopicSubscribed(call="1", topic="orders", channel="topic:orders"), True),
        (events.TopicUnsubscribed(call="1", topic="orders", channel="topic:orders"), True),
        (events.SignalReceived(channel="go"), False),
        (events.PatchMarked(call="new"), False),
        (events.RunPaused(), False),
    ],
)
def test_what_the_code_requested_is_known_without_an_event(
    event: events.HistoryEvent, is_requested: bool
) -> None:
    (parsed,) = parse_rows([row_of(event)])
    assert parsed.is_requested == is_requested
    assert parsed.event == parsed.read(type(event)) == event


def test_each_row_has_its_own_data() -> None:
    recorded = [
        events.RunCreated(definition="counts@1"),
        events.RunAdmitted(),
        events.StepCompleted(call="1", step="add", attempt=1, site="w.py:3", given='{"n":1}'),
        events.StepCompleted(call="2", step="add", attempt=1),
    ]
    parsed = parse_rows([row_of(event, number) for number, event in enumerate(recorded, 1)])
    assert [one.event for one in parsed] == recorded
    assert [one.site for one in parsed] == ["", "", "w.py:3", ""]
    assert [completed_step(one) for one in parsed[2:]] == [("1", "add", '{"n":1}'), ("2", "add", None)]


@pytest.mark.parametrize("data", ["{", "{},{}", "", "nul"])
def test_data_that_is_not_json_is_refused_with_its_row(data: str) -> None:
    rows = [row_of(events.RunPaused(reason="why"), number) for number in (1, 2)]
    damaged = HistoryRow(run="r", number=3, type="run.resumed", at=0, data=data)
    if data:
        with pytest.raises(UnreadableRowError, match="row 3 has no valid data"):
            parse_rows([*rows, damaged])
    else:
        assert parse_rows([*rows, damaged])[2].event == events.RunResumed()


@pytest.mark.parametrize("facts", [{"call": "1"}, {"call": "1", "step": "add", "attempt": "one"}])
def test_damaged_data_is_refused_when_the_event_is_needed(facts: Mapping[str, object]) -> None:
    row = HistoryRow(run="r", number=7, type="step.failed", at=0, data=canonical(facts))
    (parsed,) = parse_rows([row])
    assert parsed.is_requested
    with pytest.raises(UnreadableRowError, match=r"row 7 is not a valid step\.failed"):
        _ = parsed.event
