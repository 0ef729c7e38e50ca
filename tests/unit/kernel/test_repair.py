"""Repair restores lost jobs of runs, and does nothing in a healthy store."""

from typing import Any

import attrs
import pytest

from holdfast.kernel import commands
from holdfast.kernel.commands import Command, FollowUp, RunCancel, RunPause, RunRepair, RunRepaired, RunResume
from holdfast.kernel.history import events
from holdfast.kernel.invariants import check
from holdfast.kernel.pipelines.plan import Enough
from holdfast.ports.changes import Delete, DeleteJobs, Insert, Update
from holdfast.ports.errors import InvalidCommandError, UnreadableRowError
from holdfast.ports.json import canonical, parse
from holdfast.ports.records.job import LOSSES_MIN, Job, JobKind, JobState
from holdfast.ports.records.run import RunStatus
from holdfast.ports.tables import JOBS
from holdfast.ports.transport import JobHint
from tests.unit.kernel.world import (
    SECOND,
    World,
    child,
    completing,
    each,
    each_of,
    external,
    payload,
    pipeline,
    stage,
    when,
)


def _repair(world: World, *, expected: tuple[str, ...] = ("x",)) -> None:
    """Repair, and check that nothing is left to repair."""
    assert world.do(RunRepair()).repaired == expected
    with world.unchanged():
        assert world.do(RunRepair()).repaired == ()


def _lose_jobs(world: World, *jobs: Job) -> None:
    world.put(*(Delete(JOBS, job.key) for job in jobs))


def _finish(world: World) -> None:
    world.drain(lambda attempt: completing(attempt).outcome)


def test_sound_runs_are_left_alone() -> None:
    world = World(pipeline(stage("a"), each("m", limit=2), (stage("b"), stage("c"))))
    world.create()
    session = world.open()
    while attempts := world.claim(session, limit=1):
        with world.unchanged():
            assert world.do(RunRepair()) == RunRepaired(repaired=(), checked=1, next=None)
        if attempts[0].kind is JobKind.EXPAND_MAP:
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
        ("m", JobKind.EXPAND_MAP),
    ]


def test_a_run_that_counts_its_jobs_wrong_counts_them_again() -> None:
    world = World(pipeline((stage("a"), stage("b"))))
    world.create()
    run = world.run()
    for count in (1, 3):
        world.put(Update(attrs.evolve(run, open_jobs=count)))
        _repair(world)
        assert world.run().open_jobs == 2
    assert world.events() == ["run.created"]
    _finish(world)
    assert world.run().status == "completed"


def test_both_at_once_are_repaired_at_once() -> None:
    world = World(pipeline((stage("a"), stage("b"))))
    world.create()
    world.put(Update(attrs.evolve(world.run(), open_jobs=7)), Delete(JOBS, world.jobs()[0].key))
    _repair(world)

    assert (world.run().open_jobs, len(world.jobs())) == (2, 2)


def test_many_runs_are_repaired_together_and_in_pages() -> None:
    world = World(pipeline(stage("a")))
    for number in range(7):
        world.create(f"r{number}")
    world.put(*(DeleteJobs(world.run(f"r{number}").key) for number in (1, 2, 5)))
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
    world.put(DeleteJobs(world.run().key))
    batch: list[Command[object]] = [RunCancel(run_id="x"), RunRepair()]
    _, reply = world.send(*batch)

    assert reply == RunRepaired(repaired=(), checked=1, next=None)
    assert world.jobs() == []


def test_runs_that_have_ended_are_not_looked_at() -> None:
    world = World(pipeline(stage("a")))
    world.create()
    _finish(world)
    world.put(Update(attrs.evolve(world.run(), open_jobs=3)))

    assert world.kernel.dispatch(RunRepair()) == RunRepaired(repaired=(), checked=0, next=None)


