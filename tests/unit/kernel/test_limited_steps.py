"""Queued steps with priority, concurrency limit and rate limit, as stages have them."""

from typing import Any

import attrs
import pytest

from holdfast.kernel.commands import (
    Attempt,
    Blocked,
    ChannelMessage,
    Failure,
    FunctionRecord,
    FunctionWaiting,
    JobAdmit,
    JobClaim,
    JobRelease,
    JobWakeDue,
    QueuedStepCompleted,
    QueuedStepFailed,
    QueuedStepJob,
    RunCreate,
    RunPause,
    RunRepair,
    RunResume,
    RunSignal,
    RunTerminate,
    StepCancel,
    StepQueue,
    admissions,
    follow_up_of,
)
from holdfast.kernel.invariants import check
from holdfast.kernel.pipelines.plan import RatePlan, RetryPolicy
from holdfast.ports.changes import Delete
from holdfast.ports.json import canonical, parse
from holdfast.ports.records.job import Job, JobKind, JobState
from holdfast.ports.searches import QueueClaim
from holdfast.ports.tables import JOBS
from holdfast.ports.transport import JobHint
from tests.unit.kernel.test_functions import driven, function, record
from tests.unit.kernel.world import SECOND, World, payload, settling

ERROR = canonical({"type": "ValueError", "message": "no", "code": "body_error"})
MINUTE = 60 * SECOND
GPU = QueuedStepJob(queue="gpu", input=payload({"text": "a"}), attempts=3)
ALONE = attrs.evolve(GPU, max_concurrency=1)
LINE = "step:embed"


def call(number: int, how: QueuedStepJob, step: str = "embed") -> FunctionRecord:
    return StepQueue(call=str(number), step=step, site="a.py:3", queued=how)


def world_with_queued_steps(*hows: QueuedStepJob, step: str = "embed") -> World:
    """A sleeping function with these queued steps."""
    world = function()
    attempt = driven(world)
    record(world, attempt, *(call(number, how, step) for number, how in enumerate(hows, 1)))
    world.settle(attempt, FunctionWaiting(seen=1 + len(hows)))
    return world


def steps(world: World, id: str = "x") -> list[Job]:
    return [job for job in world.jobs(id) if job.kind is JobKind.STEP]


def states(world: World) -> list[str]:
    return [job.state.value for job in steps(world)]


def claim(world: World, limit: int = 10) -> tuple[Attempt, ...]:
    lanes = (QueueClaim(queue="gpu", definitions=(LINE,), limit=limit),)
    return world.do(JobClaim(session=world.open(), queue_claims=lanes, limit=limit)).attempts


def admit(world: World, *keys: str) -> int:
    return world.do(JobAdmit(keys=keys)).admitted


def sound(world: World) -> None:
    assert check(world.tables()) == []


def test_so_many_calls_are_under_way_at_a_time() -> None:
    world = function()
    attempt = driven(world)
    reply = record(world, attempt, *(call(number, ALONE) for number in (1, 2, 3)))
    assert admissions("default", follow_up_of((reply,))) == (JobAdmit(namespace="default", keys=(LINE,)),)
    assert states(world) == ["limited"] * 3
    assert {hint.queue for hint in world.heard.hints if isinstance(hint, JobHint)} == {"default"}
    assert admit(world, LINE) == 1
    (first,) = claim(world)
    assert first.node == "1"
    assert admit(world) == 0
    assert world.settle(first, QueuedStepCompleted(output=payload(1))).follow_up.jobs == (LINE,)
    assert admit(world, LINE) == 1
    assert [one.node for one in claim(world)] == ["2"]
    sound(world)


def test_calls_of_all_runs_of_all_workflows_share_the_limit() -> None:
    world = world_with_queued_steps(ALONE)
    world.do(RunCreate(workflow="w", id="y", input=payload(0)))
    other = world.claim_one(world.open())
    record(world, other, call(1, ALONE))
    assert admit(world) == 1
    assert [world.tables().runs[one.run].id for one in claim(world)] == ["x"]
    assert admit(world) == 0


