"""Conditions: one of two stages runs, or none; evaluating one is a recorded job like any other."""

import pytest

from holdfast.kernel.commands import (
    Attempt,
    Completed,
    JobSettle,
    MapExpanded,
    Outcome,
    RunCancel,
    RunPause,
    RunRepair,
    RunRerunFrom,
    RunResume,
)
from holdfast.kernel.commands import (
    ConditionEvaluated as Answer,
)
from holdfast.kernel.dispatch.kernel import Kernel
from holdfast.kernel.pipelines.plan import Group, Plan
from holdfast.ports.changes import Delete
from holdfast.ports.errors import InvalidCommandError, RerunRefusedError
from holdfast.ports.json import parse
from holdfast.ports.records.job import JobKind, JobState
from holdfast.ports.references import references_from
from holdfast.ports.tables import JOBS
from holdfast.testing.ids import SeededIds
from tests.unit.kernel.world import World, each, failed, payload, pipeline, settling, stage, when

IF = pipeline(stage("in"), when(stage("a")), stage("z"))
EITHER = pipeline(stage("in"), when(stage("a"), stage("b")), stage("z"))


def _number(attempt: Attempt) -> int:
    return int(attempt.job.rpartition(".")[2])


def _tested(world: World, *, passed: bool) -> str:
    """A run whose first group is done and whose condition is evaluated; return the session."""
    world.create()
    session = world.open()
    world.complete(world.claim_one(session))
    world.settle(world.claim_one(session), Answer(passed=passed))
    return session


def _finish(world: World, *, passed: bool = True, items: int = 3) -> list[str]:
    """Complete all jobs; return what ran, in order."""
    bodies: list[str] = []

    def give(attempt: Attempt) -> Outcome:
        if attempt.kind is JobKind.CONDITION:
            bodies.append(f"{attempt.node}?")
            return Answer(passed=passed)
        if attempt.kind is JobKind.EXPAND_MAP:
            return MapExpanded(items=tuple(map(payload, range(items))))
        bodies.append(attempt.node)
        return Completed(output=payload([attempt.node, world.value(attempt.run, attempt.input)]))

    world.drain(give)
    return bodies


@pytest.mark.parametrize(("passed", "chosen", "skipped"), [(True, "a", "b"), (False, "b", "a")])
def test_one_of_two_is_done_and_the_other_is_skipped(passed: bool, chosen: str, skipped: str) -> None:
    world = World(EITHER)
    world.create(input="x")

    assert _finish(world, passed=passed) == ["in", "a?", chosen, "z"]
    assert world.result() == ["z", [chosen, ["in", "x"]]]
    assert [(row.type, row.node) for row in world.history() if row.node in {"a", "b"}] == [
        ("stage.tested", "a"),
        ("stage.skipped", skipped),
        ("stage.completed", chosen),
    ]


def test_without_another_what_came_in_goes_on() -> None:
    world = World(IF)
    world.create(input="x")

    assert _finish(world, passed=False) == ["in", "a?", "z"]
    assert world.result() == ["z", ["in", "x"]]
    assert ("stage.skipped", "a") in [(row.type, row.node) for row in world.history()]


def test_what_came_in_is_the_result_if_nothing_else_is_done() -> None:
    world = World(pipeline(when(stage("a"))))
    world.create(input="x")

    assert _finish(world, passed=False) == ["a?"]
    assert (world.run().status, world.result()) == ("completed", "x")


def test_choices_one_after_the_other_pass_on_what_came_in() -> None:
    world = World(pipeline(when(stage("a")), when(stage("b")), stage("z")))
    world.create(input="x")

    assert _finish(world, passed=False) == ["a?", "b?", "z"]
    assert world.result() == ["z", "x"]


def test_a_test_gets_what_came_in_and_says_what_it_found() -> None:
    world = World(IF)
    world.create()
    session = world.open()
    world.complete(world.claim_one(session), "came in")
    test = world.claim_one(session)

    assert (test.kind, test.node, test.item) == (JobKind.CONDITION, "a", None)
    assert world.value(test.run, test.input) == "came in"
    world.settle(test, Answer(passed=True))
    (row,) = [row for row in world.history() if row.type == "stage.tested"]
    assert parse(row.data or "") == {"test": "test", "passed": True, "attempt": 1, "job": _number(test)}
    body = world.claim_one(session)
    assert (body.kind, body.attempt, body.max_attempts) == (JobKind.STAGE, 1, 3)
    assert world.value(body.run, body.input) == "came in"


