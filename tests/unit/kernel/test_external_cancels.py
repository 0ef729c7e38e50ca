"""External work that no run waits for any more is cancelled, with bounded attempts."""

from collections.abc import Callable

import attrs
import pytest

from holdfast.kernel.commands import (
    Attempt,
    Cancelled,
    Completed,
    JobClaim,
    JobsClaimed,
    LeaseReapStale,
    Outcome,
    PollNotReady,
    RunCancel,
    RunCreate,
    RunExpire,
    RunPause,
    RunRemove,
    RunRepair,
    RunResume,
    RunTerminate,
    SessionReap,
    StageSuspended,
    StageWake,
)
from holdfast.kernel.pipelines.plan import Enough, Plan, plan_from_json
from holdfast.ports.changes import Delete, Insert, Update
from holdfast.ports.errors import InvalidCommandError, NothingToWakeError, RemoveRefusedError
from holdfast.ports.json import parse
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import LOSSES_MIN, Job, JobKind, JobState
from holdfast.ports.records.run import TERMINAL, RunStatus
from holdfast.ports.tables import JOBS
from tests.unit.kernel.world import (
    SECOND,
    World,
    each_of,
    external,
    failed,
    field,
    payload,
    pipeline,
    settling,
    stage,
)

PLAN = pipeline(external("e", cancels=3), stage("z"))
BESIDE = pipeline((external("e", cancels=3), stage("z")))
DAY = 24 * 3_600
LONG = 365 * DAY * SECOND


def _suspended(plan: Plan = PLAN, *, give_up_in: float | None = None) -> tuple[World, str]:
    """A run with a suspended stage, and a session."""
    world = World(plan)
    world.create(input="in")
    session = world.open(lease=LONG)
    for attempt in world.claim(session):
        if attempt.node == "e":
            world.suspend(attempt, {"id": attempt.item}, give_up_in=give_up_in, key="key")
        else:
            world.release(attempt)
    return world, session


def _left(plan: Plan = PLAN) -> tuple[World, str, Attempt]:
    """A cancelled run with pending external work, a session, and the first attempt to cancel it."""
    world, session = _suspended(plan)
    world.do(RunCancel(run_id="x"))
    return world, session, world.claim_one(session)


def _check(world: World, session: str) -> Attempt:
    world.wait(DAY)
    world.wake_due()
    (check,) = [one for one in world.claim(session) if one.kind is JobKind.POLL]
    return check


def _paid(world: World) -> list[HistoryRow]:
    return [row for row in world.history() if row.type in ("stage.cancelled", "stage.cancel_failed")]


def _job(world: World) -> Job:
    (job,) = world.jobs()
    return job


# What leaves work -------------------------------------------------------------------------------------------------

ENDS: dict[str, Callable[[World], object]] = {
    "cancel": lambda world: world.do(RunCancel(run_id="x")),
    "terminate": lambda world: world.do(RunTerminate(run_id="x")),
    "rerun": lambda world: world.rerun(),
    "replaced": lambda world: world.do(
        RunCreate(workflow="w", id="x", input=payload(1), if_active="terminate")
    ),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=list(ENDS))
def test_work_is_cancelled_whatever_ends_its_run(end: Callable[[World], object]) -> None:
    world, session = _suspended()
    former = world.run().key
    end(world)
    (attempt,) = [one for one in world.claim(session) if one.run == former]

    assert (attempt.kind, attempt.node, attempt.attempt, attempt.max_attempts) == (JobKind.CANCEL, "e", 1, 3)
    assert world.value(attempt.run, attempt.input) == {"id": None}


def test_work_is_cancelled_when_the_deadline_of_its_run_has_passed() -> None:
    world = World(PLAN)
    world.do(RunCreate(workflow="w", id="x", input=payload(1), deadline=60 * SECOND))
    session = world.open(lease=LONG)
    world.suspend(world.claim_one(session), after=DAY)
    world.wait(61)
    world.do(RunExpire())

    assert world.run().status is RunStatus.FAILED
    assert world.claim_one(session).kind is JobKind.CANCEL


def test_work_is_cancelled_when_a_stage_beside_it_fails() -> None:
    world, session = _suspended(BESIDE)
    world.fail(world.claim_one(session), retryable=False)

    assert world.run().status is RunStatus.FAILED
    assert world.claim_one(session).kind is JobKind.CANCEL


def test_work_that_was_not_done_in_time_is_cancelled() -> None:
    world, session = _suspended(give_up_in=60)
    world.settle(_check(world, session), PollNotReady())

    assert world.run().status is RunStatus.FAILED
    assert world.claim_one(session).kind is JobKind.CANCEL


