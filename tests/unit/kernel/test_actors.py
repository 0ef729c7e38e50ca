"""Actors of operators' commands, in the events of what the commands did."""

from typing import Any

import attrs
import pytest

from holdfast.kernel import commands as c
from holdfast.kernel.history import events
from holdfast.kernel.rules.registry import RULES
from holdfast.kernel.rules.sinks import registered_by
from holdfast.ports.actors import Actor
from holdfast.ports.attempt_output import annotation_codes
from holdfast.ports.changes import Delete
from holdfast.ports.errors import IdempotencyConflictError, InvalidCommandError
from holdfast.ports.json import canonical
from holdfast.ports.records.run import RunStatus
from holdfast.ports.tables import JOBS
from tests.unit.kernel.test_functions import driven, function
from tests.unit.kernel.world import World, payload, pipeline, stage

ANN = Actor("user", "ann")
BOB = Actor("service", "bob", "2")
HELLO = c.ChannelMessage(channel="c", payload=payload("hello"))


@pytest.fixture
def world() -> World:
    return World(pipeline(stage("a"), stage("b")))


@pytest.fixture
def of_function() -> World:
    return function()


def actors(world: World, *, generation: int | None = None) -> list[tuple[str, Actor | None]]:
    """Return the types of the run's events that operators may cause, each with the actor."""
    found = (events.event_of(row) for row in world.history(generation=generation))
    return [(event.type, event.actor) for event in found if isinstance(event, events.OperatorEvent)]


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (c.RunCancel(run_id="x", actor=ANN), "run.cancelled"),
        (c.RunTerminate(run_id="x", actor=ANN), "run.terminated"),
        (c.RunPause(run_id="x", actor=ANN), "run.paused"),
    ],
    ids=lambda one: getattr(one, "type", one),
)
def test_the_event_of_a_command_names_its_actor(world: World, command: c.Command[Any], kind: str) -> None:
    world.create()
    world.do(command)

    assert actors(world) == [("run.created", None), (kind, ANN)]
    assert world.history()[-1].data == '{"actor":{"id":"ann","kind":"user"}}'


def test_who_paused_and_who_resumed_are_kept_apart(world: World) -> None:
    world.create()
    world.do(c.RunPause(run_id="x", actor=ANN))
    world.do(c.RunResume(run_id="x", actor=BOB))

    assert actors(world)[1:] == [("run.paused", ANN), ("run.resumed", BOB)]


def test_without_an_actor_the_rows_are_those_of_before(world: World) -> None:
    world.create()
    world.do(c.RunCancel(run_id="x", reason="why"))

    assert [row.data for row in world.history()] == ['{"definition":"w@1"}', '{"reason":"why"}']


def test_a_start_names_its_actor_also_as_the_author_of_its_annotations(world: World) -> None:
    note = c.NewAnnotation(name="n", value='"v"')
    world.do(c.RunCreate(workflow="w", id="x", input=payload(0), annotations=(note,), actor=ANN))

    assert actors(world) == [("run.created", ANN)]
    (stored,) = world.tables().annotations.values()
    assert annotation_codes((stored,)) == {("n", "tv")}
    assert (stored.actor_kind, stored.actor_id) == ("user", "ann")


def test_the_run_whose_place_a_start_takes_was_terminated_by_the_same_actor(world: World) -> None:
    world.create()
    world.do(
        c.RunCreate(
            workflow="w", id="x", input=payload(0), if_active="terminate", if_ended="rerun", actor=ANN
        )
    )

    assert actors(world, generation=1)[-1] == ("run.terminated", ANN)
    assert actors(world) == [("run.created", ANN)]


def test_a_rerun_names_its_actor_in_both_generations(world: World) -> None:
    world.create()
    world.do(c.RunRerunFrom(run_id="x", actor=ANN))

    assert actors(world, generation=1)[-1] == ("run.terminated", ANN)
    assert actors(world) == [("run.created", ANN)]


def test_a_function_that_cleans_up_was_cancelled_by_the_actor(of_function: World) -> None:
    driven(of_function)
    of_function.do(c.RunCancel(run_id="x", actor=ANN))

    assert of_function.run().status is RunStatus.CANCELLING
    assert actors(of_function)[-1] == ("run.cancelling", ANN)


