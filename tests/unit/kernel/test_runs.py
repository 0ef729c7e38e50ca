"""The lifecycle of runs: create, status, end."""

from datetime import timedelta

import attrs
import pytest

from holdfast.kernel.commands import (
    AttemptReport,
    Command,
    JobHeartbeat,
    JobRelease,
    RunCancel,
    RunCreate,
    RunStopped,
    RunTerminate,
    RunTransition,
    RunTransitioned,
)
from holdfast.kernel.dispatch.kernel import Kernel
from holdfast.kernel.history import events
from holdfast.kernel.pipelines.progress import NodeProgress, Progress
from holdfast.ports.changes import Delete, Insert, Update
from holdfast.ports.errors import RunExistsError, RunNotFoundError, UnknownWorkflowError
from holdfast.ports.json import parse
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import JobKind, JobState
from holdfast.ports.records.run import RunStatus
from holdfast.ports.tables import JOBS
from holdfast.testing.ids import SeededIds
from tests.unit.kernel.world import World, completing, each, field, payload, pipeline, stage

TWO = pipeline(stage("a"), stage("b"))
ENDINGS = {
    "run.cancelled": RunCancel(run_id="x", reason="why"),
    "run.terminated": RunTerminate(run_id="x", reason="why"),
}


@pytest.fixture
def world() -> World:
    return World(TWO)


# Creating -------------------------------------------------------------------------------------------------------


def test_a_run_is_stored_with_its_first_jobs(world: World) -> None:
    created = world.create(input={"n": 1})

    run = world.run()
    assert (run.key, run.generation, run.status) == (created.run, 1, RunStatus.RUNNING)
    assert (run.workflow, run.version, run.plan) == ("w", "1", TWO.fingerprint)
    assert run.created_at == run.updated_at == world.now
    (job,) = world.jobs()
    assert (job.kind, job.node, job.item, job.state) == (JobKind.STAGE, "a", None, JobState.QUEUED)
    assert (job.definition, job.queue, job.max_attempts) == ("w@1", "default", 3)
    assert world.value(run.key, job.input) == {"n": 1}
    assert world.events() == ["run.created"]
    assert created.created


def test_a_run_without_an_id_is_called_by_its_key(world: World) -> None:
    first = world.create(None)
    second = world.create(None)

    assert first.run_id == first.run
    assert first.run < second.run


def test_a_workflow_that_is_not_known_is_refused(world: World) -> None:
    with world.unchanged():
        for command in (
            RunCreate(workflow="other", input=payload(0)),
            RunCreate(workflow="w", version="2", input=payload(0)),
        ):
            with pytest.raises(UnknownWorkflowError):
                world.do(command)


def test_the_version_given_last_is_used_where_none_is_asked_for() -> None:
    world = World(pipeline(stage("a"), version="2"), pipeline(stage("b"), version="1"))
    world.create("new")
    world.do(RunCreate(workflow="w", version="2", id="old", input=payload(0)))

    assert world.run("new").version == "1"
    assert world.run("old").version == "2"
    assert [job.definition for job in world.jobs("old")] == ["w@2"]


def test_what_a_run_is_told_goes_to_its_jobs_unless_a_stage_says_otherwise() -> None:
    world = World(pipeline((stage("a"), stage("b", queue="gpu", priority=-1), stage("c", priority=0))))
    world.do(
        RunCreate(workflow="w", id="x", input=payload(0), queue="slow", priority=7, attributes='{"who":"me"}')
    )

    assert [(job.node, job.queue, job.priority) for job in world.jobs()] == [
        ("a", "slow", 7),
        ("b", "gpu", -1),
        ("c", "slow", 0),
    ]
    assert world.run().attributes == '{"who":"me"}'


def test_an_id_that_is_taken_is_refused(world: World) -> None:
    world.create()

    with world.unchanged(), pytest.raises(RunExistsError):
        world.create()


def test_an_id_stays_taken_when_its_run_has_ended(world: World) -> None:
    world.create()
    world.do(RunCancel(run_id="x"))

    with world.unchanged(), pytest.raises(RunExistsError):
        world.create()


def test_the_run_that_has_an_id_is_returned_if_asked(world: World) -> None:
    first = world.create(input=1)
    with world.unchanged():
        again = world.do(RunCreate(workflow="w", id="x", input=payload(2), if_exists="return"))

    assert again == attrs.evolve(first, created=False)


def test_the_ended_run_that_has_an_id_is_returned_with_its_status(world: World) -> None:
    world.create()
    world.do(RunCancel(run_id="x"))

    again = world.do(RunCreate(workflow="w", id="x", input=payload(2), if_exists="return"))

    assert (again.created, again.status) == (False, RunStatus.CANCELLED)


def test_an_id_is_taken_in_its_namespace_only(world: World) -> None:
    world.create()
    world.do(RunCreate(workflow="w", id="x", namespace="other", input=payload(0)))

    assert world.run("x", "other").key != world.run("x").key
    with world.unchanged(), pytest.raises(RunNotFoundError):
        world.do(RunCancel(run_id="x", namespace="third"))


