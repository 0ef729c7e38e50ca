"""Starts that are gathered: they join the run that waits, until it begins."""

from datetime import timedelta
from typing import Any

import attrs
import pytest

from holdfast.kernel.commands import (
    ChannelMessage,
    FollowUp,
    RunCancel,
    RunClaimPending,
    RunCreate,
    RunCreated,
    RunPause,
    RunRemove,
    RunRerunFrom,
    RunResume,
)
from holdfast.kernel.pipelines.gather_plan import GATHERED_MAX, GatherPlan
from holdfast.kernel.pipelines.plan import Group, Plan, StagePlan, plan_from_json
from holdfast.ports.changes import Update
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.json import canonical
from holdfast.ports.records.limits import ConcurrencyPlan, WhenFull
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.records.values import Payload
from holdfast.ports.transport import JobHint
from tests.unit.kernel.world import SECOND, World, completing, payload

DEBOUNCE = GatherPlan(within_us=60 * SECOND, quiet_us=5 * SECOND, by="document")
BATCH = GatherPlan(within_us=10 * SECOND, most=3, keep="all")


def plan(gather: GatherPlan, **options: Any) -> Plan:
    stage = StagePlan(name="w", function=True)
    return Plan(workflow="w", version="1", groups=(Group(nodes=(stage,)),), gather=gather, **options)


def start(value: object, document: str | None = None, **options: Any) -> RunCreate:
    attributes = None if document is None else canonical({"document": document})
    return RunCreate(workflow="w", input=payload(value), attributes=attributes, **options)


def begin_due(world: World, *keys: str) -> int:
    return world.do(RunClaimPending(keys=keys)).admitted


def run_of(world: World, reply: RunCreated) -> Run:
    return world.tables().runs[reply.run]


def input_of(world: World, reply: RunCreated) -> object:
    """Return what the function of a run gets, or is to get."""
    run = run_of(world, reply)
    return world.value(run.key, canonical(run.input))


def sound(world: World) -> bool:
    """Whether exactly the runs that still gather have a row."""
    gathering = {run.key for run in world.tables().runs.values() if run.is_gathering}
    return gathering == {row.run for row in world.tables().gatherings.values()}


# Debounce.


def test_a_start_joins_the_run_that_waits_and_the_function_gets_the_last_input() -> None:
    world = World(plan(DEBOUNCE))
    first = world.do(start(1, "a"))
    assert (first.status, first.created, first.joined) == (RunStatus.PENDING, True, False)
    assert run_of(world, first).start_at == world.now + 5 * SECOND
    world.wait(3)

    second = world.do(start(2, "a"))

    assert (second.run, second.created, second.joined) == (first.run, False, True)
    assert run_of(world, first).start_at == world.now + 5 * SECOND
    assert begin_due(world) == 0
    world.wait(4.999999)
    assert begin_due(world) == 0
    world.wait(0.000001)
    assert begin_due(world) == 1
    assert world.events(first.run_id) == ["run.created", "run.gathered", "run.admitted"]
    assert input_of(world, first) == 2
    assert [world.value(first.run, job.input or "") for job in world.jobs(first.run_id)] == [2]
    assert sound(world)


def test_a_run_begins_within_its_time_however_often_starts_come() -> None:
    world = World(plan(DEBOUNCE))
    began = world.now
    first = world.do(start(0, "a"))
    for number in range(1, 15):
        world.wait(4)
        assert world.do(start(number, "a")).joined
        assert (run_of(world, first).start_at or 0) <= began + 60 * SECOND
    assert run_of(world, first).start_at == began + 60 * SECOND
    world.wait(4)
    assert begin_due(world) == 1
    assert input_of(world, first) == 14


def test_a_start_after_the_beginning_begins_the_next_run() -> None:
    world = World(plan(DEBOUNCE))
    first = world.do(start(1, "a"))
    world.wait(5)
    assert begin_due(world) == 1

    second = world.do(start(2, "a"))

    assert (second.created, second.joined) == (True, False)
    assert second.run != first.run
    assert (input_of(world, first), input_of(world, second)) == (1, 2)
    assert sound(world)