def test_what_a_batch_completes_before_the_repair_is_not_done_again() -> None:
    world = World(pipeline(each("m", limit=2)))
    world.create()
    session = world.open()
    world.expand(world.claim_one(session), range(4))
    lost, done = world.claim(session)
    _lose_jobs(world, *(job for job in world.jobs() if job.item == lost.item))
    batch: list[Command[object]] = [completing(done), RunRepair()]
    _, repaired = world.send(*batch)

    assert repaired == RunRepaired(repaired=("x",), checked=1, next=None)
    assert sorted(job.item or 0 for job in world.jobs()) == [0, 2]
    _finish(world)
    assert world.result() == [["m", index] for index in range(4)]


def test_what_a_batch_repairs_before_a_settle_is_as_good_as_new() -> None:
    world = World(pipeline((stage("a"), stage("b"))))
    world.create()
    lost, done = world.claim(world.open())
    _lose_jobs(world, *(job for job in world.jobs() if job.node == lost.node))
    batch: list[Command[object]] = [RunRepair(), completing(done), completing(lost)]
    world.send(*batch)

    assert [(job.node, job.number) for job in world.jobs()] == [(lost.node, 3)]
    _finish(world)
    assert world.result() == ["a", "b"]


# Runs that are named ---------------------------------------------------------------------------------------------


def _mend(world: World, id: str = "x") -> None:
    """Repair a run whose row shows no cause; check that it is healthy afterwards."""
    key = world.run(id).key
    assert check(world.tables())
    assert world.kernel.dispatch(RunRepair(run=key)).repaired == (id,)
    assert [str(found) for found in check(world.tables())] == []
    with world.unchanged():
        assert world.do(RunRepair(run=key)) == RunRepaired(repaired=(), checked=1, next=None)


def _half(world: World) -> str:
    """Work until a map of four has one completed item, and two running ones."""
    world.create()
    session = world.open()
    world.expand(world.claim_one(session), range(4))
    world.complete(world.claim(session, limit=1)[0])
    return session


def _row(world: World, **fields: Any) -> None:
    world.put(Update(attrs.evolve(world.run(), **fields)))


def _counters(world: World, *numbers: int) -> None:
    """Set total, next, done and the number of failed items of the map."""
    total, following, done, failed = numbers
    progress = parse(world.run().progress)
    stored = progress["nodes"]["m"]["map"]
    progress["nodes"]["m"]["map"] = [total, following, done, *stored[3:5], failed]
    _row(world, progress=canonical(progress))


def test_a_sound_run_that_is_named_is_left_alone() -> None:
    world = World(pipeline(each("m", limit=2), stage("z")))
    session = _half(world)
    for repair in (RunRepair(run=world.run().key), RunRepair(run="nothing")):
        with world.unchanged():
            assert world.do(repair).repaired == ()
    world.fail(world.claim(session, limit=1)[0])
    _finish(world)
    with world.unchanged():
        assert world.do(RunRepair(run=world.run().key)).repaired == ()


def test_a_job_that_nobody_counts_any_more_is_given_back() -> None:
    """The sweep compares counters, which agree; a run given by name is checked itself."""
    world = World(pipeline((stage("a"), stage("b"))))
    world.create()
    _lose_jobs(world, world.jobs()[0])
    _row(world, open_jobs=1)
    with world.unchanged():
        assert world.kernel.dispatch(RunRepair()).repaired == ()
    _mend(world)

    _finish(world)
    assert world.result() == ["a", "b"]


def test_a_run_that_has_not_begun_only_counts_again() -> None:
    world = World(pipeline(stage("a")))
    world.create()
    _row(world, status=RunStatus.PENDING, last_job=0, open_jobs=3, progress="{}", concurrency_key="k")
    _lose_jobs(world, *world.jobs())
    _mend(world)

    assert (world.run().open_jobs, world.jobs(), world.events()) == (0, [], ["run.created"])


