"""Child runs as stages: created with the settle that starts them, awaited, delivered, closed."""

from collections.abc import Sequence

import attrs
import pytest

from holdfast.kernel.commands import (
    Attempt,
    ChildRunStarted,
    Command,
    Completed,
    Failure,
    JobClaimOne,
    Outcome,
    PollNotReady,
    RunCancel,
    RunCreate,
    RunDeliver,
    RunDelivered,
    RunExpire,
    RunPause,
    RunRepair,
    RunResume,
    RunStopped,
    RunTerminate,
)
from holdfast.kernel.pipelines.plan import Enough, Plan
from holdfast.ports.changes import Delete
from holdfast.ports.errors import InvalidCommandError, UnknownWorkflowError
from holdfast.ports.json import parse
from holdfast.ports.queries.runs import OrphanedChildren, PendingDeliveries
from holdfast.ports.records.job import Job, JobKind, JobState
from holdfast.ports.records.run import ClosePolicy, RunStatus
from holdfast.ports.tables import JOBS
from tests.unit.kernel.world import (
    World,
    child,
    each_of,
    payload,
    pipeline,
    stage,
)

CHILD = pipeline(stage("a"), workflow="c")
PARENT = pipeline(child("k"), stage("z"))


def _world(*plans: Plan) -> World:
    return World(*(plans or (PARENT,)), CHILD)


def _started(world: World, *, child: str = "x/k") -> str:
    """Start a run that waits for its child; return a session."""
    world.create(input="in")
    session = world.open()
    world.start_child(world.claim_one(session), child, "in")
    return session


def _waiting(world: World) -> Job:
    (job,) = [job for job in world.jobs() if job.state is not JobState.PENDING_DELIVERY]
    return job


def _of(attempts: Sequence[Attempt], world: World, id: str) -> Attempt:
    """Return the only attempt of a run."""
    (attempt,) = [one for one in attempts if one.run == world.run(id).key]
    return attempt


def _left(world: World, id: str = "x", *, generation: int | None = None) -> list[str]:
    return [run.id for run in world.store.read(OrphanedChildren((world.run(id, generation=generation).key,)))]


# Starting --------------------------------------------------------------------------------------------------------


def test_a_child_is_created_with_the_settle_that_starts_it() -> None:
    world = _world()
    world.create(input="in")
    session = world.open()
    attempt = world.claim_one(session)
    assert (attempt.kind, attempt.node) == (JobKind.CHILD, "k")
    settled = world.start_child(attempt, "x/k", "given")

    assert (settled.status, settled.run_status, settled.retry_at) == ("settled", RunStatus.RUNNING, None)
    run = world.run("x/k")
    assert (run.status, run.workflow, run.parent) == (RunStatus.RUNNING, "c", attempt.job)
    assert world.run().children == 1
    job = _waiting(world)
    assert (job.state, job.waiting_for, job.wake_at, job.epoch) == (JobState.SLEEPING, "x/k", None, 1)
    body = world.claim_one(session)
    assert (body.run, world.value(body.run, body.input)) == (run.key, "given")


def test_a_child_has_the_queue_and_priority_of_its_parent() -> None:
    world = _world()
    world.do(RunCreate(workflow="w", id="x", input=payload(0), queue="slow", priority=7))
    session = world.open()
    (job,) = world.jobs()
    claimed = world.do(JobClaimOne(session=session, job=job.key.text, epoch=0, definitions=("w@1",)))
    assert claimed.attempt is not None
    world.start_child(claimed.attempt, "x/k")

    assert (world.run("x/k").queue, world.run("x/k").priority) == ("slow", 7)


def test_an_attempt_that_was_lost_creates_nothing() -> None:
    world = _world()
    world.create()
    lost = world.claim_one(world.open())
    world.lose()

    with world.unchanged():
        assert world.start_child(lost, "x/k").status == "fenced"
    assert world.start_child(world.claim_one(world.open()), "x/k").status == "settled"
    assert len(world.tables().runs) == 2


