"""Maps that complete without all items: enough succeeded, or few enough failed."""

from math import floor
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.kernel.commands import (
    Attempt,
    Completed,
    MapExpanded,
    Outcome,
    RunCreate,
    RunPause,
    RunRepair,
    RunRerunFrom,
    RunResume,
)
from holdfast.kernel.pipelines.plan import Enough
from holdfast.kernel.pipelines.progress import progress_from
from holdfast.ports.changes import Delete
from holdfast.ports.errors import RerunRefusedError
from holdfast.ports.json import parse
from holdfast.ports.records.job import JobKind
from holdfast.ports.records.run import RunStatus
from holdfast.ports.tables import JOBS
from tests.unit.kernel.world import World, completing, each, failed, payload, pipeline, stage

FATAL = failed(retryable=False)


def _world(items: int, enough: Enough | None, *, limit: int = 1_000, attempts: int = 3) -> tuple[World, str]:
    """A run with an expanded map and a stage after it."""
    world = World(pipeline(each("m", limit=limit, attempts=attempts, enough=enough), stage("z")))
    world.create()
    session = world.open()
    world.expand(world.claim_one(session), range(items))
    return world, session


def _claimed(world: World, session: str) -> dict[int, Attempt]:
    return {attempt.item: attempt for attempt in world.claim(session) if attempt.item is not None}


def _gave(world: World, session: str) -> object:
    """Return the input of the stage after the map."""
    attempt = world.claim_one(session)
    assert attempt.node == "z"
    return world.value(attempt.run, attempt.input)


def _drain(world: World, fails: set[int], *, items: int = 3) -> list[str]:
    """Do all remaining jobs; these items fail. Return what was done."""
    bodies: list[str] = []

    def give(attempt: Attempt) -> Outcome:
        if attempt.kind is JobKind.EXPAND_MAP:
            return MapExpanded(items=tuple(map(payload, range(items))))
        bodies.append(attempt.node if attempt.item is None else f"{attempt.node}/{attempt.item}")
        if attempt.item in fails:
            return FATAL
        if attempt.item is None:
            return Completed(output=payload(world.value(attempt.run, attempt.input)))
        return completing(attempt).outcome

    world.drain(give)
    return bodies


def _failure(item: int) -> dict[str, object]:
    return {"index": item, "error": "it broke"}


# Enough items ----------------------------------------------------------------------------------------------------


def test_a_map_is_done_as_soon_as_enough_items_are() -> None:
    world, session = _world(5, Enough(at_least=2))
    items = _claimed(world, session)
    world.complete(items[4])
    assert {job.node for job in world.jobs()} == {"m"}
    world.complete(items[1])

    assert [job.node for job in world.jobs()] == ["z"]
    assert _gave(world, session) == {"results": [["m", 1], ["m", 4]], "failures": []}


def test_whoever_does_the_others_can_write_no_more() -> None:
    world, session = _world(4, Enough(at_least=1))
    items = _claimed(world, session)
    world.complete(items[2])

    for late in (0, 1, 3):
        with world.unchanged():
            assert world.complete(items[late]).status == "fenced"
    with world.unchanged():
        assert world.fail(items[0]).status == "fenced"


def test_of_a_batch_of_settles_those_after_the_last_that_was_needed_are_fenced() -> None:
    world, session = _world(5, Enough(at_least=2))
    answers = world.send(*map(completing, _claimed(world, session).values()))

    assert [getattr(answer, "status", None) for answer in answers] == [
        "settled",
        "settled",
        "fenced",
        "fenced",
        "fenced",
    ]
    assert _gave(world, session) == {"results": [["m", 0], ["m", 1]], "failures": []}


def test_items_that_were_not_claimed_or_are_asleep_are_given_up_too() -> None:
    world = World(pipeline(each("m", enough=Enough(at_least=1)), stage("z")))
    world.create()
    session = world.open()
    world.expand(world.claim_one(session), range(3))
    asleep, done = world.claim(session, limit=2)
    world.release(asleep, delay=10**9)
    world.complete(done)

    assert [job.node for job in world.jobs()] == ["z"]
    assert world.run().open_jobs == 1
    world.wait(3_600)
    assert world.wake_due() == 0


