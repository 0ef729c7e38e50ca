"""Why a run is where it is: each thing that can hold it up is said, in words that name it."""

from typing import Any

import attrs
import pytest

from holdfast.hosts.why import Circumstances, Reason, reasons
from holdfast.ports.records import (
    HistoryRow,
    Job,
    JobKind,
    JobState,
    Run,
    RunStatus,
    Session,
    SessionState,
)

SECOND = 1_000_000
NOW = 1_767_225_600 * SECOND
RUN = Run(
    key="r",
    namespace="default",
    id="order-7",
    generation=1,
    workflow="orders",
    version="1",
    plan="p",
    status=RunStatus.RUNNING,
    queue="default",
    priority=0,
    created_at=NOW,
    updated_at=NOW,
)
JOB = Job(
    run="r",
    number=1,
    namespace="default",
    queue="gpu",
    definition="orders@1",
    kind=JobKind.STAGE,
    node="bill",
    max_attempts=3,
)
HOLDER = Session(id="s", host="box:7", state=SessionState.OPEN, opened_at=NOW, expires_at=NOW + 60 * SECOND)


def told(*jobs: Job, run: Run = RUN, **facts: Any) -> list[Reason]:
    return list(reasons(Circumstances(run=run, now=NOW, jobs=jobs, **facts)))


def one(*jobs: Job, run: Run = RUN, **facts: Any) -> tuple[str, str]:
    (reason,) = told(*jobs, run=run, **facts)
    return reason.code, reason.text


def job(**changes: Any) -> Job:
    return attrs.evolve(JOB, **changes)


def run(**changes: Any) -> Run:
    return attrs.evolve(RUN, **changes)


def test_what_is_queued_waits_for_a_worker_with_its_code_and_its_queue() -> None:
    code, text = one(JOB)
    assert code == "worker"
    assert "orders@1" in text
    assert "'gpu'" in text


def test_a_body_that_runs_is_told_with_its_host_since_when_and_which_attempt() -> None:
    held = job(state=JobState.LEASED, session="s", leased_at=NOW - 90 * SECOND, attempts=2, item=4)
    code, text = one(held, holders={"s": HOLDER})
    assert (code, text) == (
        "body",
        "Stage 'bill', item 4, runs on box:7, since 0:01:30 ago (at 2025-12-31 23:58:30Z): attempt 2 of 3.",
    )


@pytest.mark.parametrize(
    "changes", [{"state": SessionState.DEAD}, {"expires_at": NOW - 1}], ids=["dead", "late"]
)
def test_a_holder_that_is_gone_is_told(changes: dict[str, Any]) -> None:
    held = job(state=JobState.LEASED, session="s", leased_at=NOW, attempts=1)
    code, text = one(held, holders={"s": attrs.evolve(HOLDER, **changes)})
    assert code == "lost"
    assert "not heard of" in text


def test_a_retry_is_told_with_its_time_and_the_last_error() -> None:
    asleep = job(state=JobState.SLEEPING, wake_at=NOW + 30 * SECOND, attempts=1)
    (reason,) = told(asleep, errors={("bill", None): "ValueError: no"})
    assert reason.code == "retry"
    assert "in 0:00:30" in reason.text
    assert "attempt 2 of 3" in reason.text
    assert "ValueError: no" in reason.text
    assert reason.until is not None


def test_external_work_is_told_by_its_key_and_its_times() -> None:
    check = job(
        kind=JobKind.CHECK,
        state=JobState.SLEEPING,
        wake_at=NOW + 60 * SECOND,
        give_up_at=NOW + 3_600 * SECOND,
        waits_for="batch-9",
    )
    code, text = one(check)
    assert code == "check"
    assert all(part in text for part in ("'batch-9'", "in 0:01:00", "gives up in 1:00:00"))