def test_a_job_that_nothing_needs_is_taken_away() -> None:
    """Of two for one item the first is kept, and of two for a stage the one in the run's row."""
    world = World(pipeline((stage("a"), each("m", limit=2)), stage("z")))
    world.create()
    session = world.open()
    claimed = {attempt.node: attempt for attempt in world.claim(session)}
    world.expand(claimed["m"], range(4))
    first = next(job for job in world.jobs() if job.item == 0)
    a = next(job for job in world.jobs() if job.node == "a")
    extra = (
        *(attrs.evolve(first, number=20), attrs.evolve(first, number=21, item=3)),
        *(attrs.evolve(first, number=22, node="z", item=None), attrs.evolve(a, number=23)),
    )
    before = world.jobs()
    world.put(*map(Insert, extra))
    _row(world, last_job=23, open_jobs=len(before) + 4)
    _mend(world)

    assert world.jobs() == before
    assert world.complete(claimed["a"]).status == "settled"
    _finish(world)
    assert world.run().status == "completed"


def test_the_only_job_of_a_stage_is_the_one_that_it_waits_for() -> None:
    world = World(pipeline(stage("a")))
    world.create()
    (job,) = world.jobs()
    world.put(Delete(JOBS, job.key), Insert(attrs.evolve(job, number=5)))
    _row(world, last_job=5)
    _mend(world)

    assert [job.number for job in world.jobs()] == [5]


def test_what_the_history_says_is_done_is_not_done_again() -> None:
    world = World(pipeline((stage("a"), stage("b")), stage("z")))
    world.create()
    attempts = world.claim(world.open())
    row = world.run()
    world.complete(attempts[0], "once")
    _row(world, progress=row.progress)
    _mend(world)

    assert [job.node for job in world.jobs()] == ["b"]
    world.complete(attempts[1])
    _finish(world)
    assert world.events().count("stage.completed") == 3


def test_a_group_that_the_history_says_is_done_goes_on() -> None:
    world = World(pipeline(stage("a"), stage("z")))
    world.create()
    progress = world.run().progress
    world.complete(world.claim_one(world.open()), "once")
    _lose_jobs(world, *world.jobs())
    _row(world, progress=progress, open_jobs=0)
    _mend(world)

    assert [(job.node, world.value(job.run, job.input)) for job in world.jobs()] == [("z", "once")]


def test_a_run_that_has_done_everything_completes() -> None:
    """Nothing is announced after its end."""
    world = World(pipeline(stage("a")))
    world.create()
    (job,) = world.jobs()
    row = attrs.evolve(
        world.history()[0], number=2, type="stage.completed", node="a", payload=payload("once"), epoch=1
    )
    data = events.StageCompleted(attempt=1, job=1).data
    world.put(Insert(attrs.evolve(row, data=data)), Delete(JOBS, job.key))
    _row(world, last_row=2, open_jobs=0)
    _mend(world)

    assert (world.run().status, world.result()) == ("completed", "once")
    assert world.events() == ["run.created", "stage.completed", "run.repaired", "run.completed"]


@pytest.mark.parametrize("numbers", [(4, 3, 0, 0), (4, 4, 1, 0), (4, 3, 3, 0), (4, 1, 1, 0), (4, 3, 1, 1)])
def test_a_map_counts_its_items_again(numbers: tuple[int, int, int, int]) -> None:
    world = World(pipeline(each("m", limit=2)))
    _half(world)
    _counters(world, *numbers)
    _mend(world)

    _finish(world)
    assert world.result() == [["m", index] for index in range(4)]


def test_a_map_that_may_lose_items_counts_what_it_lost() -> None:
    world = World(pipeline(each("m", limit=2, attempts=1, enough=Enough(tolerated=3))))
    session = _half(world)
    world.fail(world.claim(session, limit=1)[0])
    _counters(world, 4, 3, 2, 0)
    _mend(world)

    _finish(world)
    assert world.run().status == "completed"


