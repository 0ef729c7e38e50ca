"""Rate limits: never exceeded in any period, and waiting jobs start as soon as allowed."""

import hashlib
from bisect import bisect_left
from datetime import timedelta
from itertools import pairwise
from typing import cast

import attrs
import pytest

from holdfast.kernel.commands import (
    Attempt,
    JobAdmit,
    JobClaim,
    JobClaimOne,
    JobRelease,
    JobsAdmitted,
    JobsClaimed,
    JobWakeDue,
    LeaseReapStale,
    RunCreate,
    RunCreated,
    RunPause,
    RunResume,
    RunTerminate,
    SessionClose,
    admissions,
    follow_up_of,
)
from holdfast.kernel.limits.rates import Starts
from holdfast.kernel.pipelines.plan import Plan, RatePlan, RetryPolicy, StagePlan, plan_from_json
from holdfast.ports.json import canonical, parse
from holdfast.ports.records.job import JobState
from holdfast.ports.records.limits import RateName
from holdfast.testing.conformance.builders import a_job
from tests.unit.kernel.world import SECOND, World, completing, each_of, payload, pipeline, stage

MINUTE = 60 * SECOND


def rated(
    name: str = "a", limit: int = 2, per: int = MINUTE, *, shared: str | None = None, by: str | None = None
) -> StagePlan:
    """A stage with a rate limit."""
    return attrs.evolve(stage(name), rate=RatePlan(limit=limit, per_us=per, name=shared, by=by))


def start(world: World, *ids: str, workflow: str = "w", **attributes: str) -> list[RunCreated]:
    texts = canonical(attributes) if attributes else None
    return [world.do(RunCreate(workflow=workflow, id=one, input=payload(0), attributes=texts)) for one in ids]


def admit(world: World, *keys: str) -> JobsAdmitted:
    return world.do(JobAdmit(keys=keys))


def names(world: World, attempts: tuple[Attempt, ...]) -> list[str]:
    runs = world.tables().runs
    return [runs[attempt.run].id for attempt in attempts]


def claimed(world: World, session: str) -> JobsClaimed:
    return world.do(JobClaim(session=session, queue_claims=world.lanes(limit=100), limit=100))


def woken(world: World) -> int:
    """Wake due jobs, and admit waiting ones."""
    reply = world.do(JobWakeDue())
    answers: list[object] = [reply]
    while commands := admissions("default", follow_up_of(answers)):
        answers = list(world.send(*commands))
    return reply.woken


@pytest.fixture
def world() -> World:
    return World(pipeline(rated(), stage("b")))


def test_only_so_many_start_in_the_period(world: World) -> None:
    created = start(world, "x1", "x2", "x3", "x4", "x5")
    assert created[0].follow_up.jobs == ("w/a",)
    assert [job.state for job in world.tables().all_jobs()] == [JobState.LIMITED] * 5

    assert admit(world, "w/a") == JobsAdmitted(admitted=2)
    session = world.open()
    first = claimed(world, session)
    assert names(world, first.attempts) == ["x1", "x2"]
    # Since the first of them it is known when there is room again; one job sleeps until then.
    assert first.follow_up.jobs == ("w/a",)
    until = world.now + MINUTE
    assert admit(world, *first.follow_up.jobs) == JobsAdmitted(admitted=0, wakes_at=(until,))
    assert world.jobs("x3")[0].wake_at == until
    assert admit(world) == JobsAdmitted(admitted=0)
    world.wait(59.999999)
    assert woken(world) == 0
    world.wait(0.000001)
    assert woken(world) == 1
    assert names(world, claimed(world, session).attempts) == ["x3", "x4"]


def test_the_end_of_a_body_makes_no_room(world: World) -> None:
    start(world, "x1", "x2", "x3")
    admit(world)
    session = world.open()
    for attempt in world.claim(session):
        assert world.complete(attempt).follow_up.jobs == ()

    assert admit(world).admitted == 0
    assert [attempt.node for attempt in world.claim(session)] == ["b", "b"]


@pytest.mark.slow
def test_starts_count_each_from_its_own_instant_on(world: World) -> None:
    session = world.open()
    starts: list[int] = []
    start(world, *(f"x{number}" for number in range(12)))
    admit(world)
    for step in range(400):
        attempts = world.claim(session, limit=1 if step % 3 else 2)
        starts += [world.now] * len(attempts)
        admit(world)
        world.wait(1.7)
        woken(world)

    assert len(starts) == 12
    assert all(starts[at + 2] - starts[at] >= MINUTE for at in range(10))