@pytest.mark.parametrize("passed", [True, False])
def test_a_chosen_map_begins_as_any_map(passed: bool) -> None:
    world = World(pipeline(when(each("m"), each("n")), stage("z")))
    world.create(input="x")
    _finish(world, passed=passed, items=2)

    name = "m" if passed else "n"
    assert world.result() == ["z", [[name, 0], [name, 1]]]


@pytest.mark.parametrize("passed", [True, False])
def test_a_later_map_goes_over_what_came_before_the_choice(passed: bool) -> None:
    world = World(pipeline(stage("in"), when(stage("a"), stage("b")), each("m", over="in")))
    session = _tested(world, passed=passed)
    world.complete(world.claim_one(session))
    expand = world.claim_one(session)

    assert (expand.kind, world.value(expand.run, expand.input)) == (JobKind.EXPAND_MAP, "in")


# Failures --------------------------------------------------------------------------------------------------------


def test_a_test_that_fails_is_tried_again_and_its_stage_then_has_all_its_attempts() -> None:
    world = World(IF)
    world.create()
    session = world.open()
    world.complete(world.claim_one(session))
    for _ in range(2):
        world.fail(world.claim_one(session))
    test = world.claim_one(session)

    assert (test.kind, test.attempt, test.max_attempts) == (JobKind.CONDITION, 3, 3)
    world.settle(test, Answer(passed=True))
    for attempt in (1, 2):
        body = world.claim_one(session)
        assert (body.kind, body.attempt) == (JobKind.STAGE, attempt)
        world.fail(body)
    world.complete(world.claim_one(session))
    assert world.claim_one(session).node == "z"


def test_a_test_that_fails_for_good_fails_the_run() -> None:
    world = World(EITHER)
    world.create()
    session = world.open()
    world.complete(world.claim_one(session))
    for _ in range(3):
        world.fail(world.claim_one(session))

    assert world.run().status == "failed"
    assert parse(world.run().error or "")["stage"] == "a"
    assert "stage.skipped" not in world.events()


def test_a_test_whose_worker_is_lost_is_made_by_another() -> None:
    world = World(IF)
    world.create()
    session = world.open()
    world.complete(world.claim_one(session))
    lost = world.claim_one(session)
    world.lose()
    world.settle(world.claim_one(world.open()), Answer(passed=False))

    with world.unchanged():
        assert world.settle(lost, Answer(passed=True)).status == "fenced"
    assert world.claim_one(world.open()).node == "z"


@pytest.mark.parametrize("outcome", [Completed(output=payload(1)), MapExpanded(items=())])
def test_a_test_gives_nothing_but_its_answer(outcome: Outcome) -> None:
    world = World(IF)
    world.create()
    session = world.open()
    world.complete(world.claim_one(session))
    test = world.claim_one(session)

    with world.unchanged(), pytest.raises(InvalidCommandError, match="of kind condition"):
        world.settle(test, outcome)


def test_a_body_is_no_test() -> None:
    world = World(IF)
    world.create()
    attempt = world.claim_one(world.open())

    with world.unchanged(), pytest.raises(InvalidCommandError, match="condition_evaluated"):
        world.settle(attempt, Answer(passed=True))


# Takes, pauses, repairs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("passed", "node"), [(True, "a"), (False, "b")])
def test_whoever_tests_may_take_the_stage_at_once(passed: bool, node: str) -> None:
    world = World(EITHER)
    world.create()
    session = world.open()
    first = world.claim_one(session)
    settle = settling(first, Completed(output=payload("in")))
    test = world.do(JobSettle(job=settle.job, epoch=1, outcome=settle.outcome, take_next=session)).next
    assert test is not None
    assert test.kind is JobKind.CONDITION
    settled = world.do(JobSettle(job=test.job, epoch=1, outcome=Answer(passed=passed), take_next=session))

    assert settled.next is not None
    assert (settled.next.node, settled.next.kind, settled.more) == (node, JobKind.STAGE, False)
    assert world.claim(session) == ()
    assert world.complete(settled.next).status == "settled"


def test_whoever_tests_takes_what_comes_after_a_skipped_stage() -> None:
    world = World(IF)
    world.create()
    session = world.open()
    world.complete(world.claim_one(session))
    test = world.claim_one(session)
    settled = world.do(JobSettle(job=test.job, epoch=1, outcome=Answer(passed=False), take_next=session))

    assert settled.next is not None
    assert (settled.next.node, settled.row) == ("z", None)


