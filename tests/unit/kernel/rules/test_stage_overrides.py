"""A run with stage overrides follows a plan of its own."""

import attrs
import pytest

from holdfast.kernel.commands import JobClaim, RunCreate, RunRerunFrom, RunTransition, StageOverride
from holdfast.kernel.commands.codec import fingerprint_text
from holdfast.kernel.pipelines.plan import MapPlan, RetryPolicy, RetryRule, StagePlan, plan_from_json
from holdfast.kernel.pipelines.plan_cache import PlanCache
from holdfast.ports.errors import IdempotencyConflictError, InvalidCommandError
from holdfast.ports.records.job import JobKind
from tests.unit.kernel.world import SECOND, World, completing, each, failed, payload, pipeline, stage, when

PLAN = pipeline(stage("a"), each("m", limit=2))
SLOW = RetryPolicy(attempts=2, wait_us=5 * SECOND, jitter=0.0)
GPU = StageOverride(stage="a", queue="gpu", priority=7, retry=SLOW)


@pytest.fixture
def world() -> World:
    return World(PLAN)


def create(world: World, *overrides: StageOverride, id: str = "x", key: str | None = None) -> None:
    world.do(RunCreate(workflow="w", id=id, input=payload(0), overrides=overrides, idempotency_key=key))


def test_what_an_override_says_holds_in_its_run_and_in_no_other(world: World) -> None:
    create(world, GPU, id="x")
    create(world, id="y")

    (x,), (y,) = world.jobs("x"), world.jobs("y")
    assert (x.queue, x.priority, x.max_attempts) == ("gpu", 7, 2)
    assert (y.queue, y.priority, y.max_attempts) == ("default", 0, 3)
    assert world.run("y").plan == PLAN.fingerprint != world.run("x").plan
    stored = plan_from_json(world.tables().plans[world.run("x").plan].body)
    assert (stored.base, stored.definition) == (PLAN.fingerprint, PLAN.definition)


def test_the_policy_of_an_override_is_followed(world: World) -> None:
    create(world, GPU)
    session = world.open()
    lanes = world.lanes(queue="gpu")
    (attempt,) = world.do(JobClaim(session=session, queue_claims=lanes, limit=1)).attempts

    assert world.settle(attempt, failed()).retry_at == world.now + 5 * SECOND


def test_a_mapped_stage_and_every_field_can_be_told_otherwise(world: World) -> None:
    rule = RetryRule(error="Busy", policy=RetryPolicy(attempts=9))
    said = StageOverride(
        stage="m",
        retry_rules=(rule,),
        timeout_us=1,
        timeout_total_us=2,
        heartbeat_timeout_us=3,
        config='{"n":1}',
    )
    create(world, said)
    plan = plan_from_json(world.tables().plans[world.run().plan].body)

    node = plan.node("m")
    assert isinstance(node, MapPlan)
    before = PLAN.node("m")
    assert isinstance(before, MapPlan)
    assert node == attrs.evolve(
        before,
        stage=attrs.evolve(
            before.stage,
            retry_rules=(rule,),
            timeout_us=1,
            timeout_total_us=2,
            heartbeat_timeout_us=3,
            config='{"n":1}',
        ),
    )
    assert plan.node("a") == PLAN.node("a")


def test_a_choice_stays_one() -> None:
    plan = pipeline(when(stage("a"), stage("b")), (stage("c"), stage("d")))
    world = World(plan)
    create(world, GPU)

    stored = plan_from_json(world.tables().plans[world.run("x").plan].body)
    assert [(one.test, one.parallel) for one in stored.groups] == [("test", False), (None, True)]
    assert [job.kind for job in world.jobs("x")] == [JobKind.CONDITION]


def test_an_override_that_says_nothing_new_is_none(world: World) -> None:
    create(world, StageOverride(stage="a"), StageOverride(stage="m", retry=stage("m").retry))

    assert world.run().plan == PLAN.fingerprint


def test_the_same_overrides_are_one_plan(world: World) -> None:
    create(world, GPU, id="x")
    create(world, GPU, id="y")

    assert world.run("x").plan == world.run("y").plan
    assert len(world.tables().plans) == 1


