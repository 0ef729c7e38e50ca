"""A run of a function that fails is tried again as a whole: as its next generation, made by the same commit."""

from typing import Any

import attrs
import pytest

from holdfast.kernel.commands import (
    Attempt,
    Cancelled,
    ChannelMessage,
    ChildRunStarted,
    ChildStart,
    Failed,
    Failure,
    JobRecord,
    JobSettle,
    JobSettled,
    NewAnnotation,
    RunAnnotate,
    RunCancel,
    RunClaimPending,
    RunCreate,
    RunExpire,
    RunPause,
    RunResume,
    RunSignal,
)
from holdfast.kernel.dispatch.decision_records import Recording, decided_again
from holdfast.kernel.history import events
from holdfast.kernel.pipelines.plan import Plan, RetryPolicy, RetryRule, StagePlan
from holdfast.ports.json import parse
from holdfast.ports.mailboxes import mailbox_from
from holdfast.ports.queries.run_output import AnnotationFilter, AnnotationsOf
from holdfast.ports.records.job import ATTEMPTS_UNLIMITED
from holdfast.ports.records.run import RunStatus
from tests.unit.kernel.world import SECOND, World, failed, payload, pipeline

TWICE = RetryPolicy(attempts=3, wait_us=10 * SECOND, jitter=0.0)
"""Attempts at 0, 10 and 30 seconds."""


def retried(policy: RetryPolicy = TWICE, *rules: RetryRule, workflow: str = "w", **fields: Any) -> Plan:
    """The plan of a function whose runs are retried as a whole."""
    stage = StagePlan(name="f", retry=policy, retry_rules=rules, function=True)
    return attrs.evolve(pipeline(stage, workflow=workflow), **fields)


def begun(world: World, **options: Any) -> Attempt:
    """Start the run and claim the job that drives its function."""
    world.do(RunCreate(workflow="w", id="x", input=payload({"n": 1}), **options))
    return world.claim_one(world.open())


def next_attempt(world: World) -> Attempt:
    """Admit the next attempt, whose time has come, and claim its job."""
    assert world.do(RunClaimPending()).admitted == 1
    return world.claim_one(world.open())


def created(world: World, generation: int) -> events.RunCreated:
    return events.RunCreated.from_row(world.history(generation=generation)[0])


def test_a_run_that_fails_starts_again_after_the_wait() -> None:
    world = World(retried())
    first = begun(world, attributes='{"of":"x"}')
    settled = world.fail(first)

    assert (settled.run_status, settled.retry_at) == (RunStatus.FAILED, world.now + 10 * SECOND)
    before, after = world.run(generation=1), world.run()
    assert (before.status, before.is_retried, before.has_successor) == (RunStatus.FAILED, True, True)
    assert (after.generation, after.status, after.start_at) == (2, RunStatus.PENDING, settled.retry_at)
    assert (after.attributes, after.rerun_of, after.inherited) == (before.attributes, before.key, None)
    assert events.RunFailed.from_row(world.history(generation=1)[-1]).retry_at == settled.retry_at
    row = world.history()[0]
    assert row.payload == payload({"n": 1})
    event = created(world, 2)
    assert (event.attempt, event.first_attempt_at, event.rerun_of) == (2, before.created_at, 1)
    assert event.reason == "attempt 1 failed: oops: it broke"


def test_no_attempt_begins_before_its_time() -> None:
    world = World(retried())
    world.fail(begun(world))
    world.wait(9.999)
    assert world.do(RunClaimPending()).admitted == 0
    world.wait(0.001)
    again = next_attempt(world)
    assert (again.run, world.run().status) == (world.run().key, RunStatus.RUNNING)


def test_the_attempts_count_across_generations_and_end() -> None:
    world = World(retried())
    world.fail(begun(world))
    world.wait(10)
    second = world.fail(next_attempt(world))
    assert second.retry_at == world.now + 20 * SECOND
    world.wait(20)
    last = world.fail(next_attempt(world))

    assert last.retry_at is None
    assert [world.run(generation=number).is_retried for number in (1, 2, 3)] == [True, True, False]
    assert (world.run().generation, world.run().status) == (3, RunStatus.FAILED)


def test_a_run_that_completes_is_not_tried_again() -> None:
    world = World(retried())
    world.fail(begun(world))
    world.wait(10)
    world.complete(next_attempt(world), 7)
    assert (world.run().generation, world.run().status, world.result()) == (2, RunStatus.COMPLETED, 7)


