"""Pending runs: admitted when due and a slot is free; ended at their deadline."""

from typing import Any, cast

import attrs
import pytest

from holdfast.kernel.commands import (
    NO_FOLLOW_UP,
    Blocked,
    Failure,
    FollowUp,
    JobAdmit,
    JobsAdmitted,
    RunCancel,
    RunClaimPending,
    RunCreate,
    RunCreated,
    RunExpire,
    RunPause,
    RunResume,
    RunsAdmitted,
    RunTerminate,
    RunTransition,
    admissions,
    follow_up_of,
    merge,
)
from holdfast.kernel.rules.registry import RULES, reply_type
from holdfast.ports.changes import Update
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.records.job import JobState
from holdfast.ports.records.run import RunStatus
from holdfast.ports.transport import JobHint, RunEnded
from tests.unit.kernel.world import SECOND, World, completing, payload, pipeline, settling, stage
from tests.unit.kernel.world import failed as failing

PLAN = pipeline(stage("a"), stage("b"))


@pytest.fixture
def world() -> World:
    return World(PLAN)


def create(world: World, id: str, **options: object) -> RunCreated:
    command = attrs.evolve(RunCreate(workflow="w", id=id, input=payload(0)), **options)  # type: ignore[arg-type]
    return world.do(command)


def claim_pending(world: World, *keys: str, after: str = "", limit: int = 500) -> RunsAdmitted:
    return world.do(RunClaimPending(keys=keys, after=after, limit=limit))


def statuses(world: World, *ids: str) -> list[str]:
    return [world.run(name).status.value for name in ids]


def finish(world: World, session: str) -> None:
    """Claim and complete jobs until none is left."""
    while attempts := world.claim(session):
        world.send(*map(completing, attempts))


# Later.


def test_a_run_with_a_start_has_no_jobs_before_it(world: World) -> None:
    reply = create(world, "x", start_at=world.now + 60 * SECOND)

    assert (reply.status, reply.follow_up.runs) == (RunStatus.PENDING, ())
    assert world.jobs() == []
    assert world.heard.hints == []
    assert claim_pending(world).admitted == 0
    world.wait(59.999999)
    assert claim_pending(world).admitted == 0
    world.wait(0.000001)
    assert claim_pending(world) == RunsAdmitted(admitted=1)
    assert statuses(world, "x") == ["running"]
    assert world.events() == ["run.created", "run.admitted"]
    assert [type(hint) for hint in world.heard.hints] == [JobHint]
    world.drain(lambda attempt: completing(attempt).outcome)
    assert world.result() == "b"


def test_a_start_in_the_past_is_now(world: World) -> None:
    reply = create(world, "x", start_at=world.now)

    assert reply.status is RunStatus.RUNNING
    assert [job.node for job in world.jobs()] == ["a"]


def test_due_runs_are_admitted_the_earliest_first_up_to_a_limit(world: World) -> None:
    for name, at in (("late", 3), ("early", 1), ("later", 2)):
        create(world, name, start_at=world.now + at * SECOND)
    world.wait(10)

    assert claim_pending(world, limit=2) == RunsAdmitted(admitted=2, more=True)
    assert statuses(world, "early", "later", "late") == ["running", "running", "pending"]
    assert claim_pending(world, limit=2) == RunsAdmitted(admitted=1)


def test_a_run_that_is_due_and_has_a_key_queues_for_its_slot(world: World) -> None:
    create(world, "due", start_at=world.now + SECOND, concurrency_key="k", priority=9)
    create(world, "there", concurrency_key="k")
    assert claim_pending(world, "k").admitted == 1
    world.wait(1)

    assert claim_pending(world) == RunsAdmitted(admitted=0, follow_up=FollowUp(runs=("k",)))
    assert world.run("due").start_at is None
    assert statuses(world, "due", "there") == ["pending", "running"]
    ended = world.do(RunCancel(run_id="there"))
    assert ended.follow_up.runs == ("k",)
    assert claim_pending(world, "k").admitted == 1
    assert statuses(world, "due") == ["running"]


# One at a time.


