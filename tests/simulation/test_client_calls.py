"""Violations of the rules for updates are found."""

import pytest

from holdfast.kernel.history import events
from holdfast.ports.json import canonical
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.values import Payload
from holdfast.ports.working_set import Tables
from holdfast.testing.conformance.builders import a_run
from holdfast.testing.simulation.client_calls import update_violations


def row(number: int, event: events.HistoryEvent, value: object = None) -> HistoryRow:
    payload = None if value is None else Payload(inline=canonical(value))
    return HistoryRow(run="r", number=number, type=event.type, at=number, payload=payload, data=event.data)


ERROR = events.RecordedError(type="ValueError", message="no", code="body_error")
ASKED = row(2, events.UpdateReceived(update="Tallied.add", key="a"))
ALSO = row(3, events.UpdateReceived(update="Tallied.add", key="b"))
AGAIN = row(3, events.UpdateReceived(update="Tallied.add", key="a"))
ONE = row(4, events.UpdateCompleted(call="update2"), 1)
TWO = row(5, events.UpdateCompleted(call="update3"), 2)


def found(*rows: HistoryRow) -> list[str]:
    tables = Tables()
    tables.put(a_run(1, key="r"))
    tables.history["r"] = list(rows)
    return list(update_violations(tables))


def test_what_is_as_it_must_be_is_not_wrong() -> None:
    assert found(ASKED, ALSO, ONE, TWO) == []
    assert found(ASKED, ALSO, ONE) == []


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ((ASKED, AGAIN), "update a is stored 2 times"),
        ((ASKED, ONE, row(5, events.UpdateFailed(call="update2", error=ERROR))), "replies are for"),
        ((ASKED, TWO), "replies are for"),
        ((ASKED, ALSO, ONE, row(5, events.UpdateCompleted(call="update3"), 1)), r"replies are \[1, 1\]"),
    ],
)
def test_what_is_wrong_is_found(rows: tuple[HistoryRow, ...], what: str) -> None:
    with pytest.raises(AssertionError, match=what):
        assert not found(*rows), found(*rows)