def test_without_a_policy_a_failed_run_stays_failed() -> None:
    world = World(retried(RetryPolicy(attempts=1)))
    world.fail(begun(world))
    assert (world.run().generation, world.run().status) == (1, RunStatus.FAILED)


def test_without_a_wait_the_next_attempt_runs_at_once() -> None:
    world = World(retried(RetryPolicy(attempts=2, wait_us=0)))
    world.fail(begun(world))
    assert (world.run().generation, world.run().status, world.run().start_at) == (2, RunStatus.RUNNING, None)
    assert world.complete(world.claim_one(world.open())).run_status is RunStatus.COMPLETED


def test_a_final_error_is_not_retried() -> None:
    world = World(retried())
    settled = world.fail(begun(world), retryable=False)
    assert (settled.retry_at, world.run().generation) == (None, 1)


def test_a_rule_decides_for_its_error() -> None:
    rule = RetryRule(error="Busy", policy=attrs.evolve(TWICE, attempts=2, wait_us=SECOND))
    world = World(retried(RetryPolicy(attempts=1), rule))
    busy = Failed(failure=Failure(code="body_error", message="busy", type="Busy", rule=0))
    assert world.settle(begun(world), busy).retry_at == world.now + SECOND
    world.wait(1)
    assert world.fail(next_attempt(world)).retry_at is None


def test_a_body_may_choose_the_wait() -> None:
    world = World(retried())
    failure = Failure(code="body_error", message="later", retry_after=77 * SECOND)
    assert world.settle(begun(world), Failed(failure=failure)).retry_at == world.now + 77 * SECOND


def test_a_total_time_ends_attempts_without_limit() -> None:
    policy = attrs.evolve(TWICE, attempts=ATTEMPTS_UNLIMITED, backoff=1.0, total_time_us=35 * SECOND)
    world = World(retried(policy))
    attempt, settled = begun(world), JobSettled(status="settled")
    for number in range(1, 5):
        settled = world.fail(attempt)
        assert world.run().generation == min(number + 1, 4)
        if settled.retry_at is not None:
            world.wait(10)
            attempt = next_attempt(world)
    assert settled.retry_at is None
    assert created(world, 4).first_attempt_at == world.run(generation=1).created_at


def test_the_total_time_begins_when_the_run_is_admitted() -> None:
    world = World(retried(attrs.evolve(TWICE, total_time_us=10 * SECOND)))
    world.do(RunCreate(workflow="w", id="x", input=payload(1), start_at=world.now + 100 * SECOND))
    world.wait(100)
    assert world.fail(next_attempt(world)).retry_at == world.now + 10 * SECOND


def test_a_cancelled_run_is_not_tried_again() -> None:
    world = World(retried())
    attempt = begun(world)
    world.do(RunCancel(run_id="x", reason="enough"))
    world.settle(attempt, Cancelled())
    assert (world.run().generation, world.run().status) == (1, RunStatus.CANCELLED)


def test_a_function_that_fails_while_it_cleans_up_is_not_tried_again() -> None:
    world = World(retried())
    attempt = begun(world)
    world.do(RunCancel(run_id="x"))
    assert world.fail(attempt).retry_at is None
    assert world.run().generation == 1


def test_a_waiting_attempt_can_be_cancelled() -> None:
    world = World(retried())
    world.fail(begun(world))
    world.do(RunCancel(run_id="x", reason="enough"))
    assert (world.run().generation, world.run().status) == (2, RunStatus.CANCELLED)


def test_the_deadline_is_for_all_attempts() -> None:
    world = World(retried())
    world.fail(begun(world, deadline=15 * SECOND))
    first, second = world.run(generation=1), world.run()
    assert first.deadline == second.deadline == first.created_at + 15 * SECOND
    world.wait(10)
    attempt = next_attempt(world)
    assert world.fail(attempt).retry_at is None  # the third would begin after the deadline


def test_the_deadline_ends_a_waiting_attempt() -> None:
    world = World(retried())
    world.fail(begun(world, deadline=15 * SECOND))
    world.wait(15)
    assert world.do(RunExpire()).expired == 1
    assert (world.run().generation, world.run().status) == (2, RunStatus.FAILED)
    assert not world.run().is_retried


def test_a_run_with_a_concurrency_key_waits_for_a_slot_again() -> None:
    world = World(retried(RetryPolicy(attempts=2, wait_us=0)))
    settled = world.fail(claimed_with_key(world))
    assert settled.follow_up.runs == ("k",)
    assert (world.run().status, world.run().start_at) == (RunStatus.PENDING, None)
    next_attempt(world)
    assert world.run().has_slot


