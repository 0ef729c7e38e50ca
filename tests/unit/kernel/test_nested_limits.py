"""Concurrency limits within each other: a run starts once every level of its key has room."""

from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from holdfast.kernel.commands import (
    ChildRunStarted,
    ChildStart,
    ContinuedAsNew,
    JobRecord,
    LimitClear,
    LimitSet,
    RunClaimPending,
    RunCreate,
    RunPause,
    RunRerunFrom,
    RunResume,
    RunTerminate,
)
from holdfast.kernel.limits.levels import (
    LEVEL_KEY_MAX,
    nested_levels,
    path_of,
    remaining_spans,
    spans_around,
    spans_with_capacity,
    wanted_runs,
)
from holdfast.kernel.pipelines.gather_plan import GatherPlan
from holdfast.kernel.pipelines.plan import Plan, plan_from_json
from holdfast.ports.changes import Update
from holdfast.ports.errors import ConcurrencyFullError, InvalidCommandError
from holdfast.ports.json import canonical
from holdfast.ports.records.limits import ConcurrencyPlan, OuterLevel, WhenFull
from holdfast.ports.records.run import GivenOptions, RunStatus
from holdfast.ports.searches import KeySpan, SlotPlace, WaitedFor
from tests.unit.kernel.world import SECOND, World, completing, payload, pipeline, stage

ALL, TENANT = OuterLevel(key="all", limit=4), OuterLevel(by="tenant", limit=3)
NESTED = ConcurrencyPlan(by="user", limit=2, within=(ALL, TENANT))
PLAN = attrs.evolve(pipeline(stage("a")), concurrency=NESTED)
FUNCTION = attrs.evolve(pipeline(attrs.evolve(stage("w"), function=True)), concurrency=NESTED)


def start(world: World, id: str, **options: Any) -> None:
    """Start a run of the tenant and the user that its id begins with, `t u number`, and admit what can be admitted."""
    world.wait(1)
    tenant, user, *_ = id.split()
    given = {"attributes": canonical({"tenant": tenant, "user": user}), **options}
    created = world.do(attrs.evolve(RunCreate(workflow="w", id=id, input=payload(0)), **given))
    admit(world, created.follow_up.runs)


def admit(world: World, keys: Sequence[str]) -> int:
    return world.do(RunClaimPending(keys=tuple(keys))).admitted if keys else 0


def end(world: World, id: str) -> int:
    """End a run, and return how many were admitted after it."""
    return admit(world, world.do(RunTerminate(run_id=id)).follow_up.runs)


def under_way(world: World) -> list[str]:
    return sorted(run.id for run in world.tables().runs.values() if run.has_slot)


def filled(*ids: str) -> World:
    world = World(PLAN)
    for name in ids:
        start(world, name)
    return world


def test_a_run_starts_once_every_level_has_room() -> None:
    world = filled("a ann 1", "a ann 2", "a ann 3", "a bob 1", "a bob 2", "b ann 1", "b ann 2")
    assert under_way(world) == ["a ann 1", "a ann 2", "a bob 1", "b ann 1"]
    assert world.run("a ann 1").concurrency_key == "all :: tenant/a :: user/ann"
    assert (world.run("a ann 1").outer_limits, world.run("a ann 1").concurrency_limit) == ((4, 3), 2)


def test_the_end_of_a_run_admits_at_once_whichever_level_it_frees() -> None:
    world = filled("a ann 1", "a ann 2", "a ann 3", "a bob 1", "a bob 2", "b ann 1", "c eve 1")
    assert end(world, "a ann 1") == 1  # all levels of the oldest have room now
    assert under_way(world) == ["a ann 2", "a ann 3", "a bob 1", "b ann 1"]
    assert end(world, "b ann 1") == 1  # tenant a is full, so what has waited less goes first
    assert under_way(world) == ["a ann 2", "a ann 3", "a bob 1", "c eve 1"]
    assert end(world, "a bob 1") == 1
    assert under_way(world) == ["a ann 2", "a ann 3", "a bob 2", "c eve 1"]