def test_a_run_with_a_key_waits_for_run_claim_pending(world: World) -> None:
    reply = create(world, "x", concurrency_key="k")

    assert (reply.status, reply.follow_up.runs) == (RunStatus.PENDING, ("k",))
    assert world.jobs() == []
    assert admissions("default", follow_up_of([reply])) == (RunClaimPending(keys=("k",)),)


@pytest.mark.parametrize("keys", [(), ("k",)])
def test_as_many_runs_of_a_key_as_its_limit_are_under_way(world: World, keys: tuple[str, ...]) -> None:
    for number in range(5):
        create(world, f"r{number}", concurrency_key="k", concurrency_limit=2)

    assert claim_pending(world, *keys).admitted == 2
    assert claim_pending(world, *keys).admitted == 0
    assert statuses(world, "r0", "r1", "r2") == ["running", "running", "pending"]
    session = world.open()
    first, second = world.claim(session)
    assert world.complete(first).follow_up.runs == ()
    assert world.complete(world.claim_one(session)).follow_up.runs == ("k",)
    assert claim_pending(world, *keys).admitted == 1
    world.fail(second, retryable=False)
    assert claim_pending(world, *keys).admitted == 1
    assert statuses(world, "r0", "r1", "r2", "r3", "r4") == [
        "completed",
        "failed",
        "running",
        "running",
        "pending",
    ]


def test_keys_do_not_share_their_slots_nor_do_namespaces(world: World) -> None:
    create(world, "a", concurrency_key="k")
    create(world, "b", concurrency_key="other")
    create(world, "c", concurrency_key="k", namespace="tenant")

    assert claim_pending(world).admitted == 3


def test_the_highest_priority_is_first_and_then_the_oldest(world: World) -> None:
    create(world, "first", concurrency_key="k")
    create(world, "second", concurrency_key="k")
    create(world, "urgent", concurrency_key="k", priority=5)
    for expected in ("urgent", "first", "second"):
        assert claim_pending(world, "k").admitted == 1
        assert statuses(world, expected) == ["running"]
        world.do(RunCancel(run_id=expected))


def test_nobody_overtakes_the_first_who_waits(world: World) -> None:
    """A run with a greater limit does not overtake one with a lower limit that came before it."""
    create(world, "one", concurrency_key="k", concurrency_limit=1)
    assert claim_pending(world, "k").admitted == 1
    create(world, "narrow", concurrency_key="k", concurrency_limit=1)
    create(world, "wide", concurrency_key="k", concurrency_limit=9)

    assert claim_pending(world, "k").admitted == 0
    assert world.do(RunCancel(run_id="narrow")).follow_up.runs == ("k",)
    assert claim_pending(world, "k").admitted == 1
    assert statuses(world, "wide") == ["running"]


def test_keys_are_searched_page_by_page(world: World) -> None:
    for key in ("a", "b", "c"):
        create(world, key, concurrency_key=key)

    first = claim_pending(world, limit=2)
    assert (first.admitted, first.next, first.more) == (2, '[["default","b"],null]', True)
    second = claim_pending(world, after=first.next or "", limit=2)
    assert (second.admitted, second.next) == (1, None)


def test_a_place_to_go_on_from_must_be_one(world: World) -> None:
    for wrong in ("b", "[]", '["a"]', '["a",1]', '{"a":1}'):
        with pytest.raises(InvalidCommandError, match="after"):
            claim_pending(world, after=wrong)
        with pytest.raises(InvalidCommandError, match="after"):
            world.do(JobAdmit(after=wrong))


def test_commands_of_one_batch_see_each_other(world: World) -> None:
    """An end frees its slot for a later admission; two admissions do not use one slot twice."""
    create(world, "x", concurrency_key="k")
    create(world, "y", concurrency_key="k")
    claim = RunClaimPending(keys=("k",))
    assert world.send(claim, RunClaimPending(), claim)[0] == RunsAdmitted(admitted=1)
    assert statuses(world, "x", "y") == ["running", "pending"]

    world.send(RunCancel(run_id="x"), claim)  # the search was before: what is found is looked at again
    claim_pending(world, "k")
    assert statuses(world, "x", "y") == ["cancelled", "running"]