def test_a_run_that_is_due_and_has_not_begun_is_joined() -> None:
    world = World(plan(DEBOUNCE))
    first = world.do(start(1, "a"))
    world.wait(100)

    assert world.do(start(2, "a")).run == first.run
    assert begin_due(world) == 1
    assert input_of(world, first) == 2


def test_each_text_of_the_attribute_is_gathered_apart_and_so_are_starts_without_it() -> None:
    world = World(plan(DEBOUNCE))

    runs = [world.do(start(0, document)).run for document in ("a", "b", "a", None, "", None, "b")]

    assert [runs.index(run) for run in runs] == [0, 1, 0, 3, 4, 3, 1]
    assert sound(world)


def test_namespaces_versions_and_options_are_gathered_apart() -> None:
    other = attrs.evolve(plan(DEBOUNCE), version="2")
    world = World(plan(DEBOUNCE), other)
    commands = (
        start(0, version="1"),
        start(0, version="2"),
        start(0, version="1", namespace="other"),
        start(0, version="1"),
    )

    runs = [world.do(command).run for command in commands]

    assert [runs.index(run) for run in runs] == [0, 1, 2, 0]


def test_starts_of_one_batch_of_commands_join_each_other() -> None:
    world = World(plan(DEBOUNCE))

    replies = world.send(*(start(number, document) for number in range(5) for document in ("a", "b")))

    assert all(isinstance(reply, RunCreated) for reply in replies)
    assert len({reply.run for reply in replies if isinstance(reply, RunCreated)}) == 2
    assert len(world.tables().runs) == 2
    assert sound(world)


def test_the_first_input_can_be_kept() -> None:
    world = World(plan(attrs.evolve(DEBOUNCE, keep="first")))
    first = world.do(start(1))
    world.do(start(2))

    assert input_of(world, first) == 1


def test_a_clock_that_is_behind_does_not_let_a_run_begin_earlier() -> None:
    world = World(plan(DEBOUNCE))
    first = world.do(start(1))
    due = run_of(world, first).start_at
    world.clock.jump(timedelta(seconds=-3))
    world.do(start(2))

    assert run_of(world, first).start_at == due


# Batches.


def test_the_lists_of_all_starts_are_joined_in_the_order_of_commits() -> None:
    world = World(plan(BATCH))
    first = world.do(start([1, 2], items=2))
    second = world.do(start([3], items=1))

    assert [(one.joined, one.first_item, one.items) for one in (first, second)] == [
        (False, 0, 2),
        (True, 2, 1),
    ]
    assert input_of(world, first) == [[1, 2], [3]]
    world.wait(10)
    assert begin_due(world) == 1
    assert [world.value(first.run, job.input or "") for job in world.jobs(first.run_id)] == [[[1, 2], [3]]]


def test_a_full_batch_begins_at_once() -> None:
    world = World(plan(BATCH))
    replies = [world.do(start([number], items=1)) for number in range(4)]

    assert [reply.status.value for reply in replies] == ["pending", "pending", "running", "pending"]
    assert [reply.run == replies[0].run for reply in replies] == [True, True, True, False]
    assert input_of(world, replies[0]) == [[0], [1], [2]]
    assert [type(hint) for hint in world.heard.hints] == [JobHint]
    assert sound(world)


def test_a_batch_of_one_is_a_run_of_its_own() -> None:
    world = World(plan(attrs.evolve(BATCH, most=1)))

    replies = [world.do(start([number], items=1)) for number in range(2)]

    assert [reply.status for reply in replies] == [RunStatus.RUNNING, RunStatus.RUNNING]
    assert len({reply.run for reply in replies}) == 2
    assert world.tables().gatherings == {}


def test_a_batch_begins_when_its_inputs_are_large() -> None:
    world = World(plan(attrs.evolve(BATCH, most=None)))
    large = ["x" * 1_500_000]

    replies = [world.do(start(large, items=1)) for _ in range(4)]

    assert [reply.status.value for reply in replies] == ["pending", "pending", "running", "pending"]