def test_work_whose_check_kills_all_its_workers_is_cancelled() -> None:
    world, _ = _suspended()
    for _ in range(LOSSES_MIN):
        _check(world, world.open())
        world.lose()

    assert world.run().status is RunStatus.FAILED
    assert world.claim_one(world.open()).kind is JobKind.CANCEL


@pytest.mark.parametrize(
    "code", ["timeout", "invalid_value", "blob_missing", "storage_refused", "unstorable_value"]
)
def test_work_is_cancelled_of_which_a_check_that_ends_its_stage_has_learned_nothing(code: str) -> None:
    world, session = _suspended()
    world.fail(_check(world, session), retryable=False, code=code)

    assert world.claim_one(session).kind is JobKind.CANCEL


def test_a_check_that_is_under_way_when_its_run_ends_writes_nothing_more() -> None:
    world, session = _suspended()
    check = _check(world, session)
    world.do(RunCancel(run_id="x"))
    cancel = world.claim_one(session)

    assert (cancel.job, cancel.epoch) == (check.job, check.epoch + 1)
    with world.unchanged():
        assert world.complete(check).status == "fenced"
        assert world.release(check).status == "fenced"


def test_work_is_cancelled_that_is_handed_on_in_the_batch_that_ends_its_run() -> None:
    world = World(PLAN)
    world.create()
    session = world.open(lease=LONG)
    handed_on = settling(world.claim_one(session), _suspension())
    world.send(handed_on, RunCancel(run_id="x"))

    assert world.claim_one(session).kind is JobKind.CANCEL


def test_what_is_claimed_in_the_batch_that_ends_its_run_is_what_cancels() -> None:
    world, session = _suspended()
    world.do(StageWake(key="key"))
    claim = JobClaim(session=session, queue_claims=world.lanes(), limit=10)
    _, claimed = world.send(RunCancel(run_id="x"), claim)

    assert isinstance(claimed, JobsClaimed)
    assert [attempt.kind for attempt in claimed.attempts] == [JobKind.CANCEL]


def _suspension() -> Outcome:
    return StageSuspended(state=payload(1), check_after=SECOND, key="k")


# What does not ----------------------------------------------------------------------------------------------------


def test_work_that_is_done_is_not_cancelled() -> None:
    world, session = _suspended()
    world.complete(_check(world, session))
    world.do(RunCancel(run_id="x"))

    assert (world.jobs(), _paid(world)) == ([], [])


def test_work_of_which_its_check_says_that_it_failed_is_not_cancelled() -> None:
    world, session = _suspended(pipeline((external("e", cancels=3), external("f", cancels=3))))
    (f,) = world.claim(session)
    world.suspend(f, key="other")
    world.wait(DAY)
    world.wake_due()
    checks = {check.node: check for check in world.claim(session)}
    world.fail(checks["e"], retryable=False, code="give_up")

    assert [(attempt.kind, attempt.node) for attempt in world.claim(session)] == [(JobKind.CANCEL, "f")]


def test_a_body_that_has_handed_nothing_on_leaves_nothing() -> None:
    world = World(PLAN)
    world.create()
    body = world.claim_one(world.open())
    world.do(RunCancel(run_id="x"))

    assert world.jobs() == []
    with world.unchanged():
        assert world.suspend(body).status == "fenced"


def test_without_what_cancels_it_nothing_is_cancelled() -> None:
    world, _ = _suspended(pipeline(external("e")))
    world.do(RunCancel(run_id="x"))

    assert world.jobs() == []


# Maps -------------------------------------------------------------------------------------------------------------


def _map(enough: Enough | None, items: int = 4) -> tuple[World, str]:
    """A map whose items are all suspended."""
    world = World(pipeline(each_of(external("e", cancels=3), enough=enough), stage("z")))
    world.create()
    session = world.open(lease=LONG)
    world.expand(world.claim_one(session), range(items))
    for attempt in world.claim(session):
        world.suspend(attempt, attempt.item, key=f"key-{attempt.item}")
    return world, session


def _checks(world: World, session: str) -> list[Attempt]:
    world.wait(DAY)
    world.wake_due()
    return sorted(world.claim(session), key=lambda attempt: attempt.item or 0)


