"""The log line about a blocked run: the same whoever blocked it."""

import pytest

from holdfast.hosts.wiring.run_log import log_blocked
from holdfast.ports.records.run import Run
from holdfast.ports.unreadable import RunOutline
from tests.unit.hosts.inspection.test_why import RUN


@pytest.mark.parametrize(
    "run",
    [RUN, RunOutline("r", "default", "order-7", "orders", "1", "running", 3)],
    ids=["run", "outline"],
)
def test_a_blocked_run_is_one_line_with_the_facts_as_fields(
    run: Run | RunOutline, caplog: pytest.LogCaptureFixture
) -> None:
    log_blocked(run, "nondeterminism", "the code\nhas changed")

    (record,) = caplog.records
    said = (record.name, record.levelname, record.getMessage())
    assert said == ("holdfast.runs", "ERROR", "run order-7 (orders@1) is blocked: the code has changed")
    facts = {name: getattr(record, name) for name in ("run", "workflow", "step", "attempt", "error")}
    assert facts == {
        "run": "order-7",
        "workflow": "orders@1",
        "step": "",
        "attempt": None,
        "error": "nondeterminism: the code\nhas changed",
    }