def test_starting_twice_creates_one() -> None:
    world = _world()
    world.create()
    attempt = world.claim_one(world.open())
    world.start_child(attempt, "x/k")

    with world.unchanged():
        assert world.start_child(attempt, "x/k").status == "fenced"


def test_a_workflow_that_is_not_known_creates_nothing() -> None:
    world = _world()
    world.create()
    attempt = world.claim_one(world.open())

    with world.unchanged(), pytest.raises(UnknownWorkflowError):
        world.start_child(attempt, "x/k", workflow="nothing")


def test_a_run_that_is_none_of_its_own_is_not_taken_for_a_child() -> None:
    world = _world()
    world.create()
    session = world.open()
    attempt = world.claim_one(session)
    world.create("x/k", workflow="c")
    settled = world.start_child(attempt, "x/k")

    assert settled.run_status is RunStatus.FAILED
    assert parse(world.run().error or "")["code"] == "run_exists"
    assert (world.run("x/k").parent, world.run("x/k").status) == (None, RunStatus.RUNNING)
    assert world.deliver() == []


def test_the_child_of_another_run_is_not_taken_either() -> None:
    world = _world()
    session = world.open()
    world.create("y")
    world.start_child(world.claim_one(session), "shared")
    world.create()
    settled = world.start_child(_of(world.claim(session), world, "x"), "shared")

    assert settled.run_status is RunStatus.FAILED
    assert world.run("shared").parent == f"{world.run('y').key}.1"


@pytest.mark.parametrize("outcome", [Completed(output=payload(1)), PollNotReady()])
def test_a_child_is_started_and_not_done(outcome: Outcome) -> None:
    world = _world()
    world.create()
    attempt = world.claim_one(world.open())

    with world.unchanged(), pytest.raises(InvalidCommandError, match="of kind child"):
        world.settle(attempt, outcome)


def test_a_body_starts_no_child() -> None:
    world = World(pipeline(stage("a")), CHILD)
    world.create()
    attempt = world.claim_one(world.open())

    with world.unchanged(), pytest.raises(InvalidCommandError, match="child_started"):
        world.start_child(attempt, "x/k")


def test_what_can_not_be_started_yet_is_tried_again() -> None:
    world = _world()
    world.create()
    session = world.open()
    world.fail(world.claim_one(session))
    again = world.claim_one(session)

    assert (again.kind, again.attempt) == (JobKind.CHILD, 2)
    assert world.start_child(again, "x/k").status == "settled"


@pytest.mark.parametrize("attempts", [1, 3])
def test_a_stage_that_waits_is_nothing_to_claim_or_to_wake(attempts: int) -> None:
    """Also where it has no attempt left: it is not done, and it needs none."""
    world = _world(pipeline(child("k", attempts=attempts)))
    session = _started(world)
    job = _waiting(world)
    world.wait(365 * 24 * 3_600)

    with world.unchanged():
        assert world.wake_due() == 0
    claim = JobClaimOne(session=session, job=job.key.text, epoch=job.epoch, definitions=("w@1",))
    answer = world.do(claim)
    assert (answer.attempt, answer.ignored, answer.retry_after) == (None, "waiting", None)


# Being told ------------------------------------------------------------------------------------------------------


def test_what_a_child_gave_is_what_its_stage_gives() -> None:
    world = _world()
    session = _started(world)
    settled = world.complete(world.claim_one(session), {"gave": 1})
    assert (settled.run_status, settled.follow_up.deliveries) == (RunStatus.COMPLETED, True)
    assert world.claim(session) == ()
    assert world.deliver() == [RunDelivered(status="delivered")]

    after = world.claim_one(session)
    assert (after.node, world.value(after.run, after.input)) == ("z", {"gave": 1})
    world.complete(after, "end")
    assert world.result() == "end"
    assert [one.status for one in world.deliver()] == ["closed"]  # its children were told that it is over