def test_work_of_items_is_cancelled_that_a_map_is_done_without() -> None:
    world, session = _map(Enough(at_least=2))
    checks = _checks(world, session)
    world.complete(checks[0])
    world.complete(checks[2])
    attempts = world.claim(session)
    cancels = [attempt for attempt in attempts if attempt.kind is JobKind.CANCEL]

    assert [(one.item, world.value(one.run, one.input)) for one in cancels] == [(1, 1), (3, 3)]
    assert (world.run().status, world.run().open_jobs) == (RunStatus.RUNNING, 1)
    assert [one.node for one in attempts if one not in cancels] == ["z"]


def test_work_of_an_item_that_is_tolerated_to_fail_is_cancelled_if_it_goes_on() -> None:
    world, session = _map(Enough(tolerated=2), items=2)
    first, second = _checks(world, session)
    world.fail(first, retryable=False, code="timeout")
    world.fail(second, retryable=False, code="give_up")

    attempts = {(one.kind, one.node, one.item) for one in world.claim(session)}
    assert attempts == {(JobKind.CANCEL, "e", 0), (JobKind.STAGE, "z", None)}


def test_what_a_map_has_left_is_cancelled_also_if_its_run_ends_before() -> None:
    world, session = _map(Enough(at_least=2))
    checks = _checks(world, session)
    world.complete(checks[0])
    world.complete(checks[1])
    world.do(RunCancel(run_id="x"))

    cancels = world.claim(session)
    assert [(one.kind, one.item) for one in cancels] == [(JobKind.CANCEL, 2), (JobKind.CANCEL, 3)]
    for attempt in cancels:
        world.settle(attempt, Cancelled())
    assert [row.item for row in _paid(world)] == [2, 3]


def test_what_is_cancelled_in_the_batch_that_ends_its_run_stays_so() -> None:
    world, session = _map(Enough(at_least=2))
    checks = _checks(world, session)
    world.complete(checks[0])
    world.complete(checks[1])
    cancels = [attempt for attempt in world.claim(session) if attempt.kind is JobKind.CANCEL]
    world.send(settling(cancels[0], Cancelled()), RunCancel(run_id="x"))

    assert [job.item for job in world.jobs()] == [cancels[1].item]


def test_what_a_paused_run_has_left_is_cancelled_meanwhile() -> None:
    world, session = _map(Enough(at_least=2))
    checks = _checks(world, session)
    world.complete(checks[0])
    world.do(RunPause(run_id="x"))
    world.complete(checks[1])
    cancels = world.claim(session)
    assert [attempt.kind for attempt in cancels] == [JobKind.CANCEL, JobKind.CANCEL]

    world.fail(cancels[0])
    world.release(cancels[1])
    assert {job.state for job in world.jobs() if job.outlives_run} == {JobState.QUEUED}
    again = world.claim(session)
    world.do(RunResume(run_id="x"))
    assert {world.settle(one, Cancelled()).status for one in again} == {"settled"}


# How it ends ------------------------------------------------------------------------------------------------------


def test_what_was_cancelled_is_a_row_after_the_end_which_changes_nothing_of_it() -> None:
    world, _, attempt = _left()
    before = world.run()
    world.wait(5)
    settled = world.settle(attempt, Cancelled())

    after = world.run()
    assert (settled.status, settled.run_status, settled.retry_at) == ("settled", RunStatus.CANCELLED, None)
    assert attrs.evolve(after, last_row=before.last_row, updated_at=before.updated_at) == before
    (row,) = _paid(world)
    assert row is world.history()[-1]
    assert (row.type, row.node, row.item, row.epoch) == ("stage.cancelled", "e", None, attempt.epoch)
    assert parse(row.data or "") == {"attempt": 1, "job": 2, "key": "key"}
    assert world.jobs() == []


def test_what_could_not_be_cancelled_is_tried_again_of_which_only_its_job_tells() -> None:
    world, session, attempt = _left(pipeline(external("e", cancels=3, wait_us=10 * SECOND)))
    before, rows = world.run(), world.history()
    settled = world.fail(attempt)

    assert settled.retry_at == world.now + 10 * SECOND
    assert (world.run(), world.history()) == (before, rows)
    assert world.claim(session) == ()
    world.wait(10)
    world.wake_due()
    assert world.claim_one(session).attempt == 2


def test_it_is_given_up_when_its_attempts_are_used_up() -> None:
    world, session, attempt = _left()
    for number in (1, 2):
        assert world.fail(attempt).retry_at == world.now, number
        attempt = world.claim_one(session)
    settled = world.fail(attempt)

    assert (settled.run_status, settled.retry_at) == (RunStatus.CANCELLED, None)
    (row,) = _paid(world)
    facts = parse(row.data or "")
    assert (row.type, facts["code"], facts["attempt"]) == ("stage.cancel_failed", "oops", 3)
    assert (facts["message"], facts["key"]) == ("it broke", "key")
    assert world.jobs() == []