def test_a_child_is_told_by_its_id_and_its_status() -> None:
    waiting = job(kind=JobKind.CHILD, state=JobState.SLEEPING, waits_for="order-7/bill", attempts=1)
    child = run(id="order-7/bill", status=RunStatus.PAUSED)
    assert one(waiting, children={"order-7/bill": child}) == (
        "child",
        "Stage 'bill' waits for the end of run 'order-7/bill', which is paused.",
    )


def test_a_child_that_nobody_can_start_is_told_with_the_code_that_is_missing() -> None:
    """As far as the store knows: what was refused is in the log of the worker that gave it back."""
    asleep = job(kind=JobKind.CHILD, state=JobState.SLEEPING, wake_at=NOW + 20 * SECOND, epoch=3)
    code, text = one(asleep, starts={"bill": "bills@2"})
    assert code == "code"
    assert "taken 3 times and given back: it starts a run of bills@2" in text
    assert "again in 0:00:20" in text
    assert "taken once" in one(attrs.evolve(asleep, attempts=2), starts={})[1]

    failed = attrs.evolve(asleep, attempts=1)
    assert one(failed, errors={("bill", None): "ValueError: no"})[0] == "retry"
    assert one(attrs.evolve(asleep, attempts=3))[0] == "retry"
    assert one(attrs.evolve(asleep, kind=JobKind.STAGE))[0] == "retry"


def test_a_limited_stage_is_told_with_its_limit() -> None:
    code, text = one(job(state=JobState.LIMITED, concurrency_key="k", concurrency_limit=2))
    assert (code, "fewer than 2" in text) == ("limit", True)


def test_a_paused_run_is_told_with_who_can_let_it_go_on() -> None:
    paused = HistoryRow(
        run="r", number=3, type="run.paused", at=NOW - SECOND, data='{"reason":"stocktaking"}'
    )
    whole, held = told(job(state=JobState.HELD), run=run(status=RunStatus.PAUSED), paused=paused)
    assert (whole.code, held.code) == ("paused", "paused")
    assert "'stocktaking'" in whole.text
    assert "holdfast run resume" in whole.text


def test_pending_runs_are_told_what_they_wait_for() -> None:
    start = one(run=run(status=RunStatus.PENDING, start_at=NOW + 60 * SECOND))
    slot = one(run=run(status=RunStatus.PENDING, concurrency_key="customer-1", concurrency_limit=1))
    assert (start[0], "in 0:01:00" in start[1]) == ("start", True)
    assert (slot[0], "'customer-1'" in slot[1]) == ("slot", True)


def test_many_items_are_told_of_together() -> None:
    jobs = [job(number=number, item=number) for number in range(500)]
    found = told(*jobs, totals={"bill": (1_000, 400, 2)})
    assert len(found) == 5
    assert found[0].text == "Of stage 'bill' 400 of 1,000 items are done, and 2 failed."
    assert found[-1].text == "The same is true of 497 more items of stage 'bill'."


def test_ends_are_told_with_their_cause() -> None:
    error = '{"code":"body_error","message":"no","type":"ValueError","attempt":3,"job":1,"stage":"bill"}'
    ended = {"ended_at": NOW - 5 * SECOND}
    assert one(run=run(status=RunStatus.COMPLETED, **ended))[1].startswith("It completed 0:00:05 ago")
    assert (
        "stage 'bill', attempt 3: ValueError: no"
        in one(run=run(status=RunStatus.FAILED, error=error, **ended))[1]
    )
    cancelled = run(status=RunStatus.CANCELLED, error='{"code":"cancelled","message":"enough"}', **ended)
    assert "enough" in one(run=cancelled)[1]


def test_deadlines_debts_and_missing_code_are_told_beside() -> None:
    owed = job(kind=JobKind.DELIVER, state=JobState.OWED, node="", input="null")
    codes = [reason.code for reason in told(JOB, owed, run=run(deadline=NOW + SECOND), has_code=False)]
    assert codes == ["deadline", "worker", "told", "code"]


def test_a_run_without_a_job_is_told_of() -> None:
    code, text = one()
    assert code == "no_job"
    assert "`holdfast doctor`" in text
