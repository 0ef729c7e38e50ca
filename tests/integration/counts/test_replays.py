"""The cost of replays: a wake-up reads the history once, an upgrade check only reads."""

from datetime import timedelta

import anyio
import pytest
from anyio import CapacityLimiter

from holdfast.hosts.execution.bodies import Bodies, Body
from holdfast.hosts.functions.driver import drive
from holdfast.kernel.authoring.functions import sleep, workflow
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.commands import Attempt, EventAppend, FunctionWaiting, JobRecord, Outcome
from holdfast.kernel.history import events
from holdfast.ports.json import canonical
from holdfast.ports.records.values import Payload
from tests.integration.counts.conftest import OpenEngine
from tests.integration.counts.statement_counter import Statements
from tests.integration.counts.test_commands import Worked

BATCH = 500


@step
def one(number: int) -> int:
    raise AssertionError(f"{number} is recorded")


@workflow
async def chain(length: int) -> int:
    total = 0
    for number in range(length):
        total += await one(number)
    await sleep(timedelta(days=30))
    return total


def recorded(worked: Worked, length: int) -> Attempt:
    """Return an attempt at a run with so many recorded steps."""
    worked.create(1, "chain", {"length": length})
    (attempt,) = worked.claim(1)
    for first in range(0, length, BATCH):
        rows = tuple(
            EventAppend(
                event=events.StepCompleted(call=str(number + 1), step="one", attempt=1),
                payload=Payload(inline=canonical(number)),
            )
            for number in range(first, min(first + BATCH, length))
        )
        command = JobRecord(
            namespace=worked.namespace, job=attempt.job, epoch=attempt.epoch, seen=first + 1, records=rows
        )
        assert len(worked.kernel.dispatch(command).rows) == len(rows)
    return attempt


def woken(body: Body) -> Outcome:
    async def wake() -> Outcome:
        return await drive(body, CapacityLimiter(1))

    return anyio.run(wake)


@pytest.mark.parametrize(("length", "pages"), [(5, 1), (900, 1), (2_500, 3)])
def test_a_wake_up_reads_the_history_once_and_writes_nothing(
    open_engine: OpenEngine, statements: Statements, length: int, pages: int
) -> None:
    worked = Worked(open_engine(chain))
    ((body,), _) = Bodies(worked.engine.core).prepare([recorded(worked, length)])
    with statements.of() as within:
        outcome = woken(body)
    assert isinstance(outcome, FunctionWaiting)
    assert outcome.seen == length + 1
    assert within.queries == pages
    assert len(within.texts_with("history")) == 1
    assert (within.commits, within.written) == (0, 0)


def test_a_check_of_open_runs_writes_nothing_and_reads_each_history_once(
    open_engine: OpenEngine, statements: Statements
) -> None:
    worked = Worked(open_engine(chain))
    for _ in range(5):
        recorded(worked, 3)
    sync = worked.engine.sync
    with statements.of() as within:
        found = [upgrade.verdict.value for upgrade in sync.check_upgrade()]
    assert found == ["compatible"] * 5
    assert (within.commits, within.written) == (0, 0)
    histories = [times for sql, times in within.sent.items() if "history" in sql]
    assert sum(histories) == 5
    # Of each run its history and its jobs. Is there a schema, and two lists: the newest and the oldest.
    assert within.queries == 2 * 5 + 3