def test_items_may_fail_as_long_as_enough_are_left() -> None:
    world, session = _world(4, Enough(at_least=2))
    items = _claimed(world, session)
    world.settle(items[3], FATAL)
    world.settle(items[0], FATAL)
    world.complete(items[2])
    world.complete(items[1])

    assert _gave(world, session) == {
        "results": [["m", 1], ["m", 2]],
        "failures": [_failure(0), _failure(3)],
    }


def test_a_run_fails_once_too_few_items_are_left() -> None:
    world, session = _world(4, Enough(at_least=3))
    items = _claimed(world, session)
    assert world.settle(items[0], FATAL).run_status is RunStatus.RUNNING
    assert world.settle(items[1], FATAL).run_status is RunStatus.FAILED

    error = parse(world.run().error or "")
    assert (error["stage"], error["item"], error["code"]) == ("m", 1, "oops")
    assert world.complete(items[2]).status == "fenced"


@pytest.mark.parametrize("items", [0, 1, 2])
def test_a_map_over_too_few_items_fails_before_it_begins(items: int) -> None:
    world, session = _world(items, Enough(at_least=3))

    assert world.run().status == "failed"
    error = parse(world.run().error or "")
    assert (error["code"], error["stage"]) == ("too_few_items", "m")
    assert f"it has {items} items" in str(error["message"])
    assert world.claim(session) == ()


def test_a_map_with_just_enough_items_needs_all_of_them() -> None:
    world, session = _world(2, Enough(at_least=2))
    items = _claimed(world, session)
    assert world.settle(items[1], FATAL).run_status is RunStatus.FAILED


def test_a_stage_beside_the_map_is_left_alone() -> None:
    world = World(pipeline((each("m", enough=Enough(at_least=1)), stage("b")), stage("z")))
    world.create()
    session = world.open()
    expand, beside = sorted(world.claim(session), key=lambda one: one.node, reverse=True)
    world.expand(expand, range(3))
    world.complete(world.claim(session)[0])

    assert [job.node for job in world.jobs()] == ["b"]
    world.complete(beside)
    assert _gave(world, session) == [{"results": [["m", 0]], "failures": []}, "b"]


# Tolerance -------------------------------------------------------------------------------------------------------


def test_as_many_items_may_fail_as_are_tolerated() -> None:
    world = World(pipeline(each("m", enough=Enough(tolerated=2)), stage("z")))
    world.create()
    _drain(world, {1, 3}, items=5)

    assert world.result() == {
        "results": [["m", 0], ["m", 2], ["m", 4]],
        "failures": [_failure(1), _failure(3)],
    }


def test_a_map_that_tolerates_failures_waits_for_all_its_items() -> None:
    world, session = _world(3, Enough(tolerated=2))
    items = _claimed(world, session)
    world.settle(items[2], FATAL)
    world.complete(items[1])

    assert [(job.node, job.item) for job in world.jobs()] == [("m", 0)]
    world.complete(items[0])
    assert _gave(world, session) == {"results": [["m", 0], ["m", 1]], "failures": [_failure(2)]}


def test_one_failure_too_many_fails_the_run() -> None:
    world, session = _world(5, Enough(tolerated=1))
    items = _claimed(world, session)
    world.settle(items[4], FATAL)
    assert world.settle(items[2], FATAL).run_status is RunStatus.FAILED

    assert parse(world.run().error or "")["item"] == 2
    assert world.events().count("stage.failed") == 2
    assert world.jobs() == []


@pytest.mark.parametrize(
    ("share", "total", "may_fail"),
    [
        (0.29, 100, 29),  # 28.999999999999996 as a float
        (0.57, 100, 57),  # 56.99999999999999
        (0.1, 30, 3),
        (0.1, 9, 0),
        (0.1, 10, 1),
        (0.34, 3, 1),
        (0.33, 3, 0),
        (1.0, 7, 7),
        (0.0, 7, 0),
        (0.5, 0, 0),
    ],
)
def test_a_share_is_of_all_items_and_rounded_down(share: float, total: int, may_fail: int) -> None:
    enough = Enough(share=share)

    assert not enough.is_missed(total=total, failed=may_fail)
    assert enough.is_missed(total=total, failed=may_fail + 1)