def test_the_size_of_an_input_in_a_blob_counts() -> None:
    world = World(plan(BATCH))
    key = f"default/{'0' * 26}/input/0/{'a' * 64}"
    command = attrs.evolve(start([], items=9), input=Payload(blob=key), input_size=4 * 1024 * 1024)

    assert world.do(command).status is RunStatus.RUNNING


def test_a_batch_has_at_most_10_000_starts() -> None:
    assert attrs.evolve(BATCH, most=None).starts_max == GATHERED_MAX == 10_000


def test_a_run_that_is_full_and_has_a_key_waits_for_its_slot() -> None:
    world = World(plan(attrs.evolve(BATCH, most=2)))
    first = [world.do(start([number], items=1, concurrency_key="k")) for number in range(2)]
    assert first[1].follow_up == FollowUp(runs=("k",))
    assert begin_due(world, "k") == 1
    second = [world.do(start([number], items=1, concurrency_key="k")) for number in range(2)]

    assert begin_due(world, "k") == 0
    assert run_of(world, second[0]).status is RunStatus.PENDING
    assert sound(world)


# With other features.


def test_a_run_that_waits_for_its_slot_still_gathers() -> None:
    world = World(plan(DEBOUNCE))
    first = world.do(start(1, concurrency_key="k"))
    world.wait(5)
    assert begin_due(world) == 0
    assert begin_due(world, "k") == 1
    second = world.do(start(2, concurrency_key="k"))
    world.wait(5)
    assert (begin_due(world), begin_due(world, "k")) == (0, 0)
    assert run_of(world, second).start_at is None

    third = world.do(start(3, concurrency_key="k"))

    assert third.run == second.run
    assert run_of(world, third).start_at is None
    assert world.do(RunCancel(run_id=first.run_id)).changed
    world.drain(lambda attempt: completing(attempt).outcome)
    assert begin_due(world, "k") == 1
    assert input_of(world, third) == 3


def test_a_repeated_start_is_gathered_once() -> None:
    world = World(plan(BATCH))
    first = world.do(start([1], items=1))
    command = start([2], items=1, idempotency_key="once")

    replies = [world.do(command) for _ in range(3)]

    assert replies == [replies[0]] * 3
    assert (replies[0].run, replies[0].joined, replies[0].first_item) == (first.run, True, 1)
    assert input_of(world, first) == [[1], [2]]


def test_a_cancelled_run_gathers_nothing_more() -> None:
    world = World(plan(DEBOUNCE))
    first = world.do(start(1))
    world.do(RunCancel(run_id=first.run_id))

    second = world.do(start(2))

    assert second.created
    assert run_of(world, first).status is RunStatus.CANCELLED
    assert sound(world)


def test_a_paused_run_gathers_on_and_begins_when_it_is_resumed() -> None:
    world = World(plan(BATCH))
    first = world.do(start([1], items=1))
    world.do(RunPause(run_id=first.run_id))
    assert world.do(start([2], items=1)).run == first.run
    assert world.do(start([3], items=1)).status is RunStatus.PAUSED
    other = world.do(start([4], items=1))
    assert other.run != first.run
    world.wait(5)
    assert begin_due(world) == 0

    world.do(RunResume(run_id=first.run_id))

    assert begin_due(world) == 1
    assert input_of(world, first) == [[1], [2], [3]]
    assert sound(world)


def test_a_run_whose_row_cannot_be_trusted_is_not_joined_and_takes_nothing_from_the_next() -> None:
    world = World(plan(DEBOUNCE))
    first = world.do(start(1))
    blocked = attrs.evolve(run_of(world, first), status=RunStatus.BLOCKED)
    world.put(Update(blocked))
    second = world.do(start(2))
    assert second.created

    world.do(RunResume(run_id=first.run_id))

    assert not run_of(world, first).is_gathering
    assert world.do(start(3)).run == second.run
    assert sound(world)
    world.wait(5)
    assert begin_due(world) == 2
    assert (input_of(world, first), input_of(world, second)) == (1, 3)