def test_a_run_that_expires_has_its_end_delivered_at_once() -> None:
    world = _world()
    world.do(RunCreate(workflow="w", id="x", input=payload("in"), deadline=1))
    world.start_child(world.claim_one(world.open()), "x/k", "in")
    world.wait(1)

    expired = world.do(RunExpire())
    assert (expired.expired, expired.follow_up.deliveries) == (1, True)
    assert [one.status for one in world.deliver()] == ["closed"]


def test_a_run_without_a_parent_owes_nobody() -> None:
    world = _world()
    world.create("c", workflow="c")
    settled = world.complete(world.claim_one(world.open()))

    assert not settled.follow_up.deliveries
    assert world.deliver() == []


@pytest.mark.parametrize(
    ("end", "code"),
    [(RunCancel(run_id="x/k"), "child_cancelled"), (RunTerminate(run_id="x/k"), "child_cancelled")],
)
def test_a_stage_fails_whose_child_is_cancelled(end: Command[RunStopped], code: str) -> None:
    world = _world()
    _started(world)
    assert world.do(end).follow_up.deliveries
    (told, closed) = world.deliver()

    assert (told.status, told.follow_up.deliveries, closed.status) == ("delivered", True, "closed")
    error = parse(world.run().error or "")
    assert (world.run().status, error["code"], error["stage"]) == ("failed", code, "k")


def test_a_stage_fails_whose_child_fails_and_says_why() -> None:
    world = _world()
    session = _started(world)
    world.fail(world.claim_one(session), retryable=False)
    world.deliver()

    error = parse(world.run().error or "")
    assert (error["code"], error["stage"]) == ("child_failed", "k")
    assert error["message"] == "run 'x/k' failed: it broke"


def test_a_stage_fails_whose_child_has_lost_what_it_gave() -> None:
    """Instead of waiting for ever for a result that is gone."""
    world = _world()
    session = _started(world)
    world.complete(world.claim_one(session), 1)
    (owed,) = world.store.read(PendingDeliveries())
    failure = Failure(code="blob_missing", message="it is gone", retryable=False)
    told = world.do(RunDeliver(job=owed.key.text, parent=parse(owed.input), failure=failure))

    assert (told.status, told.follow_up.deliveries) == ("delivered", True)
    error = parse(world.run().error or "")
    assert (world.run().status, error["code"], error["message"]) == ("failed", "blob_missing", "it is gone")


def test_being_told_twice_is_being_told_once() -> None:
    world = _world()
    session = _started(world)
    world.complete(world.claim_one(session), 1)
    (owed,) = world.store.read(PendingDeliveries())
    told = RunDeliver(job=owed.key.text, parent=parse(owed.input), output=payload(1))

    answers = world.send(told, told)
    assert answers == [RunDelivered(status="delivered"), RunDelivered(status="closed")]
    with world.unchanged():
        assert world.do(told) == RunDelivered(status="closed")
    assert world.events().count("stage.completed") == 1


def test_nothing_is_told_to_others_than_those_who_wait() -> None:
    world = _world()
    session = _started(world)
    world.create("y")
    world.complete(_of(world.claim(session), world, "x/k"), 1)
    (owed,) = world.store.read(PendingDeliveries())
    other = f"{world.run('y').key}.1"

    with world.unchanged(), pytest.raises(InvalidCommandError, match="is to be delivered to"):
        world.do(RunDeliver(job=owed.key.text, parent=other, output=payload(1)))
    with world.unchanged(), pytest.raises(InvalidCommandError, match="is to be delivered to"):
        world.do(RunDeliver(job=owed.key.text))
    with world.unchanged(), pytest.raises(InvalidCommandError, match="output is missing"):
        world.do(RunDeliver(job=owed.key.text, parent=parse(owed.input)))


