"""Continue-as-new: one commit ends a generation and starts the next with all unread messages."""

from datetime import timedelta

import attrs
import pytest

from holdfast.kernel.commands import (
    Attempt,
    CarriedUpdate,
    CarriedValue,
    ChannelMessage,
    Completed,
    ContinuedAsNew,
    FunctionWaiting,
    JobClaim,
    JobSettle,
    JobSettled,
    NewAnnotation,
    RunAnnotate,
    RunCancel,
    RunClaimPending,
    RunCreate,
    RunPause,
    RunRemove,
    RunResume,
    RunSignal,
    RunTerminate,
    RunUpdate,
)
from holdfast.kernel.dispatch.decision_records import Recording, decided_again
from holdfast.ports.clock import micros
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.queries.run_output import AnnotationFilter, AnnotationsOf
from holdfast.ports.records.job import JobState
from holdfast.ports.records.run import RunStatus
from holdfast.ports.transport import RunEnded
from tests.unit.kernel.test_functions import driven, function
from tests.unit.kernel.world import World, child, payload, pipeline, settling, stage


def sent(number: int) -> ChannelMessage:
    return ChannelMessage(channel="c", payload=payload(number))


def go_on(world: World, attempt: Attempt, *received: int, seen: int = 1, workflow: str = "w") -> JobSettled:
    """Continue as new, with the messages in these rows received."""
    outcome = ContinuedAsNew(workflow=workflow, version="1", input=payload({"n": 2}), seen=seen)
    return world.do(JobSettle(job=attempt.job, epoch=attempt.epoch, outcome=outcome, received=received))


def channels(world: World) -> list[object]:
    return [row.payload for row in world.history() if row.type == "signal.received"]


def test_it_goes_on_in_one_step() -> None:
    world = function()
    attempt = driven(world)
    world.heard.hints.clear()
    reply = go_on(world, attempt)
    assert (reply.status, reply.run_status, reply.follow_up.deliveries) == (
        "settled",
        RunStatus.COMPLETED,
        False,
    )
    before, after = world.run(generation=1), world.run()
    assert (before.status, before.is_continued, before.open_jobs) == (RunStatus.COMPLETED, True, 0)
    assert (after.status, after.generation, after.is_continued) == (RunStatus.RUNNING, 2, False)
    row = world.history(generation=1)[-1]
    assert (row.type, row.payload) == ("run.continued", payload({"n": 2}))
    assert row.data == '{"definition":"w@1","generation":2}'
    (created,) = world.history()
    assert (created.type, created.payload) == ("run.created", payload({"n": 2}))
    assert created.data == '{"continues":1,"definition":"w@1"}'
    assert {type(hint) for hint in world.heard.hints} > {RunEnded}
    again = world.claim_one(world.open())
    assert (again.run, again.epoch) == (after.key, 1)
    world.settle(again, Completed(output=payload(7)))
    assert world.result() == 7


def test_who_does_not_hold_the_job_does_not_go_on() -> None:
    world = function()
    attempt = driven(world)
    world.lose()
    with world.unchanged():
        assert go_on(world, attempt).status == "fenced"
    again = world.claim_one(world.open())
    go_on(world, again)
    with world.unchanged():
        assert go_on(world, again).status == "fenced"


def test_what_was_sent_meanwhile_is_not_lost() -> None:
    world = function()
    attempt = driven(world)
    for number in (1, 2, 3):
        world.do(RunSignal(run_id="x", signal=sent(number)))
    go_on(world, attempt, 3, seen=3)
    assert channels(world) == [payload(1), payload(3)]
    assert [row.data for row in world.history()[1:]] == [
        '{"again":2,"channel":"c"}',
        '{"again":4,"channel":"c"}',
    ]


def test_updates_that_nobody_has_begun_with_and_what_is_shown_go_on() -> None:
    world = function()
    attempt = driven(world)
    for number in (1, 2):
        world.do(
            RunUpdate(run_id="x", update="Board.add", arguments=payload(number), idempotency_key=f"k{number}")
        )
    first = CarriedUpdate(update="Board.add", arguments=payload(1), again=2, key="k1")
    goes_on = ContinuedAsNew(
        workflow="w",
        version="1",
        input=payload({"n": 2}),
        seen=2,
        updates=(first,),
        published=(CarriedValue(name="page", value=payload(7)),),
    )
    world.settle(attempt, goes_on)
    told = [(row.type, row.payload, row.data) for row in world.history()[1:]]
    assert told == [
        ("update.received", payload(1), '{"again":2,"key":"k1","update":"Board.add"}'),
        ("update.received", payload(2), '{"again":3,"key":"k2","update":"Board.add"}'),
        ("value.published", payload(7), '{"name":"page","number":0}'),
    ]


def test_a_cancellation_reaches_the_next_generation() -> None:
    world = function()
    attempt = driven(world)
    world.do(RunCancel(run_id="x", reason="enough"))
    go_on(world, attempt)
    assert world.run().status is RunStatus.CANCELLING
    assert world.run(generation=1).error is None
    row = world.history()[-1]
    assert (row.type, row.data) == ("run.cancelling", '{"reason":"enough"}')
    assert not world.do(RunCancel(run_id="x")).changed
    world.claim_one(world.open())


def test_a_paused_run_stays_paused() -> None:
    world = function()
    attempt = driven(world)
    world.do(RunPause(run_id="x"))
    go_on(world, attempt)
    (job,) = world.jobs()
    assert (world.run().status, job.state) == (RunStatus.PAUSED, JobState.PAUSED)
    world.do(RunResume(run_id="x"))
    world.claim_one(world.open())


