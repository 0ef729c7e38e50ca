"""Keys that share workers: each gets its share, whoever waits, and nothing else changes."""

from collections import Counter
from datetime import timedelta
from typing import Any

import attrs
import pytest

from holdfast import Every, Fair, Pipeline, stage, workflow
from holdfast.kernel.commands import (
    ChildRunStarted,
    ChildStart,
    JobRecord,
    RunClaimPending,
    RunCreate,
    RunRerunFrom,
    ScheduleFire,
    SchedulePut,
)
from holdfast.kernel.commands.schedules import Missed, Overlap, SchedulePolicy
from holdfast.kernel.limits.fairness import AHEAD_MAX, SPACING, TURN, FairLines, FairPlace
from holdfast.kernel.pipelines.plan import plan_from_json
from holdfast.kernel.schedules.row_data import timing_of
from holdfast.ports.errors import DefinitionError, InvalidCommandError
from holdfast.ports.json import canonical
from holdfast.ports.records.limits import FairKey, FairKeyName
from holdfast.ports.records.values import Payload
from holdfast.ports.searches import QueuePart, WaitingTurn
from tests.fair_lines import Line, places, plan
from tests.unit.kernel.world import World, pipeline
from tests.unit.kernel.world import child as a_child
from tests.unit.kernel.world import stage as a_stage


@pytest.mark.slow
def test_a_key_that_joins_a_backlog_takes_every_other_turn() -> None:
    """Of A, 1,500 wait; ten of B are served within the next twenty."""
    line = Line()
    line.start("A", 2_000)
    line.passes(60)
    line.serve(500, at_once=100)

    line.start("B", 10)

    assert places(line.serve(22), "B") == [2, 4, 6, 8, 10, 12, 14, 16, 18, 20]


@pytest.mark.slow
def test_weights_are_shares() -> None:
    line = Line()
    for key, weight in (("A", 1), ("B", 2), ("C", 4)):
        line.start(key, 500, weight=weight)
        line.passes(1)

    served = Counter(line.serve(700, at_once=50))

    assert abs(served["A"] - 100) <= 2
    assert abs(served["B"] - 200) <= 2
    assert abs(served["C"] - 400) <= 2


def test_one_key_is_served_in_the_order_of_arrival_and_ranked_as_without_turns() -> None:
    fair, plain = Line(), Line(plan(fair=None))
    for line in (fair, plain):
        for _ in range(20):
            line.start("A")
            line.passes(0.01)
    ranks = [[run.queue_position for run in line.tables().runs.values()] for line in (fair, plain)]

    assert ranks[0] == ranks[1]


def test_a_key_that_comes_now_and_then_waits_for_one_turn() -> None:
    """A starts three runs for each two that are served."""
    line = Line()
    line.start("A", 50)
    for round_ in range(40):
        line.passes(0.1)
        line.start("A", 3)
        if round_ % 4 == 0:
            line.start("B")
            assert places(line.serve(2), "B") == [2]
        else:
            line.serve(2)


@pytest.mark.slow
def test_many_keys_join_and_the_first_keeps_its_share() -> None:
    line = Line()
    line.start("A", 1_500)
    line.passes(60)
    for key in range(50):
        line.start(f"t{key}", 20)

    served = Counter(line.serve(510, at_once=51))

    assert 9 <= served["A"] <= 11
    assert all(9 <= served[f"t{key}"] <= 11 for key in range(50))


def test_an_urgent_run_comes_first_and_counts_for_its_key() -> None:
    line = Line()
    line.start("A", 10)
    line.start("B", 10)
    line.start("A", priority=5)
    line.start("A", 2)

    served = line.serve(23)

    assert served[0] == "A"
    assert served[1:] == [*["A", "B"] * 10, "A", "A"]


@pytest.mark.slow
def test_turns_are_not_saved_while_no_worker_runs() -> None:
    line = Line()
    line.start("A", 300)
    line.passes(3_600)
    line.start("B", 300)

    served = Counter(line.serve(100))

    assert 49 <= served["A"] <= 51


def test_a_key_that_was_away_has_saved_up_nothing() -> None:
    line = Line()
    line.start("B")
    line.start("A", 200)
    line.serve(101)
    line.start("B", 20)

    assert places(line.serve(40), "B") == list(range(2, 41, 2))


@pytest.mark.slow
def test_a_key_that_had_all_workers_to_itself_is_not_punished_for_it() -> None:
    line = Line()
    for _ in range(30):
        line.start("A", 10)
        line.serve(10)
    line.passes(1)
    line.start("B", 20)
    line.start("A", 20)

    assert 9 <= Counter(line.serve(20))["A"] <= 11


