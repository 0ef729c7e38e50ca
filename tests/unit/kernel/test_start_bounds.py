"""Starts under a bounded concurrency key: what happens when it is full."""

from typing import Any

import attrs
import pytest

from holdfast.kernel.commands import (
    ChildRunStarted,
    ContinuedAsNew,
    FollowUp,
    LimitSet,
    RunCancel,
    RunClaimPending,
    RunCreate,
    RunCreated,
    RunPause,
    RunRerunFrom,
    RunTerminate,
)
from holdfast.kernel.limits.start_bounds import ENDED_MAX, key_of
from holdfast.kernel.pipelines.plan import Plan, RetryPolicy, plan_from_json
from holdfast.ports.errors import ConcurrencyFullError, InvalidCommandError
from holdfast.ports.json import canonical, parse
from holdfast.ports.records.limits import ConcurrencyPlan, WhenFull
from holdfast.ports.records.run import GivenOptions, RunName, RunStatus
from tests.unit.kernel.world import SECOND, World, child, completing, payload, pipeline, stage

PLAN = pipeline(stage("a"))
FUNCTION = pipeline(attrs.evolve(stage("w"), function=True))


@pytest.fixture
def world() -> World:
    return World(PLAN)


def command(
    id: str | None, full: str = "refuse", *, limit: int = 1, waiting: int | None = None, **options: object
) -> RunCreate:
    start = RunCreate(
        workflow="w",
        id=id,
        input=payload(0),
        concurrency_key="k",
        concurrency_limit=limit,
        concurrency_waiting=waiting,
        concurrency_full=WhenFull(full),
    )
    return attrs.evolve(start, **options)  # type: ignore[arg-type]


def start(world: World, id: str, full: str = "refuse", **options: Any) -> RunCreated:
    """Start a run, and admit what can be admitted, as hosts do."""
    world.wait(1)
    created = world.do(command(id, full, **options))
    admit(world)
    return created


def admit(world: World) -> None:
    world.do(RunClaimPending(keys=("k",)))


def statuses(world: World, *ids: str) -> str:
    return " ".join(world.run(name).status.value for name in ids)


def error_of(world: World, id: str) -> Any:
    return parse(world.run(id).error or "null")


# The table: what a start does, by what is there. The limit is 1, and one may wait.

THERE = {
    "nothing": (),
    "one under way": ("a",),
    "one waits": ("-b",),
    "full": ("a", "b"),
    "full, and one is ending": ("*c", "a", "b"),
    "more than allowed": ("a", "b", "c", "d"),
}
"""The runs that are there, in the order of their starts. The first has the slot; `-` has no slot, `*` is ending."""

OUTCOMES = {
    "wait": ("stored", "stored", "stored", "stored", "stored", "stored"),
    "refuse": ("stored", "stored", "stored", "refused", "refused", "refused"),
    "return": ("stored", "stored", "stored", "returns b", "returns b", "returns d"),
    "replace": ("stored", "stored", "stored", "ends b", "ends b", "ends b c d"),
    "cancel": ("stored", "stored", "stored", "ends a", "ends a", "ends a b c"),
    "terminate": ("stored", "stored", "stored", "ends a", "ends a", "ends a b c"),
}


@pytest.mark.parametrize("full", OUTCOMES)
@pytest.mark.parametrize("there", THERE)
def test_what_a_start_does(full: str, there: str) -> None:
    """36 cases, each without a change to any other run."""
    world = World(FUNCTION)
    names = THERE[there]
    for name in names:
        world.wait(1)
        world.do(command(name.lstrip("-*"), "wait", limit=2 if "*c" in names else 1))
        if not name.startswith("-"):
            admit(world)
        if name.startswith("*"):
            world.do(RunCancel(run_id=name[1:]))
            assert world.run(name[1:]).is_ending
    before = {run.id: run for run in world.tables().runs.values()}

    waiting = None if full == "wait" else 1
    wanted = OUTCOMES[full][tuple(THERE).index(there)]
    world.wait(1)
    (answer,) = world.send(command("new", full, waiting=waiting))
    if isinstance(answer, ConcurrencyFullError):
        assert (answer.key, answer.newest) == ("k", "d" if there == "more than allowed" else "b")
        done = "refused"
    else:
        assert isinstance(answer, RunCreated)
        done = "stored" if answer.created else f"returns {answer.run_id}"
        done = f"ends {' '.join(answer.ended)}" if answer.ended else done
    assert done == wanted
    after = {run.id: run for run in world.tables().runs.values()}
    ended = tuple(wanted.split()[1:]) if wanted.startswith("ends") else ()
    assert ("new" in after) == (wanted == "stored" or bool(ended))
    assert {name for name, run in before.items() if after[name] != run} == set(ended)
    cleans_up = full == "cancel"
    for name in ended:
        wanted_status = RunStatus.CANCELLING if cleans_up and name == "a" else RunStatus.CANCELLED
        assert after[name].status is wanted_status
    assert [row.type for row in world.history("new")] == ["run.created"] if "new" in after else True


