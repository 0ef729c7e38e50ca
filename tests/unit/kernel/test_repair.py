"""Repair gives runs the jobs back that a fault has taken, and has nothing to do without one."""

import attrs
import pytest

from holdfast.kernel.commands import Command, RunCancel, RunRepair, RunRepaired
from holdfast.ports.changes import CloseJob, CloseJobs, UpdateRun
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.json import parse
from holdfast.ports.records import Job, JobKind, JobState
from holdfast.ports.transport import JobHint
from tests.unit.kernel.world import World, completing, each, pipeline, stage


def _repair(world: World, *, expected: tuple[str, ...] = ("x",)) -> None:
    """Repair, and find nothing to repair afterwards."""
    assert world.do(RunRepair()).repaired == expected
    with world.unchanged():
        assert world.do(RunRepair()).repaired == ()


def _lose_jobs(world: World, *jobs: Job) -> None:
    world.put(*(CloseJob(job.key) for job in jobs))


def _finish(world: World) -> None:
    world.drain(lambda attempt: completing(attempt).outcome)


def test_sound_runs_are_left_alone() -> None:
    world = World(pipeline(stage("a"), each("m", limit=2), (stage("b"), stage("c"))))
    world.create()
    session = world.open()
    while attempts := world.claim(session, limit=1):
        with world.unchanged():
            assert world.do(RunRepair()) == RunRepaired(repaired=(), checked=1, next=None)
        if attempts[0].kind is JobKind.EXPAND:
            world.expand(attempts[0], range(3))
        else:
            world.complete(attempts[0])
        if world.run().status == "running":
            world.fail(world.claim(session, limit=1)[0])

    assert world.do(RunRepair()) == RunRepaired(repaired=(), checked=0, next=None)


def test_a_quiet_run_is_never_failed() -> None:
    world = World(pipeline(stage("a")))
    world.create()
    world.claim_one(world.open())
    world.wait(365 * 24 * 3600)

    with world.unchanged():
        assert world.do(RunRepair()).repaired == ()


@pytest.mark.parametrize("state", ["queued", "leased", "sleeping"])
def test_a_stage_whose_job_is_gone_gets_another(state: str) -> None:
    world = World(pipeline(stage("a"), stage("b")))
    world.create(input="in")
    if state != "queued":
        attempt = world.claim_one(world.open())
        if state == "sleeping":
            world.release(attempt, delay=10**9)
    _lose_jobs(world, *world.jobs())
    _repair(world)

    (job,) = world.jobs()
    assert (job.number, job.node, job.state, job.epoch) == (2, "a", JobState.QUEUED, 0)
    assert world.value(job.run, job.input) == "in"
    assert (world.events()[-1], parse(world.history()[-1].data or "")["jobs"]) == ("run.repaired", 1)
    _finish(world)
    assert world.run().status == "completed"


def test_whoever_held_the_job_that_is_gone_can_write_nothing() -> None:
    world = World(pipeline(stage("a")))
    world.create()
    attempt = world.claim_one(world.open())
    _lose_jobs(world, *world.jobs())
    _repair(world)

    with world.unchanged():
        assert world.complete(attempt).status == "fenced"


def test_a_repaired_job_is_announced() -> None:
    world = World(pipeline(stage("a")))
    world.create()
    _lose_jobs(world, *world.jobs())
    world.heard.hints.clear()
    _repair(world)

    assert world.heard.hints == [JobHint(job=world.jobs()[0].key.text, epoch=0, queue="default")]


def test_a_map_whose_reader_is_gone_gets_another() -> None:
    world = World(pipeline(each("m")))
    world.create()
    _lose_jobs(world, *world.jobs())
    _repair(world)

    session = world.open()
    world.expand(world.claim_one(session), range(2))
    _finish(world)
    assert world.result() == [["m", 0], ["m", 1]]


@pytest.mark.parametrize("lost", [[0], [1], [0, 1, 2], [2, 0]])
def test_items_whose_jobs_are_gone_get_others(lost: list[int]) -> None:
    world = World(pipeline(each("m", limit=3)))
    world.create()
    session = world.open()
    world.expand(world.claim_one(session), [f"item {index}" for index in range(6)])
    world.complete(world.claim(session, limit=1)[0])
    jobs = sorted(world.jobs(), key=lambda job: job.item or 0)
    _lose_jobs(world, *(jobs[place] for place in lost))
    _repair(world)

    assert sorted(job.item or 0 for job in world.jobs()) == [1, 2, 3]
    for job in world.jobs():
        assert world.value(job.run, job.input) == f"item {job.item}"
    _finish(world)
    assert world.result() == [["m", index] for index in range(6)]


