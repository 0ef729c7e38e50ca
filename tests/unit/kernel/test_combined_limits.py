"""Concurrency keys, turns, gathered starts and changed limits where two of them meet."""

from typing import Any

import attrs
import pytest

from holdfast.kernel.commands import (
    ChildRunStarted,
    ChildStart,
    ContinuedAsNew,
    FollowUp,
    FunctionWaiting,
    JobAdmit,
    JobRecord,
    JobSettle,
    LimitSet,
    NamespaceCreate,
    RunCancel,
    RunClaimPending,
    RunCreate,
    RunCreated,
    RunPause,
    RunRerunFrom,
    RunResume,
    RunTerminate,
    admissions,
    follow_up_of,
)
from holdfast.kernel.limits.fairness import TURN
from holdfast.kernel.limits.rates import starts_from
from holdfast.kernel.pipelines.gather_plan import GatherPlan
from holdfast.kernel.pipelines.plan import Plan, RatePlan
from holdfast.ports.errors import (
    ConcurrencyFullError,
    InvalidCommandError,
    QuotaExceededError,
    RateExceededError,
)
from holdfast.ports.json import canonical
from holdfast.ports.records.job import JobState
from holdfast.ports.records.limits import (
    ConcurrencyPlan,
    OuterLevel,
    OverRate,
    RateName,
    RunRatePlan,
    WhenFull,
)
from holdfast.ports.records.run import GivenOptions, RunName, RunStatus
from tests.unit.kernel.world import SECOND, World, child, completing, payload, pipeline, stage

FUNCTION = pipeline(attrs.evolve(stage("w"), function=True))
BATCH = GatherPlan(within_us=3_600 * SECOND, most=3, keep="all")


def bounded(id: str, full: str, *, limit: int = 1, waiting: int | None = None) -> RunCreate:
    return RunCreate(
        workflow="w",
        id=id,
        input=payload(0),
        concurrency_key="k",
        concurrency_limit=limit,
        concurrency_waiting=waiting,
        concurrency_full=WhenFull(full),
    )


def of_tenant(plan: Plan, number: int, **options: int | str) -> RunCreate:
    attributes = canonical({"tenant": "A"})
    items = None if plan.gather is None else 1
    value = payload(number) if plan.gather is None else payload([number])
    start = RunCreate(workflow=plan.workflow, input=value, items=items, attributes=attributes)
    return attrs.evolve(start, **options)  # type: ignore[arg-type]


def with_child(full: str, limit: int, waiting: int | None) -> World:
    """Return a world with a function and its child run under one key, both under way."""
    world = World(FUNCTION, pipeline(stage("a"), workflow="c"))
    world.do(bounded("p", full, limit=limit, waiting=waiting))
    world.do(RunClaimPending(keys=("k",)))
    attempt = world.claim_one(world.open())
    options = GivenOptions(concurrency=ConcurrencyPlan(key="k", limit=5))
    child = ChildRunStarted(run_id="c", workflow="c", version="1", input=payload(0), options=options)
    record = ChildStart(call="1", child=child)
    world.do(JobRecord(job=attempt.job, epoch=attempt.epoch, seen=1, records=(record,)))
    world.do(RunClaimPending(keys=("k",)))
    assert world.run("c").has_slot
    return world


@pytest.mark.parametrize("full", ["refuse", "cancel", "terminate"])
def test_a_child_run_that_a_fork_takes_over_counts_once(full: str) -> None:
    world = with_child(full, limit=2, waiting=None)
    assert world.do(RunRerunFrom(run_id="p")).ended == ()
    assert world.run("c").open_jobs == 1


@pytest.mark.parametrize("full", ["cancel", "terminate"])
def test_a_child_run_that_a_fork_takes_over_is_not_ended_for_it(full: str) -> None:
    world = with_child(full, limit=1, waiting=None)
    with pytest.raises(ConcurrencyFullError):
        world.do(RunRerunFrom(run_id="p"))
    assert (world.run("c").open_jobs, world.run("p").generation) == (1, 1)