def claimed_with_key(world: World) -> Attempt:
    world.do(RunCreate(workflow="w", id="x", input=payload(1), concurrency_key="k"))
    return next_attempt(world)


def test_messages_are_received_again() -> None:
    world = World(retried())
    attempt = begun(world)
    for number in (1, 2):
        message = ChannelMessage(channel="c", payload=payload(number))
        world.do(RunSignal(run_id="x", signal=message))
    outcome = failed()
    world.do(JobSettle(job=attempt.job, epoch=attempt.epoch, outcome=outcome, received=(2,)))

    again = [row for row in world.history() if row.type == events.SignalReceived.type]
    assert [events.SignalReceived.from_row(row).again for row in again] == [2, 3]
    assert mailbox_from(world.run().mailbox).unread == tuple(row.number for row in again)
    assert created(world, 2).inbox == again[-1].number


def test_a_paused_run_stays_paused() -> None:
    world = World(retried())
    attempt = begun(world)
    world.do(RunPause(run_id="x"))
    world.fail(attempt)
    assert (world.run().generation, world.run().status) == (2, RunStatus.PAUSED)
    world.wait(10)
    assert world.do(RunClaimPending()).admitted == 0
    world.do(RunResume(run_id="x"))
    next_attempt(world)


def test_annotations_stay_with_the_run() -> None:
    world = World(retried())
    attempt = begun(world)
    world.do(RunAnnotate(run_id="x", annotations=(NewAnnotation(name="a", value="1"),)))
    world.fail(attempt)
    kept = world.store.read(AnnotationsOf(world.run().key, AnnotationFilter()))
    assert [(one.name, one.value) for one in kept] == [("a", "1")]


def test_the_parent_waits_for_the_last_attempt() -> None:
    world = World(pipeline(StagePlan(name="p", function=True)), retried(workflow="c"))
    world.create()
    parent = world.claim_one(world.open())
    child = ChildRunStarted(run_id="x/1", workflow="c", version="1", input=payload(1))
    start = ChildStart(call="1", child=child)
    world.do(JobRecord(job=parent.job, epoch=parent.epoch, seen=1, records=(start,)))
    world.fail(world.claim_one(world.open()))
    assert world.deliver() == []
    for wait in (10, 20):
        world.wait(wait)
        world.fail(next_attempt(world))
    assert [one.status for one in world.deliver()] == ["delivered"]
    ended = events.ChildFailed.from_row(world.history()[-1])
    assert (ended.run, ended.code, ended.message) == ("x/1", "child_failed", "it broke")


def test_the_children_of_a_failed_attempt_are_closed() -> None:
    world = World(retried(), pipeline(StagePlan(name="a"), workflow="c"))
    attempt = begun(world)
    child = ChildRunStarted(run_id="x/1", workflow="c", version="1", input=payload(1))
    start = ChildStart(call="1", child=child)
    world.do(JobRecord(job=attempt.job, epoch=attempt.epoch, seen=1, records=(start,)))
    settled = world.fail(attempt)
    assert settled.follow_up.deliveries
    assert (world.run(generation=1).children, world.run().children) == (1, 0)


def test_rows_of_the_same_batch_count() -> None:
    """A message that arrives in the batch of the failure goes to the next attempt."""
    world = World(retried())
    attempt = begun(world)
    message = RunSignal(run_id="x", signal=ChannelMessage(channel="c", payload=payload(1)))
    world.send(message, JobSettle(job=attempt.job, epoch=attempt.epoch, outcome=failed()))
    assert [row.type for row in world.history()] == ["run.created", "signal.received"]


def test_the_failure_is_decided_again_in_the_same_way() -> None:
    recordings: list[Recording] = []
    world = World(retried(), recorder=recordings.append)
    world.fail(begun(world))
    for recording in recordings:
        assert decided_again(recording) == recording.decision


def test_a_rerun_by_hand_counts_its_attempts_anew() -> None:
    world = World(retried())
    world.fail(begun(world))
    world.rerun(stage="f")
    assert (world.run().generation, created(world, 3).attempt) == (3, None)
    assert world.fail(world.claim_one(world.open())).retry_at == world.now + 10 * SECOND


@pytest.mark.parametrize("code", ["oops", "body_error"])
def test_the_error_of_an_attempt_says_when_the_next_one_starts(code: str) -> None:
    world = World(retried())
    settled = world.fail(begun(world), code=code)
    error = parse(world.run(generation=1).error or "")
    assert (error["code"], error["retry_at"], error["function"]) == (code, settled.retry_at, True)
