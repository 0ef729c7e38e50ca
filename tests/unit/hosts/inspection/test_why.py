"""`why`: each cause that can hold up a run is reported by name."""

from typing import Any

import attrs
import pytest

from holdfast.hosts.inspection.open_calls import OpenCalls, OpenStep
from holdfast.hosts.inspection.why import WaitReason, WhyFacts, reasons
from holdfast.kernel.history import events
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import Job, JobKind, JobState
from holdfast.ports.records.limits import RateWindow
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.records.session import Session, SessionState

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


def reasons_of(*jobs: Job, run: Run = RUN, **facts: Any) -> list[WaitReason]:
    return list(reasons(WhyFacts(run=run, now=NOW, jobs=jobs, **facts)))


def one(*jobs: Job, run: Run = RUN, **facts: Any) -> tuple[str, str]:
    (reason,) = reasons_of(*jobs, run=run, **facts)
    return reason.code, reason.text


def job(**changes: Any) -> Job:
    return attrs.evolve(JOB, **changes)


def run(**changes: Any) -> Run:
    return attrs.evolve(RUN, **changes)


def test_what_is_queued_waits_for_a_worker_with_its_code_and_its_queue() -> None:
    code, text = one(JOB)
    assert code == "queued"
    assert "orders@1" in text
    assert "'gpu'" in text


def test_a_body_that_runs_is_told_with_its_host_since_when_and_which_attempt() -> None:
    held = job(state=JobState.LEASED, session="s", leased_at=NOW - 90 * SECOND, attempts=2, item=4)
    code, text = one(held, holders={"s": HOLDER})
    assert (code, text) == (
        "running",
        "Stage 'bill', item 4, is running on box:7, started 1m 30s ago (at 2025-12-31 23:58:30Z): attempt 2 of 3.",
    )


@pytest.mark.parametrize(
    ("changes", "how"),
    [
        ({"state": SessionState.DEAD}, "but its session has ended."),
        (
            {"expires_at": NOW - 40 * SECOND},
            "but its lease expired 40s ago (at 2025-12-31 23:59:20Z)",
        ),
    ],
    ids=["dead", "late"],
)
def test_a_worker_that_is_gone_is_named_with_when_it_was_last_heard_of(
    changes: dict[str, Any], how: str
) -> None:
    held = job(state=JobState.LEASED, session="s", leased_at=NOW, attempts=1)
    code, text = one(held, holders={"s": attrs.evolve(HOLDER, **changes)})
    assert code == "worker_lost"
    assert how in text


def drive_job(**changes: Any) -> Job:
    return job(kind=JobKind.WORKFLOW, node="pay", **changes)


@pytest.mark.parametrize(
    ("waits", "wake_at", "expected"),
    [
        (OpenCalls(channels=("approval",)), None, "waits for a message in channel 'approval'."),
        (
            OpenCalls(channels=("a", "b"), sites=("pay.py:3 in pay",)),
            NOW + 60 * SECOND,
            "(at pay.py:3 in pay) waits for a message in one of the channels 'a', 'b'; otherwise it continues in 1m",
        ),
        (OpenCalls(children=("pay/1",)), None, "waits for the end of run 'pay/1', which is paused."),
        (
            OpenCalls(children=("1", "2", "3", "4", "5"), channels=("a",)),
            None,
            "waits for a message in channel 'a', and for the end of the runs '1', '2', '3' and 2 more.",
        ),
        (
            OpenCalls(has_timers=True, sites=("pay.py:9 in pay",)),
            NOW + 60 * SECOND,
            "(at pay.py:9 in pay) sleeps: it continues",
        ),
        (
            OpenCalls(sites=("pay.py:9 in pay",)),
            None,
            "(at pay.py:9 in pay) waits for an outside event: a message",
        ),
        (None, NOW + 60 * SECOND, "sleeps or waits for a message with a timeout: it continues in 1m"),
    ],
)
def test_a_parked_function_names_what_it_waits_for_and_where(
    waits: OpenCalls | None, wake_at: int | None, expected: str
) -> None:
    asleep = drive_job(state=JobState.SLEEPING, wake_at=wake_at)
    children = {"pay/1": run(id="pay/1", status=RunStatus.PAUSED)}
    code, text = one(asleep, waits=waits, children=children)
    assert code == "waiting"
    assert f"Function 'pay' {expected}" in text