def test_a_job_that_owes_nothing_tells_nothing() -> None:
    world = _world()
    _started(world)
    job = _waiting(world)

    with world.unchanged():
        assert world.do(RunDeliver(job=job.key.text)) == RunDelivered(status="closed")


def test_what_is_owed_is_no_work() -> None:
    world = _world()
    session = _started(world)
    world.complete(world.claim_one(session), 1)
    (owed,) = world.store.read(PendingDeliveries())

    claim = JobClaimOne(session=session, job=owed.key.text, epoch=0, definitions=("c@1",))
    assert world.do(claim).ignored == "closed"
    assert world.claim(session) == ()
    with world.unchanged():
        assert world.do(RunRepair()).repaired == ()


def test_a_child_of_a_child_is_told_all_the_way_up() -> None:
    world = World(pipeline(child("k", workflow="m")), pipeline(child("l"), workflow="m"), CHILD)
    world.create()
    session = world.open()
    world.start_child(world.claim_one(session), "x/k", workflow="m")
    world.start_child(world.claim_one(session), "x/k/l")
    world.complete(world.claim_one(session), "deep")
    first, second = [one for one in world.deliver() if one.status == "delivered"]

    assert (first.follow_up.deliveries, second.follow_up.deliveries) == (True, True)
    assert world.result() == "deep"


# The parent ends first -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [RunCancel(run_id="x"), RunTerminate(run_id="x")])
def test_children_are_left_to_be_closed_when_their_parent_is_ended(end: Command[RunStopped]) -> None:
    world = _world()
    _started(world)
    assert _left(world) == []
    assert world.do(end).follow_up.deliveries

    (owed,) = world.store.read(PendingDeliveries())
    assert (owed.run, owed.input, owed.kind) == (world.run().key, "null", JobKind.DELIVER)
    assert _left(world) == ["x/k"]
    world.do(RunCancel(run_id="x/k", generation=1))
    assert _left(world) == []
    assert {one.status for one in world.deliver()} == {"closed"}
    assert world.store.read(PendingDeliveries()) == ()


def test_children_are_left_to_be_closed_when_their_parent_fails() -> None:
    world = _world(pipeline((child("k"), stage("b"))))
    world.create()
    session = world.open()
    kid, beside = sorted(world.claim(session), key=lambda one: one.node, reverse=True)
    world.start_child(kid, "x/k")
    assert world.fail(beside, retryable=False).follow_up.deliveries

    assert _left(world) == ["x/k"]


@pytest.mark.parametrize("policy", list(ClosePolicy))
def test_those_that_are_to_be_abandoned_are_not_among_those_left(policy: ClosePolicy) -> None:
    world = _world(pipeline(child("k", close_policy=policy)))
    world.create()
    session = world.open()
    started = ChildRunStarted(run_id="x/k", workflow="c", version="1", input=payload(0), close_policy=policy)
    world.settle(world.claim_one(session), started)
    world.do(RunCancel(run_id="x"))

    left = world.store.read(OrphanedChildren((world.run().key,)))
    assert [run.close_policy for run in left] == ([] if policy is ClosePolicy.ABANDON else [policy])
    assert world.run("x/k").status == "running"
    world.complete(world.claim_one(session))
    assert {one.status for one in world.deliver()} == {"closed"}
    assert (world.run("x/k").status, world.run().status) == ("completed", "cancelled")


def test_a_run_that_has_started_nobody_owes_nobody() -> None:
    world = _world()
    world.create()
    assert not world.do(RunCancel(run_id="x")).follow_up.deliveries


def test_a_child_that_ends_after_its_parent_is_told_to_nobody() -> None:
    world = _world()
    session = _started(world)
    body = world.claim_one(session)
    world.do(RunCancel(run_id="x"))
    assert world.complete(body).status == "settled"

    before = world.run()
    assert [one.status for one in world.deliver()] == ["closed", "closed"]
    assert world.run() == before