def test_a_map_of_which_all_items_are_done_goes_on() -> None:
    world = World(pipeline((each("m", limit=2), stage("b"))))
    world.create()
    session = world.open()
    attempts = {attempt.node: attempt for attempt in world.claim(session)}
    world.expand(attempts["m"], range(2))
    first, second = world.claim(session)
    world.complete(first)
    progress = world.run().progress
    world.complete(second)
    _row(world, progress=progress)
    _mend(world)

    assert [job.node for job in world.jobs()] == ["b"]


@pytest.mark.parametrize(
    "fields",
    [
        {"state": JobState.SLEEPING},
        {"state": JobState.PAUSED},
        {"state": JobState.PAUSED, "wake_at": 5},
        {"session": "somebody"},
        {"wake_at": 5},
        {"state": JobState.LIMITED},
        {"state": JobState.SLEEPING, "wake_at": 5, "session": "somebody"},
    ],
)
def test_a_job_that_nobody_would_take_can_be_taken(fields: dict[str, Any]) -> None:
    world = World(pipeline(stage("a")))
    world.create()
    world.put(Update(attrs.evolve(world.jobs()[0], **fields)))
    _mend(world)

    _finish(world)
    assert world.result() == "a"


@pytest.mark.parametrize("row", ["expanded", "tested", "completed"])
def test_a_run_whose_history_is_further_than_its_row_is_left_alone(row: str) -> None:
    """The items of its map and the result of its condition are not computed a second time."""
    tested = when(stage("t"), stage("u"))
    world = World(pipeline(stage("a"), tested if row == "tested" else each("m"), stage("z")))
    world.create()
    session = world.open()
    before = world.run().progress
    world.complete(world.claim_one(session))
    if row != "completed":
        before = world.run().progress
    if row == "tested":
        world.settle(world.claim_one(session), commands.ConditionEvaluated(passed=True))
    else:
        world.expand(world.claim_one(session), range(2))
    jobs = world.jobs()
    _row(world, progress=before)
    with world.unchanged():
        assert world.kernel.dispatch(RunRepair(run=world.run().key)).repaired == ()
    _row(world, open_jobs=7)

    assert world.kernel.dispatch(RunRepair()).repaired == ("x",)
    assert (world.run().open_jobs, world.jobs()) == (len(jobs), jobs)


def test_what_goes_on_in_a_paused_run_is_held() -> None:
    world = World(pipeline(stage("a")))
    world.create()
    world.do(RunPause(run_id="x"))
    world.put(Update(attrs.evolve(world.jobs()[0], state=JobState.QUEUED)))
    _mend(world)

    assert world.jobs()[0].state is JobState.PAUSED
    world.do(RunResume(run_id="x"))
    _finish(world)
    assert world.run().status == "completed"


def test_a_job_leased_to_nobody_is_an_attempt_that_was_lost() -> None:
    """It counts as a loss; after too many the stage fails as with any lost worker."""
    world = World(pipeline(stage("a", attempts=2)))
    world.create()
    for losses in range(1, LOSSES_MIN + 1):
        world.claim_one(world.open())
        world.put(Update(attrs.evolve(world.jobs()[0], session="nobody")))
        _mend(world)
        if losses < LOSSES_MIN:
            assert (world.jobs()[0].state, world.jobs()[0].lost_attempts) == (JobState.QUEUED, losses)

    assert (world.run().status, parse(world.run().error or "")["code"]) == ("failed", "worker_lost")


def test_what_has_ended_keeps_no_jobs() -> None:
    world = World(pipeline(stage("a")))
    world.create()
    (job,) = world.jobs()
    attempt = world.claim_one(world.open())
    world.complete(attempt)
    world.put(Insert(attrs.evolve(job, number=2)))
    _row(world, open_jobs=4)
    _mend(world)

    assert (world.jobs(), world.run().status, world.events()[-1]) == ([], "completed", "run.completed")