def test_it_is_given_up_at_once_if_it_says_so() -> None:
    world, _, attempt = _left()
    world.fail(attempt, retryable=False)

    assert [row.type for row in _paid(world)] == ["stage.cancel_failed"]


def test_lost_workers_are_counted_and_the_last_one_is_told() -> None:
    world, _ = _suspended()
    world.do(RunCancel(run_id="x"))
    ended = world.run()
    for losses in range(1, LOSSES_MIN):
        world.claim_one(world.open())
        reaped = world.lose()
        assert (reaped.freed, reaped.dead, _job(world).lost_attempts) == (1, 0, losses)
        assert world.run() == ended
    world.claim_one(world.open())
    world.lose()

    (row,) = _paid(world)
    assert (row.type, parse(row.data or "")["code"]) == ("stage.cancel_failed", "worker_lost")
    assert world.jobs() == []


def test_a_lost_worker_that_comes_back_writes_nothing() -> None:
    world, session = _suspended()
    world.do(RunCancel(run_id="x"))
    late = world.claim_one(world.open())
    world.lose()
    with world.unchanged():
        assert world.settle(late, Cancelled()).status == "fenced"
        assert world.fail(late).status == "fenced"

    assert world.settle(world.claim_one(session), Cancelled()).status == "settled"
    with world.unchanged():
        assert world.settle(late, Cancelled()).status == "fenced"


def test_reaping_what_cancels_and_what_fails_its_run_together_loses_neither() -> None:
    plan = pipeline((each_of(external("e", cancels=3), enough=Enough(at_least=1)), stage("z", attempts=1)))
    world = World(plan)
    world.create()
    session = world.open(lease=LONG)
    expand, z = sorted(world.claim(session), key=lambda one: one.node)
    world.release(z)
    world.expand(expand, range(2))
    for attempt in world.claim(session):
        if attempt.node == "e":
            world.suspend(attempt, attempt.item)
        else:
            world.release(attempt)
    world.wait(DAY)
    world.wake_due()
    checks = [one for one in world.claim(session) if one.kind is JobKind.POLL]
    world.complete(checks[0])
    beside = next(job for job in world.jobs() if job.node == "z")
    free = attrs.evolve(beside, state=JobState.QUEUED, session=None, leased_at=None, attempts=0)
    world.put(Update(free))
    short = world.open()
    held = world.claim(short)
    assert {one.kind for one in held} == {JobKind.CANCEL, JobKind.STAGE}
    world.wait(3_600)
    world.do(SessionReap(grace=0))
    world.do(LeaseReapStale())

    assert world.run().status is RunStatus.FAILED
    assert world.claim_one(session).kind is JobKind.CANCEL


@pytest.mark.parametrize(
    "outcome", [PollNotReady(), Completed(output=payload(1))], ids=["not yet", "completed"]
)
def test_what_cancels_says_that_it_did_or_fails(outcome: Outcome) -> None:
    world, _, attempt = _left()
    with world.unchanged(), pytest.raises(InvalidCommandError):
        world.settle(attempt, outcome)


def test_nothing_else_is_settled_as_cancelled() -> None:
    world, session = _suspended()
    check = _check(world, session)
    with world.unchanged(), pytest.raises(InvalidCommandError):
        world.settle(check, Cancelled())


def test_work_that_was_left_is_not_woken() -> None:
    world, _ = _suspended()
    world.do(RunCancel(run_id="x"))
    with world.unchanged(), pytest.raises(NothingToWakeError):
        world.do(StageWake(key="key"))


def test_a_run_is_not_removed_before_its_work_is_cancelled() -> None:
    world, _, attempt = _left()
    with world.unchanged(), pytest.raises(RemoveRefusedError, match="external work must still be cancelled"):
        world.do(RunRemove(run_id="x"))
    world.settle(attempt, Cancelled())

    assert world.do(RunRemove(run_id="x")).removed


def test_a_former_generation_holds_up_the_removal_too() -> None:
    world, session = _suspended()
    world.rerun()
    world.do(RunCancel(run_id="x"))
    with world.unchanged(), pytest.raises(RemoveRefusedError, match="external work"):
        world.do(RunRemove(run_id="x"))
    world.settle(world.claim_one(session), Cancelled())

    assert world.do(RunRemove(run_id="x")).removed