# While they wait.


@pytest.mark.parametrize("end", [RunCancel, RunTerminate])
def test_a_pending_run_can_be_ended(world: World, end: type[RunCancel]) -> None:
    create(world, "x", start_at=world.now + SECOND)

    assert world.do(end(run_id="x")).status is RunStatus.CANCELLED
    world.wait(1)
    assert claim_pending(world).admitted == 0


def test_a_paused_pending_run_is_not_admitted_and_goes_back_to_waiting(world: World) -> None:
    create(world, "x", start_at=world.now + SECOND)
    create(world, "k", concurrency_key="k")

    for name in ("x", "k"):
        assert world.do(RunPause(run_id=name)).status is RunStatus.PAUSED
    world.wait(1)
    assert claim_pending(world).admitted == 0
    resumed = world.do(RunResume(run_id="k"))
    assert (resumed.status, resumed.follow_up.runs) == (RunStatus.PENDING, ("k",))
    world.do(RunResume(run_id="x"))
    assert claim_pending(world).admitted == 2


def test_a_paused_run_that_has_begun_keeps_its_slot(world: World) -> None:
    create(world, "x", concurrency_key="k")
    claim_pending(world)
    world.do(RunPause(run_id="x"))
    create(world, "y", concurrency_key="k")

    assert claim_pending(world).admitted == 0
    assert world.do(RunResume(run_id="x")).status is RunStatus.RUNNING
    assert claim_pending(world).admitted == 0


def test_a_pending_run_has_no_next_step(world: World) -> None:
    create(world, "x", concurrency_key="k")

    assert world.do(RunTransition(run_id="x")).action == "none"


# Until when.


def test_a_run_past_its_deadline_fails_and_its_attempts_are_fenced(world: World) -> None:
    create(world, "x", deadline=10 * SECOND)
    attempt = world.claim_one(world.open())
    world.wait(9.999999)
    assert world.do(RunExpire()).expired == 0
    world.wait(0.000001)

    assert world.do(RunExpire()).expired == 1
    run = world.run()
    assert (run.status, run.error) == (
        RunStatus.FAILED,
        '{"code":"deadline_exceeded","message":"the run had not ended when its deadline passed"}',
    )
    assert world.events()[-1] == "run.failed"
    assert world.heard.hints[-1] == RunEnded(run=run.key)
    assert world.complete(attempt).status == "fenced"
    assert world.do(RunExpire()).expired == 0


def test_a_deadline_counts_from_the_start(world: World) -> None:
    create(world, "x", start_at=world.now + 60 * SECOND, deadline=10 * SECOND)

    assert world.run().deadline == world.now + 70 * SECOND
    world.wait(69)
    assert world.do(RunExpire()).expired == 0
    world.wait(1)
    assert world.do(RunExpire()).expired == 1


def test_pending_and_paused_runs_expire_too(world: World) -> None:
    create(world, "x", concurrency_key="k", deadline=SECOND)
    create(world, "y", concurrency_key="k", deadline=SECOND)
    claim_pending(world)
    world.do(RunPause(run_id="x"))
    world.wait(1)

    expired = world.do(RunExpire())
    assert (expired.expired, expired.follow_up.runs) == (2, ("k",))
    assert statuses(world, "x", "y") == ["failed", "failed"]


def test_a_run_that_ends_in_time_does_not_expire(world: World) -> None:
    create(world, "x", deadline=SECOND)
    finish(world, world.open())
    world.wait(1)

    assert world.do(RunExpire()).expired == 0
    assert statuses(world, "x") == ["completed"]


# What can't be meant.


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency_key": ""},
        {"concurrency_key": "k" * 257},
        {"concurrency_key": "k", "concurrency_limit": 0},
        {"concurrency_limit": -1},
        {"deadline": 0},
        {"deadline": -5},
        {"deadline": 2**62},
        {"start_at": -1},
        {"start_at": 2**62},
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused(world: World, options: dict[str, object]) -> None:
    with pytest.raises(InvalidCommandError), world.unchanged():
        create(world, "x", **options)


# Stages of which only so many may be under way.