def test_the_highest_priority_goes_first_then_age_whatever_the_keys() -> None:
    world = filled("a ann 1", "b bob 1", "c cid 1", "d dan 1")
    start(world, "z zoe 1")
    start(world, "y yan 1")
    start(world, "x xia 1", priority=1)
    for ended, first in (("a ann 1", "x xia 1"), ("b bob 1", "z zoe 1"), ("c cid 1", "y yan 1")):
        end(world, ended)
        assert first in under_way(world)


def test_a_level_is_left_out_for_a_run_without_its_attribute() -> None:
    def key(**texts: str) -> str | None:
        levels = nested_levels(NESTED, "w", canonical(texts))
        return path_of(levels) if levels else None

    assert key(tenant="a", user="u") == "all :: tenant/a :: user/u"
    assert key(tenant="a") == "all :: tenant/a"
    assert key(user="u") == "all :: user/u"
    assert key() == "all"
    by_tenant = ConcurrencyPlan(by="user", within=(TENANT,))
    assert nested_levels(by_tenant, "w", canonical({"user": "u"})) == (("w/user/u", 1),)
    assert nested_levels(by_tenant, "w", None) == ()
    long, broken = key(tenant="a", user="u" * 200), key(tenant="a :: b")
    assert long is not None
    assert len(long.split(" :: ")[2]) <= LEVEL_KEY_MAX
    assert broken is not None
    assert broken.count(" :: ") == 1
    assert broken != key(tenant="a :: c")


def test_a_bound_of_the_innermost_level_is_not_that_of_a_run_without_it() -> None:
    bounded = attrs.evolve(NESTED, limit=1, waiting=0, full=WhenFull.REFUSE)
    world = World(attrs.evolve(PLAN, concurrency=bounded))
    start(world, "a ann 1")
    with pytest.raises(ConcurrencyFullError, match="'all :: tenant/a :: user/ann' is full"):
        start(world, "a ann 2")
    for number in range(4):
        start(world, f"a - {number}", attributes=canonical({"tenant": "a"}))
    assert world.run("a - 3").status is RunStatus.PENDING


@pytest.mark.parametrize("full", ["refuse", "return", "cancel", "terminate"])
def test_full_is_decided_by_the_innermost_level(full: str) -> None:
    """What is full outside only makes the run wait. What ends gives its outer slots to the next in line."""
    world = World(
        attrs.evolve(PLAN, concurrency=attrs.evolve(NESTED, limit=1, waiting=0, full=WhenFull(full)))
    )
    for name in ("a ann 1", "a bob 1", "a cid 1", "a dan 1"):
        start(world, name)
    assert under_way(world) == ["a ann 1", "a bob 1", "a cid 1"]
    if full == "refuse":
        with pytest.raises(ConcurrencyFullError):
            start(world, "a ann 2")
        return
    start(world, "a ann 2")
    ended = full != "return"
    assert under_way(world) == (
        ["a bob 1", "a cid 1", "a dan 1"] if ended else ["a ann 1", "a bob 1", "a cid 1"]
    )
    if ended:
        end(world, "a bob 1")
        assert "a ann 2" in under_way(world)


def test_a_run_of_the_outer_key_alone_shares_its_level() -> None:
    world = filled("a ann 1", "b bob 1", "c cid 1")
    for number in (1, 2):
        start(world, f"- - {number}", concurrency_key="all", concurrency_limit=4)
    start(world, "d dan 1")
    assert under_way(world) == ["- - 1", "a ann 1", "b bob 1", "c cid 1"]
    end(world, "a ann 1")
    assert under_way(world) == ["- - 1", "- - 2", "b bob 1", "c cid 1"]
    end(world, "- - 1")
    assert under_way(world) == ["- - 2", "b bob 1", "c cid 1", "d dan 1"]