def test_a_test_in_a_paused_run_holds_what_it_chose() -> None:
    world = World(EITHER)
    world.create()
    session = world.open()
    world.complete(world.claim_one(session))
    test = world.claim_one(session)
    world.do(RunPause(run_id="x"))
    world.settle(test, Answer(passed=False))

    assert [(job.node, job.state) for job in world.jobs()] == [("b", JobState.PAUSED)]
    world.do(RunResume(run_id="x"))
    assert world.claim_one(session).node == "b"


@pytest.mark.parametrize("is_tested", [False, True])
def test_a_lost_job_of_a_choice_is_given_back_as_what_it_was(is_tested: bool) -> None:
    world = World(EITHER)
    world.create()
    session = world.open()
    world.complete(world.claim_one(session))
    if is_tested:
        world.settle(world.claim_one(session), Answer(passed=False))
    world.put(*(Delete(JOBS, job.key) for job in world.jobs()))

    assert world.do(RunRepair()).repaired == ("x",)
    again = world.claim_one(session)
    assert (again.kind, again.node) == ((JobKind.STAGE, "b") if is_tested else (JobKind.CONDITION, "a"))
    with world.unchanged():
        assert world.do(RunRepair()).repaired == ()


# Reruns ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "passed", "kept"),
    [
        (EITHER, True, {"in", "a"}),
        (EITHER, False, {"in", "b"}),
        (IF, True, {"in", "a"}),
        (IF, False, {"in"}),
    ],
)
def test_a_rerun_from_a_later_stage_keeps_what_was_chosen(plan: Plan, passed: bool, kept: set[str]) -> None:
    world = World(plan)
    world.create(input="x")
    _finish(world, passed=passed)
    before = world.result()
    for _ in range(3):  # what was skipped stays skipped, however often
        rerun = world.rerun("z")

        assert rerun.runs == ("z",)
        assert references_from(world.run().inherited).keys() == kept
        assert _finish(world, passed=not passed) == ["z"]
        assert world.result() == before


@pytest.mark.parametrize("start", ["a", "b"])
def test_a_rerun_from_within_a_choice_makes_the_test_again(start: str) -> None:
    world = World(EITHER)
    world.create(input="x")
    _finish(world, passed=True)
    world.rerun(start)

    assert references_from(world.run().inherited).keys() == {"in"}
    assert _finish(world, passed=False) == ["a?", "b", "z"]
    assert world.result() == ["z", ["b", ["in", "x"]]]


def test_a_rerun_goes_on_with_the_test_where_a_chosen_stage_failed() -> None:
    world = World(EITHER)
    session = _tested(world, passed=False)
    world.settle(world.claim_one(session), failed(retryable=False))
    rerun = world.rerun()

    assert (rerun.stage, rerun.keeps) == ("b", ("in",))
    assert _finish(world, passed=True) == ["a?", "a", "z"]


@pytest.mark.parametrize(("passed", "chosen"), [(True, "a"), (False, "b")])
def test_a_rerun_of_a_cancelled_run_goes_on_after_the_choice(passed: bool, chosen: str) -> None:
    world = World(EITHER)
    session = _tested(world, passed=passed)
    world.complete(world.claim_one(session))
    world.do(RunCancel(run_id="x"))
    rerun = world.rerun()

    assert (rerun.stage, rerun.runs, set(rerun.keeps)) == ("z", ("z",), {"in", chosen})
    world.do(RunCancel(run_id="x"))
    assert world.rerun().stage == "z"
    assert _finish(world) == ["z"]


def test_a_stage_that_was_skipped_has_nothing_for_a_plan_that_always_does_it() -> None:
    world = World(IF)
    world.create()
    _finish(world, passed=False)
    newer = World(IF, pipeline(stage("in"), stage("a"), stage("z"), version="2"))
    newer.store = world.store
    newer.kernel = Kernel(
        persistence=world.store, clock=newer.clock, ids=SeededIds(clock=newer.clock), plans=newer.plans
    )

    with newer.unchanged(), pytest.raises(RerunRefusedError, match="'a' comes before 'z'"):
        newer.do(RunRerunFrom(run_id="x", stage="z", version="2"))


def test_no_rerun_begins_after_a_choice_that_was_not_made() -> None:
    world = World(EITHER)
    world.create()
    session = world.open()
    world.complete(world.claim_one(session))

    with world.unchanged(), pytest.raises(RerunRefusedError):
        world.rerun("z")


def test_a_plan_with_a_choice_in_it_says_so_and_one_without_says_nothing() -> None:
    assert '"test":"test"' in IF.to_json()
    assert '"test"' not in pipeline(stage("a"), Group(nodes=(stage("b"),))).to_json()