def test_an_idempotency_key_covers_the_overrides(world: World) -> None:
    create(world, GPU, key="once")
    with world.unchanged():
        create(world, GPU, key="once")
        with pytest.raises(IdempotencyConflictError):
            create(world, key="once")


def test_a_field_that_is_new_to_a_command_does_not_make_it_another() -> None:
    """Replies are kept for a week, and outlive a deploy."""
    command = RunCreate(workflow="w", input=payload(0), id="x")

    assert fingerprint_text(command) == (
        '{"id":"x","input":{"blob":null,"inline":"0"},"type":"run.create","workflow":"w"}'
    )
    assert '"overrides"' in fingerprint_text(attrs.evolve(command, overrides=(GPU,)))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ((StageOverride(stage="b"),), "w@1 has no stage 'b'; it has a, m"),
        ((GPU, StageOverride(stage="a")), "stage 'a' is repeated"),
        (
            (StageOverride(stage="a", retry=RetryPolicy(attempts=0)),),
            "'a': attempts is 0; it must be from 1 to 10,000",
        ),
        ((StageOverride(stage="a", retry=RetryPolicy(backoff=0.5)),), "backoff is 0.5"),
        ((StageOverride(stage="a", retry=RetryPolicy(jitter=float("nan"))),), "jitter is nan"),
        ((StageOverride(stage="a", retry=RetryPolicy(wait_us=-1)),), "wait_us is -1"),
        (
            (
                StageOverride(
                    stage="a", retry_rules=(RetryRule(error="E", policy=RetryPolicy(wait_max_us=-1)),)
                ),
            ),
            "wait_max_us is -1",
        ),
        (
            (StageOverride(stage="a", timeout_us=0, queue=""),),
            "timeout_us is 0; it must be more than 0; queue is",
        ),
    ],
)
def test_what_can_not_be_is_refused_before_anything_is_stored(
    world: World, overrides: tuple[StageOverride, ...], message: str
) -> None:
    with world.unchanged(), pytest.raises(InvalidCommandError, match=message):
        create(world, *overrides)


def test_a_batch_may_create_such_a_run_and_speak_of_it(world: World) -> None:
    create(world, GPU, id="first")  # so that this plan is stored, and known to be
    made = RunCreate(workflow="w", id="x", input=payload(0), overrides=(GPU,))
    _, transitioned = world.send(made, RunTransition(run_id="x"))

    assert getattr(transitioned, "action", transitioned) == "none"


def test_a_rerun_keeps_what_its_run_was_told(world: World) -> None:
    create(world, StageOverride(stage="a", retry=RetryPolicy(attempts=1)))
    world.fail(world.claim_one(world.open()))
    plan = world.run().plan
    world.do(RunRerunFrom(run_id="x", stage="a"))

    assert (world.run().generation, world.run().plan) == (2, plan)
    assert world.jobs()[0].max_attempts == 1


@pytest.mark.slow
def test_runs_with_plans_of_their_own_do_not_fill_the_memory(world: World) -> None:
    """Plans are read again when needed; the kernel's cache is bounded."""
    kernel = world.kernel
    overrides = [StageOverride(stage="a", config=str(number)) for number in range(700)]
    kernel.dispatch_many([RunCreate(workflow="w", input=payload(0), overrides=(one,)) for one in overrides])
    claim = JobClaim(session=world.open(), queue_claims=world.lanes(), limit=1_000)
    kernel.dispatch_many([completing(attempt, [1]) for attempt in kernel.dispatch(claim).attempts])

    assert len(world.tables().plans) == 700
    assert len(kernel._known_plans) <= 512  # pyright: ignore[reportPrivateUsage]
    assert len(kernel._stored_plans) <= 1  # pyright: ignore[reportPrivateUsage]


def test_the_plans_that_were_asked_for_lately_are_kept() -> None:
    plans = [pipeline(StagePlan(name=f"s{number}")) for number in range(10)]
    cache = PlanCache(limit=3)
    favourite = plans[0]
    cache.add(favourite)
    for plan in plans[1:]:
        cache.add(plan)
        assert cache.found([favourite.fingerprint]) == {favourite.fingerprint: favourite}
        assert cache.found([plan.fingerprint, "none"]) == {plan.fingerprint: plan}
        assert len(cache) <= 6

    assert cache.found([plans[1].fingerprint]) == {}