def test_each_level_can_be_changed_at_run_time() -> None:
    world = filled("a ann 1", "a ann 2", "a ann 3", "a bob 1", "a bob 2", "b ann 1", "b ann 2")

    def change(command: LimitSet | LimitClear) -> list[str]:
        admit(world, world.do(command).follow_up.runs)
        return under_way(world)

    first = ["a ann 1", "a ann 2", "a bob 1", "b ann 1"]
    assert change(LimitSet(name="run:all :: tenant/a", slots=5)) == first  # all are full
    assert change(LimitSet(name="run:all", slots=5)) == sorted([*first, "a bob 2"])
    assert change(LimitSet(name="run:all", slots=1)) == sorted([*first, "a bob 2"])
    assert end(world, "b ann 1") == 0
    assert change(LimitClear(name="run:all")) == ["a ann 1", "a ann 2", "a bob 1", "a bob 2"]
    assert change(LimitSet(name="run:all", slots=9)) == [
        "a ann 1",
        "a ann 2",
        "a bob 1",
        "a bob 2",
        "b ann 2",
    ]
    assert change(LimitSet(name="run:all :: tenant/a :: user/ann", slots=3))[-1] == "b ann 2"
    assert "a ann 3" in change(LimitSet(name="run:all :: tenant/a", slots=6))


def test_maintenance_admits_what_an_interrupted_follow_up_left() -> None:
    world = filled("a ann 1", "a ann 2", "a bob 1", "b ann 1", "b ann 2", "c cid 1")
    world.do(RunTerminate(run_id="a ann 1"))
    world.do(RunTerminate(run_id="b ann 1"))
    assert world.do(RunClaimPending()).admitted == 2
    assert under_way(world) == ["a ann 2", "a bob 1", "b ann 2", "c cid 1"]


def test_one_command_admits_no_more_than_its_limit() -> None:
    world = World(PLAN)
    for user in ("ann", "bob", "cid"):
        attributes = canonical({"tenant": "a", "user": user})
        world.do(RunCreate(workflow="w", id=user, input=payload(0), attributes=attributes))
    reply = world.do(RunClaimPending(keys=("all",), limit=2))
    assert (reply.admitted, reply.more, under_way(world)) == (2, True, ["ann", "bob"])
    assert world.do(RunClaimPending(keys=("all",), limit=2)).admitted == 1


def test_reruns_and_what_continues_stay_under_their_levels() -> None:
    world = World(FUNCTION)
    start(world, "a ann 1")
    attempt = world.claim_one(world.open())
    world.settle(attempt, ContinuedAsNew(input=payload(1), workflow="w", version="1", seen=1))
    run = world.run("a ann 1")
    assert (run.generation, run.has_slot, run.concurrency_outer) == (2, True, "[4,3]")
    for name in ("a bob 1", "a cid 1"):
        start(world, name)
    admit(world, world.do(RunRerunFrom(run_id="a ann 1")).follow_up.runs)
    run = world.run("a ann 1")
    assert (run.generation, run.has_slot, len(run.slots)) == (3, True, 3)
    start(world, "a dan 1")
    assert not world.run("a dan 1").has_slot


def test_child_runs_take_levels_by_the_attributes_of_their_parent() -> None:
    world = World(FUNCTION, pipeline(stage("a"), workflow="c"))
    start(world, "a ann 1")
    attempt = world.claim_one(world.open())
    options = GivenOptions(concurrency=attrs.evolve(NESTED, limit=1))
    child = ChildRunStarted(run_id="c", workflow="c", version="1", input=payload(0), options=options)
    recorded = JobRecord(
        job=attempt.job, epoch=attempt.epoch, seen=1, records=(ChildStart(call="1", child=child),)
    )
    admit(world, world.do(recorded).follow_up.runs)
    assert (world.run("c").concurrency_key, world.run("c").has_slot) == ("all :: tenant/a :: user/ann", False)
    world.settle(attempt, completing(attempt).outcome)


def test_fair_turns_are_taken_as_a_level_lets_runs_in() -> None:
    world = World(attrs.evolve(PLAN, fair="tenant"))
    for name in ("a ann 1", "a ann 2", "a bob 1", "b bob 1", "b eve 1"):
        start(world, name)
    turns = {name: world.jobs(name)[0].turn for name in ("a ann 1", "a ann 2", "b bob 1")}
    assert turns["a ann 1"] is not None
    assert turns["b bob 1"] is not None
    assert not world.jobs("b eve 1")
    end(world, "a ann 1")
    assert world.jobs("b eve 1")[0].turn is not None


