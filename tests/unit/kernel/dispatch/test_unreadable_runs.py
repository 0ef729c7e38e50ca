"""Unreadable rows: the kernel blocks their runs and carries out the commands for all others."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from holdfast.kernel.commands import (
    Completed,
    JobClaim,
    JobSettle,
    JobWakeDue,
    LeaseReapStale,
    RunCancel,
    RunClaimPending,
    RunCreate,
    RunPause,
    RunRepair,
    RunResume,
    RunTerminate,
    SessionReap,
)
from holdfast.kernel.dispatch.kernel import Kernel
from holdfast.kernel.dispatch.unreadable_runs import BlockedRun
from holdfast.kernel.rules import registry
from holdfast.ports.changes import Change, DeleteJobs, Insert, Update
from holdfast.ports.errors import UnreadableRowError
from holdfast.ports.records.job import Job, JobState
from holdfast.ports.records.run import Run, RunStatus
from holdfast.testing.ids import SeededIds
from tests.unit.kernel.world import World, completing, field, payload, pipeline, stage

Damage = Callable[[Run, Job], Change]

DAMAGES: dict[str, Damage] = {
    "progress": lambda run, _: Update(attrs.evolve(run, progress="[")),
    "place": lambda run, _: Update(attrs.evolve(run, progress='{"group":7,"input":1,"nodes":{}}')),
    "plan": lambda run, _: Update(attrs.evolve(run, plan="gone")),
    "mailbox": lambda run, _: Update(attrs.evolve(run, mailbox="7")),
}


def a_world(blocked: list[BlockedRun] | None = None) -> World:
    world = World(pipeline(stage("a"), stage("b")))
    if blocked is not None:
        world.kernel = Kernel(
            persistence=world.store,
            clock=world.clock,
            ids=SeededIds(clock=world.clock),
            plans=[pipeline(stage("a"), stage("b"))],
            blocked=blocked.append,
        )
    return world


@pytest.mark.parametrize("what", DAMAGES)
def test_of_a_batch_of_settles_the_others_are_settled(what: str) -> None:
    blocked: list[BlockedRun] = []
    world = a_world(blocked)
    for name in ("x", "y", "z"):
        world.create(name)
    attempts = {attempt.run: attempt for attempt in world.claim(world.open())}
    bad = world.run("y")
    world.put(DAMAGES[what](bad, world.jobs("y")[0]))

    in_order = [attempts[world.run(name).key] for name in ("x", "y", "z")]
    first, refused, last = world.kernel.dispatch_many([completing(attempt) for attempt in in_order])

    assert (field(first, "status"), field(last, "status")) == ("settled", "settled")
    assert isinstance(refused, UnreadableRowError) or field(refused, "status") == "settled"
    if isinstance(refused, UnreadableRowError):
        assert refused.run == bad.key
        assert world.run("y").status is RunStatus.BLOCKED
        assert [one.run.id for one in blocked] == ["y"]
        assert world.history("y")[-1].type == "run.blocked"
    assert world.jobs("y")[0].state is JobState.LEASED  # its lease ends as others do


def test_a_blocked_run_is_logged_once() -> None:
    blocked: list[BlockedRun] = []
    world = a_world(blocked)
    world.create("y")
    (attempt,) = world.claim(world.open())
    world.put(Update(attrs.evolve(world.run("y"), progress="[")))

    for _ in range(3):
        assert isinstance(world.kernel.dispatch_many([completing(attempt)])[0], UnreadableRowError)

    assert len(blocked) == 1
    assert world.events("y").count("run.blocked") == 1


def test_a_search_passes_over_the_run_and_goes_on() -> None:
    """The jobs of the other runs are released, though a job of this run was lost with them."""
    world = a_world()
    for name in ("x", "y"):
        world.create(name)
    session = world.open()
    world.claim(session)
    world.put(Update(attrs.evolve(world.run("y"), plan="gone")))
    world.wait(1_000)
    world.kernel.dispatch(SessionReap(grace=0))
    world.kernel.dispatch(LeaseReapStale(limit=10))

    assert world.jobs("x")[0].state is JobState.QUEUED
    for _ in range(2):
        world.kernel.dispatch(LeaseReapStale(limit=10))
    assert world.run("y").status is RunStatus.BLOCKED


def test_a_repair_of_others_is_made() -> None:
    world = a_world()
    for name in ("x", "y"):
        world.create(name)
    world.put(
        Update(attrs.evolve(world.run("y"), progress="[")),
        DeleteJobs(world.run("y").key),
        DeleteJobs(world.run("x").key),
    )

    for _ in range(2):
        world.kernel.dispatch(RunRepair())

    assert len(world.jobs("x")) == 1
    assert world.run("y").status is RunStatus.BLOCKED
    with pytest.raises(UnreadableRowError, match="'progress'"):
        world.kernel.dispatch(RunRepair(run=world.run("y").key))


def test_a_history_that_goes_on_beyond_the_last_row_blocks_the_run() -> None:
    """Its next row has the number of an existing one: no row could ever be added."""
    world = a_world()
    world.create("y")
    (attempt,) = world.claim(world.open())
    run, last = world.run("y"), world.history("y")[-1]
    beyond = attrs.evolve(last, number=run.last_row + 1, type="odd")
    world.put(Insert(beyond))

    (answer,) = world.kernel.dispatch_many([completing(attempt)])

    # To block it has put its last row right.
    assert field(answer, "status") == "settled"
    assert "run.blocked" in world.events("y")


def test_a_decision_that_fails_for_one_run_blocks_it_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    world = a_world()
    world.create("x")
    (attempt,) = world.claim(world.open())
    rule = registry.RULES[JobSettle]

    def fail(*_: Any) -> Any:
        raise KeyError("an error of the kernel's")

    monkeypatch.setitem(registry.RULES, JobSettle, attrs.evolve(rule, decide=fail))
    (refused,) = world.kernel.dispatch_many([completing(attempt)])

    assert isinstance(refused, UnreadableRowError)
    assert "an error of the kernel's" in str(refused)
    assert world.run("x").status is RunStatus.BLOCKED
    assert world.kernel.dispatch(RunTerminate(run_id="x")).changed


def test_what_a_client_says_wrongly_blocks_no_run() -> None:
    world = a_world()
    world.create("x")
    nonsense: Any = object()

    with world.unchanged(), pytest.raises(TypeError):
        world.kernel.dispatch(RunCreate(workflow="w", id="x", input=payload(1), start_at=nonsense))
    with world.unchanged(), pytest.raises(TypeError):
        world.kernel.dispatch(RunCancel(run_id="x", reason=nonsense))


def test_a_decision_that_fails_without_a_run_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    world = a_world()
    rule = registry.RULES[JobWakeDue]

    def fail(*_: Any) -> Any:
        raise KeyError("x")

    monkeypatch.setitem(registry.RULES, JobWakeDue, attrs.evolve(rule, decide=fail))
    with pytest.raises(KeyError):
        world.kernel.dispatch(JobWakeDue(limit=10))


def test_a_run_without_its_plan_is_ended_by_terminate() -> None:
    world = a_world()
    world.create("x")
    world.put(Update(attrs.evolve(world.run("x"), plan="gone")))

    assert world.kernel.dispatch(RunTerminate(run_id="x", reason="damaged")).changed
    assert world.run("x").status is RunStatus.CANCELLED
    assert world.jobs("x") == []


def test_what_is_claimed_is_what_can_be_read() -> None:
    """A job with an invalid input is claimed, as claims do not read inputs: its worker blocks the run."""
    world = a_world()
    for name in ("x", "y"):
        world.create(name)
    world.put(Update(attrs.evolve(world.jobs("y")[0], input="{")))

    claimed = world.kernel.dispatch(JobClaim(session=world.open(), queue_claims=world.lanes(), limit=10))
    world.kernel.block_unreadable(world.run("y").key, None)

    assert len(claimed.attempts) == 2
    assert world.run("y").status is RunStatus.BLOCKED
    assert world.run("x").status is RunStatus.RUNNING


def a_pending_run_that_is_blocked(world: World, *, paused: bool = False) -> None:
    """Block the run `x` because its plan is gone, before it has begun; then put its row right."""
    world.do(
        RunCreate(workflow="w", id="x", input=payload(0), start_at=world.now + 1_000_000, concurrency_key="k")
    )
    if paused:
        world.do(RunPause(run_id="x"))
    run = world.run()
    world.put(Update(attrs.evolve(run, plan="gone")))
    world.kernel.block_unreadable(run.key, None)
    assert world.run().status is RunStatus.BLOCKED
    world.put(Update(attrs.evolve(world.run(), plan=run.plan)))


@pytest.mark.parametrize("paused", [False, True])
def test_a_run_that_was_blocked_before_its_admission_waits_for_it_again(paused: bool) -> None:
    world = a_world()
    a_pending_run_that_is_blocked(world, paused=paused)
    world.wait(1)
    for _ in range(2):  # once to join the line for a slot
        assert world.do(RunClaimPending(keys=("k",))).admitted == 0

    assert world.do(RunResume(run_id="x")).status is RunStatus.PENDING
    world.do(RunClaimPending())
    assert world.do(RunClaimPending(keys=("k",))).admitted == 1
    world.drain(lambda _: Completed(output=payload(1)))
    assert world.run().status is RunStatus.COMPLETED


@pytest.mark.parametrize("end", [RunCancel, RunTerminate])
def test_a_run_that_was_blocked_before_its_admission_can_be_ended(
    end: type[RunCancel | RunTerminate],
) -> None:
    world = a_world()
    a_pending_run_that_is_blocked(world)

    assert world.do(end(run_id="x")).status is RunStatus.CANCELLED