def test_it_keeps_its_place_its_slot_and_its_deadline() -> None:
    world = function()
    world.do(
        RunCreate(
            workflow="w",
            id="x",
            input=payload(1),
            deadline=60_000_000,
            concurrency_key="k",
            priority=3,
            queue="q",
            attributes='{"a":"b"}',
        )
    )
    world.do(RunCreate(workflow="w", id="y", input=payload(1), concurrency_key="k"))
    world.do(RunClaimPending(namespace="default"))
    session = world.open()
    (attempt,) = world.kernel.dispatch(
        attrs.evolve(_claim(session), queue_claims=world.lanes(queue="q"))
    ).attempts
    before = world.run()
    world.wait(1)
    reply = go_on(world, attempt)
    assert reply.follow_up.runs == ()
    after = world.run()
    for name in ("deadline", "concurrency_key", "concurrency_limit", "priority", "queue", "attributes"):
        assert getattr(after, name) == getattr(before, name), name
    assert after.has_slot
    assert world.do(RunClaimPending(namespace="default")).admitted == 0
    world.do(RunTerminate(run_id="x"))
    assert world.do(RunClaimPending(namespace="default")).admitted == 1


def test_what_was_said_of_it_goes_on_the_newest_of_each_name() -> None:
    world = function()
    attempt = driven(world)
    for value in ("1", "2"):
        world.do(RunAnnotate(run_id="x", annotations=(NewAnnotation(name="a", value=value),)))
        world.wait(1)
    world.do(
        RunAnnotate(run_id="x", annotations=(NewAnnotation(name="b", value="3"),), key="once", stage="f")
    )
    world.do(RunAnnotate(run_id="x", annotations=(NewAnnotation(name="c", value="4"),), key="once"))
    go_on(world, attempt)
    said = world.store.read(AnnotationsOf(world.run().key, AnnotationFilter(), after=None, limit=9))
    assert [(one.name, one.value) for one in said] == [("a", "2"), ("c", "4")]
    assert all(one.at < micros(world.clock.now()) + 1 for one in said)


def test_without_its_code_it_is_blocked_and_goes_on_later() -> None:
    world = function()
    attempt = driven(world)
    go_on(world, attempt, workflow="other")
    assert (world.run().status, world.run().generation) == (RunStatus.BLOCKED, 1)
    world.do(RunResume(run_id="x"))
    go_on(world, world.claim_one(world.open()), seen=3)
    assert world.run().generation == 2


def test_only_as_a_function_and_only_a_function_goes_on() -> None:
    world = World(
        pipeline(attrs.evolve(stage("f", attempts=1), function=True)), pipeline(stage("a"), workflow="p")
    )
    attempt = driven(world)
    with pytest.raises(InvalidCommandError, match="is a pipeline"):
        go_on(world, attempt, workflow="p")
    world.create("y", workflow="p")
    of_pipeline = world.claim_one(world.open())
    with pytest.raises(InvalidCommandError, match="can't be settled as continued_as_new"):
        go_on(world, of_pipeline)


def test_its_parent_waits_for_the_next_generation() -> None:
    world = World(
        pipeline(attrs.evolve(stage("f", attempts=1), function=True), workflow="c"),
        pipeline(child("p")),
    )
    world.create()
    world.start_child(world.claim_one(world.open()), "x/c")
    attempt = world.claim_one(world.open())
    outcome = ContinuedAsNew(workflow="c", version="1", input=payload(2), seen=1)
    assert not world.settle(attempt, outcome).follow_up.deliveries
    assert world.run("x/c", generation=1).parent is None
    assert world.run("x/c").parent is not None
    assert world.complete(world.claim_one(world.open()), 5).follow_up.deliveries


@pytest.mark.slow
def test_many_generations_cost_the_same_and_are_removed_together() -> None:
    world = function()
    attempt = driven(world)
    session = world.open()
    for _ in range(50):
        go_on(world, attempt)
        attempt = world.claim_one(session)
    world.settle(attempt, Completed(output=payload(7)))
    assert world.run().generation == 51
    removed = world.do(RunRemove(run_id="x"))
    assert len(removed.runs) == 51
    assert world.tables().history == {}


def test_it_is_decided_again_alike() -> None:
    recordings: list[Recording] = []
    world = World(pipeline(attrs.evolve(stage("f", attempts=1), function=True)), recorder=recordings.append)
    attempt = driven(world)
    world.do(RunAnnotate(run_id="x", annotations=(NewAnnotation(name="a", value="1"),)))
    world.do(RunSignal(run_id="x", signal=sent(1)))
    go_on(world, attempt)
    assert decided_again(recordings[-1]) == recordings[-1].decision


def test_in_one_batch_it_goes_on_after_what_came_before() -> None:
    world = function()
    attempt = driven(world)
    outcome = ContinuedAsNew(workflow="w", version="1", input=payload(2), seen=1)
    world.send(
        RunSignal(run_id="x", signal=sent(1)),
        settling(attempt, outcome),
        RunSignal(run_id="x", signal=sent(2)),
    )
    assert channels(world) == [payload(1), payload(2)]
    world.settle(world.claim_one(world.open()), FunctionWaiting(seen=3))
    world.wait(timedelta(days=1).total_seconds())


def _claim(session: str) -> JobClaim:
    return JobClaim(session=session, queue_claims=(), limit=9)