def test_a_child_of_a_job_that_is_taken_away_is_told() -> None:
    world = World(pipeline(child("k")), pipeline(stage("a"), workflow="c"))
    world.create()
    world.start_child(world.claim_one(world.open()), "x/k")
    (job,) = world.jobs()
    world.put(Insert(attrs.evolve(job, number=7, waiting_for="x/other")))
    _row(world, last_job=7, open_jobs=2)
    world.kernel.dispatch(RunRepair(run=world.run().key))

    assert [(job.number, job.state) for job in world.jobs()] == [
        (1, JobState.SLEEPING),
        (8, JobState.PENDING_DELIVERY),
    ]


def test_an_end_that_nobody_tells_any_more_is_told_again() -> None:
    """Once, and only by an ended run to a waiting job."""
    world = World(pipeline(child("k"), stage("z")), pipeline(stage("a"), workflow="c"))
    world.create()
    session = world.open()
    world.start_child(world.claim_one(session), "x/k")
    key = world.run("x/k").key
    with world.unchanged():
        assert world.do(RunRepair(run=key, redeliver=True)) == RunRepaired(repaired=(), checked=1, next=None)
    world.complete(world.claim_one(session), "gave")
    with world.unchanged():
        assert world.do(RunRepair(run=key, redeliver=True)).repaired == ()
    world.put(*(Delete(JOBS, job.key) for job in world.jobs("x/k")))
    assert {found.where for found in check(world.tables())} == {world.run().key}
    told = world.kernel.dispatch(RunRepair(run=key, redeliver=True))

    assert told == RunRepaired(repaired=("x/k",), checked=1, next=None, follow_up=FollowUp(deliveries=True))
    assert [one.status for one in world.deliver()] == ["delivered"]
    assert world.claim_one(session).node == "z"
    with world.unchanged():
        assert world.do(RunRepair(run=world.run().key, redeliver=True)).repaired == ()


def test_a_run_without_its_plan_is_blocked_and_others_are_repaired() -> None:
    world = World(pipeline(stage("a")))
    world.create("bad")
    world.create("good")
    _row_of = world.run("bad")
    world.put(
        Update(attrs.evolve(_row_of, plan="gone")),
        DeleteJobs(_row_of.key),
        DeleteJobs(world.run("good").key),
    )

    assert world.kernel.dispatch(RunRepair()).repaired == ("good",)
    assert world.run("bad").status == "blocked"
    with pytest.raises(UnreadableRowError, match="no plan 'gone' is stored"):
        world.kernel.dispatch(RunRepair(run=_row_of.key))


# Work that was handed on -----------------------------------------------------------------------------------------


def test_work_that_was_handed_on_is_asked_about_as_its_body_had_said() -> None:
    """With the same wake key, interval and deadline as its body had set."""
    world = World(pipeline(each_of(external("e"), limit=2)))
    world.create()
    session = world.open()
    world.expand(world.claim_one(session), range(2))
    first, second = world.claim(session)
    world.suspend(first, after=7, give_up_in=100, key="k-0")
    world.suspend(second, after=9, key="k-1")
    give_up_at = world.now + 100 * SECOND
    world.wait(20)
    _lose_jobs(world, *world.jobs())
    _repair(world)

    found = sorted(
        (job.item, job.waiting_for, job.check_after, job.give_up_at, job.state) for job in world.jobs()
    )
    assert found == [
        (0, "k-0", 7 * SECOND, give_up_at, JobState.QUEUED),
        (1, "k-1", 9 * SECOND, None, JobState.QUEUED),
    ]


def test_work_that_is_handed_on_and_lost_in_one_batch_is_known_too() -> None:
    world = World(pipeline((external("e"), stage("b"))))
    world.create()
    attempts = {attempt.node: attempt for attempt in world.claim(world.open())}
    world.suspend(attempts["e"], after=7, key="k")
    (check_job,) = (job for job in world.jobs() if job.node == "e")
    _lose_jobs(world, check_job)
    batch: list[Command[object]] = [completing(attempts["b"]), RunRepair()]
    world.send(*batch)

    (job,) = world.jobs()
    assert (job.kind, job.waiting_for, job.check_after) == (JobKind.POLL, "k", 7 * SECOND)