@pytest.mark.slow
def test_the_first_who_waits_sleeps_and_nobody_else(world: World) -> None:
    start(world, *(f"x{number}" for number in range(50)))
    admit(world)
    world.claim(world.open())
    admit(world)
    for _ in range(5):
        admit(world)
        admit(world, "w/a")

    states = [job.state for job in world.tables().all_jobs()]
    assert states.count(JobState.SLEEPING) == 1
    assert states.count(JobState.LIMITED) == 47


def test_if_the_sleeper_is_gone_maintenance_lets_the_next_one_in(world: World) -> None:
    start(world, "x1", "x2", "x3", "x4")
    admit(world)
    world.claim(world.open())
    admit(world)
    world.do(RunTerminate(run_id="x3"))
    assert admit(world).admitted == 0
    world.wait(60)

    assert world.do(JobWakeDue()).woken == 0
    assert admit(world).admitted == 1


def test_jobs_that_are_queued_and_not_claimed_have_their_room(world: World) -> None:
    """However late they are claimed: there are never more of them than may start together."""
    start(world, *(f"x{number}" for number in range(9)))
    for _ in range(4):
        admit(world)
        world.wait(300)
        woken(world)

    session = world.open()
    assert len(world.claim(session)) == 2
    assert admit(world).admitted == 0
    assert world.claim(session) == ()


def test_a_claim_asks_again_whether_there_is_room(world: World) -> None:
    """A job queued under another limit, or by a clock that is ahead, waits again."""
    start(world, "x1", "x2", "x3")
    admit(world)
    session = world.open()
    world.claim(session)
    world.wait(60)
    admit(world)
    world.clock.jump(timedelta(microseconds=-1))  # the clock of another host

    early = claimed(world, session)
    assert (early.attempts, early.follow_up.jobs) == ((), ("w/a",))
    assert world.jobs("x3")[0].state is JobState.LIMITED
    assert admit(world, "w/a").wakes_at == (world.now + 1,)


def test_a_message_for_a_job_that_may_not_start_is_not_for_ever() -> None:
    world = World(pipeline(rated(limit=1)))
    start(world, "x1", "x2")
    admit(world)
    session = world.open()
    (attempt,) = world.claim(session)
    world.wait(60)
    admit(world)
    world.clock.jump(timedelta(seconds=-1))
    key = world.jobs("x2")[0].key.text
    refused = world.do(JobClaimOne(session=session, job=key, epoch=0, definitions=("w@1",)))
    assert (refused.ignored, refused.retry_after, refused.follow_up.jobs) == ("limited", 5_000_000, ("w/a",))
    world.complete(attempt)
    world.wait(1)
    admit(world)
    took = world.do(JobClaimOne(session=session, job=key, epoch=0, definitions=("w@1",)))
    assert took.attempt is not None
    assert world.jobs("x2")[0].state is JobState.LEASED


def test_a_message_for_a_sleeper_that_is_due_waits_for_its_turn_and_says_so() -> None:
    slow = RetryPolicy(attempts=3, wait_us=10_000_000, jitter=0.0)
    world = World(pipeline(attrs.evolve(rated(limit=1), retry=slow)))
    start(world, "x1", "x2")
    admit(world)
    session = world.open()
    (attempt,) = world.claim(session)
    world.fail(attempt)
    admit(world)
    (asleep,) = world.jobs("x1")
    assert asleep.state is JobState.SLEEPING
    world.wait(60)

    message = JobClaimOne(session=session, job=asleep.key.text, epoch=1, definitions=("w@1",))
    refused = world.do(message)
    assert (refused.ignored, refused.follow_up.jobs) == ("limited", ("w/a",))
    assert world.jobs("x1")[0].state is JobState.LIMITED


def test_every_attempt_is_a_start(world: World) -> None:
    start(world, "x1", "x2")
    admit(world)
    session = world.open()
    first, _ = world.claim(session)
    assert world.fail(first).follow_up.jobs == ("w/a",)

    assert world.jobs("x1")[0].state is JobState.LIMITED
    assert admit(world).admitted == 0
    world.wait(60)
    woken(world)
    assert names(world, world.claim(session)) == ["x1"]


def test_what_is_given_back_or_lost_waits_again_and_its_start_counts(world: World) -> None:
    start(world, "x1", "x2", "x3")
    admit(world)
    session = world.open()
    first, second = world.claim(session)
    back = world.do(JobRelease(job=first.job, epoch=first.epoch))
    assert back.follow_up.jobs == ("w/a",)
    world.do(SessionClose(session=session))
    world.do(LeaseReapStale())

    assert {job.state for job in world.tables().all_jobs()} == {JobState.LIMITED}
    assert world.job(second).lost_attempts == 1
    assert admit(world).admitted == 0
    world.wait(60)
    woken(world)
    assert names(world, world.claim(world.open())) == ["x1", "x2"]


