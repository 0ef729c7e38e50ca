"""Rates of starts: what waits, what is refused, what counts, and in which order runs begin."""

from typing import Any

import attrs
import pytest

from holdfast.kernel.commands import (
    FollowUp,
    LimitClear,
    LimitSet,
    RunCancel,
    RunClaimPending,
    RunCreate,
    RunCreated,
    RunPause,
    RunRerunFrom,
    RunResume,
    RunsAdmitted,
    admissions,
    follow_up_of,
)
from holdfast.kernel.rules.run_rates import RateLines
from holdfast.kernel.state import State
from holdfast.ports.changes import Insert, Update
from holdfast.ports.errors import InvalidCommandError, RateExceededError
from holdfast.ports.json import canonical
from holdfast.ports.records.limits import OverRate, RateName, RateWindow, RunRatePlan
from tests.unit.kernel.world import SECOND, World, completing, payload, pipeline, stage

MINUTE = 60 * SECOND
TWO = RunRatePlan(limit=2, period=MINUTE)
PLAN = pipeline(stage("a"))


def world_of(rate: RunRatePlan | None = TWO) -> World:
    return World(attrs.evolve(PLAN, rate=rate))


def follow(world: World, follow_up: FollowUp) -> tuple[int, ...]:
    """Carry out follow-ups as a host does; return when rates allow the next starts."""
    wakes_at: list[int] = []
    while commands := admissions("default", follow_up):
        replies: list[object] = [world.do(command) for command in commands]
        wakes_at += [at for one in replies if isinstance(one, RunsAdmitted) for at in one.wakes_at]
        follow_up = follow_up_of(replies)
    return tuple(wakes_at)


def start(world: World, id: str, **options: Any) -> RunCreated:
    attributes = options.pop("attributes", None)
    text = None if attributes is None else canonical(attributes)
    reply = world.do(RunCreate(workflow="w", id=id, input=payload(0), attributes=text, **options))
    follow(world, reply.follow_up)
    return reply


def status(world: World, *ids: str) -> list[str]:
    return [world.run(one).status.value for one in ids]


def due(world: World) -> RunsAdmitted:
    reply = world.do(RunClaimPending(due=True))
    follow(world, reply.follow_up)
    return reply


# What waits, and until when.


def test_what_is_over_the_rate_waits_and_begins_once_it_fits() -> None:
    world = world_of()
    for one in "abcd":
        start(world, one)
        world.wait(1)
    assert status(world, *"abcd") == ["running", "running", "pending", "pending"]

    world.wait(55)
    assert due(world).admitted == 0, "59 seconds after the first"
    world.wait(1)
    reply = due(world)
    assert (reply.admitted, reply.wakes_at) == (1, (world.now + SECOND,))
    world.wait(1)
    assert due(world).admitted == 1
    assert [one.type for one in world.history("c")][:2] == ["run.created", "run.admitted"]


def test_a_line_that_is_empty_is_not_looked_at_again() -> None:
    world = world_of()
    for one in "abc":
        start(world, one)
    world.wait(60)
    assert due(world).admitted == 1
    (window,) = world.tables().rates.values()
    assert window.admits_at is None
    world.wait(60)
    with world.unchanged():
        assert due(world) == RunsAdmitted(admitted=0)


def test_runs_begin_by_priority_and_then_by_age() -> None:
    world = world_of(RunRatePlan(limit=1, period=MINUTE))
    start(world, "first")
    for one, priority in (("old", 0), ("new", 0), ("urgent", 2)):
        start(world, one, priority=priority)
        world.wait(1)
    began: list[str] = []
    for _ in range(3):
        world.wait(60)
        due(world)
        began += [one for one in ("old", "new", "urgent") if world.run(one).is_admitted and one not in began]
    assert began == ["urgent", "old", "new"]


def test_other_keys_are_not_held_up_by_a_full_one() -> None:
    world = world_of(attrs.evolve(TWO, by="tenant"))
    for number in range(4):
        start(world, f"ann {number}", attributes={"tenant": "ann"})
    start(world, "bob", attributes={"tenant": "bob"})
    start(world, "none")
    assert status(world, "ann 1", "ann 2", "bob", "none") == ["running", "pending", "running", "running"]
    assert {name.name for name in world.tables().rates} == {
        "run-rate:w/ann",
        "run-rate:w/bob",
        "run-rate:w/",
    }