@given(percent=st.integers(0, 100), total=st.integers(0, 100_000), tolerated=st.integers(0, 50))
def test_a_share_in_percent_is_exact(percent: int, total: int, tolerated: int) -> None:
    enough = Enough(share=percent / 100, tolerated=tolerated)
    may_fail = max(percent * total // 100, tolerated)

    assert not enough.is_missed(total=total, failed=may_fail)
    assert enough.is_missed(total=total, failed=may_fail + 1)


@pytest.mark.parametrize(("tolerated", "share"), [(1, 0.5), (2, 0.0), (2, 0.1)])
def test_the_more_generous_of_count_and_share_counts(tolerated: int, share: float) -> None:
    world, session = _world(4, Enough(tolerated=tolerated, share=share))
    items = _claimed(world, session)
    world.settle(items[0], FATAL)

    assert world.settle(items[1], FATAL).run_status is RunStatus.RUNNING
    assert world.settle(items[2], FATAL).run_status is RunStatus.FAILED


def test_all_items_may_fail_if_that_is_tolerated() -> None:
    world = World(pipeline(each("m", enough=Enough(share=1.0)), stage("z")))
    world.create()
    _drain(world, {0, 1, 2})

    assert world.result() == {"results": [], "failures": [_failure(0), _failure(1), _failure(2)]}


@pytest.mark.parametrize("enough", [Enough(tolerated=2), Enough(share=0.5)])
def test_a_map_over_nothing_gives_nothing_of_both(enough: Enough) -> None:
    world, session = _world(0, enough)

    assert _gave(world, session) == {"results": [], "failures": []}


def test_a_reader_that_fails_is_no_item_that_may() -> None:
    world = World(pipeline(each("m", enough=Enough(share=1.0))))
    world.create()
    world.settle(world.claim_one(world.open()), FATAL)

    assert world.run().status == "failed"


# How items fail --------------------------------------------------------------------------------------------------


def test_an_item_is_lost_only_after_all_its_attempts() -> None:
    world, session = _world(2, Enough(tolerated=1), attempts=2)
    items = _claimed(world, session)
    world.complete(items[1])
    assert world.fail(items[0]).retry_at is not None
    again = world.claim_one(session)
    assert (again.item, again.attempt) == (0, 2)
    assert world.fail(again).retry_at is None

    assert _gave(world, session) == {"results": [["m", 1]], "failures": [_failure(0)]}


def test_a_worker_that_is_lost_once_too_often_counts_as_a_failure() -> None:
    world, session = _world(2, Enough(tolerated=1), attempts=1)
    held, other = world.claim(session)
    world.complete(other)
    freed = world.lose()

    assert (freed.freed, freed.dead) == (0, 1)
    assert world.run().status == "running"
    with world.unchanged():
        assert world.complete(held).status == "fenced"
    gave = cast("dict[str, Any]", _gave(world, world.open()))
    assert gave["results"] == [["m", 1]]
    assert [failure["index"] for failure in gave["failures"]] == [0]


def test_two_lost_at_once_may_be_one_too_many() -> None:
    world, session = _world(3, Enough(tolerated=1), attempts=1)
    assert len(world.claim(session)) == 3
    assert world.lose().dead == 2

    assert world.run().status == "failed"
    assert world.jobs() == []


def test_those_lost_after_enough_are_gone_are_left_alone() -> None:
    world = World(pipeline(each("m", attempts=1, enough=Enough(tolerated=3)), stage("z")))
    world.create()
    session = world.open()
    world.expand(world.claim_one(session), range(3))
    assert len(world.claim(session)) == 3
    assert world.lose().dead == 3

    gave = cast("dict[str, Any]", _gave(world, world.open()))
    assert (gave["results"], [failure["index"] for failure in gave["failures"]]) == ([], [0, 1, 2])


def test_the_window_of_a_map_moves_on_past_items_that_failed() -> None:
    world, session = _world(6, Enough(tolerated=4), limit=2)
    seen: list[int | None] = []
    while attempts := [one for one in world.claim(session) if one.node == "m"]:
        assert len(attempts) <= 2
        for attempt in attempts:
            seen.append(attempt.item)
            world.settle(attempt, FATAL if attempt.item in {0, 1, 3} else completing(attempt).outcome)

    assert seen == [0, 1, 2, 3, 4, 5]
    assert world.run().status == "running"


def test_counters_tell_how_many_items_were_lost() -> None:
    world, session = _world(6, Enough(tolerated=4), limit=2)
    first, second = world.claim(session)
    world.settle(first, FATAL)
    world.complete(second)

    counters = progress_from(world.run().progress).nodes["m"].map
    assert counters is not None
    assert (counters.total, counters.next, counters.done, counters.failed) == (6, 4, 1, 1)


def test_an_item_that_failed_is_not_given_back_by_a_repair() -> None:
    world, session = _world(4, Enough(tolerated=2))
    items = _claimed(world, session)
    world.settle(items[0], FATAL)
    world.complete(items[1])
    world.put(*(Delete(JOBS, job.key) for job in world.jobs()))

    assert world.do(RunRepair()).repaired == ("x",)
    assert sorted(job.item or 0 for job in world.jobs()) == [2, 3]
    _drain(world, {2})
    assert world.run().status == "completed"


def test_a_map_that_is_done_in_a_paused_run_waits_to_go_on() -> None:
    world, session = _world(4, Enough(at_least=1))
    items = _claimed(world, session)
    world.do(RunPause(run_id="x"))
    world.complete(items[3])

    assert [(job.node, job.state) for job in world.jobs()] == [("z", "paused")]
    world.do(RunResume(run_id="x"))
    assert _gave(world, session) == {"results": [["m", 3]], "failures": []}


# Reruns, and the general rule ------------------------------------------------------------------------------------


def test_a_rerun_keeps_what_a_map_gave_and_what_it_lost() -> None:
    world = World(pipeline(each("m", enough=Enough(tolerated=1)), stage("z")))
    world.create()
    _drain(world, {1})
    before = world.result()
    for _ in range(2):
        assert world.rerun("z").keeps == ("m",)
        assert _drain(world, set()) == ["z"]
        assert world.result() == before


@pytest.mark.parametrize(
    ("items", "enough"), [(0, Enough(tolerated=1)), (3, Enough(at_least=2)), (2, Enough(share=1.0))]
)
def test_a_rerun_keeps_what_a_map_gave_however_it_ended(items: int, enough: Enough) -> None:
    world = World(pipeline(each("m", enough=enough), stage("z")))
    world.create()
    _drain(world, set(), items=items)
    before = world.result()
    world.rerun("z")

    assert _drain(world, set()) == ["z"]
    assert world.result() == before == {"results": [["m", 0], ["m", 1]][:items], "failures": []}


def test_a_rerun_takes_no_list_for_what_may_have_gaps() -> None:
    """The output of a map without lost items does not fit a newer version whose map may lose some."""
    newer = pipeline(each("m", enough=Enough(tolerated=1)), stage("z"), version="2")
    world = World(pipeline(each("m"), stage("z")), newer)
    world.do(RunCreate(workflow="w", version="1", id="x", input=payload(0)))
    _drain(world, set())

    with world.unchanged(), pytest.raises(RerunRefusedError, match="'m' comes before 'z'"):
        world.do(RunRerunFrom(run_id="x", stage="z", version="2"))


@given(
    total=st.integers(0, 6),
    fails=st.sets(st.integers(0, 5)),
    places=st.lists(st.integers(0, 5), min_size=6, max_size=6),
    limit=st.integers(1, 4),
    enough=st.builds(Enough, at_least=st.integers(1, 4))
    | st.builds(Enough, tolerated=st.integers(0, 3), share=st.sampled_from([0.0, 0.25, 0.5, 1.0])),
)
def test_any_map_in_any_order(
    total: int, fails: set[int], places: list[int], limit: int, enough: Enough
) -> None:
    """It returns completed and failed items up to the decision, in the order of items; or its run fails."""
    world, session = _world(total, enough, limit=limit)
    may_fail = max(enough.tolerated, floor(enough.share * total))
    if enough.at_least is not None:
        may_fail = total - enough.at_least
    done: list[int] = []
    lost: list[int] = []
    held: list[Attempt] = []
    for place in places:
        held += [one for one in world.claim(session) if one.item is not None]
        is_over = len(done) + len(lost) == total or len(done) == enough.at_least or len(lost) > may_fail
        if is_over:
            break
        assert len(held) == min(limit, total - len(done) - len(lost))
        attempt = held.pop(place % len(held))
        item = attempt.item or 0
        (lost if item in fails else done).append(item)
        world.settle(attempt, FATAL if item in fails else completing(attempt).outcome)

    if len(lost) > may_fail:
        assert world.run().status == "failed"
        return
    (last,) = world.jobs()
    assert last.node == "z"
    assert world.value(last.run, last.input) == {
        "results": [["m", item] for item in sorted(done)],
        "failures": [_failure(item) for item in sorted(lost)],
    }
    assert all(world.complete(attempt).status == "fenced" for attempt in held)