def test_a_paused_run_waits_in_no_line(world: World) -> None:
    start(world, "x1", "x2", "x3")
    admit(world)
    world.do(RunPause(run_id="x1"))
    assert admit(world).admitted == 1
    resumed = world.do(RunResume(run_id="x1"))
    assert resumed.follow_up.jobs == ("w/a",)

    assert names(world, world.claim(world.open())) == ["x2", "x3"]


def test_stages_that_name_a_limit_share_it_across_workflows() -> None:
    shared = rated("a", shared="model")
    world = World(pipeline(shared), pipeline(attrs.evolve(shared, name="z"), workflow="v"))
    start(world, "x1", "x2")
    start(world, "y1", workflow="v")

    assert admit(world, "/model~60000000").admitted == 2
    session = world.open()
    assert names(world, world.claim(session)) == ["x1", "x2"]
    admit(world)
    world.wait(60)
    woken(world)
    assert names(world, world.claim(session)) == ["y1"]


def test_each_text_of_an_attribute_has_the_limit_for_itself() -> None:
    world = World(pipeline(rated(by="tenant")))
    start(world, "x1", "x2", "x3", tenant="acme")
    start(world, "y1", tenant="x" * 300)
    (nobody,) = start(world, "z1")

    assert nobody.follow_up.jobs == ("w/a/",)
    assert admit(world).admitted == 4
    assert names(world, world.claim(world.open())) == ["x1", "x2", "y1", "z1"]
    long = f"w/a/#{hashlib.sha256(b'x' * 300).hexdigest()}"
    assert {*world.tables().rates} == {RateName("default", name) for name in ("w/a/", "w/a/acme", long)}


def test_a_stage_may_have_both_limits() -> None:
    both = attrs.evolve(rated(limit=3), max_concurrency=1)
    world = World(pipeline(both))
    start(world, *(f"x{number}" for number in range(5)))
    session = world.open()
    for _ in range(3):
        assert admit(world).admitted == 1
        assert admit(world).admitted == 0
        (attempt,) = world.claim(session)
        assert world.complete(attempt).follow_up.jobs == ("w/a",)

    assert admit(world).wakes_at == (world.now + MINUTE,)
    world.wait(60)
    woken(world)
    (attempt,) = world.claim(session)
    # Its place is free as well: it has to wait for both again.
    assert world.release(attempt).follow_up.jobs == ("w/a",)
    assert world.job(attempt).state is JobState.LIMITED
    assert admit(world).admitted == 1


@pytest.mark.slow
def test_a_map_of_many_items_goes_at_its_rate_in_the_order_of_the_items() -> None:
    world = World(pipeline(stage("list"), each_of(rated("m", limit=10, per=SECOND), limit=20)))
    start(world, "x")
    session = world.open()
    world.complete(world.claim_one(session))
    world.expand(world.claim_one(session), range(60))
    seen: list[int | None] = []
    begun = world.now
    admit(world)
    while len(seen) < 60:
        for attempt in world.claim(session):
            seen.append(attempt.item)
            world.complete(attempt)
        admit(world)
        world.wait(0.25)
        woken(world)

    assert seen == list(range(60))
    assert 5 * SECOND <= world.now - begun <= 6 * SECOND
    assert world.run("x").status == "completed"


@pytest.mark.slow
def test_a_long_window_is_kept_in_few_instants() -> None:
    """Beyond a hundred starts a hundredth of the period counts as one instant, its end: never too early."""
    world = World(pipeline(rated(limit=120)))
    world.send(*(RunCreate(workflow="w", id=f"x{number}", input=payload(0)) for number in range(180)))
    session = world.open()
    starts: list[int] = []
    while len(starts) < 180:
        admit(world)
        found = world.claim(session, limit=12)
        starts += [world.now] * len(found)
        world.wait(1.6)
        woken(world)

    (window,) = world.tables().rates.values()
    assert len(window.starts) < 2_000
    assert all(later - earlier >= MINUTE for earlier, later in zip(starts, starts[120:], strict=False))
    assert starts[-1] - starts[0] < 1.5 * MINUTE