def test_of_two_runs_of_one_id_in_a_batch_the_first_is_created(world: World) -> None:
    first, refused, returned = world.send(
        RunCreate(workflow="w", id="x", input=payload(1)),
        RunCreate(workflow="w", id="x", input=payload(2)),
        RunCreate(workflow="w", id="x", input=payload(3), if_exists="return"),
    )

    assert isinstance(refused, RunExistsError)
    assert not isinstance(first, Exception)
    assert returned == attrs.evolve(first, created=False)
    assert world.value(world.run().key, "1") == 1
    assert len(world.tables().runs) == 1


def test_a_plan_is_stored_once(world: World) -> None:
    for _ in range(3):
        world.send(*(RunCreate(workflow="w", input=payload(0)) for _ in range(3)))

    assert list(world.tables().plans) == [TWO.fingerprint]


def test_a_run_keeps_the_plan_that_it_was_created_with(world: World) -> None:
    """A deploy may change the pipeline, even under the same version, while the run is open."""
    world.create()
    session = world.open()
    world.complete(world.claim_one(session))
    world.kernel = Kernel(
        persistence=world.store,
        clock=world.clock,
        ids=SeededIds(1),
        plans=[pipeline(stage("a"), stage("c"), stage("d"))],
    )
    world.create("new")

    second = next(attempt for attempt in world.claim(session) if attempt.node == "b")
    assert world.complete(second).run_status == "completed"
    assert [job.node for job in world.jobs("new")] == ["a"]
    assert len(world.tables().plans) == 2


def test_a_kernel_that_knows_no_workflow_brings_runs_on(world: World) -> None:
    world.create()
    attempt = world.claim_one(world.open())
    world.kernel = Kernel(persistence=world.store, clock=world.clock, ids=SeededIds(1))

    assert world.complete(attempt).run_status == "running"
    assert [job.node for job in world.jobs()] == ["b"]


# Ending ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ENDINGS)
def test_a_run_that_is_ended_loses_its_jobs(world: World, kind: str) -> None:
    world.create()
    world.wait(5)
    ended = world.do(ENDINGS[kind])

    run = world.run()
    assert ended == RunStopped(status=RunStatus.CANCELLED, changed=True)
    assert (run.status, run.ended_at, run.open_jobs) == (RunStatus.CANCELLED, world.now, 0)
    assert parse(run.error or "") == {"code": kind.removeprefix("run."), "message": "why"}
    assert world.events() == ["run.created", kind]
    assert world.history()[-1].data == '{"reason":"why"}'
    assert world.jobs() == []


@pytest.mark.parametrize("kind", ENDINGS)
@pytest.mark.parametrize("how", ["completed", "failed", "cancelled", "terminated"])
def test_a_run_that_has_ended_is_left_as_it_is(kind: str, how: str) -> None:
    world = World(pipeline(stage("a")))
    world.create()
    attempt = world.claim_one(world.open())
    match how:
        case "completed":
            world.complete(attempt)
        case "failed":
            world.fail(attempt, retryable=False)
        case _:
            world.do(ENDINGS[f"run.{how}"])
    status = world.run().status

    world.wait(1)
    with world.unchanged():
        assert world.do(ENDINGS[kind]) == RunStopped(status=status, changed=False)
        assert world.do(RunTransition(run_id="x")) == RunTransitioned(action="none", status=status)


@pytest.mark.parametrize(
    "command",
    [RunCancel(run_id="y"), RunTerminate(run_id="y"), RunTransition(run_id="y")],
    ids=lambda c: c.type,
)
def test_a_run_that_is_not_there_can_not_be_ended(world: World, command: Command[object]) -> None:
    world.create()
    with world.unchanged(), pytest.raises(RunNotFoundError) as caught:
        world.do(command)

    assert caught.value.run_id == "y"


@pytest.mark.parametrize("kind", ENDINGS)
@pytest.mark.parametrize("in_one_batch", [True, False])
def test_a_run_that_completes_before_it_is_ended_is_completed(kind: str, *, in_one_batch: bool) -> None:
    world = World(pipeline(stage("a")))
    world.create()
    commands = (completing(world.claim_one(world.open())), ENDINGS[kind])

    answers = world.send(*commands) if in_one_batch else [world.do(command) for command in commands]

    assert field(answers[0], "run_status") == "completed"
    assert answers[1] == RunStopped(status=RunStatus.COMPLETED, changed=False)
    assert world.run().status == "completed"