def test_the_steps_that_a_worker_does_are_named_with_their_tries() -> None:
    held = drive_job(state=JobState.LEASED, session="s", leased_at=NOW - 90 * SECOND)
    charge = OpenStep(
        call="1", step="charge", site="pay.py:3", attempt=2, attempts=5, since=NOW - 30 * SECOND
    )
    later = attrs.evolve(charge, call="2", retry_at=NOW + 1)
    more = [attrs.evolve(charge, call=str(call)) for call in range(3, 7)]
    reasons_ = reasons_of(held, holders={"s": HOLDER}, waits=OpenCalls(steps=(charge, later, *more)))
    assert [reason.code for reason in reasons_] == ["running", *["step_running"] * 4]
    assert reasons_[1].text == ("Step 'charge' (call 1, pay.py:3) started at least 30s ago: attempt 2 of 5.")
    assert reasons_[-1].text == "2 more steps are running."


def test_the_steps_of_a_worker_that_is_gone_were_under_way() -> None:
    held = drive_job(state=JobState.LEASED, session="s", leased_at=NOW - 90 * SECOND)
    charge = OpenStep(call="1", step="charge", site="", attempt=1, attempts=3, since=NOW - 90 * SECOND)
    gone = attrs.evolve(HOLDER, expires_at=NOW - 1)
    _, step = reasons_of(held, holders={"s": gone}, waits=OpenCalls(steps=(charge,)))
    assert step.text == "Step 'charge' (call 1) was running on that worker: attempt 1 of 3."


def test_a_retry_is_told_with_its_time_and_the_last_error() -> None:
    asleep = job(state=JobState.SLEEPING, wake_at=NOW + 30 * SECOND, attempts=1)
    (reason,) = reasons_of(asleep, errors={("bill", None): "ValueError: no"})
    assert reason.code == "retry"
    assert "in 30s" in reason.text
    assert "attempt 2 of 3" in reason.text
    assert "ValueError: no" in reason.text
    assert reason.until is not None


def test_external_work_is_told_by_its_key_and_its_times() -> None:
    check = job(
        kind=JobKind.POLL,
        state=JobState.SLEEPING,
        wake_at=NOW + 60 * SECOND,
        give_up_at=NOW + 3_600 * SECOND,
        waiting_for="batch-9",
    )
    code, text = one(check)
    assert code == "external_work"
    assert all(part in text for part in ("'batch-9'", "in 1m", "gives up in 1h"))


def test_a_child_is_told_by_its_id_and_its_status() -> None:
    waiting = job(kind=JobKind.CHILD, state=JobState.SLEEPING, waiting_for="order-7/bill", attempts=1)
    child = run(id="order-7/bill", status=RunStatus.PAUSED)
    assert one(waiting, children={"order-7/bill": child}) == (
        "child_run",
        "Stage 'bill' waits for the end of run 'order-7/bill', which is paused.",
    )


def test_a_child_that_nobody_can_start_is_told_with_the_code_that_is_missing() -> None:
    """As far as the store knows: the log of the worker that released it has the error."""
    asleep = job(kind=JobKind.CHILD, state=JobState.SLEEPING, wake_at=NOW + 20 * SECOND, epoch=3)
    code, text = one(asleep, starts={"bill": "bills@2"})
    assert code == "no_code"
    assert "claimed 3 times and released: it starts a run of bills@2" in text
    assert "again in 20s" in text
    assert "claimed once" in one(attrs.evolve(asleep, attempts=2), starts={})[1]

    failed = attrs.evolve(asleep, attempts=1)
    assert one(failed, errors={("bill", None): "ValueError: no"})[0] == "retry"
    assert one(attrs.evolve(asleep, attempts=3))[0] == "retry"
    assert one(attrs.evolve(asleep, kind=JobKind.STAGE))[0] == "retry"


def test_a_limited_stage_is_told_with_its_limit() -> None:
    code, text = one(job(state=JobState.LIMITED, concurrency_key="k", concurrency_limit=2))
    assert (code, "fewer than 2" in text) == ("concurrency_limit", True)