def test_a_plan_without_a_rate_keeps_its_fingerprint(world: World) -> None:
    plan = pipeline(rated(shared="m", by="t"), stage("b"))

    assert plan_from_json(plan.to_json()) == plan
    assert '"rate"' not in pipeline(stage("a")).to_json()
    assert isinstance(plan, Plan)


def test_nothing_of_a_rate_is_asked_where_there_is_none() -> None:
    world = World(pipeline(stage("a")))
    start(world, "x")
    (attempt,) = world.claim(world.open())
    world.send(completing(attempt))

    assert world.tables().rates == {}


def test_starts_are_spread_as_the_limit_says() -> None:
    """To have them one after the other, set a limit of one in a shorter period."""
    world = World(pipeline(rated(limit=1, per=SECOND)))
    start(world, *(f"x{number}" for number in range(5)))
    session = world.open()
    starts: list[int] = []
    admit(world)
    while len(starts) < 5:
        for _ in world.claim(session):
            starts.append(world.now)
            admit(world)
        world.wait(0.1)
        woken(world)

    assert {later - earlier for earlier, later in pairwise(starts)} == {SECOND}


def test_a_start_by_a_clock_that_is_behind_counts_as_long_as_any_other(world: World) -> None:
    start(world, "x1", "x2", "x3")
    session = world.open(lease=3_600 * SECOND)
    admit(world)
    world.wait(100)
    assert len(world.claim(session, limit=1)) == 1
    world.clock.jump(timedelta(seconds=-90))  # the next host's clock is that far behind
    assert len(world.claim(session, limit=1)) == 1
    world.clock.jump(timedelta(seconds=95))
    admit(world)
    assert world.claim(session) == ()
    world.wait(60)
    woken(world)
    assert names(world, world.claim(session)) == ["x3"]


@pytest.mark.slow
def test_a_start_counts_for_a_version_with_a_longer_period_after_its_own_is_over() -> None:
    """A deploy changes the period: each version's claims count the other's starts within its own period."""
    short, long = rated(limit=1, per=2 * SECOND), rated(limit=2, per=5 * SECOND)
    world = World(pipeline(short), pipeline(long, version="2"))
    for number in range(20):
        version = str(1 + number % 2)
        world.do(RunCreate(workflow="w", version=version, id=f"{version}.{number}", input=payload(0)))
    session = world.open(lease=3_600 * SECOND)
    starts: list[tuple[int, str]] = []
    while len(starts) < 20:
        admit(world)
        starts += [(world.now, one) for one in names(world, world.claim(session))]
        world.wait(0.5)
        woken(world)

    assert starts[1][1] == "2.1"  # from here on it is known that some count for five seconds
    for index, (at, name) in enumerate(starts):
        limit, period = (1, 2 * SECOND) if name[0] == "1" else (2, 5 * SECOND)
        assert sum(at - period < other for other, _ in starts[: index + 1]) <= limit


@pytest.mark.slow
def test_starts_that_only_another_version_still_counts_are_kept_in_few_instants() -> None:
    brief, daily = rated(limit=100, per=SECOND), rated(limit=2_000, per=86_400 * SECOND)
    world = World(pipeline(brief), pipeline(daily, version="2"))
    world.do(RunCreate(workflow="w", version="2", id="daily", input=payload(0)))
    session = world.open(lease=86_400 * SECOND)
    admit(world)
    assert len(world.claim(session)) == 1
    start(world, *(f"x{number}" for number in range(200)))
    count = 1
    while count < 201:
        admit(world)
        count += len(world.claim(session, limit=7))
        world.wait(0.09)
        woken(world)

    (window,) = world.tables().rates.values()
    stored = cast("dict[str, list[tuple[int, int]]]", parse(window.starts))
    assert len(stored["at"]) <= 10
    assert sum(many for _, many in stored["at"]) == 201


@pytest.mark.parametrize("limit", [1, 99, 100, 101, 150, 200, 250, 999])
def test_in_no_span_of_the_period_do_more_start_than_the_limit_says(limit: int) -> None:
    """Whatever the limit: beyond a hundred, instants are rounded, and only to the later side."""
    period = 10 * SECOND
    limited = attrs.evolve(a_job(), rate_limit=limit, rate_period=period)
    starts = Starts()
    began: list[int] = []
    for now in range(period // 100 - 1, 4 * period, period // 400 + 1):
        for _ in range(min(starts.free(limited, now), limit // 7 + 1)):
            starts = starts.with_one(limited, now)
            began.append(now)
    spans = (bisect_left(began, at + period) - place for place, at in enumerate(began))
    assert max(spans) == limit
    assert len(began) >= 2 * limit, "what is free is used"