LIMITED = pipeline(
    stage("free"), attrs.evolve(stage("narrow", wait_us=SECOND), max_concurrency=2), workflow="l"
)


@pytest.fixture
def limited() -> World:
    world = World(LIMITED)
    for number in range(4):
        world.create(f"r{number}", workflow="l")
    session = world.open()
    for attempt in world.claim(session):
        assert world.complete(attempt).follow_up.jobs == ("l/narrow",)
    assert world.claim(session) == ()
    return world


def admit(world: World, *keys: str) -> int:
    return world.do(JobAdmit(keys=keys)).admitted


def states(world: World) -> list[JobState]:
    return [job.state for number in range(4) for job in world.jobs(f"r{number}")]


@pytest.mark.parametrize("keys", [(), ("l/narrow",)])
def test_only_so_many_jobs_of_a_stage_are_queued_or_leased(limited: World, keys: tuple[str, ...]) -> None:
    assert states(limited) == [JobState.LIMITED] * 4
    limited.heard.hints.clear()
    assert admit(limited, *keys) == 2
    assert len(limited.heard.hints) == 2
    assert admit(limited, *keys) == 0
    session = limited.open()
    first, second = limited.claim(session)
    assert admit(limited, *keys) == 0
    assert limited.complete(first).follow_up.jobs == ("l/narrow",)
    assert admit(limited, *keys) == 1
    limited.complete(second)
    limited.complete(limited.claim_one(session))
    assert admit(limited, *keys) == 1


def test_jobs_of_the_highest_priority_are_first(limited: World) -> None:
    world = World(LIMITED)
    for name, priority in (("a", 0), ("b", 0), ("c", 3)):
        create(world, name, workflow="l", priority=priority)
    session = world.open()
    for attempt in world.claim(session):
        world.complete(attempt)

    assert admit(world) == 2
    runs = {attempt.run for attempt in world.claim(session)}
    assert runs == {world.run("c").key, world.run("a").key}


def test_what_sleeps_has_no_slot_and_gets_one_again_like_all_others(limited: World) -> None:
    admit(limited)
    first, second = limited.claim(limited.open())
    assert limited.fail(first).follow_up.jobs == ("l/narrow",)
    assert admit(limited) == 1
    limited.wait(2)

    assert limited.wake_due() == 1
    assert limited.job(first).state is JobState.LIMITED
    limited.complete(second)
    assert admit(limited) == 1
    assert limited.job(first).state is JobState.QUEUED  # the oldest of those who wait


def test_what_is_lost_or_given_back_keeps_its_slot(limited: World) -> None:
    admit(limited)
    first, second = limited.claim(limited.open())
    limited.release(first)
    assert limited.job(first).state is JobState.QUEUED
    limited.lose()
    assert limited.job(second).state is JobState.QUEUED
    assert admit(limited) == 0


def test_what_is_paused_has_no_slot(limited: World) -> None:
    admit(limited)
    paused = limited.do(RunPause(run_id="r0"))
    assert paused.follow_up.jobs == ("l/narrow",)
    assert admit(limited) == 1
    limited.do(RunPause(run_id="r3"))
    assert [job.state for job in limited.jobs("r3")] == [JobState.PAUSED]
    assert limited.do(RunResume(run_id="r0")).follow_up.jobs == ("l/narrow",)
    assert states(limited) == [JobState.LIMITED, JobState.QUEUED, JobState.QUEUED, JobState.PAUSED]


def test_what_is_blocked_has_no_slot() -> None:
    narrow = [attrs.evolve(stage(name), max_concurrency=1) for name in ("n1", "n2")]
    world = World(pipeline(tuple(narrow)))
    create(world, "x")
    assert admit(world) == 2
    first, _ = world.claim(world.open())
    create(world, "y")

    blocked = world.settle(first, Blocked(failure=Failure(code="unreadable_input", message="no")))

    # The sibling of the job that blocked the run is leased, so it keeps its slot.
    assert blocked.follow_up.jobs == ("w/n1",)
    assert admit(world, *blocked.follow_up.jobs) == 1