# Who is ended, and how it is told.


def test_a_superseded_run_says_by_which(world: World) -> None:
    start(world, "a", "replace")
    start(world, "b", "replace")
    created = start(world, "c", "replace")

    assert created.ended == ("b",)
    assert statuses(world, "a", "b", "c") == "running cancelled pending"
    reason = "run 'c' took its place: the concurrency key 'k' was full"
    assert error_of(world, "b") == {"code": "superseded", "message": reason, "run": "c"}
    assert parse(world.history("b")[-1].data or "") == {"reason": reason, "superseded_by": "c"}
    assert parse(world.history("c")[0].data or "")["ended"] == ["b"]


def test_a_run_under_way_is_terminated_and_its_slot_is_free_at_once(world: World) -> None:
    start(world, "a", "terminate")
    session = world.open()
    attempt = world.claim_one(session)
    world.wait(1)
    created = world.do(command("b", "terminate"))

    assert created.follow_up == FollowUp(runs=("k",))
    assert world.complete(attempt).status == "fenced"
    assert error_of(world, "a")["code"] == "terminated"
    assert parse(world.history("a")[-1].data or "")["superseded_by"] == "b"
    admit(world)
    assert statuses(world, "a", "b") == "cancelled running"


def test_the_oldest_is_ended_by_creation_not_by_priority(world: World) -> None:
    for name, priority in (("a", 0), ("b", 9), ("c", 0)):
        start(world, name, "replace", waiting=2, priority=priority)
    assert start(world, "d", "replace", waiting=2, priority=-9).ended == ("b",)


def test_other_keys_and_namespaces_are_left_alone(world: World) -> None:
    for name, other in (("a", {"concurrency_key": "other"}), ("b", {"namespace": "tenant"}), ("c", {})):
        assert start(world, name, "cancel", **other).ended == ()
    assert start(world, "d", "cancel").ended == ("c",)


def test_paused_and_delayed_runs_count(world: World) -> None:
    start(world, "a", waiting=2)
    start(world, "b", waiting=2, start_at=world.now + 60 * SECOND)
    start(world, "c", waiting=2)
    world.do(RunPause(run_id="c"))
    with pytest.raises(ConcurrencyFullError):
        start(world, "d", waiting=2)
    assert start(world, "e", "replace", waiting=2).ended == ("b",)
    assert start(world, "f", "replace", waiting=2).ended == ("c",)


def test_runs_that_have_ended_make_room(world: World) -> None:
    start(world, "a")
    world.drain(lambda attempt: completing(attempt).outcome)
    start(world, "b")
    world.do(RunCancel(run_id="b"))
    start(world, "c")
    world.do(RunTerminate(run_id="c"))
    assert start(world, "d").created


def test_nothing_is_stored_by_a_start_that_is_refused(world: World) -> None:
    start(world, "a")
    with world.unchanged(), pytest.raises(ConcurrencyFullError, match=r"'k' is full.*newest of them 'a'"):
        world.do(command("b", idempotency_key="once"))
    world.do(RunTerminate(run_id="a"))
    assert world.do(command("b", idempotency_key="once")).created


def test_a_lower_bound_ends_a_few_more_at_each_start(world: World) -> None:
    number = ENDED_MAX + 5
    for name in range(number):
        start(world, f"r{name:02}", "replace", waiting=100)
    first = start(world, "x", "replace", waiting=1)
    assert first.ended == tuple(f"r{name:02}" for name in range(1, ENDED_MAX + 1))
    assert len(start(world, "y", "replace", waiting=1).ended) == number - ENDED_MAX


# Batches.


def test_starts_of_one_batch_see_each_other(world: World) -> None:
    world.wait(1)
    answers = world.send(*(command(f"r{number}", "replace") for number in range(6)))

    assert [getattr(answer, "ended", None) for answer in answers] == [
        (), (), ("r0",), ("r1",), ("r2",), ("r3",)
    ]  # fmt: skip
    refused = world.send(*(command(f"s{number}") for number in range(3)))
    assert all(isinstance(answer, ConcurrencyFullError) for answer in refused)
    assert [
        getattr(one, "run_id", None) for one in world.send(command("t", "return"), command("u", "return"))
    ] == [
        "r5",
        "r5",
    ]


def test_a_batch_ends_runs_that_were_there_and_those_of_its_own(world: World) -> None:
    for name in ("a", "b", "c"):
        start(world, name, "cancel", limit=2, waiting=1)
    answers = world.send(*(command(f"r{n}", "cancel", limit=2, waiting=1) for n in range(4)))
    assert [getattr(answer, "ended", None) for answer in answers] == [("a",), ("b",), ("c",), ("r0",)]