def test_messages_and_updates_keep_their_senders_through_a_rerun(of_function: World) -> None:
    driven(of_function)
    of_function.do(c.RunSignal(run_id="x", signal=HELLO, actor=ANN))
    of_function.do(c.RunSignal(run_id="x", signal=HELLO))
    of_function.do(c.RunUpdate(run_id="x", update="B.m", arguments=payload({}), actor=ANN))
    sent = [("signal.received", ANN), ("signal.received", None), ("update.received", ANN)]
    assert actors(of_function)[1:] == sent

    of_function.do(c.RunRerunFrom(run_id="x", row=2, actor=BOB))
    assert actors(of_function) == [("run.created", BOB), *sent]


def test_a_start_that_is_kept_names_its_actor_in_the_generation_that_it_starts(of_function: World) -> None:
    attempt = driven(of_function)
    of_function.do(
        c.RunCreate(
            workflow="w",
            id="x",
            input=payload(1),
            signals=(HELLO,),
            if_active="return",
            if_ended="rerun",
            actor=ANN,
        )
    )
    of_function.complete(attempt)

    assert of_function.run().generation == 2
    assert actors(of_function) == [("run.created", ANN), ("signal.received", ANN)]


def test_the_actor_of_an_annotation_is_its_author(world: World) -> None:
    world.create()
    note = c.NewAnnotation(name="n", value="1")
    world.do(c.RunAnnotate(run_id="x", annotations=(note,), actor=ANN))
    world.do(c.RunAnnotate(run_id="x", annotations=(note,)))

    stored = world.tables().annotations.values()
    kept = sorted((one.actor_kind, one.actor_id) for one in stored)
    assert kept == [("", ""), ("user", "ann")]


def test_a_repair_names_its_actor(world: World) -> None:
    world.create()
    run = world.run()
    (job,) = world.jobs()

    world.put(Delete(JOBS, job.key))
    world.do(c.RunRepair(run=run.key, actor=ANN))

    assert actors(world)[-1] == ("run.repaired", ANN)


def test_a_sink_says_who_registered_it(world: World) -> None:
    for name, types, actor in (("a", (), None), ("b", (), ANN), ("c", ("run.failed",), BOB)):
        world.do(c.SinkRegister(sink=name, types=types, actor=actor))

    sinks = {sink.name: registered_by(sink) for sink in world.tables().sinks.values()}
    assert sinks == {"a": None, "b": ANN, "c": BOB}
    again = c.SinkRegister(sink="c", types=("run.failed",), actor=ANN)
    assert not world.do(again).created


def test_another_actor_with_the_same_key_repeats_a_command(world: World) -> None:
    world.create()
    pause = c.RunPause(run_id="x", idempotency_key="k", actor=ANN)
    first = world.do(pause)

    assert world.do(attrs.evolve(pause, actor=BOB)) == first
    assert actors(world)[1:] == [("run.paused", ANN)]
    with pytest.raises(IdempotencyConflictError):
        world.do(attrs.evolve(pause, reason="other"))


@pytest.mark.parametrize("actor", [Actor("k" * 201, "a"), Actor("user", "a\0"), Actor("user", "a", "\ud800")])
def test_an_actor_that_no_store_could_keep_is_refused(actor: Actor) -> None:
    with pytest.raises(InvalidCommandError, match=r"actor\.(kind|id|version) is"):
        c.RunCancel(run_id="x", actor=actor)


def test_commands_of_workers_and_of_maintenance_have_no_actor() -> None:
    of_operators = {command.type for command in RULES if issubclass(command, c.OperatorCommand)}

    assert of_operators == {
        "browser_session.create",
        "browser_session.delete",
        "credential.create",
        "credential.revoke",
        "credential.rotate",
        "dead_letter.replay",
        "namespace.create",
        "namespace.delete",
        "run.annotate",
        "limit.clear",
        "limit.set",
        "run.cancel",
        "run.create",
        "run.pause",
        "run.remove",
        "run.repair",
        "run.rerun_from",
        "run.resume",
        "run.signal",
        "run.terminate",
        "run.update",
        "schedule.backfill",
        "schedule.pause",
        "schedule.put",
        "schedule.remove",
        "schedule.resume",
        "schedule.trigger",
        "sink.register",
        "topic.publish",
        "topic.remove",
        "trigger.pause",
        "trigger.put",
        "trigger.remove",
        "trigger.resume",
        "sink.remove",
        "stage.wake",
    }


@pytest.mark.parametrize("data", ["ann", ["user", "ann"], {"id": 5}, {"who": "ann"}], ids=canonical)
def test_a_damaged_actor_is_an_error(data: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        Actor.of(data)


def test_an_actor_has_a_text_and_data() -> None:
    assert (ANN.text, BOB.text, Actor().text) == ("user ann", "service bob 2", "")
    for actor in (ANN, BOB, Actor()):
        assert Actor.of(actor.data) == actor