def test_a_run_that_is_ended_frees_what_its_jobs_had(limited: World) -> None:
    admit(limited)
    limited.claim(limited.open())

    assert limited.do(RunCancel(run_id="r0")).follow_up.jobs == ("l/narrow",)
    assert admit(limited) == 1


def test_a_settle_never_takes_a_limited_job() -> None:
    world = World(LIMITED)
    world.create("x", workflow="l")
    session = world.open()
    settle = attrs.evolve(completing(world.claim_one(session)), take_next=session)

    reply = world.do(settle)
    assert (reply.next, reply.follow_up.jobs) == (None, ("l/narrow",))
    assert [job.state for job in world.jobs("x")] == [JobState.LIMITED]


def test_a_limit_counts_over_versions_of_a_workflow_and_not_over_workflows() -> None:
    plans = [
        attrs.evolve(LIMITED, workflow=name, version=version) for name, version in (("l", "1"), ("l", "2"))
    ]
    other = attrs.evolve(LIMITED, workflow="o")
    world = World(*plans, other)
    session = world.open()
    for name, version in (("a", "1"), ("b", "1"), ("c", "2"), ("d", "2")):
        create(world, name, workflow="l", version=version)
    world.create("e", workflow="o")
    world.send(*map(completing, world.claim(session)))

    assert world.do(JobAdmit()) == JobsAdmitted(admitted=3)


def test_a_plan_that_says_nothing_of_a_limit_keeps_its_fingerprint() -> None:
    assert "max_concurrency" not in PLAN.to_json()
    assert '"max_concurrency":2' in LIMITED.to_json()


def test_the_last_failure_of_a_parallel_group_frees_what_its_siblings_had() -> None:
    narrow = [attrs.evolve(stage(name, attempts=1), max_concurrency=1) for name in ("n1", "n2")]
    world = World(pipeline(tuple(narrow)))
    created = create(world, "x")
    assert created.follow_up.jobs == ("w/n1", "w/n2")
    create(world, "y")
    assert admit(world) == 2
    first, _ = world.claim(world.open())

    assert world.do(settling(first, failing())).follow_up.jobs == ("w/n1", "w/n2")
    assert admit(world) == 2


def test_more_than_may_have_a_slot_is_a_violation(world: World) -> None:
    create(world, "x", concurrency_key="k")
    create(world, "y", concurrency_key="k")
    claim_pending(world)
    world.put(Update(attrs.evolve(world.run("y"), status=RunStatus.RUNNING, last_job=1)))

    with pytest.raises(AssertionError, match="S10"):
        world.open()


REPLIES = [reply_type(command) for command in RULES if hasattr(reply_type(command), "__attrs_attrs__")]
NAMING = [one for one in REPLIES if "follow_up" in attrs.fields_dict(one)]


@pytest.mark.parametrize("reply", NAMING, ids=lambda one: one.__name__)
def test_every_reply_that_names_runs_and_stages_has_them_let_in(reply: type[Any]) -> None:
    """A reply that a host ignores leaves them waiting until the next maintenance tick."""
    made = cast("object", object.__new__(reply))
    object.__setattr__(made, "follow_up", FollowUp(("a run",), ("a job",), deliveries=True))

    assert follow_up_of((made,)).deliveries
    named = [one.keys for one in admissions("default", follow_up_of((made,)))]
    assert named == [("a run",), ("a job",)]


def test_follow_ups_are_merged_in_their_order_without_repetition() -> None:
    some, more = FollowUp(runs=("k",), jobs=("w/b", "w/a")), FollowUp(jobs=("w/c", "w/b"), deliveries=True)
    merged = FollowUp(("k",), ("w/b", "w/a", "w/c"), deliveries=True)

    assert merge(some, NO_FOLLOW_UP, more) == merged
    assert merge(*merged.parts()) == merged
    assert list(NO_FOLLOW_UP.parts()) == []
    assert (merge(), bool(merge()), merge(NO_FOLLOW_UP, some)) == (NO_FOLLOW_UP, False, some)
    assert follow_up_of((RunsAdmitted(admitted=1, follow_up=some), InvalidCommandError("no"))) == some