def test_workflows_share_a_rate_by_its_name() -> None:
    shared = attrs.evolve(TWO, name="api")
    others = attrs.evolve(pipeline(stage("b"), workflow="v"), rate=shared)
    world = World(attrs.evolve(PLAN, rate=shared), others)
    start(world, "a")
    follow(world, world.do(RunCreate(workflow="v", id="b", input=payload(0))).follow_up)
    start(world, "c")
    assert status(world, "a", "b", "c") == ["running", "running", "pending"]


def test_a_start_has_a_rate_of_its_own_instead_of_that_of_its_workflow() -> None:
    world = world_of(RunRatePlan(limit=1, period=MINUTE))
    start(world, "a")
    start(world, "b", rate=attrs.evolve(TWO, name="other"))
    start(world, "c")
    assert status(world, "a", "b", "c") == ["running", "running", "pending"]


def test_without_a_rate_nothing_waits_and_nothing_is_counted() -> None:
    world = world_of(None)
    start(world, "a")
    assert status(world, "a") == ["running"]
    assert not world.tables().rates


@pytest.mark.parametrize("by", ["due", "all", "follow-up"])
def test_any_of_the_searches_admits_what_fits(by: str) -> None:
    """Of a host that knows the instant, of maintenance, and of a follow-up."""
    world = world_of()
    for one in "abc":
        start(world, one)
    world.wait(60)
    command = {
        "due": RunClaimPending(due=True),
        "all": RunClaimPending(),
        "follow-up": RunClaimPending(rates=("run-rate:w",)),
    }[by]
    assert world.do(command).admitted == 1


def test_maintenance_goes_through_all_lines_in_pages() -> None:
    world = world_of(attrs.evolve(TWO, by="tenant"))
    for tenant in "abcde":
        world.do(
            RunCreate(workflow="w", id=tenant, input=payload(0), attributes=canonical({"tenant": tenant}))
        )
    world.do(RunCreate(workflow="w", id="k", input=payload(0), concurrency_key="k", rate=TWO))
    after, pages = "", 0
    while True:
        reply = world.do(RunClaimPending(after=after, limit=2))
        follow(world, reply.follow_up)
        pages, after = pages + 1, reply.next or ""
        if reply.next is None:
            break
    assert pages == 3
    assert status(world, *"abcde", "k") == ["running"] * 6


def test_a_line_that_was_not_read_to_its_end_is_looked_at_again() -> None:
    world = world_of(RunRatePlan(limit=5, period=MINUTE))
    ids = [f"{number:02}" for number in range(10)]
    for one in ids:
        start(world, one)
    world.wait(60)
    reply = world.do(RunClaimPending(due=True, limit=2))
    assert (reply.admitted, reply.follow_up.rates) == (2, ("run-rate:w",))
    follow(world, reply.follow_up)
    assert status(world, *ids) == ["running"] * 10


# Units.


def test_a_run_costs_its_units_and_a_cheaper_one_does_not_overtake_it() -> None:
    world = world_of(RunRatePlan(limit=10, period=MINUTE))
    start(world, "six", units=6)
    world.wait(1)
    start(world, "two", units=2)
    start(world, "five", units=5)
    start(world, "one", units=1)
    assert status(world, "six", "two", "five", "one") == ["running", "running", "pending", "pending"]
    world.wait(59)
    assert due(world).admitted == 2


def test_an_urgent_run_that_fits_begins_although_another_one_waits() -> None:
    world = world_of(RunRatePlan(limit=10, period=MINUTE))
    start(world, "six", units=6)
    start(world, "five", units=5)
    start(world, "four", units=4, priority=1)
    start(world, "three", units=3, priority=1)
    assert status(world, "five", "four", "three") == ["pending", "running", "pending"]