# Repeated commands.


def test_a_repeated_start_ends_no_second_run(world: World) -> None:
    for name in ("a", "b"):
        start(world, name, "replace")
    again = command("c", "replace", idempotency_key="once")
    first = world.do(again)
    assert first.ended == ("b",)
    with world.unchanged():
        assert world.do(again) == first
    with world.unchanged():
        returned = world.do(command("c", "replace", if_exists="return"))
    assert (returned.created, returned.ended) == (False, ())


def test_the_generation_that_is_replaced_does_not_count(world: World) -> None:
    start(world, "a")
    assert start(world, "a", if_active="terminate").generation == 2
    world.do(RunTerminate(run_id="a"))
    start(world, "b")
    with pytest.raises(ConcurrencyFullError):
        start(world, "a", if_ended="rerun")


# Reruns and retries.


def test_a_rerun_obeys_the_bound_of_its_run(world: World) -> None:
    start(world, "a")
    world.do(RunTerminate(run_id="a"))
    start(world, "b")
    with world.unchanged(), pytest.raises(ConcurrencyFullError):
        world.do(RunRerunFrom(run_id="a"))
    rerun = world.do(RunRerunFrom(run_id="b"))
    assert (rerun.terminated, rerun.ended) == (True, ())


def test_a_rerun_ends_others_as_a_start_does(world: World) -> None:
    start(world, "a", "terminate")
    start(world, "b", "terminate")
    assert statuses(world, "a", "b") == "cancelled running"
    rerun = world.do(RunRerunFrom(run_id="a"))
    assert rerun.ended == ("b",)
    admit(world)
    assert statuses(world, "a", "b") == "running cancelled"
    assert parse(world.history("a")[0].data or "")["ended"] == ["b"]


def test_a_rerun_returns_no_other_run(world: World) -> None:
    start(world, "a", "return")
    world.do(RunTerminate(run_id="a"))
    start(world, "b", "return")
    with pytest.raises(ConcurrencyFullError):
        world.do(RunRerunFrom(run_id="a"))


def test_a_run_that_continues_as_new_needs_no_new_place() -> None:
    world = World(FUNCTION)
    start(world, "a")
    attempt = world.claim_one(world.open())
    goes_on = ContinuedAsNew(workflow="w", version="1", input=payload(1), seen=2)
    world.settle(attempt, goes_on)
    assert (world.run("a").generation, world.run("a").status) == (2, RunStatus.RUNNING)
    with pytest.raises(ConcurrencyFullError):
        start(world, "b")
    assert start(world, "c", "terminate").ended == ("a",)


def test_a_run_that_is_tried_again_needs_no_new_place() -> None:
    twice = RetryPolicy(attempts=2, wait_us=10 * SECOND, jitter=0.0)
    world = World(pipeline(attrs.evolve(stage("w"), function=True, retry=twice)))
    start(world, "a", "replace")
    start(world, "b", "replace")
    world.fail(world.claim_one(world.open()))
    admit(world)
    assert statuses(world, "a", "b") == "pending running"
    assert start(world, "c", "replace").ended == ("a",)
    assert error_of(world, "a")["code"] == "superseded"


# The limit of a workflow.


def limited(concurrency: ConcurrencyPlan, name: str = "w") -> Plan:
    return attrs.evolve(pipeline(stage("a"), workflow=name), concurrency=concurrency)


def test_the_limit_of_the_workflow_is_for_every_start() -> None:
    world = World(limited(ConcurrencyPlan(by="tenant", limit=2, waiting=0, full=WhenFull.REFUSE)))
    bare = RunCreate(workflow="w", input=payload(0))
    ann, ben = (attrs.evolve(bare, attributes=f'{{"tenant":"{name}"}}') for name in ("ann", "ben"))
    first = world.do(ann)
    world.do(ann)
    with pytest.raises(ConcurrencyFullError, match="'w/tenant/ann'"):
        world.do(ann)
    world.do(ben)
    for _ in range(4):
        assert world.do(bare).status is RunStatus.RUNNING  # without the attribute it has no key
    assert world.do(attrs.evolve(ann, concurrency_key="own")).created
    run = world.run(first.run_id)
    assert (run.concurrency_key, run.concurrency_limit, run.concurrency_waiting) == ("w/tenant/ann", 2, 0)
    assert run.concurrency_full is WhenFull.REFUSE