def test_a_child_that_ended_before_its_parent_was_cancelled_is_told_to_nobody() -> None:
    world = _world()
    session = _started(world)
    world.complete(world.claim_one(session))
    world.do(RunCancel(run_id="x"))

    assert {one.status for one in world.deliver()} == {"closed"}
    assert (world.run().status, world.store.read(PendingDeliveries())) == ("cancelled", ())


# Maps ------------------------------------------------------------------------------------------------------------


def _children(world: World, items: int) -> str:
    world.create()
    session = world.open()
    world.expand(world.claim_one(session), range(items))
    for attempt in world.claim(session):
        world.start_child(attempt, f"x/{attempt.item}", attempt.item)
    return session


def test_a_map_of_children_gives_what_they_gave_in_the_order_of_items() -> None:
    world = _world(pipeline(each_of(child("k")), stage("z")))
    session = _children(world, 3)
    for attempt in reversed(world.claim(session)):
        world.complete(attempt, [world.value(attempt.run, attempt.input)])
    world.deliver()

    last = world.claim_one(session)
    assert (last.node, world.value(last.run, last.input)) == ("z", [[0], [1], [2]])


def test_children_of_a_map_that_has_enough_are_left_to_be_closed() -> None:
    world = _world(pipeline(each_of(child("k"), enough=Enough(at_least=1)), stage("z")))
    session = _children(world, 3)
    world.complete(_of(world.claim(session), world, "x/1"), "first")
    (told,) = [one for one in world.deliver() if one.status == "delivered"]

    assert told.follow_up.deliveries
    assert _left(world) == ["x/0", "x/2"]
    last = world.claim_one(session)
    assert world.value(last.run, last.input) == {"results": ["first"], "failures": []}
    world.do(RunCancel(run_id="x/0"))
    world.do(RunTerminate(run_id="x/2"))
    assert {one.status for one in world.deliver()} <= {"closed"}
    assert world.run().status == "running"


def test_a_child_that_fails_may_be_an_item_that_is_tolerated() -> None:
    world = _world(pipeline(each_of(child("k"), enough=Enough(tolerated=1)), stage("z")))
    session = _children(world, 2)
    first, second = world.claim(session)
    world.fail(first, retryable=False)
    world.complete(second, "done")
    world.deliver()

    last = world.claim_one(session)
    gave = world.value(last.run, last.input)
    assert gave == {
        "results": ["done"],
        "failures": [{"index": 0, "error": "run 'x/0' failed: it broke"}],
    }


# Reruns, pauses, repairs -----------------------------------------------------------------------------------------


def test_a_parent_waits_for_the_next_generation_of_a_child_that_is_run_again() -> None:
    world = _world()
    session = _started(world)
    old = world.claim_one(session)
    world.rerun(id="x/k")
    assert world.run("x/k").generation == 2

    assert [one.status for one in world.deliver()] == []
    assert world.run().status == "running"
    assert world.complete(old).status == "fenced"
    world.complete(world.claim_one(session), "second")
    assert [one.status for one in world.deliver()] == ["delivered"]
    after = world.claim_one(session)
    assert world.value(after.run, after.input) == "second"


def test_what_a_parent_was_told_stays_when_the_child_is_run_again_later() -> None:
    world = _world()
    session = _started(world)
    world.complete(world.claim_one(session), "first")
    world.deliver()
    world.complete(world.claim_one(session), "end")
    world.deliver()
    world.rerun(id="x/k")

    assert world.run("x/k").parent is None
    world.complete(world.claim_one(session), "second")
    assert world.deliver() == []
    assert world.result() == "end"


def test_an_end_that_is_not_told_yet_is_told_though_the_child_is_run_again() -> None:
    world = _world()
    session = _started(world)
    world.complete(world.claim_one(session), "first")
    world.rerun(id="x/k")

    assert [one.status for one in world.deliver()] == ["delivered"]
    after = _of(world.claim(session), world, "x")
    assert world.value(after.run, after.input) == "first"