def test_a_run_is_not_removed_in_the_batch_that_leaves_work() -> None:
    world, _ = _suspended()
    _, refused = world.send(RunCancel(run_id="x"), RunRemove(run_id="x"))

    assert isinstance(refused, RemoveRefusedError)


def test_of_two_settled_in_one_batch_each_is_told_once() -> None:
    world, _, attempt = _left()
    first, second = world.send(settling(attempt, Cancelled()), settling(attempt, failed()))

    assert (field(first, "status"), field(second, "status")) == ("settled", "fenced")


# Plans ------------------------------------------------------------------------------------------------------------


def test_a_plan_says_what_cancels_and_is_read_again() -> None:
    plan = plan_from_json(PLAN.to_json())

    assert plan == PLAN
    assert plan.cancels == {"e": 3}


def test_a_plan_without_it_keeps_its_fingerprint() -> None:
    assert '"cancel"' not in pipeline(external("e"), stage("z")).to_json()


# Repair -----------------------------------------------------------------------------------------------------------


def _repaired(world: World) -> list[Job]:
    world.do(RunRepair(run=world.run().key))
    return [job for job in world.jobs() if job.kind is JobKind.CANCEL]


def test_work_of_an_ended_run_whose_job_is_gone_gets_it_back() -> None:
    world, session = _suspended()
    world.do(RunCancel(run_id="x"))
    world.put(Delete(JOBS, _job(world).key))
    (job,) = _repaired(world)

    assert (job.state, job.waiting_for, job.number) == (JobState.QUEUED, "key", 3)
    attempt = world.claim_one(session)
    assert world.value(attempt.run, attempt.input) == {"id": None}
    world.settle(attempt, Cancelled())
    assert _repaired(world) == []


def test_a_check_that_an_ended_run_still_has_is_made_what_cancels() -> None:
    world, session = _suspended()
    check = _job(world)
    world.do(RunCancel(run_id="x"))
    world.put(Update(check))
    (job,) = _repaired(world)

    assert (job.kind, len(world.jobs())) == (JobKind.CANCEL, 1)
    assert world.claim_one(session).kind is JobKind.CANCEL


def test_work_that_is_over_gets_no_job_by_a_repair() -> None:
    world, session = _suspended()
    world.fail(_check(world, session), retryable=False, code="give_up")
    assert _repaired(world) == []

    world, _, attempt = _left()
    world.settle(attempt, Cancelled())
    assert _repaired(world) == []


def test_a_job_that_cancels_what_is_waited_for_is_taken_away() -> None:
    world, _ = _suspended()
    (check,) = world.jobs()
    run = world.run()
    extra = attrs.evolve(check, number=9, kind=JobKind.CANCEL, state=JobState.QUEUED, wake_at=None)
    world.put(Insert(extra))

    assert _repaired(world) == []
    assert [job.key for job in world.jobs()] == [check.key]
    assert run.status not in TERMINAL


def test_work_that_a_map_has_left_gets_its_job_back_and_no_other() -> None:
    world, session = _map(Enough(at_least=2))
    checks = _checks(world, session)
    world.complete(checks[0])
    world.complete(checks[1])
    lost = next(job for job in world.jobs() if job.kind is JobKind.CANCEL)
    world.put(Delete(JOBS, lost.key))

    assert sorted(job.item or 0 for job in _repaired(world)) == [2, 3]


@pytest.mark.parametrize(
    "astray",
    [
        {"state": JobState.PAUSED},
        {"state": JobState.SLEEPING, "wake_at": None},
        {"state": JobState.LEASED, "session": "nobody", "leased_at": 1, "attempts": 3, "epoch": 3},
    ],
    ids=["held", "asleep", "leased to nobody"],
)
def test_what_cancels_is_put_where_somebody_takes_it(astray: dict[str, object]) -> None:
    world, session = _suspended()
    world.do(RunCancel(run_id="x"))
    world.put(Update(attrs.evolve(_job(world), **astray)))  # type: ignore[arg-type]
    _repaired(world)

    assert world.settle(world.claim_one(session), Cancelled()).status == "settled"


def test_a_run_is_not_removed_in_the_batch_that_gives_its_work_a_job_again() -> None:
    world, _ = _suspended()
    world.do(RunCancel(run_id="x"))
    world.put(Delete(JOBS, _job(world).key))
    repaired, refused = world.send(RunRepair(run=world.run().key), RunRemove(run_id="x"))

    assert field(repaired, "repaired") == ("x",)
    assert isinstance(refused, RemoveRefusedError)
    assert _job(world).kind is JobKind.CANCEL