def test_a_deadline_counts_from_when_the_run_begins_at_the_latest() -> None:
    world = World(plan(DEBOUNCE))

    reply = world.do(start(1, deadline=7 * SECOND))

    assert run_of(world, reply).deadline == world.now + 67 * SECOND


def test_messages_and_annotations_of_each_start_are_stored() -> None:
    world = World(plan(DEBOUNCE))
    message = ChannelMessage(channel="c", payload=payload("m"))
    replies = [world.do(start(number, signals=(message,))) for number in range(2)]

    assert world.events(replies[0].run_id) == [
        "run.created",
        "signal.received",
        "run.gathered",
        "signal.received",
    ]
    assert [reply.messages for reply in replies] == [(2,), (4,)]
    assert input_of(world, replies[0]) == 1


def test_a_rerun_gets_the_same_input_and_gathers_nothing() -> None:
    world = World(plan(BATCH))
    first = world.do(start([1], items=1))
    world.do(start([2], items=1))
    again = world.do(RunRerunFrom(run_id=first.run_id))
    third = world.do(RunRerunFrom(run_id=first.run_id))

    runs = world.tables().runs
    assert runs[first.run].status is RunStatus.CANCELLED
    for key in (again.run, third.run):
        assert world.value(key, canonical(runs[key].input)) == [[1], [2]]
        assert not runs[key].is_gathering
    assert world.do(start([3], items=1)).created
    assert sound(world)


def test_a_run_can_be_removed_with_the_blobs_of_all_inputs() -> None:
    world = World(plan(DEBOUNCE))
    keys = [f"default/{'0' * 26}/input/0/{letter * 64}" for letter in "abc"]
    replies = [world.do(attrs.evolve(start(0), input=Payload(blob=key), input_size=9)) for key in keys]
    world.do(RunCancel(run_id=replies[0].run_id))

    removed = world.do(RunRemove(run_id=replies[0].run_id))

    assert removed.inputs == tuple(keys)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (start([1], items=1, id="x"), "leave it out; an idempotency key starts once"),
        (start([1], items=1, start_at=5), "leave it out; `quiet` and `within` say when"),
        (start([1]), "says in `items` how many its list has"),
        (start([1], items=-1), "must not be negative"),
        (start([1], items=1, input_size=-1), "must not be negative"),
    ],
)
def test_a_start_that_cannot_be_gathered_is_refused(command: RunCreate, why: str) -> None:
    world = World(plan(BATCH))

    with world.unchanged(), pytest.raises(InvalidCommandError, match=why):
        world.do(command)


def test_a_plan_comes_back_from_its_json_and_is_unchanged_without_gather() -> None:
    for gather in (DEBOUNCE, BATCH, attrs.evolve(BATCH, split=True)):
        assert plan_from_json(plan(gather).to_json()) == plan(gather)
    assert "gather" not in attrs.evolve(plan(BATCH), gather=None).to_json()


# Beside a concurrency limit ------------------------------------------------------------------------------------------


def test_a_start_that_may_join_has_no_bound() -> None:
    world = World(plan(BATCH))
    with pytest.raises(InvalidCommandError, match="a start that joins a run makes no run more"):
        world.do(start([1], items=1, concurrency_key="k", concurrency_full=WhenFull.REFUSE))


def test_the_limit_of_the_workflow_holds_for_runs_that_have_gathered() -> None:
    world = World(plan(DEBOUNCE, concurrency=ConcurrencyPlan(key="one", limit=1)))
    first, second = world.do(start(1, "a")), world.do(start(2, "b"))
    world.clock.jump(timedelta(seconds=6))
    begin_due(world)
    begin_due(world)
    statuses = [run_of(world, reply).status for reply in (first, second)]
    assert statuses == [RunStatus.RUNNING, RunStatus.PENDING]