def test_the_limit_is_part_of_the_plan_only_if_there_is_one() -> None:
    for concurrency in (
        ConcurrencyPlan(key="k"),
        ConcurrencyPlan(by="b", limit=3, waiting=2, full=WhenFull.REPLACE),
    ):
        plan = limited(concurrency)
        assert plan_from_json(plan.to_json()) == plan
        assert plan.fingerprint != PLAN.fingerprint
    assert '"concurrency":{"key":"k"}' in limited(ConcurrencyPlan(key="k")).to_json()
    assert "concurrency" not in PLAN.to_json()


def test_keys_by_an_attribute_fit_the_store() -> None:
    by = ConcurrencyPlan(by="tenant")
    assert key_of(by, "w", '{"tenant":"Größe"}') == "w/tenant/Größe"
    assert key_of(by, "w", '{"tenant":""}') == "w/tenant/"
    assert key_of(by, "w", None) is None
    assert key_of(by, "w", '{"other":"x"}') is None
    long, lines = (key_of(by, "w", canonical({"tenant": text})) for text in ("x" * 300, "a\nb"))
    assert long is not None
    assert lines is not None
    assert long != lines
    assert all(len(key) < 256 and key.isprintable() and key.startswith("w/#") for key in (long, lines))


# Child runs.

PARENT = pipeline(child("c", workflow="w"), workflow="p")


def test_a_child_stage_fails_if_its_start_is_refused() -> None:
    world = World(PARENT, limited(ConcurrencyPlan(key="k", waiting=0, full=WhenFull.REFUSE)))
    start(world, "a")
    world.create("p", workflow="p")
    attempts = {attempt.run: attempt for attempt in world.claim(world.open())}
    world.start_child(attempts[world.run("p").key], "p/c", workflow="w")

    assert world.run("p").status is RunStatus.FAILED
    assert error_of(world, "p")["code"] == "concurrency_full"
    assert world.tables().run_named(RunName("default", "p/c")) is None


def test_a_child_run_has_a_limit_of_its_own_by_the_attributes_of_its_parent() -> None:
    world = World(PARENT, PLAN)
    world.do(RunCreate(workflow="p", id="p", input=payload(0), attributes='{"tenant":"ann"}'))
    own = ConcurrencyPlan(by="tenant", full=WhenFull.TERMINATE)
    session = world.open()
    world.settle(
        world.claim_one(session),
        ChildRunStarted(
            run_id="p/c",
            workflow="w",
            version="1",
            input=payload(0),
            options=GivenOptions(concurrency=own),
        ),
    )
    made = world.run("p/c")
    assert (made.concurrency_key, made.status) == ("w/tenant/ann", RunStatus.PENDING)
    world.do(RunClaimPending(keys=("w/tenant/ann",)))
    start(world, "b", "terminate", concurrency_key="w/tenant/ann")
    world.deliver()
    assert statuses(world, "p/c", "p") == "cancelled failed"


def test_a_parent_is_not_ended_to_make_room_for_its_child() -> None:
    world = World(PARENT, limited(ConcurrencyPlan(key="k", waiting=0, full=WhenFull.CANCEL)))
    world.do(attrs.evolve(command("p"), workflow="p"))
    admit(world)
    world.start_child(world.claim_one(world.open()), "p/c", workflow="w")
    assert statuses(world, "p") == "failed"
    assert error_of(world, "p")["code"] == "concurrency_full"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"concurrency_waiting": -1}, "concurrency_waiting is -1; it must be from 0"),
        ({"concurrency_full": WhenFull.WAIT, "concurrency_waiting": 1}, "any number of runs may wait"),
        ({"concurrency_full": WhenFull.REPLACE, "concurrency_waiting": 0}, "must be at least 1"),
        ({"concurrency_key": None}, "need a concurrency_key"),
    ],
)
def test_a_bound_that_cannot_be_is_refused(world: World, wrong: dict[str, Any], message: str) -> None:
    with world.unchanged(), pytest.raises(InvalidCommandError, match=message):
        world.do(command("a", **wrong))


# Beside a limit that an operator has set ------------------------------------------------------------------------------


def test_a_start_goes_by_the_limit_in_force(world: World) -> None:
    start(world, "a", "refuse")
    world.do(LimitSet(name="run:k", slots=2))
    start(world, "b", "refuse")
    with pytest.raises(ConcurrencyFullError, match="2"):
        start(world, "c", "refuse")
    assert statuses(world, "a", "b") == "running running"

    world.do(LimitSet(name="run:k", slots=1))
    assert start(world, "d", "terminate", limit=5).ended == ("a", "b")
    assert statuses(world, "a", "b", "d") == "cancelled cancelled running"


def test_where_nothing_is_admitted_one_run_may_be_open(world: World) -> None:
    world.do(LimitSet(name="run:k", slots=0))
    start(world, "a", "refuse")
    with pytest.raises(ConcurrencyFullError):
        start(world, "b", "refuse")
    assert statuses(world, "a") == "pending"