def test_units_are_the_number_in_an_attribute_unless_the_start_has_its_own() -> None:
    world = world_of(RunRatePlan(limit=10, period=MINUTE, units="tokens"))
    start(world, "a", attributes={"tokens": "7"})
    start(world, "b", attributes={"tokens": "7"}, units=2)
    start(world, "c")
    assert [world.run(one).rate_units for one in "abc"] == [7, 2, 1]
    assert status(world, *"abc") == ["running"] * 3
    start(world, "d")
    assert status(world, "d") == ["pending"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"units": 3}, "units is 3; it must be from 1 to 2"),
        ({"units": 0}, "units is 0"),
        ({"attributes": {"tokens": "3"}}, "attribute 'tokens'.* is 3"),
        ({"attributes": {"tokens": "many"}}, "attribute 'tokens'.* is 'many'; write a whole number"),
        ({"attributes": {"tokens": "-1"}}, "write a whole number"),
        ({"attributes": {"tokens": "\u0663"}}, "write a whole number"),
        ({"rate": RunRatePlan(limit=0, period=MINUTE)}, "limit of a rate is 0"),
        ({"rate": RunRatePlan(limit=1, period=1)}, "period of a rate is 1 "),
        ({"rate": RunRatePlan(limit=1, period=MINUTE, name="a/b")}, "'a/b' is not the name of a rate"),
    ],
)
def test_a_start_that_can_never_fit_or_is_malformed_stores_nothing(options: dict[str, Any], why: str) -> None:
    world = world_of(attrs.evolve(TWO, units="tokens"))
    with world.unchanged(), pytest.raises(InvalidCommandError, match=why):
        start(world, "a", **options)


def test_units_without_a_rate_are_refused() -> None:
    world = world_of(None)
    with world.unchanged(), pytest.raises(InvalidCommandError, match="neither the start nor 'w' has a rate"):
        start(world, "a", units=2)


# Refusals.

REFUSING = attrs.evolve(TWO, over=OverRate.REFUSE)


def test_what_is_over_a_refusing_rate_is_refused_with_the_instant_at_which_it_fits() -> None:
    world = world_of(REFUSING)
    start(world, "a")
    world.wait(1)
    start(world, "b")
    assert status(world, "a", "b") == ["running", "running"]
    with (
        world.unchanged(),
        pytest.raises(RateExceededError, match="2 of 2 units in any 60 s count") as caught,
    ):
        start(world, "c")
    assert (caught.value.name, caught.value.fits_at) == ("run-rate:w", world.now + 59 * SECOND)
    world.wait(59)
    start(world, "c")
    assert status(world, "c") == ["running"]


def test_starts_of_one_batch_count_one_after_the_other() -> None:
    world = world_of(REFUSING)
    answers = world.send(*(RunCreate(workflow="w", id=one, input=payload(0)) for one in "abc"))
    assert [type(one).__name__ for one in answers] == ["RunCreated", "RunCreated", "RateExceededError"]


def test_a_start_that_is_not_refused_counts_when_it_is_made() -> None:
    world = world_of(REFUSING)
    start(world, "later", start_at=world.now + 10 * MINUTE)
    start(world, "slot", concurrency_key="k")
    with pytest.raises(RateExceededError):
        start(world, "c")
    world.wait(600)
    due(world)
    assert status(world, "later", "slot") == ["running", "running"]
    assert len({world.run(one).rate_counted_at for one in ("later", "slot")}) == 1


def test_a_start_that_returns_a_run_counts_nothing() -> None:
    world = world_of(REFUSING)
    start(world, "a")
    for _ in range(3):
        assert not start(world, "a", if_exists="return").created
    start(world, "b")
    assert status(world, "b") == ["running"]


# Changes while running.


def test_a_raised_rate_releases_at_once_and_a_lowered_one_holds_for_the_next() -> None:
    world = world_of(attrs.evolve(TWO, by="tenant"))
    for number in range(5):
        start(world, str(number), attributes={"tenant": "ann"})
    reply = world.do(LimitSet(name="run-rate:w", rate_limit=3, rate_period=MINUTE))
    assert reply.follow_up == FollowUp(rates=("run-rate:w", "run-rate:w/ann"))
    follow(world, reply.follow_up)
    assert status(world, "2", "3") == ["running", "pending"]

    follow(world, world.do(LimitSet(name="run-rate:w/ann", rate_limit=1, rate_period=MINUTE)).follow_up)
    world.wait(60)
    assert due(world).admitted == 1, "the line has its own limit"
    follow(world, world.do(LimitClear(name="run-rate:w/ann")).follow_up)
    assert status(world, "4") == ["running"], "three a minute again, by the limit of all tenants"


def test_a_run_that_costs_more_than_a_lowered_limit_takes_all_of_it() -> None:
    world = world_of(RunRatePlan(limit=10, period=MINUTE))
    start(world, "a")
    start(world, "big", units=10)
    follow(world, world.do(LimitSet(name="run-rate:w", rate_limit=4, rate_period=MINUTE)).follow_up)
    assert status(world, "big") == ["pending"]
    world.wait(60)
    assert due(world).admitted == 1
    start(world, "b")
    assert status(world, "b") == ["pending"]