def test_gathered_starts_wait_for_every_level() -> None:
    world = World(attrs.evolve(PLAN, gather=GatherPlan(within_us=SECOND, by="user", keep="last")))
    attributes = canonical({"tenant": "a", "user": "ann"})
    created = [world.do(RunCreate(workflow="w", input=payload(n), attributes=attributes)) for n in range(2)]
    assert created[0].run_id == created[1].run_id
    run = world.run(created[0].run_id)
    assert (run.concurrency_key, run.outer_limits) == ("all :: tenant/a :: user/ann", (4, 3))
    world.do(LimitSet(name="run:all :: tenant/a", slots=0))
    world.wait(2)
    world.do(RunClaimPending())
    world.do(RunClaimPending())
    assert not world.run(run.id).has_slot
    admit(world, world.do(LimitClear(name="run:all :: tenant/a")).follow_up.runs)
    assert world.run(run.id).has_slot


def test_a_run_whose_outer_limits_are_damaged_is_blocked_and_delays_no_other() -> None:
    world = filled("a ann 1", "a ann 2", "a bob 1", "b bob 1", "b bob 2", "c cid 1")
    for damaged in ("[4", "[4]"):
        run = world.run("b bob 2")
        world.put(Update(attrs.evolve(run, concurrency_outer=damaged)))
    end(world, "a ann 1")
    admit(world, ("all",))
    assert world.run("b bob 2").status is RunStatus.BLOCKED
    assert world.run("c cid 1").has_slot