def test_a_parent_that_is_run_again_leaves_the_child_of_the_generation_before() -> None:
    world = _world()
    session = _started(world)
    old = world.claim_one(session)
    rerun = world.rerun()
    assert rerun.terminated
    assert _left(world, generation=1) == ["x/k"]
    world.do(RunCancel(run_id="x/k"))
    assert {one.status for one in world.deliver()} == {"closed"}

    assert world.complete(old).status == "fenced"
    assert world.start_child(world.claim_one(session), "x/k/2").status == "settled"
    world.complete(world.claim_one(session), "new")
    world.deliver()
    assert world.claim_one(session).node == "z"


def test_a_rerun_keeps_what_a_child_gave() -> None:
    world = _world()
    session = _started(world)
    world.complete(world.claim_one(session), "gave")
    world.deliver()
    world.complete(world.claim_one(session))
    assert world.rerun("z").keeps == ("k",)

    last = world.claim_one(session)
    assert (last.node, world.value(last.run, last.input)) == ("z", "gave")


def test_a_paused_parent_waits_on_when_it_is_resumed() -> None:
    world = _world()
    session = _started(world)
    world.do(RunPause(run_id="x"))
    assert _waiting(world).state is JobState.PAUSED
    assert world.run("x/k").status == "running"
    world.do(RunResume(run_id="x"))

    assert (_waiting(world).state, _waiting(world).wake_at) == (JobState.SLEEPING, None)
    world.complete(world.claim_one(session), 1)
    world.deliver()
    assert world.claim_one(session).node == "z"


def test_a_paused_parent_is_told_and_goes_on_when_it_is_resumed() -> None:
    world = _world()
    session = _started(world)
    world.do(RunPause(run_id="x"))
    world.complete(world.claim_one(session), 1)
    assert [one.status for one in world.deliver()] == ["delivered"]

    assert (_waiting(world).node, _waiting(world).state) == ("z", JobState.PAUSED)
    world.do(RunResume(run_id="x"))
    assert world.claim_one(session).node == "z"


def test_a_child_that_is_started_in_a_paused_run_is_waited_for_when_that_is_resumed() -> None:
    world = _world()
    world.create()
    session = world.open()
    attempt = world.claim_one(session)
    world.do(RunPause(run_id="x"))
    world.start_child(attempt, "x/k")
    assert _waiting(world).state is JobState.PAUSED
    world.do(RunResume(run_id="x"))

    assert world.claim_one(session).run == world.run("x/k").key
    assert _waiting(world).state is JobState.SLEEPING


def _lose(world: World) -> None:
    world.put(Delete(JOBS, _waiting(world).key))
    assert world.do(RunRepair()).repaired == ("x",)


def test_a_child_that_has_ended_stays_as_it_is_when_it_is_taken_over() -> None:
    """Except for the job that delivers its end, which is pending once more."""
    world = _world()
    session = _started(world)
    world.complete(world.claim_one(session), "gave")
    ended = world.run("x/k")
    _lose(world)
    world.wait(10)
    assert world.start_child(world.claim_one(session), "x/k").follow_up.deliveries

    taken = world.run("x/k")
    assert taken == attrs.evolve(ended, parent=_waiting(world).key.text, last_job=ended.last_job + 1)
    assert [one.status for one in world.deliver()].count("delivered") == 1
    after = world.claim_one(session)
    assert world.value(after.run, after.input) == "gave"


def test_a_lost_job_takes_its_child_over() -> None:
    world = _world()
    session = _started(world)
    body = world.claim_one(session)
    _lose(world)
    assert world.start_child(world.claim_one(session), "x/k").status == "settled"

    assert world.run("x/k").parent == _waiting(world).key.text
    assert len(world.tables().runs) == 2
    world.complete(body, "gave")
    assert [one.status for one in world.deliver()] == ["delivered"]
    after = world.claim_one(session)
    assert world.value(after.run, after.input) == "gave"
