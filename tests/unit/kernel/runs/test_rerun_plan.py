"""Reruns from a stage: a new generation that keeps earlier outputs by reference."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from holdfast.kernel.commands import (
    Attempt,
    Command,
    Completed,
    JobSettled,
    MapExpanded,
    RunCancel,
    RunClaimPending,
    RunCreate,
    RunPause,
    RunRerun,
    RunRerunFrom,
    RunResume,
    RunTerminate,
)
from holdfast.kernel.pipelines.plan import Plan
from holdfast.kernel.runs.rerun_preview import preview_rerun
from holdfast.ports.changes import Update
from holdfast.ports.errors import RerunRefusedError, RunNotFoundError, UnknownWorkflowError
from holdfast.ports.json import parse
from holdfast.ports.queries.runs import FindRun
from holdfast.ports.records.job import JobKind
from holdfast.ports.records.run import RunName, RunStatus
from holdfast.ports.references import references_from
from holdfast.ports.transport import RunEnded
from tests.unit.kernel.world import SECOND, World, completing, each, failed, field, payload, pipeline, stage

LINE = pipeline(stage("a"), stage("b"), stage("c"))
FAN = pipeline(stage("in"), (stage("z"), stage("a"), stage("m")), stage("out"))
MAPS = pipeline(stage("a"), each("m"), each("n", over="a"), stage("end"))

Give = Callable[[Attempt], Completed | MapExpanded]


def giving(bodies: list[str] | None = None, *, items: int = 3, suffix: str = "") -> Give:
    """Bodies that return their names, or a list of so many items; `bodies` records which ran."""

    def give(attempt: Attempt) -> Completed | MapExpanded:
        if attempt.kind is JobKind.EXPAND_MAP:
            return MapExpanded(items=tuple(map(payload, range(items))))
        if bodies is not None:
            bodies.append(attempt.node if attempt.item is None else f"{attempt.node}/{attempt.item}")
        name = f"{attempt.node}{suffix}"
        return Completed(output=payload(name if attempt.item is None else [name, attempt.item]))

    return give


def failed_in_c(world: World) -> None:
    """A run of LINE whose third stage fails."""
    world.create(input="given")
    session = world.open()
    world.complete(world.claim_one(session))
    world.complete(world.claim_one(session))
    world.fail(world.claim_one(session), retryable=False)
    assert world.run().status is RunStatus.FAILED


# A failed run ------------------------------------------------------------------------------------------------------


def test_a_failed_run_goes_on_where_it_failed() -> None:
    world = World(LINE)
    failed_in_c(world)
    bodies: list[str] = []

    answer = world.rerun(reason="the bug is fixed")
    session = world.open()
    attempt = world.claim_one(session)
    assert (attempt.node, world.value(attempt.run, attempt.input)) == ("c", "b")
    world.release(attempt)
    world.drain(giving(bodies))

    assert answer == RunRerun(
        run_id="x",
        run=world.run().key,
        generation=2,
        status=RunStatus.RUNNING,
        started=True,
        rerun_of=1,
        stage="c",
        runs=("c",),
        keeps=("a", "b"),
    )
    assert bodies == ["c"]
    assert (world.run().status, world.result()) == (RunStatus.COMPLETED, "c")


def test_the_new_generation_says_where_it_comes_from() -> None:
    world = World(LINE)
    failed_in_c(world)
    before = world.run()
    world.wait(5)
    world.rerun(reason="the bug is fixed")

    run = world.run()
    assert (run.id, run.generation, run.rerun_of, run.rerun_from) == ("x", 2, before.key, "c")
    assert references_from(run.inherited) == {"a": ("of", before.key, 2), "b": ("of", before.key, 3)}
    assert (run.created_at, run.status, run.error) == (world.now, RunStatus.RUNNING, None)
    first = world.history()[0]
    assert (first.type, first.payload) == ("run.created", payload("given"))
    assert parse(first.data or "") == {
        "definition": "w@1",
        "rerun_of": 1,
        "from": "c",
        "keeps": ["a", "b"],
        "reason": "the bug is fixed",
    }


def test_the_old_generation_stays_as_it_was() -> None:
    world = World(LINE)
    failed_in_c(world)
    before, history = world.run(), world.history()

    world.rerun()
    world.drain(giving())

    assert (world.run(generation=1), world.history(generation=1)) == (before, history)
    assert world.run() == world.run(generation=2) != before


def test_what_runs_again_has_effects_of_its_own() -> None:
    """Its job keys contain its generation, and so do the idempotency keys of its effects."""
    world = World(LINE)
    failed_in_c(world)
    before = world.run()
    world.rerun()
    attempt = world.claim_one(world.open())

    assert attempt.run == world.run().key != before.key
    assert (attempt.epoch, attempt.attempt) == (1, 1)


# From where it is told ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stage_", "runs"), [(None, "abc"), ("a", "abc"), ("b", "bc"), ("c", "c")], ids=["all", "a", "b", "c"]
)
def test_a_completed_run_runs_again_from_a_stage_or_from_the_start(stage_: str | None, runs: str) -> None:
    world = World(LINE)
    world.create(input="given")
    world.drain(giving())
    bodies: list[str] = []

    answer = world.rerun(stage_)
    world.drain(giving(bodies, suffix="!"))

    assert (answer.stage, answer.runs, answer.terminated) == (stage_, tuple(runs), False)
    assert (bodies, world.result()) == (list(runs), "c!")


def test_the_first_stage_gets_what_the_run_was_given() -> None:
    world = World(LINE)
    world.create(input={"n": [1]})
    world.drain(giving())
    world.rerun()
    attempt = world.claim_one(world.open())

    assert (attempt.node, world.value(attempt.run, attempt.input)) == ("a", {"n": [1]})


def test_a_cancelled_run_goes_on_where_it_stopped() -> None:
    world = World(LINE)
    world.create()
    world.complete(world.claim_one(world.open()))
    world.do(RunCancel(run_id="x"))

    assert world.rerun().stage == "b"
    assert world.rerun(None).stage == "b"


# A generation that is active ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("paused", [False, True])
def test_an_active_generation_is_terminated_in_the_same_commit(*, paused: bool) -> None:
    world = World(LINE)
    world.create()
    session = world.open()
    world.complete(world.claim_one(session))
    attempt = world.claim_one(session)
    if paused:
        world.do(RunPause(run_id="x"))
    before = world.run()
    world.heard.hints.clear()

    answer = world.rerun("a", reason="wrong from the start")

    ended = world.run(generation=1)
    assert answer.terminated
    assert (ended.status, ended.ended_at) == (RunStatus.CANCELLED, world.now)
    assert parse(ended.error or "") == {
        "code": "terminated",
        "message": "it is run again as generation 2: wrong from the start",
    }
    last = world.history(generation=1)[-1]
    assert (last.type, parse(last.data or "")) == (
        "run.terminated",
        {"reason": "wrong from the start", "rerun": 2},
    )
    assert RunEnded(run=before.key) in world.heard.hints
    assert world.complete(attempt) == JobSettled(status="fenced")
    assert (world.run().status, world.run().progress) != (before.status, before.progress)


def test_a_run_that_is_under_way_goes_on_at_the_first_stage_that_is_not_done() -> None:
    world = World(FAN)
    world.create()
    session = world.open()
    world.complete(world.claim_one(session))
    z, _, _ = sorted(world.claim(session), key=lambda one: "zam".index(one.node))
    world.complete(z)
    bodies: list[str] = []

    answer = world.rerun()
    world.drain(giving(bodies))

    assert (answer.stage, answer.runs, answer.keeps) == ("a", ("a", "m", "out"), ("in", "z"))
    assert sorted(bodies) == ["a", "m", "out"]


def test_a_run_that_waits_for_its_time_is_run_again_at_once() -> None:
    world = World(LINE)
    later = world.now + 3_600 * SECOND
    world.do(RunCreate(workflow="w", id="x", input=payload("given"), start_at=later))

    answer = world.rerun()

    assert (answer.stage, answer.runs, answer.terminated) == (None, ("a", "b", "c"), True)
    attempt = world.claim_one(world.open())
    assert (attempt.node, world.value(attempt.run, attempt.input)) == ("a", "given")
    assert world.run(generation=1).status is RunStatus.CANCELLED


def test_a_generation_that_waits_for_a_slot_keeps_what_it_is_to_keep() -> None:
    """However often it is rerun meanwhile; it starts at the chosen point once there is a slot."""
    world = World(LINE)
    for name in ("x", "y"):
        key = RunCreate(workflow="w", id=name, input=payload(0), concurrency_key="bank")
        assert world.do(key).follow_up.runs == ("bank",)
    admit = RunClaimPending(keys=("bank",))
    world.do(admit)
    session = world.open()
    world.complete(world.claim_one(session))
    world.fail(world.claim_one(session), retryable=False)
    world.do(admit)
    assert world.run("y").status is RunStatus.RUNNING

    first, second = world.rerun(), world.rerun()

    assert [(one.status, one.stage, one.keeps) for one in (first, second)] == [
        (RunStatus.PENDING, "b", ("a",))
    ] * 2
    assert preview_rerun(world.store, world.kernel.workflows, RunRerunFrom(run_id="x")).keeps == {"a": 1}
    world.do(admit)
    assert world.run().status is RunStatus.PENDING
    world.do(RunCancel(run_id="y"))
    world.do(admit)
    attempt = world.claim_one(session)
    assert (attempt.run, attempt.node) == (world.run().key, "b")
    assert world.value(attempt.run, attempt.input) == "a"
    assert references_from(world.run().inherited) == {"a": ("of", world.run(generation=1).key, 3)}


@pytest.mark.parametrize("status", [RunStatus.BLOCKED, RunStatus.PAUSED, RunStatus.CANCELLING])
def test_whatever_holds_a_run_up_it_is_run_again(status: RunStatus) -> None:
    world = World(LINE)
    world.create()
    world.complete(world.claim_one(world.open()))
    world.put(Update(attrs.evolve(world.run(), status=status)))

    answer = world.rerun()

    assert (answer.stage, answer.terminated, answer.status) == ("b", True, RunStatus.RUNNING)
    assert world.run(generation=1).status is RunStatus.CANCELLED


# Side by side ------------------------------------------------------------------------------------------------------


def test_of_stages_side_by_side_only_the_one_that_is_named_runs_again() -> None:
    world = World(FAN)
    world.create()
    world.drain(giving())
    bodies: list[str] = []

    answer = world.rerun("a")
    session = world.open()
    attempt = world.claim_one(session)
    assert (attempt.node, world.value(attempt.run, attempt.input)) == ("a", "in")
    world.complete(attempt, "other")
    last = world.claim_one(session)
    assert (last.node, world.value(last.run, last.input)) == ("out", ["z", "other", "m"])
    world.release(last)
    world.drain(giving(bodies))

    assert (answer.keeps, answer.runs, bodies) == (("in", "z", "m"), ("a", "out"), ["out"])


def test_those_beside_it_that_were_not_completed_run_again() -> None:
    world = World(FAN)
    world.create()
    session = world.open()
    world.complete(world.claim_one(session))
    attempts = {one.node: one for one in world.claim(session)}
    world.complete(attempts["m"])
    world.fail(attempts["z"], retryable=False)

    answer = world.rerun()

    assert (answer.stage, answer.keeps, answer.runs) == ("z", ("in", "m"), ("z", "a", "out"))
    assert sorted(one.node for one in world.claim(session)) == ["a", "z"]


# Maps --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("items", [0, 1, 250])
def test_a_map_that_is_kept_is_kept_by_reference(items: int) -> None:
    world = World(MAPS)
    world.create()
    world.drain(giving(items=items))
    before = world.run()
    bodies: list[str] = []

    world.rerun("end")
    attempt = world.claim_one(world.open())
    assert world.value(attempt.run, attempt.input) == [["n", item] for item in range(items)]
    world.release(attempt)
    world.drain(giving(bodies))

    assert bodies == ["end"]
    kept = references_from(world.run().inherited)
    assert kept["m"] == (("of", before.key, ("map", "m", 3, 3 + items)) if items else ("list",))


def test_what_a_map_goes_over_is_kept_for_it() -> None:
    world = World(MAPS)
    world.create()
    world.drain(giving())
    world.rerun("n")
    attempt = world.claim_one(world.open())

    assert (attempt.node, attempt.kind) == ("n", JobKind.EXPAND_MAP)
    assert world.value(attempt.run, attempt.input) == "a"


def test_a_map_runs_whole_again() -> None:
    world = World(MAPS)
    world.create()
    session = world.open()
    world.complete(world.claim_one(session))
    world.expand(world.claim_one(session), range(3))
    first, second, _ = world.claim(session)
    world.complete(first)
    world.fail(second, retryable=False)
    bodies: list[str] = []

    answer = world.rerun()
    world.drain(giving(bodies, items=2))

    assert (answer.stage, answer.keeps) == ("m", ("a",))
    assert sorted(bodies) == ["end", "m/0", "m/1", "n/0", "n/1"]


# Again and again ---------------------------------------------------------------------------------------------------


def test_a_rerun_of_a_rerun_refers_to_where_the_value_really_is() -> None:
    world = World(FAN)
    world.create()
    world.drain(giving(suffix="1"))
    world.rerun("a")
    world.drain(giving(suffix="2"))
    world.rerun("out")
    attempt = world.claim_one(world.open())

    first, second = world.run(generation=1).key, world.run(generation=2).key
    assert world.value(attempt.run, attempt.input) == ["z1", "a2", "m1"]
    assert references_from(world.run().inherited) == {
        "in": ("of", first, 2),
        "z": ("of", first, 3),
        "a": ("of", second, 2),
        "m": ("of", first, 5),
    }
    world.rerun("in")
    assert world.run().inherited is None


def test_generations_that_are_stopped_early_pass_on_what_they_kept() -> None:
    world = World(LINE)
    failed_in_c(world)
    world.rerun()
    answer = world.rerun()

    assert (answer.generation, answer.stage, answer.keeps, answer.terminated) == (3, "c", ("a", "b"), True)
    attempt = world.claim_one(world.open())
    assert world.value(attempt.run, attempt.input) == "b"


def test_one_batch_may_run_a_run_again_twice() -> None:
    world = World(LINE)
    world.create()
    session = world.open()
    attempt = world.claim_one(session)

    answers = world.send(
        completing(attempt, "one"),
        RunRerunFrom(run_id="x"),
        RunRerunFrom(run_id="x", stage="b"),
        RunCreate(workflow="w", id="y", input=payload(1)),
        RunRerunFrom(run_id="y"),
    )

    assert [field(one, "stage") for one in (answers[1], answers[2], answers[4])] == ["b", "b", "a"]
    assert [field(one, "generation") for one in (answers[1], answers[2], answers[4])] == [2, 3, 2]
    attempts = {one.node: one for one in world.claim(session)}
    assert world.value(attempts["b"].run, attempts["b"].input) == "one"
    assert world.value(attempts["a"].run, attempts["a"].input) == 1


def test_a_rerun_of_a_generation_that_is_the_newest_no_more_does_nothing() -> None:
    world = World(LINE)
    failed_in_c(world)
    assert world.rerun(generation=1).started
    with world.unchanged():
        answer = world.rerun(generation=1)

    assert answer == RunRerun(
        run_id="x", run=world.run().key, generation=2, status=RunStatus.RUNNING, started=False
    )


@pytest.mark.parametrize("command", [RunCancel, RunTerminate, RunPause, RunResume])
def test_commands_for_an_older_generation_do_nothing(command: type[Command[Any]]) -> None:
    world = World(LINE)
    failed_in_c(world)
    world.rerun()
    if command is RunResume:
        world.do(RunPause(run_id="x"))
    with world.unchanged():
        answer = world.do(attrs.evolve(command(run_id="x"), generation=1))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

    assert (field(answer, "changed"), field(answer, "status")) == (False, world.run().status)
    assert field(world.do(command(run_id="x", generation=2)), "changed")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


# Other code --------------------------------------------------------------------------------------------------------


def deployed(world: World, *plans: Plan) -> World:
    """The same store with other code."""
    other = World(*plans, wrap=lambda _: world.store)
    other.store, other.clock = world.store, world.clock
    return other


def test_the_plan_that_is_known_here_is_followed() -> None:
    world = World(LINE)
    failed_in_c(world)
    changed = pipeline(stage("b"), stage("a"), stage("c", attempts=7), stage("d"))
    world = deployed(world, changed)

    answer = world.rerun()

    assert (answer.keeps, answer.runs) == (("b", "a"), ("c", "d"))
    attempt = world.claim_one(world.open())
    assert (attempt.max_attempts, world.value(attempt.run, attempt.input)) == (7, "a")
    assert world.run().plan == changed.fingerprint in world.tables().plans


def test_where_the_code_is_not_known_the_plan_of_before_is_followed() -> None:
    world = World(LINE)
    failed_in_c(world)
    elsewhere = deployed(world, pipeline(stage("q"), workflow="other"))

    assert elsewhere.rerun().runs == ("c",)
    assert world.run().plan == LINE.fingerprint


def test_another_version_may_be_asked_for() -> None:
    world = World(LINE)
    failed_in_c(world)
    second = pipeline(stage("a"), stage("b"), stage("new"), stage("c"), version="2")
    world = deployed(world, LINE, second)

    world.do(RunRerunFrom(run_id="x", stage="new", version="2"))

    attempt = world.claim_one(world.open())
    assert (attempt.definition, attempt.node) == ("w@2", "new")
    assert (world.run().version, world.run(generation=1).version) == ("2", "1")


# Refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (RunRerunFrom(run_id="x", stage="d"), r"no stage 'd' in w@1; .*: a, b, c$"),
        (RunRerunFrom(run_id="x", stage="c"), r"'b' comes before 'c' and was not completed in generation 1"),
        (RunRerunFrom(run_id="x", stage="c"), r"; run again from 'b' or before it$"),
    ],
)
def test_what_can_not_be_run_again_is_refused_and_nothing_is_changed(command: RunRerunFrom, why: str) -> None:
    world = World(LINE)
    world.create()
    session = world.open()
    world.complete(world.claim_one(session))
    world.settle(world.claim_one(session), failed(retryable=False))
    with world.unchanged(), pytest.raises(RerunRefusedError, match=why):
        world.do(command)


def test_code_that_lacks_what_must_be_kept_is_refused() -> None:
    world = World(LINE)
    failed_in_c(world)
    added = deployed(world, pipeline(stage("a"), stage("new"), stage("b"), stage("c")))
    mapped = deployed(world, pipeline(stage("a"), each("b"), stage("c")))
    gone = deployed(world, pipeline(stage("a"), stage("b")))

    with world.unchanged():
        with pytest.raises(RerunRefusedError, match="'new' comes before 'c' and was not completed"):
            added.rerun()
        with pytest.raises(RerunRefusedError, match="'b' comes before 'c' and was mapped then, or is now"):
            mapped.rerun()
        with pytest.raises(
            RerunRefusedError, match=r"it stopped at stage 'c', which is not in w@1; .*: a, b$"
        ):
            gone.rerun()
    assert gone.rerun("b").runs == ("b",)


def test_a_version_that_is_not_known_is_refused() -> None:
    world = World(LINE)
    failed_in_c(world)
    with world.unchanged(), pytest.raises(UnknownWorkflowError, match="w@2"):
        world.do(RunRerunFrom(run_id="x", version="2"))


def test_a_run_that_is_not_there_is_refused() -> None:
    world = World(LINE)
    with pytest.raises(RunNotFoundError):
        world.rerun()
    assert world.store.read(FindRun(RunName("default", "x"))) is None
