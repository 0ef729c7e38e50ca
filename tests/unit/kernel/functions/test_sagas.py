"""Compensations of a step that failed for good: for all that may have happened, and nothing else."""

from datetime import timedelta

import pytest

from holdfast.kernel.functions.sagas import Compensation, Compensations
from holdfast.ports.errors import GiveUp, HoldfastError, StepFailedError, StepLostError, StepResultError


async def _undo(_: str | None) -> None: ...


@pytest.mark.parametrize(
    ("error", "is_due"),
    [
        (StepLostError("charge", 3), True),
        (StepLostError("charge", 1, timedelta(seconds=5)), True),
        (TimeoutError("the bank does not answer"), True),
        (TimeoutError(), True),
        (StepResultError("what it gave can't be kept"), True),
        (ValueError("card declined"), False),
        (GiveUp("no such card"), False),
        (StepFailedError("shop.CardError", "declined"), False),
        (HoldfastError("something else"), False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_a_step_whose_outcome_is_unknown_stays_due(error: Exception, *, is_due: bool) -> None:
    saga = Compensations()
    due = saga.expect(Compensation("step 'charge'", _undo))
    saga.failed(due, error)
    assert saga.whats == (("step 'charge'",) if is_due else ())
