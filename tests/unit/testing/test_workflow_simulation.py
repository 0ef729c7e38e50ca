"""A simulation finds crash bugs of a workflow, and reports none where there is none."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from holdfast import GiveUp, NotReady, Pipeline, Retry, StageContext, Suspended, stage, suspend
from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.ports.errors import InvalidArgumentError, RunCancelledError, RunFailedError
from holdfast.testing import Effects, SimulationFailedError, Stubs, simulate
from holdfast.workflows import Call
from tests.sizes import sized

effects = Effects()
counted: list[int] = []


@stage
def charge(x: int) -> int:
    effects.happen(f"charge {x}")
    return x


@stage
def charge_by_key(ctx: StageContext, x: int) -> int:
    effects.happen(f"charge {x}", key=ctx.idempotency_key)
    return x


@stage
def charge_at_first(ctx: StageContext, x: int) -> int:
    if ctx.attempt == 1:
        effects.happen(f"charge {x}")
    return x


@stage
def count(x: int) -> int:
    counted.append(x)
    return len(counted)


@stage
def give_up_later(ctx: StageContext, x: int) -> int:
    if ctx.attempt > 1:
        raise GiveUp("it was done before, or was it?")
    return x


@stage(retry=Retry(attempts=1))
def never_again(x: int) -> int:
    return x


@stage(retry=Retry(attempts=4, wait=timedelta(days=2), jitter=0.0))
def stumble(ctx: StageContext, x: int) -> int:
    if ctx.attempt < 3 and not counted:
        counted.append(x)
        raise ConnectionError("away")
    return x


@stage
async def doze(x: int) -> int:
    await asyncio.sleep(3_600)
    return x


@stage
def many(x: int) -> list[int]:
    return [x, x + 1, x + 2]


@stage
def total(xs: list[int]) -> int:
    return sum(xs)


@stage.external
def hand_on(ctx: StageContext, x: int) -> Suspended[int, int]:
    effects.happen("handed on", key=ctx.idempotency_key)
    return suspend(x, check_after=timedelta(days=10))


@hand_on.check
def handed_on(ctx: StageContext, x: int) -> int | NotReady:
    return x


@hand_on.check
def never_done(ctx: StageContext, x: int) -> int | NotReady:
    return NotReady()


@stage
def fail(x: int) -> int:
    raise GiveUp("no")


def line(name: str) -> Pipeline[int, int]:
    return Pipeline(name, input=int)


CHILD = line("child").pipe(doze).pipe(charge_by_key)
ALL = line("all").pipe(stumble).pipe(stage(CHILD)).pipe(many).map(charge_by_key).pipe(total).pipe(handed_on)


def seeds(found: Callable[[int], object], tries: int) -> int:
    """Return how many of so many seeds find something."""
    wrong = 0
    for seed in range(1, tries + 1):
        try:
            found(seed)
        except SimulationFailedError:
            wrong += 1
    return wrong


# What is wrong is found -------------------------------------------------------------------------------------------


def test_an_effect_that_happens_twice_is_found() -> None:
    with pytest.raises(SimulationFailedError, match=r"'charge 5' happened twice; expected once"):
        simulate(line("p").pipe(charge)(5), effects=effects)


def test_an_effect_that_is_left_out_is_found() -> None:
    with pytest.raises(SimulationFailedError, match=r"'charge 5' happened not at all; expected once"):
        simulate(line("p").pipe(charge_at_first)(5), effects=effects)


@pytest.mark.slow
def test_a_result_that_hangs_on_how_often_a_body_ran_is_found() -> None:
    with pytest.raises(SimulationFailedError, match=r"the run returned [23]; expected 1"):
        simulate(line("p").pipe(count)(5), before=counted.clear)


def test_a_run_that_fails_only_with_faults_is_found() -> None:
    with pytest.raises(
        SimulationFailedError, match=r"the run ended as failed: .*or was it.*expected completed"
    ):
        simulate(line("p").pipe(give_up_later)(5))


@pytest.mark.slow
@pytest.mark.sized
def test_one_seed_in_twenty_finds_what_lies_between_an_effect_and_its_commit() -> None:
    call = line("p").pipe(charge)(5)
    tries = sized(30, 60)
    assert seeds(lambda seed: simulate(call, seeds=[seed], effects=effects), tries) >= tries // 20


@pytest.mark.slow
def test_what_does_not_end_without_faults_is_told_before_any_seed() -> None:
    with pytest.raises(SimulationFailedError, match=r"without faults: the run did not end") as told:
        simulate(line("p").pipe(never_done)(5))
    assert told.value.seed == 0


@pytest.mark.slow
def test_what_a_test_sees_afterwards_is_raised() -> None:
    def after() -> None:
        assert len(counted) == 1

    with pytest.raises(AssertionError, match="len"):
        simulate(line("p").pipe(count)(5), before=counted.clear, after=after, same=lambda _: None)


# What is right is not ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.sized
def test_all_kinds_of_stages_bear_all_faults() -> None:
    tries = sized(10, 40)
    simulation = simulate(ALL(1), seeds=tries, effects=effects, before=counted.clear)

    assert simulation.result == 6
    assert simulation.seconds > 10 * 86_400
    assert simulation.seeds == tries
    assert simulation.excused < tries // 4
    assert simulation.fired["crash"] >= tries // 2
    assert simulation.fired["pause"] + simulation.fired["freeze"] >= tries // 4
    assert {"fails_before", "lost_answer", "hint_lost", "hint_late", "slow"} <= simulation.fired.keys()


@pytest.mark.slow
def test_what_faults_explain_is_excused() -> None:
    simulation = simulate(line("p").pipe(never_again)(5), seeds=100)
    assert simulation.excused > 0
    assert simulation.result == 5


@pytest.mark.slow
def test_what_faults_explain_of_a_child_is_excused_of_its_parent() -> None:
    parent = line("parent").pipe(stage(line("inner").pipe(never_again))).pipe(charge_by_key)
    simulation = simulate(parent(5), seeds=60, effects=effects)
    assert simulation.excused > 0
    assert simulation.result == 5


@pytest.mark.slow
def test_a_child_that_fails_by_itself_only_with_faults_is_not_excused() -> None:
    parent = line("parent").pipe(stage(line("inner").pipe(give_up_later)))
    with pytest.raises(SimulationFailedError, match=r"the run ended as failed: .*or was it"):
        simulate(parent(5))


@pytest.mark.slow
def test_a_deadline_that_has_passed_meanwhile_is_excused() -> None:
    quick = Retry(attempts=9, wait=timedelta(seconds=1))
    hasty = line("hasty").pipe(doze.options(timeout_total=timedelta(minutes=70), retry=quick))
    assert simulate(hasty(5), seeds=40).excused > 0


@pytest.mark.slow
def test_a_run_that_fails_does_so_under_every_seed() -> None:
    simulation = simulate(line("p").pipe(charge_by_key).pipe(fail)(5), seeds=12, effects=effects)
    with pytest.raises(RunFailedError, match="no"):
        _ = simulation.result


@pytest.mark.slow
def test_only_what_must_be_the_same_is_compared() -> None:
    simulate(line("p").pipe(count)(5), before=counted.clear, same=lambda result: result > 0)


# Several runs, stubs, and what is done from outside ---------------------------------------------------------------


@pytest.mark.slow
def test_several_runs_are_compared_one_by_one() -> None:
    pipeline = line("p").pipe(charge_by_key)
    simulation = simulate([pipeline(1), pipeline(2), CHILD(3)], seeds=12, effects=effects)

    assert simulation.result == [1, 2, 3]
    assert simulation.effects == {"charge 1": 1, "charge 2": 1, "charge 3": 1}


@pytest.mark.slow
def test_which_of_several_runs_is_wrong_is_told() -> None:
    with pytest.raises(SimulationFailedError, match=r"run simulated-2 ended as failed: .*or was it"):
        simulate([line("p").pipe(charge_by_key)(1), line("q").pipe(give_up_later)(2)], effects=effects)


@pytest.mark.slow
def test_stubs_stand_in_for_stages_anew_in_each_run() -> None:
    def stand_in(stubs: Stubs) -> None:
        stubs.stub(fail).fails(ConnectionError("busy"), times=1).returns(7)
        stubs.stub_check(handed_on).returns(NotReady(), 8)

    simulation = simulate(line("p").pipe(fail).pipe(handed_on)(5), seeds=12, stubs=stand_in, effects=effects)

    assert simulation.result == 8
    assert simulation.seconds > 20 * 86_400


def test_what_a_stub_does_may_be_wrong_too() -> None:
    def stand_in(stubs: Stubs) -> None:
        stubs.stub(fail).does(lambda x: effects.happen("failed over", lambda: x))

    with pytest.raises(SimulationFailedError, match="'failed over' happened twice"):
        simulate(line("p").pipe(fail)(5), stubs=stand_in, effects=effects)


@pytest.mark.slow
def test_a_run_that_is_cancelled_meanwhile_ends_so_under_every_seed() -> None:
    simulation = simulate(
        line("p").pipe(charge_by_key).pipe(handed_on).pipe(fail)(5),
        seeds=12,
        effects=effects,
        meanwhile={timedelta(days=2): lambda run: run.cancel(reason="not wanted any more")},
    )

    assert simulation.effects == {"charge 5": 1, "handed on": 1}
    with pytest.raises(RunCancelledError, match="not wanted any more"):
        _ = simulation.result


@pytest.mark.slow
def test_a_stage_is_woken_and_a_run_stands_still_meanwhile() -> None:
    simulation = simulate(
        [line("p").pipe(handed_on)(1), line("q").pipe(handed_on)(2)],
        seeds=12,
        effects=effects,
        meanwhile={
            timedelta(hours=5): lambda runs: runs[0].wake("hand_on"),
            timedelta(hours=6): lambda runs: runs[1].pause(),
            timedelta(days=12): lambda runs: runs[1].resume(),
        },
    )

    assert simulation.result == [1, 2]
    assert 12 * 86_400 <= simulation.seconds < 13 * 86_400


def test_what_is_raised_meanwhile_is_raised() -> None:
    def look(run: SyncRunHandle[int]) -> None:
        assert run.info().status == "cancelled"

    with pytest.raises(AssertionError, match="cancelled"):
        simulate(line("p").pipe(handed_on)(1), seeds=3, meanwhile={timedelta(days=1): look})


# How it is told ---------------------------------------------------------------------------------------------------


def failure(call: Call[int], seed: int) -> str:
    with pytest.raises(SimulationFailedError) as told:
        simulate(call, seeds=[seed], effects=effects)
    return str(told.value)


def test_a_seed_shows_the_same_each_time_and_no_more_faults_than_needed() -> None:
    call = line("p").pipe(charge).pipe(charge_by_key)(5)
    with pytest.raises(SimulationFailedError) as told:
        simulate(call, effects=effects)
    seed = told.value.seed

    assert failure(call, seed) == failure(call, seed)
    lines = failure(call, seed).splitlines()
    assert lines[0] == f"seed {seed} failed, the last of 1 tried; expected is the outcome without faults:"
    assert lines[-1] == f"Reproduce it with simulate(..., seeds=[{seed}]) or pytest --holdfast-seed {seed}"
    assert sum("EFFECT charge 5" in one and "NO EFFECT" not in one for one in lines) == 3
    assert 1 <= sum(" FAULT " in one for one in lines) <= 2


# Effects ----------------------------------------------------------------------------------------------------------


def test_effects_are_counted_and_with_a_key_happen_once() -> None:
    noted = Effects()
    assert noted.happen("a", lambda: 1) == 1
    noted.happen("a")
    assert noted.happen("b", lambda: [1], key="k") == [1]
    assert noted.happen("b", lambda: [2], key="k") == [1]
    assert noted.happen("b", lambda: [3], key="other") == [3]
    noted.happen("c", key="k")
    assert noted.counts == {"a": 2, "b": 2, "c": 1}
    noted.forget()
    assert noted.counts == {}
    assert noted.happen("b", lambda: 4, key="k") == 4


# What can't be meant ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [0, -1, [], ()])
def test_a_simulation_of_nothing_is_refused(seeds: object) -> None:
    """It would pass whatever the workflow does."""
    with pytest.raises(ValueError, match="there must be at least one seed"):
        simulate(Pipeline("w", input=int).pipe(charge)(1), seeds=seeds)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


@pytest.mark.parametrize("seeds", [2.5, True, "7", ["7"], [1.5], None])
def test_seeds_that_are_no_numbers_are_refused(seeds: object) -> None:
    with pytest.raises(TypeError, match="seeds is"):
        simulate(Pipeline("w", input=int).pipe(charge)(1), seeds=seeds)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


def test_what_is_simulated_is_a_call_and_what_is_told_are_effects() -> None:
    pipeline = Pipeline("w", input=int).pipe(charge)
    with pytest.raises(TypeError, match=r"call it with its input: w\(\.\.\.\)"):
        simulate(pipeline)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(TypeError, match=r"it must be an Effects\(\)"):
        simulate(pipeline(1), effects=[])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


@pytest.mark.parametrize("calls", [[], (), "w", [1], None, [charge]])
def test_what_holds_no_calls_is_refused(calls: object) -> None:
    with pytest.raises(InvalidArgumentError, match=r"call to simulate|expects the call of a workflow"):
        simulate(calls)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


@pytest.mark.parametrize("meanwhile", [{5: print}, {timedelta(-1): print}, {timedelta(1): "cancel"}])
def test_what_is_done_meanwhile_are_functions_by_times(meanwhile: object) -> None:
    with pytest.raises(InvalidArgumentError, match="functions by timedeltas after the start"):
        simulate(line("p").pipe(charge)(1), meanwhile=meanwhile)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