def test_one_that_sleeps_before_a_retry_gives_its_slot_back() -> None:
    world = world_with_queued_steps(ALONE, ALONE)
    admit(world)
    (first,) = claim(world)
    reply = world.settle(
        first, QueuedStepFailed(error=ERROR, retry=RetryPolicy(wait_us=5 * SECOND, jitter=0.0))
    )
    assert reply.follow_up.jobs == (LINE,)
    assert admit(world, LINE) == 1
    world.wait(6)
    woken = world.do(JobWakeDue())
    assert woken.follow_up.jobs == (LINE,)
    assert admit(world, LINE) == 0
    assert sorted(states(world)) == ["limited", "queued"]
    sound(world)


def test_one_that_is_dropped_gives_its_slot_back() -> None:
    world = function()
    attempt = driven(world)
    record(world, attempt, call(1, ALONE), call(2, ALONE))
    admit(world)
    (held,) = claim(world)
    dropped = StepCancel(call="1", job=int(held.job.rpartition(".")[2]))
    assert record(world, attempt, dropped, seen=3).follow_up.jobs == (LINE,)
    assert admit(world, LINE) == 1


def test_a_loss_keeps_the_slot_for_the_next_attempt() -> None:
    world = world_with_queued_steps(ALONE, ALONE)
    admit(world)
    claim(world)
    world.lose()
    assert states(world) == ["queued", "limited"]
    assert [(one.node, one.attempt) for one in claim(world)] == [("1", 2)]
    sound(world)


def test_the_last_attempt_that_is_lost_gives_the_slot_back() -> None:
    world = world_with_queued_steps(attrs.evolve(ALONE, attempts=1), ALONE)
    admit(world)
    claim(world)
    world.lose()
    assert admit(world) == 1
    assert [one.node for one in claim(world)] == ["2"]


def test_a_paused_run_holds_what_waits_and_takes_no_slot() -> None:
    world = world_with_queued_steps(ALONE, ALONE)
    admit(world)
    world.do(RunPause(run_id="x"))
    assert states(world) == ["paused", "paused"]
    reply = world.do(RunResume(run_id="x"))
    assert reply.follow_up.jobs == (LINE,)
    assert states(world) == ["limited", "limited"]
    assert admit(world, LINE) == 1
    sound(world)


def test_a_blocked_run_gives_the_slots_of_its_steps_back() -> None:
    world = world_with_queued_steps(ALONE)
    admit(world)
    world.do(RunSignal(run_id="x", signal=ChannelMessage(channel="any", payload=payload(1))))
    driver = world.claim_one(world.open())

    blocked = world.settle(driver, Blocked(failure=Failure(code="nondeterminism", message="no")))

    assert states(world) == ["paused"]
    assert blocked.follow_up.jobs == (LINE,)
    sound(world)


def test_the_end_of_a_run_frees_what_its_steps_had() -> None:
    world = world_with_queued_steps(ALONE)
    world.do(RunCreate(workflow="w", id="y", input=payload(0)))
    other = world.claim_one(world.open())
    record(world, other, call(1, ALONE))
    admit(world)
    claim(world)
    world.do(RunTerminate(run_id="x"))
    assert admit(world) == 1
    assert [world.tables().runs[one.run].id for one in claim(world)] == ["y"]


def test_no_more_start_in_a_time_than_the_rate_says() -> None:
    rate = RatePlan(limit=2, per_us=MINUTE)
    world = world_with_queued_steps(*[attrs.evolve(GPU, rate=rate)] * 3)
    assert admit(world) == 2
    session = world.open()
    lanes = (QueueClaim(queue="gpu", definitions=(LINE,), limit=10),)
    first = world.do(JobClaim(session=session, queue_claims=lanes, limit=10))
    assert [one.node for one in first.attempts] == ["1", "2"]
    for one in first.attempts:
        world.settle(one, QueuedStepCompleted(output=payload(1)))
    assert world.do(JobAdmit(keys=first.follow_up.jobs)).wakes_at == (world.now + MINUTE,)
    world.wait(60)
    answers: list[object] = [world.do(JobWakeDue())]
    while commands := admissions("default", follow_up_of(answers)):
        answers = list(world.send(*commands))
    assert [one.node for one in claim(world)] == ["3"]
    sound(world)