def test_a_run_that_is_cancelled_for_a_rerun_is_woken_whatever_else_reads_it() -> None:
    world = World(FUNCTION)
    session = world.open()
    world.do(bounded("p1", "cancel"))
    world.do(RunClaimPending(keys=("k",)))
    world.do(completing(world.claim_one(session), 1))
    world.do(bounded("p2", "cancel"))
    world.do(RunClaimPending(keys=("k",)))
    attempt = world.claim_one(session)
    waits = FunctionWaiting(seen=world.run("p2").last_row)
    world.do(JobSettle(job=attempt.job, epoch=attempt.epoch, outcome=waits))
    (job,) = world.jobs("p2")
    assert job.state is JobState.SLEEPING

    world.send(RunRerunFrom(run_id="p1"), RunRerunFrom(run_id="p2", generation=99))
    (job,) = world.jobs("p2")
    assert job.state is JobState.QUEUED


def test_a_full_batch_waits_from_now_on() -> None:
    batch = attrs.evolve(FUNCTION, gather=BATCH)
    world = World(batch, pipeline(stage("a"), workflow="o"))
    replies = [world.do(of_tenant(batch, number)) for number in range(3)]
    world.wait(600)
    world.create("later", workflow="o")
    (attempt,) = world.claim(world.open(), limit=1)
    assert attempt.job.startswith(replies[-1].run)