@pytest.mark.parametrize("kind", ENDINGS)
@pytest.mark.parametrize("in_one_batch", [True, False])
def test_a_run_that_is_ended_before_it_completes_is_cancelled(kind: str, *, in_one_batch: bool) -> None:
    world = World(pipeline(stage("a")))
    world.create()
    commands = (ENDINGS[kind], completing(world.claim_one(world.open())))

    answers = world.send(*commands) if in_one_batch else [world.do(command) for command in commands]

    assert answers[0] == RunStopped(status=RunStatus.CANCELLED, changed=True)
    assert field(answers[1], "status") == "fenced"
    assert world.run().status == "cancelled"
    assert "stage.completed" not in world.events()


@pytest.mark.parametrize("kind", ENDINGS)
def test_an_attempt_of_a_run_that_was_ended_can_write_nothing(world: World, kind: str) -> None:
    world.create()
    attempt = world.claim_one(world.open())
    world.do(ENDINGS[kind])

    with world.unchanged():
        assert world.complete(attempt).status == "fenced"
        assert world.fail(attempt).status == "fenced"
        assert world.expand(attempt, [1]).status == "fenced"
        assert world.do(JobRelease(job=attempt.job, epoch=attempt.epoch)).status == "fenced"
        held = AttemptReport(job=attempt.job, epoch=attempt.epoch)
        assert world.do(JobHeartbeat(attempts=(held,))).lost == (attempt.job,)


def test_ending_one_run_leaves_the_others_alone(world: World) -> None:
    world.create("x")
    world.create("y")
    before = (world.run("y"), world.jobs("y"), world.history("y"))
    world.do(RunCancel(run_id="x"))

    assert (world.run("y"), world.jobs("y"), world.history("y")) == before


# Going on -------------------------------------------------------------------------------------------------------


def test_a_run_whose_group_is_not_done_does_not_go_on(world: World) -> None:
    world.create()
    with world.unchanged():
        reply = world.do(RunTransition(run_id="x"))

    assert reply == RunTransitioned(action="none", status=RunStatus.RUNNING)


def test_a_run_goes_on_that_was_created_in_the_same_batch(world: World) -> None:
    _, reply = world.send(RunCreate(workflow="w", id="x", input=payload(0)), RunTransition(run_id="x"))

    assert reply == RunTransitioned(action="none", status=RunStatus.RUNNING)


def _stall(world: World, node: str) -> None:
    """Make the run look as if a settle had stopped after completing a node, which no kernel does."""
    run = world.run()
    (job,) = world.jobs()
    row = HistoryRow(
        run=run.key,
        number=run.last_row + 1,
        type="stage.completed",
        at=world.now,
        node=node,
        epoch=1,
        payload=payload("done"),
        data=events.StageCompleted(attempt=1, job=1).data,
    )
    group = next(place for place, group in enumerate(TWO.groups) if group.nodes[0].name == node)
    progress = Progress(group=group, input=run.last_row, nodes={node: NodeProgress(output=row.number)})
    stalled = attrs.evolve(run, last_row=row.number, open_jobs=0, progress=progress.to_json())
    world.put(Update(stalled), Delete(JOBS, job.key), Insert(row))


def test_a_run_whose_group_is_done_goes_on(world: World) -> None:
    world.create()
    _stall(world, "a")

    assert world.do(RunTransition(run_id="x")) == RunTransitioned(action="advanced", status=RunStatus.RUNNING)
    (job,) = world.jobs()
    assert (job.node, world.value(job.run, job.input)) == ("b", "done")
    with world.unchanged():
        world.do(RunTransition(run_id="x"))


def test_a_run_whose_last_group_is_done_completes(world: World) -> None:
    world.create()
    world.complete(world.claim_one(world.open()))
    _stall(world, "b")

    assert world.do(RunTransition(run_id="x")) == RunTransitioned(
        action="completed", status=RunStatus.COMPLETED
    )
    assert world.result() == "done"


def test_a_run_of_one_stage_ends_with_its_output(world: World) -> None:
    world = World(pipeline(stage("a")))
    world.create()
    world.wait(1)
    world.complete(world.claim_one(world.open()), {"sum": 3})

    assert world.result() == {"sum": 3}
    assert world.run().ended_at == world.now
    assert world.events() == ["run.created", "stage.completed", "run.completed"]


def test_runs_of_different_workflows_do_not_meet() -> None:
    world = World(pipeline(stage("a")), pipeline(each("a"), workflow="v"))
    world.create("x")
    world.create("y", workflow="v")

    assert [(attempt.definition, attempt.kind) for attempt in world.claim(world.open())] == [
        ("w@1", JobKind.STAGE),
        ("v@1", JobKind.EXPAND_MAP),
    ]


def test_a_run_never_goes_back_in_time(world: World) -> None:
    """The next host's clock may be behind: its rows are not earlier than those stored before."""
    world.create("x")
    attempt = world.claim_one(world.open())
    began = world.now
    world.clock.jump(timedelta(seconds=-60))
    world.complete(attempt)

    run = world.run("x")
    assert world.now < began
    assert [row.at for row in world.history("x")] == [began] * run.last_row
    assert run.updated_at == began
