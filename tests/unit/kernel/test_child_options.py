"""The options of child runs: those that their parent gives, those of their workflow, and what they inherit."""

import attrs
import pytest

from holdfast.kernel.commands import (
    Attempt,
    ChildRunStarted,
    ChildStart,
    JobClaim,
    JobRecord,
    RunClaimPending,
    RunCreate,
    RunExpire,
    RunTerminate,
)
from holdfast.kernel.history import events
from holdfast.kernel.pipelines.plan import Plan
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.records.run import NO_OPTIONS, GivenOptions, Run, RunStatus
from tests.unit.kernel.world import SECOND, World, payload, pipeline, stage

FUNCTION = attrs.evolve(stage("f", attempts=1), function=True)
CHILD = pipeline(FUNCTION, workflow="c")


def started(options: GivenOptions, child: Plan = CHILD) -> tuple[World, Run]:
    """A function that has given these options to its child run."""
    world = World(pipeline(FUNCTION), child)
    world.do(
        RunCreate(
            workflow="w",
            id="x",
            input=payload(0),
            queue="slow",
            priority=2,
            attributes='{"of":"parent"}',
            deadline=500 * SECOND,
        )
    )
    (attempt,) = claimed(world)
    start_child(world, attempt, options)
    return world, world.run("x/1")


def claimed(world: World) -> tuple[Attempt, ...]:
    return world.do(JobClaim(session=world.open(), queue_claims=world.lanes(queue="slow"), limit=9)).attempts


def start_child(world: World, attempt: Attempt, options: GivenOptions) -> None:
    child = ChildRunStarted(run_id="x/1", workflow="c", version="1", input=payload(1), options=options)
    records = (ChildStart(call="1", child=child),)
    world.do(JobRecord(job=attempt.job, epoch=attempt.epoch, seen=1, records=records))


def refused(options: GivenOptions) -> str:
    """Return why a child run with these options is refused: its parent's history says so, and it does not exist."""
    world = World(pipeline(FUNCTION), CHILD)
    world.do(RunCreate(workflow="w", id="x", input=payload(0), queue="slow"))
    (attempt,) = claimed(world)
    start_child(world, attempt, options)
    assert [run.id for run in world.tables().runs.values()] == ["x"]
    event = events.event_of(world.history("x")[-1])
    assert isinstance(event, events.ChildFailed)
    assert event.code == InvalidCommandError.code
    return event.message or ""


def test_without_options_a_child_is_like_its_parent_but_for_its_deadline() -> None:
    _, child = started(NO_OPTIONS)
    assert (child.queue, child.priority, child.attributes) == ("slow", 2, '{"of":"parent"}')
    assert (child.status, child.deadline) == (RunStatus.RUNNING, None)


def test_the_options_of_its_workflow_come_before_those_of_its_parent() -> None:
    own = attrs.evolve(CHILD, queue="own", priority=0, deadline_us=9 * SECOND)
    world, child = started(NO_OPTIONS, own)
    assert (child.queue, child.priority, child.deadline) == ("own", 0, world.now + 9 * SECOND)


def test_what_its_parent_gives_comes_first() -> None:
    own = attrs.evolve(CHILD, queue="own", priority=1, deadline_us=9 * SECOND)
    given = GivenOptions(queue="gpu", priority=-3, attributes="{}", deadline=7 * SECOND)
    world, child = started(given, own)
    assert (child.queue, child.priority, child.attributes) == ("gpu", -3, "{}")
    assert child.deadline == world.now + 7 * SECOND
    (job,) = world.jobs("x/1")
    assert (job.queue, job.priority) == ("gpu", -3)


def test_a_child_may_start_later() -> None:
    later = 1_767_225_600 * SECOND + 3_600 * SECOND
    world, child = started(GivenOptions(start_at=later, deadline=5 * SECOND))
    assert (child.status, child.start_at, child.deadline) == (RunStatus.PENDING, later, later + 5 * SECOND)
    assert (world.run("x").children, world.jobs("x/1")) == (1, [])
    world.wait((later - world.now) / SECOND)
    assert world.do(RunClaimPending()).admitted == 1
    assert world.run("x/1").status is RunStatus.RUNNING


def test_a_child_that_waits_for_its_start_is_delivered_when_its_deadline_passes() -> None:
    world, _ = started(GivenOptions(start_at=None, deadline=5 * SECOND))
    (attempt,) = (one for one in claimed(world) if one.run == world.run("x/1").key)
    world.wait(5)
    world.do(RunExpire())
    world.fail(attempt)
    assert [one.status for one in world.deliver()] == ["delivered"]


def test_a_parent_that_ends_closes_a_child_that_has_not_begun() -> None:
    world, child = started(GivenOptions(start_at=2_000_000_000 * SECOND))
    ended = world.do(RunTerminate(run_id="x"))
    assert ended.follow_up.deliveries
    assert world.do(RunTerminate(run_id=child.id)).status is RunStatus.CANCELLED


@pytest.mark.parametrize("start_at", [None, 2_000_000_000 * SECOND])
def test_a_weight_holds_for_the_key_of_the_child_from_then_on(start_at: int | None) -> None:
    """Also if the child takes its turn later."""
    fair = attrs.evolve(CHILD, fair="of")
    world, _ = started(GivenOptions(weight=4, start_at=start_at), fair)
    assert [(row.key, row.weight) for row in world.tables().fair_keys.values()] == [("parent", 4)]

    world.do(RunCreate(workflow="c", input=payload(0), queue="slow", attributes='{"of":"parent"}'))

    assert [row.weight for row in world.tables().fair_keys.values()] == [4]


def test_a_weight_is_refused_if_the_child_takes_no_turns() -> None:
    assert "'c' has no fair=" in refused(GivenOptions(weight=4))


@pytest.mark.parametrize(
    "options",
    [
        GivenOptions(deadline=0),
        GivenOptions(start_at=-1),
        GivenOptions(weight=0),
        GivenOptions(weight=1_001),
    ],
)
def test_options_out_of_bounds_are_refused(options: GivenOptions) -> None:
    """The parent sees it as an error of the child run: settling its call again would not help."""
    assert refused(options)


def test_a_command_with_a_name_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidCommandError, match="at most 200"):
        started(GivenOptions(queue="q" * 201))


def test_the_same_options_of_a_start_come_before_those_of_its_workflow() -> None:
    plan = attrs.evolve(pipeline(FUNCTION), queue="own", priority=4, deadline_us=9 * SECOND)
    world = World(plan)
    world.do(RunCreate(workflow="w", id="a", input=payload(0)))
    world.do(RunCreate(workflow="w", id="b", input=payload(0), queue="q", priority=0, deadline=SECOND))
    found = [(run.queue, run.priority, (run.deadline or 0) - world.now) for run in map(world.run, "ab")]
    assert found == [("own", 4, 9 * SECOND), ("q", 0, SECOND)]