def test_a_rate_limit_is_told_with_the_next_turn() -> None:
    rated = {"concurrency_key": "k", "rate_limit": 60, "rate_period": 60 * SECOND}
    window = RateWindow(namespace="default", name="k", wakes_at=NOW + 5 * SECOND, updated_at=NOW)
    waits = job(state=JobState.LIMITED, **rated)
    code, text = one(waits, rates={"k": window})
    assert (code, "the rate limit of 60 per 1m: the next attempt may start in 5.0s" in text) == (
        "rate_limit",
        True,
    )
    assert "the next attempt may start soon" in one(waits)[1]
    assert "fewer than 3" in one(job(state=JobState.LIMITED, concurrency_limit=3, **rated))[1]

    (asleep,) = reasons_of(
        job(state=JobState.SLEEPING, wake_at=window.wakes_at, **rated), rates={"k": window}
    )
    assert asleep.code == "rate_limit"
    assert (
        "waits for the rate limit of 60 per 1m: it may start in 5.0s (at 2026-01-01 00:00:05Z)" in asleep.text
    )
    assert asleep.until is not None
    tried = job(state=JobState.SLEEPING, wake_at=NOW + SECOND, **rated)
    assert one(tried, rates={"k": window})[0] == "retry"


def function(**changes: Any) -> Job:
    return job(kind=JobKind.WORKFLOW, max_attempts=10, **changes)


def test_a_function_is_told_as_one() -> None:
    held = function(state=JobState.LEASED, session="s", leased_at=NOW - SECOND)
    assert one(held, holders={"s": HOLDER}) == (
        "running",
        "Function 'bill' is running on box:7, started 1.0s ago (at 2025-12-31 23:59:59Z).",
    )
    asleep = function(state=JobState.SLEEPING, wake_at=NOW + SECOND)
    assert one(asleep)[0] == "waiting"
    code, text = one(asleep, retries={NOW + SECOND: "step 'pay' (attempt 1 failed: E: busy)"})
    assert (code, text) == (
        "retry",
        "Function 'bill' retries step 'pay' (attempt 1 failed: E: busy) in 1.0s (at 2026-01-01 00:00:01Z).",
    )
    assert "an outside event" in one(function(state=JobState.SLEEPING))[1]


def test_a_blocked_run_is_told_with_the_reason() -> None:
    row = HistoryRow(
        run="r",
        number=3,
        type="run.blocked",
        at=NOW - SECOND,
        data='{"code":"history_full","message":"two sides"}',
    )
    whole, held = reasons_of(function(state=JobState.PAUSED), run=run(status=RunStatus.BLOCKED), blocked=row)
    assert (whole.code, held.code) == ("blocked", "paused")
    assert "two sides" in whole.text
    assert "holdfast run resume" in whole.text


def test_a_paused_run_is_told_with_who_can_let_it_go_on() -> None:
    paused = HistoryRow(
        run="r", number=3, type="run.paused", at=NOW - SECOND, data='{"reason":"stocktaking"}'
    )
    whole, held = reasons_of(job(state=JobState.PAUSED), run=run(status=RunStatus.PAUSED), paused=paused)
    assert (whole.code, held.code) == ("paused", "paused")
    assert "'stocktaking'" in whole.text
    assert "holdfast run resume" in whole.text


def test_pending_runs_are_told_what_they_wait_for() -> None:
    start = one(run=run(status=RunStatus.PENDING, start_at=NOW + 60 * SECOND))
    slot = one(run=run(status=RunStatus.PENDING, concurrency_key="customer-1", concurrency_limit=1))
    assert (start[0], "in 1m" in start[1]) == ("delayed_start", True)
    assert (slot[0], "'customer-1'" in slot[1]) == ("concurrency_key", True)


def test_many_items_are_told_of_together() -> None:
    jobs = [job(number=number, item=number) for number in range(500)]
    found = reasons_of(*jobs, totals={"bill": (1_000, 400, 2)})
    assert len(found) == 5
    assert found[0].text == "In stage 'bill', 400 of 1,000 items are done, and 2 failed."
    assert found[-1].text == "The same applies to 497 more items of stage 'bill'."