def test_a_refusing_start_obeys_the_limit_that_is_set() -> None:
    world = world_of(REFUSING)
    world.do(LimitSet(name="run-rate:w", rate_limit=1, rate_period=MINUTE))
    start(world, "a")
    with pytest.raises(RateExceededError, match="of 1 units"):
        start(world, "b")


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (LimitSet(name="run-rate:w", slots=1), "has a rate and no slots"),
        (LimitSet(name="run-rate:w"), "give rate="),
        (LimitSet(name="run-rate:w", paused=True), "not a queue"),
        (LimitSet(name="run-rate:", rate_limit=1, rate_period=MINUTE), "it is empty"),
    ],
)
def test_a_rate_of_starts_has_only_a_rate(command: LimitSet, why: str) -> None:
    world = world_of()
    with world.unchanged(), pytest.raises(InvalidCommandError, match=why):
        world.do(command)


# Ends and pauses of runs that wait.


def test_the_next_begins_if_the_first_of_the_line_is_cancelled() -> None:
    world = world_of(RunRatePlan(limit=10, period=MINUTE))
    start(world, "eight", units=8)
    start(world, "nine", units=9)
    start(world, "two", units=2)
    reply = world.do(RunCancel(run_id="nine"))
    assert reply.follow_up.rates == ("run-rate:w",)
    follow(world, reply.follow_up)
    assert status(world, "nine", "two") == ["cancelled", "running"]


def test_a_paused_run_lets_others_pass_and_waits_again_once_it_is_resumed() -> None:
    world = world_of(RunRatePlan(limit=1, period=MINUTE))
    for one in "abc":
        start(world, one)
    world.do(RunPause(run_id="b"))
    world.wait(60)
    assert due(world).admitted == 1
    assert status(world, "b", "c") == ["paused", "running"]
    follow(world, world.do(RunResume(run_id="b")).follow_up)
    assert status(world, "b") == ["pending"]
    world.wait(60)
    assert due(world).admitted == 1


def test_a_start_on_a_host_whose_clock_is_behind_counts_from_the_last_change_on() -> None:
    world = world_of()
    ahead = world.now + 30 * SECOND
    world.put(Insert(RateWindow(namespace="default", name="run-rate:w", updated_at=ahead)))
    for one in "abc":
        start(world, one)
    assert [world.run(one).rate_counted_at for one in "abc"] == [ahead, ahead, None]
    world.wait(60)
    assert due(world).admitted == 0
    world.wait(30)
    assert due(world).admitted == 1


def test_a_rerun_is_a_start_and_waits_in_the_line() -> None:
    world = world_of(REFUSING)
    start(world, "a")
    session = world.open()
    world.do(completing(world.claim_one(session), 1))
    start(world, "b")
    follow(world, world.do(RunRerunFrom(run_id="a")).follow_up)
    assert (world.run("a").generation, status(world, "a")) == (2, ["pending"])
    world.wait(60)
    assert due(world).admitted == 1
    assert world.run("a").rate_counted_at == world.now


def test_what_the_history_says_of_a_rate() -> None:
    world = world_of(attrs.evolve(TWO, by="tenant"))
    start(world, "a", attributes={"tenant": "ann"}, units=2)
    data = world.history("a")[0].data or ""
    for part in ('"rate_key":"run-rate:w/ann"', '"rate_limit":2', '"rate_period":60000000', '"rate_units":2'):
        assert part in data
    assert RateName("default", "run-rate:w/ann") in world.tables().rates


def test_a_later_instant_stays_if_no_run_of_its_line_was_decided() -> None:
    """Another transaction has begun the runs that the search found, and set when the next one may begin."""
    name = RateName("default", "run-rate:w")
    state = State()
    window = RateWindow(namespace=name.namespace, name=name.name, admits_at=9 * SECOND, updated_at=0)
    state.tables.rates[name] = window
    assert not RateLines(state, [name], 5 * SECOND).changes()
    cleared = attrs.evolve(window, admits_at=None, updated_at=10 * SECOND)
    assert RateLines(state, [name], 10 * SECOND).changes() == [Update(cleared)]
