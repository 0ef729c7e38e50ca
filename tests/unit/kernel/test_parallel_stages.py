"""Parallel stages: all get the same input, and the next stage gets the list of outputs."""

from itertools import permutations

import pytest

from holdfast.kernel.commands import Attempt
from holdfast.ports.records.run import RunStatus
from tests.unit.kernel.world import World, completing, each, failed, field, pipeline, settling, stage

FAN = pipeline(stage("in"), (stage("z"), stage("a"), stage("m")), stage("out"))


def _fanned(world: World, session: str) -> dict[str, Attempt]:
    world.create()
    world.complete(world.claim_one(session), "came in")
    return {attempt.node: attempt for attempt in world.claim(session)}


def test_stages_side_by_side_all_get_what_came_in() -> None:
    world = World(FAN)
    attempts = _fanned(world, world.open())

    assert attempts.keys() == {"z", "a", "m"}
    assert {world.value(one.run, one.input) for one in attempts.values()} == {"came in"}


@pytest.mark.parametrize("order", list(permutations("zam")), ids="".join)
@pytest.mark.parametrize("in_one_batch", [True, False])
def test_their_outputs_go_on_in_the_order_of_the_plan(order: tuple[str, ...], *, in_one_batch: bool) -> None:
    world = World(FAN)
    session = world.open()
    attempts = _fanned(world, session)
    commands = [completing(attempts[name]) for name in order]
    answers = world.send(*commands) if in_one_batch else [world.do(command) for command in commands]

    assert [field(answer, "status") for answer in answers] == ["settled"] * 3
    last = world.claim_one(session)
    assert (last.node, world.value(last.run, last.input)) == ("out", ["z", "a", "m"])


def test_what_comes_after_waits_for_all_of_them() -> None:
    world = World(FAN)
    session = world.open()
    attempts = _fanned(world, session)
    for name in ("m", "z"):
        world.complete(attempts[name])
        assert world.claim(session) == ()

    world.complete(attempts["a"])
    assert [one.node for one in world.claim(session)] == ["out"]


def test_one_that_is_tried_again_keeps_the_others_outputs() -> None:
    world = World(FAN)
    session = world.open()
    attempts = _fanned(world, session)
    world.complete(attempts["z"])
    world.fail(attempts["a"])
    world.complete(attempts["m"])
    again = world.claim_one(session)

    assert (again.node, again.attempt) == ("a", 2)
    world.complete(again, "second try")
    last = world.claim_one(session)
    assert world.value(last.run, last.input) == ["z", "second try", "m"]


def test_one_that_fails_for_good_takes_the_others_with_it() -> None:
    world = World(FAN)
    session = world.open()
    attempts = _fanned(world, session)
    assert world.fail(attempts["a"], retryable=False).run_status == RunStatus.FAILED

    with world.unchanged():
        assert world.complete(attempts["z"]).status == "fenced"
        assert world.release(attempts["m"]).status == "fenced"
    assert world.jobs() == []


def test_of_two_that_fail_in_one_batch_the_first_is_the_cause() -> None:
    world = World(FAN)
    attempts = _fanned(world, world.open())
    first, second = world.send(
        settling(attempts["m"], failed(retryable=False)), settling(attempts["a"], failed(retryable=False))
    )

    assert (field(first, "run_status"), field(second, "status")) == ("failed", "fenced")
    assert world.events().count("run.failed") == 1


def test_maps_side_by_side_give_a_list_of_lists() -> None:
    world = World(pipeline((each("m", limit=1), stage("s"), each("n"), each("none"))))
    world.create()
    session = world.open()
    while attempts := world.claim(session):
        for attempt in attempts:
            if attempt.kind == "expand_map":
                world.expand(attempt, range({"m": 3, "n": 2, "none": 0}[attempt.node]))
            else:
                world.complete(attempt)

    assert world.result() == [[["m", 0], ["m", 1], ["m", 2]], "s", [["n", 0], ["n", 1]], []]


def test_groups_of_groups_nest_their_lists() -> None:
    world = World(pipeline((stage("a"), stage("b")), (stage("c"), stage("d"))))
    world.create()
    session = world.open()
    world.send(*map(completing, world.claim(session)))
    for attempt in world.claim(session):
        assert world.value(attempt.run, attempt.input) == ["a", "b"]
        world.complete(attempt)

    assert world.result() == ["c", "d"]


def test_a_group_of_one_gives_a_list_of_one() -> None:
    world = World(pipeline((stage("a"),)))
    world.create()
    world.complete(world.claim_one(world.open()))

    assert world.result() == ["a"]


def test_a_map_over_one_of_several_takes_that_output_only() -> None:
    world = World(pipeline((stage("a"), stage("b")), each("m", over="b")))
    world.create()
    session = world.open()
    world.send(*map(completing, world.claim(session)))
    expand = world.claim_one(session)

    assert world.value(expand.run, expand.input) == "b"