def test_an_attempt_that_is_given_back_was_a_start() -> None:
    world = world_with_queued_steps(attrs.evolve(GPU, rate=RatePlan(limit=1, per_us=MINUTE)))
    admit(world)
    (held,) = claim(world)
    assert world.do(JobRelease(job=held.job, epoch=held.epoch)).follow_up.jobs == (LINE,)
    admit(world)
    assert claim(world) == ()
    assert states(world) == ["sleeping"]


@pytest.mark.parametrize(
    ("rate", "key"),
    [
        (RatePlan(limit=1, per_us=MINUTE), LINE),
        (RatePlan(limit=1, per_us=MINUTE, name="model"), f"/model~{MINUTE}"),
        (RatePlan(limit=1, per_us=MINUTE, by="tenant"), f"{LINE}/acme"),
        (RatePlan(limit=1, per_us=MINUTE, name="model", by="tenant"), f"/model~{MINUTE}/acme"),
    ],
)
def test_starts_count_with_those_of_the_name_and_of_the_attribute(rate: RatePlan, key: str) -> None:
    world = function()
    attributes = canonical({"tenant": "acme"})
    world.do(RunCreate(workflow="w", id="x", input=payload(0), attributes=attributes))
    attempt = world.claim_one(world.open())
    record(world, attempt, call(1, attrs.evolve(GPU, rate=rate)))
    (job,) = steps(world)
    assert (job.concurrency_key, job.rate_limit, job.rate_period) == (key, 1, MINUTE)


def test_one_of_higher_priority_is_claimed_first_and_says_nothing_of_its_run() -> None:
    world = world_with_queued_steps(GPU, attrs.evolve(GPU, priority=1))
    assert [job.queue_position for job in steps(world)] == [
        world.run().queue_position,
        world.run().queue_position - MINUTE,
    ]
    assert [one.node for one in claim(world, limit=1)] == ["2"]
    assert [job.priority for job in steps(world)] == [0, 1]
    sound(world)


def test_repair_gives_it_a_job_with_the_same_limits() -> None:
    how = attrs.evolve(ALONE, priority=2, rate=RatePlan(limit=5, per_us=MINUTE))
    world = world_with_queued_steps(how)
    (before,) = steps(world)
    world.put(Delete(JOBS, before.key))
    world.do(RunRepair(run=world.run().key))
    (after,) = steps(world)
    assert attrs.evolve(after, number=before.number, input=before.input) == before
    facts = parse(world.history()[1].data or "")
    assert (facts["priority"], facts["max_concurrency"]) == (2, 1)
    assert facts["rate"] == {"limit": 5, "per_us": MINUTE}
    sound(world)


@pytest.mark.parametrize(
    "fields", [{"concurrency_limit": 2}, {"rate_limit": 9}, {"rate_period": 7}, {"concurrency_limit": None}]
)
def test_the_checker_sees_a_limit_that_its_row_does_not_say(fields: dict[str, Any]) -> None:
    world = world_with_queued_steps(attrs.evolve(ALONE, rate=RatePlan(limit=5, per_us=MINUTE)))
    tables = world.tables()
    assert check(tables) == []
    (job,) = steps(world)
    tables.jobs[job.run][job.number] = attrs.evolve(job, **fields)
    assert "S7" in {violation.invariant for violation in check(tables)}


def test_many_that_end_in_one_batch_name_the_line_once() -> None:
    world = world_with_queued_steps(*[attrs.evolve(GPU, max_concurrency=2)] * 4)
    assert admit(world) == 2
    answers = world.send(*(settling(one, QueuedStepCompleted(output=payload(7))) for one in claim(world)))
    (command,) = admissions("default", follow_up_of(answers))
    assert isinstance(command, JobAdmit)
    assert command.keys == (LINE,)
    assert world.do(command).admitted == 2
    assert [job.state for job in steps(world)] == [JobState.QUEUED] * 2