@pytest.mark.slow
def test_other_workflows_of_the_queue_keep_their_places() -> None:
    """A run of a workflow without turns comes before all that A starts after it, however long the line has waited."""
    line = Line(plan(), plan("other", fair=None))
    line.start("A", 100)
    for _ in range(200):  # a line that is never empty
        line.passes(1)
        line.start("A")
        line.serve(1)
    line.start(None, workflow="other")
    line.passes(1)
    line.start("A", 300)

    assert places(line.serve(150), "other") == [101]


def test_later_stages_and_retries_give_no_one_a_better_turn() -> None:
    """A's second stages have A's rank, and no turn: B joins at the first that waits for its start."""
    line = Line(plan("w", "a", "b"))
    line.start("A", 40)
    line.passes(1)
    line.serve(20)  # 20 first stages, and what follows them, in the order of the runs
    line.start("B", 10)

    served = line.serve(40)

    assert len(places(served, "B")) >= 18
    assert len(places(served, "A")) >= 18


def test_ranks_that_a_clock_has_turned_around_are_followed() -> None:
    """The clock went back between two starts: whoever comes between them is ranked by the later turn."""
    lines = FairLines()
    place = FairPlace(FairKeyName("d", "w/q", "B"), QueuePart("d", "q", "w@1"))
    lines.accounts[place.name] = FairKey(
        namespace="d", line="w/q", key="B", next_turn=TURN // 2, updated_at=0
    )
    lines.waiting[place.part] = [WaitingTurn(0, 1_000), WaitingTurn(TURN, 900)]

    turn = lines.take(place, 500, None, 500)

    assert turn is not None
    assert (turn.number, turn.since) == (TURN // 2, 900)


def test_ranks_lie_between_those_of_the_neighbours() -> None:
    lines = FairLines()
    place = FairPlace(FairKeyName("d", "w/q", "B"), QueuePart("d", "q", "w@1"))
    lines.accounts[place.name] = None
    lines.waiting[place.part] = [WaitingTurn(0, 1_000), WaitingTurn(TURN, 2_000)]
    ranks: list[int] = []
    for _ in range(6):
        turn = lines.take(place, 9_000, 4, 9_000)
        assert turn is not None
        lines.accounts[place.name] = turn.account
        ranks.append(turn.since)

    assert ranks == [1_000, 1_250, 1_500, 1_750, 2_000, 9_000]


@pytest.mark.parametrize(("ahead", "rank"), [(AHEAD_MAX - SPACING, 60 + AHEAD_MAX), (AHEAD_MAX, 60)])
def test_a_line_that_a_wrong_clock_has_ranked_is_not_followed(ahead: int, rank: int) -> None:
    """What waits with a lower turn may be ranked so far after now, and not further."""
    lines = FairLines()
    place = FairPlace(FairKeyName("d", "w/q", "B"), QueuePart("d", "q", "w@1"))
    lines.accounts[place.name] = FairKey(namespace="d", line="w/q", key="B", next_turn=TURN, updated_at=0)
    lines.waiting[place.part] = [WaitingTurn(0, 60 + ahead)]

    turn = lines.take(place, 60, None, 60)

    assert turn is not None
    assert turn.since == rank


def test_runs_take_their_turns_when_they_are_admitted() -> None:
    """A planned run takes no turn until its time has come: then it waits as one that is started then."""
    line = Line()
    soon = int(line.clock.now().timestamp()) * 1_000_000 + 60_000_000
    line.start("A", 20, start_at=soon)
    line.start("A", 20)
    line.passes(61)
    line.start("B", 20)
    line.kernel.dispatch(RunClaimPending(keys=(), limit=100))

    served = line.serve(40)

    assert 18 <= len(places(served, "B")) <= 20
    assert line.serve(40) == ["A"] * 20


def test_planned_runs_do_not_come_before_those_that_wait_when_they_are_due() -> None:
    line = Line()
    soon = int(line.clock.now().timestamp()) * 1_000_000 + 60_000_000
    line.start("A", 20, start_at=soon)
    line.passes(61)
    line.start("B", 20)
    line.kernel.dispatch(RunClaimPending(keys=(), limit=100))

    assert 9 <= len(places(line.serve(20), "A")) <= 11


def test_a_rerun_takes_a_turn() -> None:
    line = Line()
    line.start("A", 1)
    line.serve(1)
    (run,) = line.tables().runs.values()
    before = next(iter(line.tables().fair_keys.values())).next_turn

    line.kernel.dispatch(RunRerunFrom(run_id=run.id))

    after = next(iter(line.tables().fair_keys.values())).next_turn
    assert after == before + TURN


def test_runs_without_the_attribute_are_one_key() -> None:
    line = Line()
    line.start(None, 100)
    line.start("B", 10)

    assert places(line.serve(20), "B")[:5] == [2, 4, 6, 8, 10]


def test_the_weight_of_a_key_lasts_until_another_is_given() -> None:
    line = Line()
    line.start("A", 1, weight=4)
    line.start("A", 99)
    line.start("B", 100)

    assert 39 <= Counter(line.serve(50))["A"] <= 41


@pytest.mark.parametrize("weight", [0, -1, 1_001])
def test_a_weight_out_of_range_is_refused(weight: int) -> None:
    command = RunCreate(workflow="w", input=Payload(inline="0"), weight=weight)
    with pytest.raises(InvalidCommandError, match=r"weight is .*; it must be from 1 to 1,000"):
        Line().kernel.dispatch(command)


def test_a_weight_without_fair_is_refused() -> None:
    command = RunCreate(workflow="w", input=Payload(inline="0"), weight=2)
    with pytest.raises(InvalidCommandError, match=r"has no fair=Fair\(by=\.\.\.\)"):
        Line(plan(fair=None)).kernel.dispatch(command)


def turns(world: World) -> list[int]:
    """Return the turns of the first jobs, in the order in which their runs were stored."""
    return [
        job.turn for job in sorted(world.tables().all_jobs(), key=lambda job: job.key) if job.turn is not None
    ]


def test_child_runs_of_one_command_take_one_turn_each() -> None:
    parent = attrs.evolve(a_stage("f", attempts=1), function=True)
    world = World(pipeline(parent), attrs.evolve(pipeline(a_stage("a"), workflow="c"), fair="tenant"))
    world.do(
        RunCreate(workflow="w", id="x", input=Payload(inline="0"), attributes=canonical({"tenant": "A"}))
    )
    attempt = world.claim_one(world.open())
    child = ChildRunStarted(run_id="", workflow="c", version="1", input=Payload(inline="0"))
    records = tuple(
        ChildStart(call=str(number), child=attrs.evolve(child, run_id=f"x/{number}"))
        for number in range(1, 4)
    )

    world.do(JobRecord(job=attempt.job, epoch=attempt.epoch, seen=1, records=records))

    assert turns(world) == [0, TURN, 2 * TURN]
    (account,) = world.tables().fair_keys.values()
    assert account.name == FairKeyName("default", "c/default", "A")


def test_a_stage_that_is_a_run_takes_a_turn() -> None:
    world = World(
        pipeline(a_child("c", workflow="c")),
        attrs.evolve(pipeline(a_stage("a"), workflow="c"), fair="tenant"),
    )
    world.do(
        RunCreate(workflow="w", id="x", input=Payload(inline="0"), attributes=canonical({"tenant": "A"}))
    )

    world.start_child(world.claim_one(world.open()), "x/c", workflow="c")

    assert turns(world) == [0]


def test_the_runs_of_a_schedule_take_one_turn_each() -> None:
    world = World(attrs.evolve(pipeline(a_stage("a")), fair="tenant"))
    start = RunCreate(
        workflow="w", input=Payload(inline="0"), attributes=canonical({"tenant": "A"}), weight=2
    )
    policy = SchedulePolicy(overlap=Overlap.ALLOW, missed=Missed.ALL)
    timing = timing_of((Every(timedelta(hours=1)),))
    world.do(SchedulePut(schedule="s", start=start, timing=timing, policy=policy))
    world.wait(3 * 3_600 + 1)

    assert len(world.do(ScheduleFire(workflows=("w",))).runs) == 3

    assert turns(world) == [0, TURN // 2, TURN]


def test_a_plan_without_fair_keeps_its_fingerprint() -> None:
    assert "fair" not in plan(fair=None).to_json()
    assert plan_from_json(plan().to_json()) == plan()


def test_fair_is_an_option_of_workflows_and_pipelines() -> None:
    @workflow(fair=Fair(by="tenant"))
    async def function(number: int) -> int:
        return number

    assert function.plan().fair == "tenant"
    assert Pipeline("p", input=int, fair=Fair(by="tenant")).pipe(stage(int_of)).plan().fair == "tenant"


def int_of(number: int) -> int:
    return number


@pytest.mark.parametrize("by", ["", 3, "x" * 257])
def test_a_key_that_cannot_be_is_refused(by: Any) -> None:
    with pytest.raises(DefinitionError, match=r"Fair: by is .*the name of an attribute"):
        Fair(by=by)


def test_another_value_for_fair_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"fair is 'tenant'; it must be a Fair\(\.\.\.\)"):
        Pipeline("p", input=int, fair="tenant")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