def test_ends_are_told_with_their_cause() -> None:
    error = '{"code":"body_error","message":"no","type":"ValueError","attempt":3,"job":1,"stage":"bill"}'
    ended = {"ended_at": NOW - 5 * SECOND}
    gave = run(status=RunStatus.COMPLETED, result="2", **ended)
    assert one(run=gave)[1].startswith("It completed 5.0s ago")
    assert "as generation 2" in one(run=run(status=RunStatus.COMPLETED, **ended))[1]
    assert (
        "stage 'bill', attempt 3: ValueError: no"
        in one(run=run(status=RunStatus.FAILED, error=error, **ended))[1]
    )
    cancelled = run(status=RunStatus.CANCELLED, error='{"code":"cancelled","message":"enough"}', **ended)
    assert "enough" in one(run=cancelled)[1]


def test_deadlines_debts_and_missing_code_are_told_beside() -> None:
    owed = job(kind=JobKind.DELIVER, state=JobState.PENDING_DELIVERY, node="", input="null")
    codes = [reason.code for reason in reasons_of(JOB, owed, run=run(deadline=NOW + SECOND), has_code=False)]
    assert codes == ["deadline", "queued", "delivering", "no_code"]


def test_a_run_without_a_job_is_told_of() -> None:
    code, text = one()
    assert code == "no_job"
    assert "`holdfast doctor`" in text


CANCEL = job(kind=JobKind.CANCEL, waiting_for="batch-9", max_attempts=10)
CANCELLED = run(status=RunStatus.CANCELLED, ended_at=NOW)


def _left(number: int, item: int | None = None) -> HistoryRow:
    failed = events.StageCancelFailed(
        code="body_error",
        message="the service is down",
        error_type="OSError",
        attempt=10,
        job=1,
        key="batch-9",
    )
    return HistoryRow(
        run="r", number=number, type=failed.type, at=NOW, node="bill", item=item, data=failed.data
    )


def test_external_work_that_an_ended_run_has_left_is_told_after_the_end() -> None:
    ended, waits = reasons_of(CANCEL, run=CANCELLED)
    assert ended.code == "ended"
    assert (waits.code, waits.stage) == ("external_cancel", "bill")
    assert waits.text == (
        "The cancellation of external work 'batch-9' of stage 'bill' waits for a worker that has the code of orders@1"
        " and serves the queue 'gpu'."
    )


def test_what_is_tried_again_to_cancel_is_told_with_when() -> None:
    asleep = attrs.evolve(CANCEL, state=JobState.SLEEPING, wake_at=NOW + 60 * SECOND, attempts=2, item=4)
    _, waits = reasons_of(asleep, run=CANCELLED)
    assert waits.until is not None
    assert waits.text.startswith(
        "The cancellation of external work 'batch-9' of stage 'bill', item 4, is retried in"
    )
    assert waits.text.endswith(": attempt 3 of 10.")


def test_many_that_are_cancelled_are_told_in_few_lines() -> None:
    cancels = [attrs.evolve(CANCEL, number=number, item=number) for number in range(9)]
    reasons_ = reasons_of(*cancels, run=CANCELLED)
    assert [reason.code for reason in reasons_] == ["ended", *["external_cancel"] * 4]
    assert "6 more items of stage 'bill'" in reasons_[-1].text


def test_who_lacks_the_code_of_what_cancels_is_told_so() -> None:
    codes = [reason.code for reason in reasons_of(CANCEL, run=CANCELLED, has_code=False)]
    assert codes == ["ended", "external_cancel", "no_code"]
    assert [reason.code for reason in reasons_of(run=CANCELLED, has_code=False)] == ["ended"]


def test_what_a_map_has_left_is_told_beside_what_its_run_waits_for() -> None:
    codes = [reason.code for reason in reasons_of(CANCEL, job(number=2, node="ship"))]
    assert codes == ["queued", "external_cancel"]


def test_work_that_could_not_be_cancelled_is_told_for_ever() -> None:
    _, left = reasons_of(run=CANCELLED, left=[_left(5)])
    assert (left.code, left.stage) == ("cleanup_failed", "bill")
    assert left.text == (
        "The external work 'batch-9' of stage 'bill' could not be cancelled and may still be running:"
        " the service is down."
    )


def test_much_that_could_not_be_cancelled_is_told_in_few_lines() -> None:
    _, *left = reasons_of(run=CANCELLED, left=[_left(number, number) for number in range(5)])
    assert len(left) == 4
    assert "2 more" in left[-1].text