def test_stages_side_by_side_get_back_what_they_lack() -> None:
    world = World(pipeline((stage("a"), stage("b"), each("m"))))
    world.create()
    session = world.open()
    attempts = {attempt.node: attempt for attempt in world.claim(session)}
    world.complete(attempts["a"])
    _lose_jobs(world, *(job for job in world.jobs() if job.node != "a"))
    _repair(world)

    assert sorted((job.node, job.kind) for job in world.jobs()) == [
        ("b", JobKind.STAGE),
        ("m", JobKind.EXPAND),
    ]


def test_a_run_that_counts_its_jobs_wrong_counts_them_again() -> None:
    world = World(pipeline((stage("a"), stage("b"))))
    world.create()
    run = world.run()
    for count in (1, 3):
        world.put(UpdateRun(attrs.evolve(run, open_jobs=count)))
        _repair(world)
        assert world.run().open_jobs == 2
    assert world.events() == ["run.created"]
    _finish(world)
    assert world.run().status == "completed"


def test_both_at_once_are_repaired_at_once() -> None:
    world = World(pipeline((stage("a"), stage("b"))))
    world.create()
    world.put(UpdateRun(attrs.evolve(world.run(), open_jobs=7)), CloseJob(world.jobs()[0].key))
    _repair(world)

    assert (world.run().open_jobs, len(world.jobs())) == (2, 2)


def test_many_runs_are_repaired_together_and_in_pages() -> None:
    world = World(pipeline(stage("a")))
    for number in range(7):
        world.create(f"r{number}")
    world.put(*(CloseJobs(world.run(f"r{number}").key) for number in (1, 2, 5)))
    after = ""
    found: list[tuple[tuple[str, ...], int]] = []
    while True:
        reply = world.kernel.dispatch(RunRepair(after=after, limit=3))
        found.append((reply.repaired, reply.checked))
        if reply.next is None:
            break
        after = reply.next

    assert found == [(("r1", "r2"), 3), (("r5",), 3), ((), 1)]
    _repair(world, expected=())


def test_a_page_that_is_just_full_leads_to_an_empty_one() -> None:
    world = World(pipeline(stage("a")))
    world.create("x")
    first = world.do(RunRepair(limit=1))

    assert first.next == world.run("x").key
    assert world.do(RunRepair(limit=1, after=first.next or "")) == RunRepaired(
        repaired=(), checked=0, next=None
    )


def test_asking_for_no_run_harms_nobody() -> None:
    world = World(pipeline(stage("a")))
    world.create()

    assert world.do(RunRepair(limit=0)) == RunRepaired(repaired=(), checked=0, next=None)


def test_a_negative_number_of_runs_is_refused() -> None:
    world = World(pipeline(stage("a")))
    with world.unchanged(), pytest.raises(InvalidCommandError):
        world.do(RunRepair(limit=-1))


def test_a_run_that_is_ended_before_it_in_a_batch_is_not_repaired() -> None:
    world = World(pipeline(stage("a")))
    world.create()
    world.put(CloseJobs(world.run().key))
    commands: list[Command[object]] = [RunCancel(run_id="x"), RunRepair()]
    _, reply = world.send(*commands)

    assert reply == RunRepaired(repaired=(), checked=1, next=None)
    assert world.jobs() == []


def test_runs_that_have_ended_are_not_looked_at() -> None:
    world = World(pipeline(stage("a")))
    world.create()
    _finish(world)
    world.put(UpdateRun(attrs.evolve(world.run(), open_jobs=3)))

    assert world.kernel.dispatch(RunRepair()) == RunRepaired(repaired=(), checked=0, next=None)


def test_what_a_batch_completes_before_the_repair_is_not_done_again() -> None:
    world = World(pipeline(each("m", limit=2)))
    world.create()
    session = world.open()
    world.expand(world.claim_one(session), range(4))
    lost, done = world.claim(session)
    _lose_jobs(world, *(job for job in world.jobs() if job.item == lost.item))
    commands: list[Command[object]] = [completing(done), RunRepair()]
    _, repaired = world.send(*commands)

    assert repaired == RunRepaired(repaired=("x",), checked=1, next=None)
    assert sorted(job.item or 0 for job in world.jobs()) == [0, 2]
    _finish(world)
    assert world.result() == [["m", index] for index in range(4)]


def test_what_a_batch_repairs_before_a_settle_is_as_good_as_new() -> None:
    world = World(pipeline((stage("a"), stage("b"))))
    world.create()
    lost, done = world.claim(world.open())
    _lose_jobs(world, *(job for job in world.jobs() if job.node == lost.node))
    commands: list[Command[object]] = [RunRepair(), completing(done), completing(lost)]
    world.send(*commands)

    assert [(job.node, job.number) for job in world.jobs()] == [(lost.node, 3)]
    _finish(world)
    assert world.result() == ["a", "b"]