def test_a_paused_run_that_has_not_started_takes_no_slot() -> None:
    world = filled("a ann 1", "a ann 2", "a bob 1", "b bob 1", "b bob 2", "c cid 1")
    world.do(RunPause(run_id="b bob 2"))
    end(world, "a ann 1")
    assert "c cid 1" in under_way(world)
    admit(world, world.do(RunResume(run_id="b bob 2")).follow_up.runs)
    assert "b bob 2" not in under_way(world)
    end(world, "a ann 2")
    assert "b bob 2" in under_way(world)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"concurrency_key": None}, "concurrency_within needs a concurrency_key"),
        (
            {"concurrency_within": (ALL, ALL, ALL)},
            "has 3 limits; with the innermost one, a start is under at most 3",
        ),
        ({"concurrency_within": (OuterLevel(by="tenant"),)}, "needs a key"),
        ({"concurrency_within": (OuterLevel(),)}, "needs a key"),
        ({"concurrency_within": (OuterLevel(key="all", limit=0),)}, "is 0; it must be from 1"),
        ({"concurrency_within": (OuterLevel(key="a :: b"),)}, "give the outer limits as `within`"),
        ({"concurrency_key": "a :: b", "concurrency_within": ()}, "give the outer limits as `within`"),
        ({"concurrency_key": "k" * 129}, "within another one has 1 to 128 characters, not 129"),
        ({"concurrency_key": ""}, "1 to 128 characters, not 0"),
        ({"concurrency_key": "a\nb"}, "control character"),
        ({"concurrency_within": (OuterLevel(key="k" * 257),)}, "257 characters; at most 256"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_stored(options: dict[str, Any], says: str) -> None:
    world = World(pipeline(stage("a")))
    given = {"concurrency_key": "k", "concurrency_within": (ALL,), **options}
    with world.unchanged(), pytest.raises(InvalidCommandError, match=says):
        world.do(attrs.evolve(RunCreate(workflow="w", input=payload(0)), **given))


def test_a_plan_keeps_its_levels() -> None:
    """And plans without levels are stored as they were."""
    assert plan_from_json(PLAN.to_json()).concurrency == NESTED
    flat = attrs.evolve(PLAN, concurrency=ConcurrencyPlan(key="k"))
    assert '"concurrency":{"key":"k"}' in flat.to_json()
    assert _levels_in(PLAN) == '[{"key":"all","limit":4},{"by":"tenant","limit":3}]'


def _levels_in(plan: Plan) -> str:
    text = plan.to_json()
    start_of = text.index('"within":') + len('"within":')
    return text[start_of : text.index("]", start_of) + 1]


# Which keys are looked at ---------------------------------------------------------------------------------------


def test_the_search_begins_after_the_key_of_the_run_that_ended() -> None:
    """So that keys take turns if there are more than a search looks at."""
    spans = spans_around("n", ["all :: t/b :: u", "k"])
    assert [(one.first, one.beyond) for one in spans] == [
        ("all", "all\x01"),
        ("all :: ", "all :: t/b :: u\x01"),
        ("all :: t/b :: u\x01", "all ::!"),
        ("k", "k\x01"),
        ("k :: ", "k ::!"),
    ]


def waited(
    key: str, *, position: int, limit: int = 9, used: int = 0, outer: tuple[int, ...] = (9,)
) -> WaitedFor:
    return WaitedFor(SlotPlace("n", key), limit, used, outer=outer, position=position)


def wanted(found: Sequence[WaitedFor], used: dict[str, int], left: int = 100) -> dict[str, int]:
    places = {SlotPlace("n", key): number for key, number in used.items()}
    return {place.key: most for place, most in wanted_runs(found, places, left).items()}


def test_no_more_keys_are_looked_at_than_a_level_has_room_for() -> None:
    found = [waited(f"all :: k{number}", position=9 - number, outer=(3,)) for number in range(5)]
    assert wanted(found, {"all": 1}) == {"all :: k4": 2, "all :: k3": 2}
    assert wanted(found, {"all": 1}, 3) == {"all :: k4": 2, "all :: k3": 1}
    assert wanted(found, {"all": 1}, 1) == {"all :: k4": 1}
    assert wanted(found, {"all": 3}) == {}


def test_a_run_behind_a_full_level_is_passed_over_only_within_it() -> None:
    found = [
        waited("all :: t1 :: u", position=1, outer=(9, 2)),
        waited("all :: t2 :: u", position=2, outer=(9, 2)),
        waited("all :: t2 :: v", position=3, outer=(9, 7)),  # a higher limit lets no run overtake
        waited("other", position=0, limit=1, outer=()),
    ]
    assert wanted(found, {"all :: t2": 2}) == {"all :: t1 :: u": 2, "other": 1}


def test_the_search_goes_on_while_the_outermost_level_has_room_and_keys_are_left() -> None:
    spans = [KeySpan("n", "all :: ", "all ::!"), KeySpan("n", "k", "k\x01")]
    found = [waited(f"all :: {key}", position=1, outer=(3,)) for key in "ab"]
    rest = remaining_spans(spans, found, 2)
    assert rest == (KeySpan("n", "all :: b\x01", "all ::!"),)
    assert remaining_spans(spans, found, 3) == ()
    all_, a = SlotPlace("n", "all"), SlotPlace("n", "all :: a")
    assert spans_with_capacity(rest, found, {all_: 1}, {a: 9}) == rest
    assert spans_with_capacity(rest, found, {all_: 2}, {a: 9}) == ()
    assert spans_with_capacity(rest, [], {}, {}) == ()


def test_a_run_is_found_behind_more_keys_that_are_full_than_one_search_looks_at() -> None:
    """Tenant a is full, and so many of its users wait that the tenant after it is beyond the first search."""
    world = filled("a xia 1", "a yan 1", "a zoe 1")
    commands = [
        RunCreate(
            workflow="w",
            id=f"{tenant}-{number}",
            input=payload(0),
            attributes=canonical({"tenant": tenant, "user": f"{number:03}"}),
        )
        for tenant, users in (("a", 300), ("b", 1))
        for number in range(users)
    ]
    world.send(*commands)
    assert admit(world, ("all :: tenant/a :: user/000",)) == 1
    assert world.run("b-0").has_slot