def test_a_full_batch_takes_a_turn_of_its_key() -> None:
    batch = attrs.evolve(FUNCTION, gather=BATCH, fair="tenant")
    world = World(batch)
    reply: RunCreated | None = None
    for number in range(3):
        reply = world.do(of_tenant(batch, number, weight=5))
    assert reply is not None
    assert world.tables().newest[RunName("default", reply.run_id)] == reply.run
    assert [job.turn for job in world.jobs(reply.run_id)] == [0]
    (account,) = world.tables().fair_keys.values()
    assert (account.next_turn, account.weight) == (TURN // 5, 5)


@pytest.mark.parametrize("waits_for", ["start_at", "concurrency_key"])
def test_a_weight_holds_for_the_key_although_the_run_waits(waits_for: str) -> None:
    fair = attrs.evolve(FUNCTION, fair="tenant")
    world = World(fair)
    until: int | str = world.now + SECOND if waits_for == "start_at" else "k"
    world.do(of_tenant(fair, 1, weight=8, **{waits_for: until}))
    world.wait(2)
    world.do(RunClaimPending())
    (account,) = world.tables().fair_keys.values()
    assert (account.next_turn, account.weight) == (TURN // 8, 8)


def test_a_raised_rate_wakes_its_own_sleeper_beside_many_with_a_longer_name() -> None:
    of_tenants = attrs.evolve(stage("ab"), rate=RatePlan(limit=1, per_us=3_600 * SECOND, by="tenant"))
    own = attrs.evolve(stage("a"), rate=RatePlan(limit=1, per_us=3_600 * SECOND))
    world = World(pipeline((of_tenants, own)))
    for number in range(6):
        attributes = canonical({"tenant": f"t{number // 2}"})
        world.do(RunCreate(workflow="w", id=str(number), input=payload(0), attributes=attributes))
    session = world.open()
    for _ in range(6):
        world.do(JobAdmit(limit=1_000))
        world.claim(session)

    def asleep() -> list[str | None]:
        jobs = world.tables().all_jobs()
        return [job.concurrency_key for job in jobs if job.state is JobState.SLEEPING]

    assert len(asleep()) == 4
    assert asleep().count("w/a") == 1
    world.do(LimitSet(name="stage:w/a", rate_limit=100, rate_period=3_600 * SECOND, limit=1))
    assert asleep().count("w/a") == 0


# Rates of starts, beside each of the others.

MINUTE = 60 * SECOND
ONE = RunRatePlan(limit=1, period=MINUTE)


def follow(world: World, follow_up: FollowUp) -> None:
    while commands := admissions("default", follow_up):
        follow_up = follow_up_of([world.do(command) for command in commands])


def start(world: World, run: str, workflow: str = "w", **options: Any) -> None:
    follow(world, world.do(RunCreate(workflow=workflow, id=run, input=payload(0), **options)).follow_up)


def statuses(world: World, *runs: str) -> list[str]:
    return [world.run(run).status.value for run in runs]


def used(world: World, name: str = "run-rate:w") -> int:
    """Return how many units ever started, as far as they are stored."""
    window = world.tables().rates.get(RateName("default", name))
    return sum(units for _, units in starts_from(window).at)


def test_a_run_that_waits_for_a_slot_takes_no_units() -> None:
    world = World(pipeline(stage("a")))
    start(world, "holder", concurrency_key="k")
    start(world, "waits", concurrency_key="k", rate=attrs.evolve(ONE, limit=9))
    assert (statuses(world, "waits"), used(world)) == (["pending"], 0)
    follow(world, world.do(completing(world.claim_one(world.open()), 1)).follow_up)
    assert (statuses(world, "waits"), used(world)) == (["running"], 1)


def test_a_run_that_waits_for_its_rate_holds_no_slot_and_delays_no_other_run() -> None:
    world = World(pipeline(stage("a")))
    start(world, "counted", rate=ONE)
    start(world, "waits", rate=ONE, concurrency_key="k")
    assert world.run("waits").in_rate_line
    start(world, "passes", concurrency_key="k")
    assert statuses(world, "waits", "passes") == ["pending", "running"]

    world.wait(60)
    assert world.do(RunClaimPending(due=True)).admitted == 0
    assert (world.run("waits").in_rate_line, used(world)) == (0, 1), "it waits for the slot, at no cost"
    attempt = next(one for one in world.claim(world.open()) if one.job.startswith(world.run("passes").key))
    follow(world, world.do(completing(attempt, 1)).follow_up)
    assert statuses(world, "waits") == ["running"]


def test_a_run_without_a_slot_leaves_the_line_to_those_behind_it() -> None:
    world = World(pipeline(stage("a")))
    start(world, "counted", rate=ONE)
    start(world, "no slot", rate=ONE, concurrency_key="k")
    start(world, "behind", rate=ONE)
    start(world, "holder", concurrency_key="k")
    world.wait(60)
    follow(world, world.do(RunClaimPending(due=True)).follow_up)
    assert statuses(world, "no slot", "behind") == ["pending", "running"]


def test_a_run_in_the_line_of_a_rate_is_one_that_waits_for_the_bound_of_its_key() -> None:
    world = World(attrs.evolve(pipeline(stage("a")), rate=ONE))
    world.do(bounded("a", "replace"))
    follow(world, FollowUp(runs=("k",)))
    for run in "bc":
        follow(world, world.do(bounded(run, "replace")).follow_up)
    assert statuses(world, *"abc") == ["running", "cancelled", "pending"]
    assert used(world) == 1


def test_a_refused_start_ends_no_run_that_would_have_made_way() -> None:
    world = World(attrs.evolve(pipeline(stage("a")), rate=attrs.evolve(ONE, over=OverRate.REFUSE)))
    follow(world, world.do(bounded("a", "terminate")).follow_up)
    with world.unchanged(), pytest.raises(RateExceededError):
        world.do(bounded("b", "terminate"))


def test_a_run_counts_when_it_starts_and_not_when_it_is_stored() -> None:
    world = World(attrs.evolve(pipeline(stage("a")), rate=ONE))
    start(world, "later", start_at=world.now + 10 * MINUTE)
    start(world, "now")
    assert statuses(world, "now") == ["running"]
    world.wait(600)
    follow(world, world.do(RunClaimPending(due=True)).follow_up)
    assert world.run("later").rate_counted_at == world.now


def gathering(**changes: Any) -> Plan:
    return attrs.evolve(FUNCTION, gather=BATCH, rate=attrs.evolve(ONE, **changes))


@pytest.mark.parametrize("is_full", [True, False])
def test_gathered_starts_count_once_when_their_run_starts(is_full: bool) -> None:
    plan = gathering()
    world = World(plan)
    replies: list[RunCreated] = []
    for number in range(6 if is_full else 4):
        reply = world.do(of_tenant(plan, number))
        follow(world, reply.follow_up)
        replies.append(reply)
    first, second = replies[0].run_id, replies[-1].run_id
    assert statuses(world, first, second) == ["running", "pending"]
    assert (used(world), world.run(second).in_rate_line) == (1, int(is_full))
    world.wait(3_600)
    follow(world, world.do(RunClaimPending(due=True)).follow_up)
    assert statuses(world, second) == ["running"]
    assert world.run(second).rate_counted_at == world.now


def test_a_start_joins_a_run_that_waits_for_its_rate() -> None:
    plan = gathering()
    world = World(attrs.evolve(plan, gather=attrs.evolve(BATCH, within_us=SECOND, most=None)))
    first = world.do(of_tenant(plan, 1))
    world.wait(1)
    follow(world, world.do(RunClaimPending(due=True)).follow_up)
    second = world.do(of_tenant(plan, 2))
    world.wait(2)
    follow(world, world.do(RunClaimPending(due=True)).follow_up)
    assert world.run(second.run_id).in_rate_line
    third = world.do(of_tenant(plan, 3))
    assert (third.joined, third.run) == (True, second.run)
    assert statuses(world, first.run_id, third.run_id) == ["running", "pending"]


def test_gathered_starts_are_not_refused() -> None:
    plan = gathering(over=OverRate.REFUSE)
    world = World(plan)
    with world.unchanged(), pytest.raises(InvalidCommandError, match="over='wait'"):
        world.do(of_tenant(plan, 1))


def test_a_run_takes_its_turn_when_its_rate_allows_it() -> None:
    plan = attrs.evolve(FUNCTION, fair="tenant", rate=ONE)
    world = World(plan)
    for number in range(2):
        follow(world, world.do(of_tenant(plan, number, weight=4)).follow_up)
    (account,) = world.tables().fair_keys.values()
    assert account.next_turn == TURN // 4
    world.wait(60)
    assert world.do(RunClaimPending()).admitted == 1
    (account,) = world.tables().fair_keys.values()
    assert account.next_turn == 2 * TURN // 4


@pytest.mark.parametrize("over", list(OverRate))
def test_child_runs_count_against_the_rate_of_their_workflow(over: OverRate) -> None:
    of_child = attrs.evolve(
        pipeline(stage("a"), workflow="c"), rate=attrs.evolve(ONE, over=over, by="tenant")
    )
    world = World(pipeline(child("b")), of_child)
    attributes = canonical({"tenant": "ann"})
    for parent in ("p1", "p2"):
        start(world, parent, attributes=attributes)
    session = world.open()
    for name, attempt in zip(("c1", "c2"), world.claim(session), strict=True):
        follow(world, world.start_child(attempt, name).follow_up)
    assert used(world, "run-rate:c/ann") == 1
    if over is OverRate.WAIT:
        assert statuses(world, "c1", "c2") == ["running", "pending"]
        return
    (failed,) = [run for run in ("p1", "p2") if world.run(run).status is RunStatus.FAILED]
    assert '"code":"rate_exceeded"' in (world.run(failed).error or "")


def test_a_child_run_of_a_workflow_that_gathers_may_be_refused_as_it_is_not_gathered() -> None:
    of_child = attrs.evolve(FUNCTION, workflow="c", gather=BATCH)
    world = World(FUNCTION, of_child)
    start(world, "p")
    attempt = world.claim_one(world.open())
    options = GivenOptions(rate=attrs.evolve(ONE, over=OverRate.REFUSE))
    records = tuple(
        ChildStart(
            call=run,
            child=ChildRunStarted(run_id=run, workflow="c", version="1", input=payload(0), options=options),
        )
        for run in "ab"
    )
    world.do(JobRecord(job=attempt.job, epoch=attempt.epoch, seen=1, records=records))
    assert (statuses(world, "a"), world.events("p").count("child.failed")) == (["running"], 1)


def test_children_that_a_function_starts_at_once_count_one_after_the_other() -> None:
    of_child = attrs.evolve(
        pipeline(stage("a"), workflow="c"), rate=attrs.evolve(ONE, limit=2, over=OverRate.REFUSE)
    )
    world = World(FUNCTION, of_child)
    start(world, "p")
    attempt = world.claim_one(world.open())
    records = tuple(
        ChildStart(
            call=str(number),
            child=ChildRunStarted(run_id=f"p/{number}", workflow="c", version="1", input=payload(0)),
        )
        for number in range(3)
    )
    world.do(JobRecord(job=attempt.job, epoch=attempt.epoch, seen=1, records=records))
    assert world.events("p").count("child.started") == 2
    (refused,) = [row for row in world.history("p") if row.type == "child.failed"]
    assert '"code":"rate_exceeded"' in (refused.data or "")


def test_a_run_that_goes_on_as_another_generation_is_no_start() -> None:
    retried = attrs.evolve(stage("w", attempts=3, wait_us=5 * SECOND), function=True)
    world = World(attrs.evolve(pipeline(retried), rate=ONE))
    start(world, "x")
    session = world.open()
    first = world.run().rate_counted_at
    world.fail(world.claim_one(session))
    assert (world.run().generation, statuses(world, "x")) == (2, ["pending"])
    world.wait(5)
    world.do(RunClaimPending(due=True))
    assert statuses(world, "x") == ["running"]

    attempt = world.claim_one(session)
    goes_on = ContinuedAsNew(workflow="w", version="1", input=payload(1), seen=1)
    world.do(JobSettle(job=attempt.job, epoch=attempt.epoch, outcome=goes_on))
    assert (world.run().generation, statuses(world, "x")) == (3, ["running"])
    assert (used(world), world.run().rate_counted_at) == (1, first)


# A rate beside limits within each other.

NESTED = ConcurrencyPlan(
    by="user", limit=2, within=(OuterLevel(key="all", limit=3), OuterLevel(by="tenant", limit=2))
)
TENANT_A = "run:all :: tenant/a"


def nested(limit: int, **changes: Any) -> World:
    """Return a world of runs under three levels and a rate, with another workflow that has only the levels."""
    plan = attrs.evolve(pipeline(stage("a")), concurrency=NESTED, rate=attrs.evolve(ONE, limit=limit))
    free = attrs.evolve(pipeline(stage("a"), workflow="free"), concurrency=NESTED)
    return World(attrs.evolve(plan, **changes), free)


def of_user(world: World, run: str, workflow: str = "w", **options: Any) -> None:
    """Start a run of the tenant and the user that its id begins with, `t u number`."""
    tenant, user, *_ = run.split()
    world.wait(0.001)  # in the order of their starts
    start(world, run, workflow, attributes=canonical({"tenant": tenant, "user": user}), **options)


def end(world: World, run: str) -> None:
    follow(world, world.do(RunTerminate(run_id=run)).follow_up)


def pass_minute(world: World) -> None:
    world.wait(60)
    follow(world, world.do(RunClaimPending(due=True)).follow_up)


def test_a_run_that_its_rate_lets_in_takes_a_slot_of_every_level() -> None:
    world = nested(1)
    of_user(world, "b x 1")
    of_user(world, "a x 1")
    assert statuses(world, "b x 1", "a x 1") == ["running", "pending"]
    pass_minute(world)
    assert statuses(world, "a x 1") == ["running"]
    for run in ("b y 1", "c y 1"):
        of_user(world, run, "free")
    assert statuses(world, "b y 1", "c y 1") == ["running", "pending"], (
        "three hold slots of the outermost level"
    )


@pytest.mark.parametrize("full", ["all", "tenant", "user"])
def test_a_run_goes_back_to_the_line_for_slots_if_any_level_is_full(full: str) -> None:
    world = nested(1)
    of_user(world, "z z 1")
    of_user(world, "a x 1")
    holders = {"all": ["b y 1", "c y 1"], "tenant": ["a y 1", "a y 2"], "user": ["a x 2", "a x 3"]}[full]
    for run in holders:
        of_user(world, run, "free")
    assert statuses(world, *holders) == ["running", "running"]
    pass_minute(world)
    assert (world.run("a x 1").in_rate_line, used(world)) == (0, 1), "and it costs nothing"
    end(world, holders[0])
    assert (statuses(world, "a x 1"), used(world)) == (["running"], 1), "at once: the units are still free"
    assert world.run("a x 1").rate_counted_at == world.now


def test_what_waits_for_a_rate_holds_up_no_level() -> None:
    world = nested(1)
    for run in ("a x 1", "a x 2", "a y 1", "b x 1"):
        of_user(world, run)
    assert [world.run(run).in_rate_line for run in ("a x 2", "a y 1", "b x 1")] == [1, 1, 1]
    of_user(world, "a y 2", "free")
    assert statuses(world, "a y 2") == ["running"]
    end(world, "a x 1")
    pass_minute(world)
    assert statuses(world, "a x 2", "a y 1", "b x 1") == ["running", "pending", "pending"]


def test_a_level_that_is_changed_holds_for_runs_that_wait_for_their_rate() -> None:
    world = nested(1)
    of_user(world, "z z 1")
    of_user(world, "a x 1")
    follow(world, world.do(LimitSet(name=TENANT_A, slots=0)).follow_up)
    pass_minute(world)
    assert (statuses(world, "a x 1"), world.run("a x 1").in_rate_line) == (["pending"], 0)
    follow(world, world.do(LimitSet(name=TENANT_A, slots=1)).follow_up)
    assert statuses(world, "a x 1") == ["running"]


def test_a_raised_rate_lets_in_no_more_than_every_level_has_room_for() -> None:
    world = nested(1)
    for run in ("a x 1", "a x 2", "a x 3", "b x 1", "c x 1"):
        of_user(world, run)
    follow(world, world.do(LimitSet(name="run-rate:w", rate_limit=9, rate_period=MINUTE)).follow_up)
    assert statuses(world, "a x 1", "a x 2", "a x 3", "b x 1", "c x 1") == [
        "running",
        "running",
        "pending",
        "running",
        "pending",
    ]
    end(world, "a x 2")
    assert statuses(world, "a x 3", "c x 1") == ["running", "pending"]


@pytest.mark.parametrize("full", ["replace", "terminate"])
def test_a_bound_counts_runs_of_the_innermost_level_that_wait_for_their_rate(full: str) -> None:
    waiting = 1 if full == "replace" else 0
    bound = attrs.evolve(NESTED, limit=1, waiting=waiting, full=WhenFull(full))
    world = nested(1, concurrency=bound)
    of_user(world, "z z 1")
    for run in ("a x 1", "a x 2", "a x 3", "a y 1"):
        of_user(world, run)
    second = "pending" if full == "replace" else "cancelled"
    assert statuses(world, "a x 1", "a x 2", "a x 3", "a y 1") == ["cancelled", second, "pending", "pending"]
    assert used(world) == 1


def test_a_run_takes_its_turn_once_its_rate_and_every_level_let_it_in() -> None:
    world = nested(1, fair="tenant")
    of_user(world, "a x 1")
    of_user(world, "a x 2")
    of_user(world, "a y 1", "free")
    (account,) = world.tables().fair_keys.values()
    assert account.next_turn == TURN
    pass_minute(world)
    assert statuses(world, "a x 2") == ["pending"], "its tenant has no slot"
    (account,) = world.tables().fair_keys.values()
    assert account.next_turn == TURN
    end(world, "a y 1")
    (account,) = world.tables().fair_keys.values()
    assert (statuses(world, "a x 2"), account.next_turn) == (["running"], 2 * TURN)


def test_gathered_starts_wait_for_every_level_and_then_for_their_rate() -> None:
    plan = attrs.evolve(gathering(), concurrency=NESTED)
    world = World(plan, attrs.evolve(pipeline(stage("a"), workflow="free"), concurrency=NESTED))
    attributes = canonical({"tenant": "a", "user": "x"})
    of_user(world, "a x 1", "free")
    of_user(world, "a y 1", "free")
    runs: list[str] = []
    for number in range(6):  # two batches of three
        reply = world.do(of_tenant(plan, number, attributes=attributes))
        follow(world, reply.follow_up)
        runs.append(reply.run_id)
    assert (statuses(world, runs[0], runs[-1]), used(world)) == (["pending", "pending"], 0)
    end(world, "a x 1")
    assert (statuses(world, runs[0], runs[-1]), used(world)) == (["running", "pending"], 1)
    end(world, "a y 1")
    assert (statuses(world, runs[-1]), world.run(runs[-1]).in_rate_line) == (["pending"], 1)
    pass_minute(world)
    assert statuses(world, runs[-1]) == ["running"]


def test_child_runs_wait_for_every_level_and_for_their_rate_by_the_attributes_of_their_parent() -> None:
    of_child = attrs.evolve(pipeline(stage("a"), workflow="c"), concurrency=NESTED, rate=ONE)
    world = World(pipeline(child("b")), of_child)
    for parent in ("p1", "p2", "p3"):
        start(world, parent, attributes=canonical({"tenant": "a", "user": parent}))
    session = world.open()
    for name, attempt in zip(("c1", "c2", "c3"), world.claim(session), strict=True):
        follow(world, world.start_child(attempt, name).follow_up)
    assert statuses(world, "c1", "c2", "c3") == ["running", "pending", "pending"]
    pass_minute(world)
    assert statuses(world, "c2", "c3") == ["running", "pending"]
    pass_minute(world)
    assert (statuses(world, "c3"), world.run("c3").in_rate_line) == (["pending"], 0), "its tenant has two"
    end(world, "p1")
    world.do(RunTerminate(run_id="c2"))
    follow(world, FollowUp(runs=(world.run("c2").concurrency_key or "",)))
    assert statuses(world, "c3") == ["running"]


# What leaves the line of a rate lets those behind it begin.


def line_of_units() -> World:
    """Return a world whose rate has four units of ten left, with a run that costs nine, and one that costs two."""
    world = World(attrs.evolve(pipeline(stage("a")), rate=attrs.evolve(ONE, limit=10)))
    for run, units in (("six", 6), ("nine", 9), ("two", 2)):
        world.wait(0.001)
        start(world, run, units=units)
    assert statuses(world, "six", "nine", "two") == ["running", "pending", "pending"]
    return world


def test_a_run_that_is_paused_in_the_line_of_its_rate_lets_those_behind_it_begin_at_once() -> None:
    world = line_of_units()
    follow(world, world.do(RunPause(run_id="nine")).follow_up)
    assert statuses(world, "nine", "two") == ["paused", "running"]
    follow(world, world.do(RunResume(run_id="nine")).follow_up)
    assert world.run("nine").in_rate_line
    pass_minute(world)
    assert statuses(world, "nine") == ["running"]


@pytest.mark.parametrize("leaves", [RunCancel, RunTerminate, RunPause])
def test_a_line_is_due_when_its_new_first_run_fits(leaves: type[RunCancel | RunTerminate | RunPause]) -> None:
    world = World(attrs.evolve(pipeline(stage("a")), rate=attrs.evolve(ONE, limit=10)))
    start(world, "early", units=4)
    world.wait(30)
    start(world, "late", units=6)
    for run, units in (("seven", 7), ("two", 2)):
        world.wait(0.001)
        start(world, run, units=units)
    (window,) = world.tables().rates.values()
    assert window.admits_at == (world.run("late").rate_counted_at or 0) + MINUTE
    follow(world, world.do(leaves(run_id="seven")).follow_up)
    (window,) = world.tables().rates.values()
    assert window.admits_at == (world.run("early").rate_counted_at or 0) + MINUTE
    world.wait(30)
    follow(world, world.do(RunClaimPending(due=True)).follow_up)
    assert statuses(world, "two") == ["running"]


def test_a_line_is_due_when_a_more_urgent_run_fits() -> None:
    world = World(attrs.evolve(pipeline(stage("a")), rate=attrs.evolve(ONE, limit=10)))
    start(world, "early", units=4)
    world.wait(30)
    start(world, "late", units=6)
    start(world, "seven", units=7)
    start(world, "urgent", units=2, priority=5)
    world.wait(30)
    follow(world, world.do(RunClaimPending(due=True)).follow_up)
    assert statuses(world, "seven", "urgent") == ["pending", "running"]


# Namespaces beside the others.


@pytest.mark.parametrize("full", ["replace", "terminate", "cancel"])
def test_a_start_that_ends_another_run_is_within_the_quota(full: str) -> None:
    world = World(pipeline(stage("a")))
    world.do(NamespaceCreate(namespace="default", max_active_runs=2))
    start(world, "holder", concurrency_key="k" if full == "replace" else None)
    waiting = 1 if full == "replace" else None
    follow(world, world.do(bounded("a", full, waiting=waiting)).follow_up)
    reply = world.do(bounded("b", full, waiting=waiting))
    assert (reply.ended, statuses(world, "a", "holder")) == (("a",), ["cancelled", "running"])
    with pytest.raises(QuotaExceededError), world.unchanged():
        world.create("c")


def test_a_start_whose_run_is_not_ended_yet_is_not_within_the_quota() -> None:
    world = World(FUNCTION)
    world.do(NamespaceCreate(namespace="default", max_active_runs=1))
    follow(world, world.do(bounded("a", "cancel")).follow_up)
    world.claim_one(world.open())
    with pytest.raises(QuotaExceededError), world.unchanged():
        world.do(bounded("b", "cancel"))


def test_gathered_starts_count_once_against_a_quota_and_are_refused_before_they_are_stored() -> None:
    plan = gathering()
    world = World(plan)
    world.do(NamespaceCreate(namespace="default", max_active_runs=1))
    first = world.do(of_tenant(plan, 1))
    assert world.do(of_tenant(plan, 2)).joined
    assert world.do(of_tenant(plan, 3)).run == first.run  # the batch is full, and its run begins or waits
    with pytest.raises(QuotaExceededError), world.unchanged():
        world.do(of_tenant(plan, 4))


def test_due_runs_are_begun_in_their_own_namespace_where_their_follow_ups_are_carried_out() -> None:
    world = World(attrs.evolve(pipeline(stage("a")), rate=ONE))
    later: dict[str, Any] = {"namespace": "other", "start_at": world.now + SECOND, "concurrency_key": "k"}
    world.do(RunCreate(workflow="w", id="a", input=payload(0), **later))
    world.wait(1)
    assert world.do(RunClaimPending(due=True)).admitted == 0
    assert world.run("a", "other").start_at is not None
    follow_up = world.do(RunClaimPending(namespace="other", due=True)).follow_up
    while commands := admissions("other", follow_up):
        follow_up = follow_up_of([world.do(command) for command in commands])
    assert world.run("a", "other").status is RunStatus.RUNNING


def test_a_line_of_another_namespace_stays_due() -> None:
    world = World(attrs.evolve(pipeline(stage("a")), rate=ONE))
    for run in "ab":
        created = RunCreate(namespace="other", workflow="w", id=run, input=payload(0))
        for command in admissions("other", world.do(created).follow_up):
            world.do(command)
    world.wait(60)
    with world.unchanged():
        world.do(RunClaimPending(due=True))
    assert world.do(RunClaimPending(namespace="other", due=True)).admitted == 1


def test_maintenance_of_one_namespace_goes_on_until_runs_of_the_others_are_under_way() -> None:
    world = World(attrs.evolve(pipeline(stage("a")), rate=ONE))
    later: dict[str, Any] = {"namespace": "other", "start_at": world.now + SECOND, "concurrency_key": "k"}
    world.do(RunCreate(workflow="w", id="a", input=payload(0), **later))
    world.wait(1)
    searches = 0
    while (reply := world.do(RunClaimPending(after=""))).more:
        searches += 1
        assert not reply.admitted or searches == 3
    assert (world.run("a", "other").status, searches) == (RunStatus.RUNNING, 3)
