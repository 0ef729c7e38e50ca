"""Transactional steps with a fault at every point: their writes happen once."""

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from random import Random
from typing import Final

import pytest
from typing_extensions import override

from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.step_context import step_context
from holdfast.kernel.authoring.steps import step
from holdfast.ports.json import parse
from holdfast.ports.records.run import RunStatus
from holdfast.testing import Effects
from holdfast.testing.simulation.faults import FaultKind, Faults, FaultSchedule, FiredFault
from holdfast.testing.simulation.fibers import START, spend_time
from holdfast.testing.simulation.user_transactions import SimulatedConnection
from holdfast.testing.trials import RUN_ID, SimulatedCluster, SimulationInput, Trial
from tests.sizes import sized

KINDS: Final = (
    FaultKind.CRASH,
    FaultKind.LOST_ANSWER,
    FaultKind.FAILS_BEFORE,
    FaultKind.PAUSE,
    FaultKind.SLOW,
)
EVERY: Final = 1 if os.environ.get("HOLDFAST_CHAOS") == "full" else sized(7, 3)
"""Of the points at which something may go wrong, the full form, as in `make chaos`, tries all."""
BOOKED: Final[Counter[str]] = Counter()
TRIES: Final[list[int]] = []


class FaultAt(Faults):
    """Has one kind of fault at one of the points where it can be, while there is a body, and nothing else."""

    def __init__(self, kind: FaultKind, at: int) -> None:
        super().__init__({}, FaultSchedule(), START)
        self.met = 0
        self._kind = kind
        self._at = at

    @override
    def next(
        self, process: str, point: int, random: Random, among: Sequence[FaultKind], now: int
    ) -> FaultKind | None:
        random.random()
        counts = self._kind in among and bool(TRIES) and len(BOOKED) < 2
        self.met += counts
        if not counts or self.met != self._at:
            return None
        self.fired.append(FiredFault(process, point, self._kind))
        return self._kind


@step(retry=Retry(attempts=10, wait=timedelta(seconds=0.1)), timeout=timedelta(seconds=0.6)).in_transaction
def book(rows: SimulatedConnection, number: int) -> int:
    context = step_context()
    TRIES.append(context.attempt)
    rows.write(lambda: BOOKED.update([context.idempotency_key.partition("/")[2]]))
    spend_time(3.0 if context.attempt == number else 0.2)  # the first try of the first call takes too long
    return number + 1


@step(retry=Retry(attempts=10, wait=timedelta(seconds=0.1)))
async def linger(number: int) -> int:
    await asyncio.sleep(5.0)
    return number


@workflow
async def journey(number: int) -> int:
    booked = await book(await book(number))
    return await linger(
        booked
    )  # what comes late finds the function still driven, and its attempt still the same


def played(faults: Faults) -> Trial:
    BOOKED.clear()
    TRIES.clear()
    subject = SimulationInput(calls=[journey(1)], meanwhile={}, stubs=lambda _: None, effects=Effects())
    return SimulatedCluster(1, subject, faults, lease=1.0, bound=3_600.0).run()


def tries_of_bookings(trial: Trial) -> list[tuple[str, int, str]]:
    """The calls, the numbers and the types of all rows that tell of the steps in transactions, in order."""
    told = ((row.type, parse(row.data or "{}")) for row in trial.rows[RUN_ID])
    return [
        (facts["call"], facts["attempt"], type_)
        for type_, facts in told
        if type_.startswith("step.") and facts.get("step") == "book" and type_ != "step.started"
    ]


@pytest.mark.slow
@pytest.mark.sized
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_step_writes_happens_once_whatever_goes_wrong_where(
    kind: FaultKind, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "holdfast")
    none = FaultAt(kind, 0)
    assert played(none).started[0].status is RunStatus.COMPLETED
    assert BOOKED == {"journey/1": 1, "journey/2": 1}
    assert none.met >= 5
    for at in range(1, none.met + 1, EVERY if kind is not FaultKind.LOST_ANSWER else 1):
        trial = played(FaultAt(kind, at))
        tries = tries_of_bookings(trial)
        assert trial.started[0].status is RunStatus.COMPLETED, (at, trial.lines)
        assert not trial.broken, (at, trial.broken)
        # Each try is told of once, in order, and nothing of a call after it was committed.
        for call in ("1", "2"):
            told = [type_ for of, _, type_ in tries if of == call]
            numbers = [number for of, number, _ in tries if of == call]
            assert told == ["step.retrying"] * (len(told) - 1) + ["step.completed"], (at, call, trial.lines)
            assert numbers == list(range(1, len(numbers) + 1)), (at, call, trial.lines)
        assert BOOKED == {"journey/1": 1, "journey/2": 1}, (at, trial.lines)
