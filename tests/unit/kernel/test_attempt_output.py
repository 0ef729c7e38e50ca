"""Annotations and attempt output: by run.annotate, at the start, in heartbeats and settles."""

from typing import Any

import attrs
import pytest

from holdfast.kernel.commands import (
    AiCallOutput,
    AnnotationOutput,
    ArtifactOutput,
    Attempt,
    AttemptOutput,
    AttemptReport,
    Completed,
    JobHeartbeat,
    NewAnnotation,
    RunAnnotate,
    RunCreate,
)
from holdfast.kernel.commands.attempt_output import ANNOTATIONS_MAX, NUMBER_MAX, VALUE_MAX
from holdfast.kernel.commands.codec import to_data
from holdfast.ports.actors import Actor
from holdfast.ports.attempt_output import AiCall, Annotation, AnnotationScope, Artifact
from holdfast.ports.errors import InvalidCommandError, RunNotFoundError
from holdfast.ports.json import canonical
from holdfast.ports.records.run import RunStatus
from holdfast.ports.records.values import Payload
from tests.unit.kernel.world import World, completing, each, failed, payload, pipeline, settling, stage

SHA = "a" * 64


@pytest.fixture
def world() -> World:
    return World(pipeline(stage("a"), each("m")))


def values(**annotations: object) -> tuple[NewAnnotation, ...]:
    return tuple(NewAnnotation(name=name, value=canonical(value)) for name, value in annotations.items())


def annotations(world: World, run: str = "x") -> list[Annotation]:
    key = world.run(run).key
    return [one for one in world.tables().annotations.values() if one.run == key]


def said(kind: Any, data: object, at: int = 5) -> AttemptOutput:
    return AttemptOutput(kind=kind, at=at, data=canonical(to_data(data)))


def heartbeat(world: World, attempt: Attempt, *told: AttemptOutput) -> tuple[str, ...]:
    held = AttemptReport(job=attempt.job, epoch=attempt.epoch, outputs=told)
    return world.do(JobHeartbeat(attempts=(held,))).lost


# run.annotate ---------------------------------------------------------------------------------------------------


def test_what_is_said_of_a_run_is_kept_with_who_and_why_and_when(world: World) -> None:
    created = world.create()
    world.wait(3)
    before = world.run()
    reply = world.do(
        RunAnnotate(
            run_id="x",
            annotations=values(reviewed="yes", score=0.5),
            actor=Actor(kind="person", id="ann", version="2"),
            reason="looks good",
        )
    )

    assert (reply.run, reply.generation, reply.stored) == (created.run, 1, 2)
    first, second = annotations(world)
    assert (first.name, first.value, second.name, second.value) == ("reviewed", '"yes"', "score", "0.5")
    for one in (first, second):
        assert (one.run, one.at, one.scope) == (created.run, world.now, AnnotationScope.RUN)
        assert (one.actor_kind, one.actor_id, one.actor_version) == ("person", "ann", "2")
        assert (one.reason, one.key, one.node, one.job) == ("looks good", None, None, None)
    assert world.run() == before, "nothing happened to the run"


def test_a_run_that_has_ended_can_be_spoken_of(world: World) -> None:
    world.create()
    world.fail(world.claim_one(world.open()), retryable=False)
    assert world.run().status is RunStatus.FAILED

    assert world.do(RunAnnotate(run_id="x", annotations=values(cause="theirs"))).stored == 1


def test_an_annotation_is_of_a_stage_or_an_item_if_it_says_so(world: World) -> None:
    world.create()
    world.do(RunAnnotate(run_id="x", annotations=values(n=1), stage="a"))
    world.do(RunAnnotate(run_id="x", annotations=values(n=2), stage="m", item=3))

    assert [(one.scope, one.node, one.item) for one in annotations(world)] == [
        (AnnotationScope.STAGE, "a", None),
        (AnnotationScope.ITEM, "m", 3),
    ]


def test_what_is_said_under_a_key_is_said_once(world: World) -> None:
    world.create()
    once = RunAnnotate(run_id="x", annotations=values(reviewed="yes"), key="k")
    stored = [world.do(once).stored, world.do(once).stored]
    stored.append(world.do(attrs.evolve(once, annotations=values(reviewed="no", by="me"))).stored)
    stored.append(world.do(attrs.evolve(once, key="l")).stored)

    assert stored == [1, 0, 1, 1]
    assert [(one.name, one.value, one.key) for one in annotations(world)] == [
        ("reviewed", '"yes"', "k"),
        ("by", '"me"', "k"),
        ("reviewed", '"yes"', "l"),
    ]


def test_a_key_is_that_of_one_run_and_also_holds_within_a_batch(world: World) -> None:
    world.create("x")
    world.create("y")
    once = RunAnnotate(run_id="x", annotations=values(n=1), key="k")
    answers = world.send(once, once, attrs.evolve(once, run_id="y"))

    assert [getattr(answer, "stored", None) for answer in answers] == [1, 0, 1]


def test_without_a_key_everything_is_kept(world: World) -> None:
    world.create()
    for _ in range(2):
        world.do(RunAnnotate(run_id="x", annotations=values(n=1)))

    assert [one.value for one in annotations(world)] == ["1", "1"]


def test_nothing_can_be_said_of_what_is_not_there(world: World) -> None:
    world.create()
    with world.unchanged():
        with pytest.raises(RunNotFoundError):
            world.do(RunAnnotate(run_id="y", annotations=values(n=1)))
        with pytest.raises(InvalidCommandError, match="no stage 'b'"):
            world.do(RunAnnotate(run_id="x", annotations=values(n=1), stage="b"))
        with pytest.raises(InvalidCommandError, match="item needs a stage"):
            world.do(RunAnnotate(run_id="x", annotations=values(n=1), item=0))
        with pytest.raises(InvalidCommandError, match="count from 0"):
            world.do(RunAnnotate(run_id="x", annotations=values(n=1), stage="m", item=-1))


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"name": ""}, "name is ''"),
        ({"name": "n" * 201}, "200 are possible"),
        ({"name": "nul \0"}, "NUL"),
        ({"name": "half \ud800"}, "surrogate"),
        ({"value": "{"}, "not JSON"),
        ({"value": "[" * 10_000}, "not JSON"),
        ({"value": '"é"'}, "ASCII"),
        ({"value": canonical("x" * VALUE_MAX)}, "at most"),
    ],
    ids=str,
)
def test_what_can_not_be_said_is_refused_when_it_is_put_together(fields: dict[str, str], fault: str) -> None:
    with pytest.raises(InvalidCommandError, match=fault):
        attrs.evolve(NewAnnotation(name="n", value="1"), **fields)


def test_a_command_has_so_many_annotations_each_of_another_name() -> None:
    many = tuple(NewAnnotation(name=str(n), value="1") for n in range(ANNOTATIONS_MAX + 1))
    with pytest.raises(InvalidCommandError, match="100 are possible"):
        RunAnnotate(run_id="x", annotations=many)
    with pytest.raises(InvalidCommandError, match="repeated"):
        RunAnnotate(run_id="x", annotations=many[:1] * 2)
    with pytest.raises(InvalidCommandError, match=r"actor\.id"):
        RunAnnotate(run_id="x", annotations=many[:1], actor=Actor(id="\0"))


def test_a_run_is_started_with_annotations(world: World) -> None:
    world.do(RunCreate(workflow="w", id="x", input=payload(1), annotations=values(source="web")))
    again = RunCreate(
        workflow="w", id="x", input=payload(1), annotations=values(source="app"), if_exists="return"
    )
    assert not world.do(again).created

    (one,) = annotations(world)
    assert (one.name, one.value, one.at, one.scope) == (
        "source",
        '"web"',
        world.run().created_at,
        AnnotationScope.RUN,
    )


# What attempts say ----------------------------------------------------------------------------------------------


def annotation(name: str, value: object = "yes", **fields: Any) -> AttemptOutput:
    return said("annotation", AnnotationOutput(name=name, value=canonical(value), **fields))


ARTIFACT = said(
    "artifact", ArtifactOutput(name="r", content_type="a/b", size=3, sha256=SHA, blob="b/k"), at=7
)
AI_CALL = said(
    "ai_call",
    AiCallOutput(topic="t", model="m", input_tokens=3, cost=9, prompt=Payload(inline='"p"'), error="no"),
    at=8,
)


def of_item(world: World) -> Attempt:
    """The attempt of the second of two items."""
    world.create()
    session = world.open()
    world.complete(world.claim_one(session), [1, 2])
    world.expand(world.claim_one(session), [1, 2])
    return next(one for one in world.claim(session) if one.item == 1)


@pytest.mark.parametrize(
    ("scope", "place"),
    [
        (AnnotationScope.RUN, (None, None)),
        (AnnotationScope.STAGE, ("m", None)),
        (AnnotationScope.ITEM, ("m", 1)),
        (AnnotationScope.ATTEMPT, ("m", 1)),
    ],
)
def test_an_attempt_says_something_of_itself_its_item_its_stage_or_its_run(
    world: World, scope: AnnotationScope, place: tuple[str | None, int | None]
) -> None:
    attempt = of_item(world)
    told = annotation("n", scope=scope, actor=Actor(kind="stage", id="w/m"), reason="so")
    assert heartbeat(world, attempt, told) == ()

    (one,) = annotations(world)
    assert (one.scope, (one.node, one.item), one.at) == (scope, place, 5)
    assert (f"{one.run}.{one.job}", one.epoch) == (attempt.job, attempt.epoch)
    assert (one.actor_kind, one.actor_id, one.reason, one.namespace) == ("stage", "w/m", "so", "default")


def test_what_attempts_say_under_a_key_is_said_once_whoever_says_it(world: World) -> None:
    world.create()
    session = world.open()
    first = world.claim_one(session)
    heartbeat(
        world, first, annotation("n", 1, key="k"), annotation("n", 2, key="k"), annotation("o", 3, key="k")
    )
    heartbeat(world, first, annotation("n", 4, key="k"))
    world.fail(first)
    second = world.claim_one(session)
    settle = attrs.evolve(completing(second, [1]), outputs=(annotation("n", 5, key="k"), annotation("n", 6)))
    world.do(settle)
    world.do(RunAnnotate(run_id="x", annotations=values(n=7), key="k"))

    assert [(one.name, one.value) for one in annotations(world)] == [("n", "1"), ("o", "3"), ("n", "6")]


def test_what_several_attempts_say_under_a_key_in_one_heartbeat_is_said_once() -> None:
    """Such as the concurrent map items of one worker, which sends their output together."""
    world = World(pipeline(each("m")))
    world.create()
    session = world.open()
    world.expand(world.claim_one(session), range(3))
    attempts = world.claim(session)
    told = tuple(
        AttemptReport(
            job=one.job, epoch=one.epoch, outputs=(annotation("n", number, key="k"), annotation("m", number))
        )
        for number, one in enumerate(attempts)
    )
    assert world.do(JobHeartbeat(attempts=told)).lost == ()

    found = [(one.name, one.value) for one in annotations(world)]
    assert found == [("n", "0"), ("m", "0"), ("m", "1"), ("m", "2")]


def test_a_settle_stores_all_that_was_said(world: World) -> None:
    world.create()
    attempt = world.claim_one(world.open())
    log = AttemptOutput(kind="log", at=4, data='{"message":"hi"}')
    world.do(attrs.evolve(completing(attempt, [1]), outputs=(log, annotation("n"), ARTIFACT, AI_CALL)))
    tables = world.tables()

    assert [note.data for note in tables.notes.values()] == [log.data]
    assert [one.name for one in annotations(world)] == ["n"]
    assert list(tables.artifacts.values()) == [
        Artifact(
            run=attempt.run,
            job=1,
            epoch=1,
            name="r",
            node="a",
            at=7,
            content_type="a/b",
            size=3,
            sha256=SHA,
            blob="b/k",
        )
    ]
    (call,) = tables.ai_calls.values()
    assert call == AiCall(
        run=attempt.run,
        at=8,
        id=call.id,
        job=1,
        epoch=1,
        node="a",
        topic="t",
        model="m",
        kind=call.kind,
        input_tokens=3,
        cost=9,
        prompt=Payload(inline='"p"'),
        error="no",
    )


def test_a_body_that_failed_leaves_no_artifact_but_what_its_calls_cost(world: World) -> None:
    world.create()
    attempt = world.claim_one(world.open())
    settle = settling(attempt, failed())
    world.do(attrs.evolve(settle, outputs=(annotation("n"), ARTIFACT, AI_CALL)))
    tables = world.tables()

    assert not tables.artifacts
    assert len(annotations(world)) == 1
    assert [call.cost for call in tables.ai_calls.values()] == [9]


def test_a_heartbeat_leaves_no_artifact_but_what_calls_cost(world: World) -> None:
    world.create()
    attempt = world.claim_one(world.open())
    heartbeat(world, attempt, ARTIFACT, AI_CALL)

    assert not world.tables().artifacts
    assert len(world.tables().ai_calls) == 1


def test_an_attempt_that_is_fenced_says_nothing(world: World) -> None:
    world.create()
    attempt = world.claim_one(world.open())
    world.lose()
    told = (annotation("n", key="k"), ARTIFACT, AI_CALL)
    with world.unchanged():
        assert world.do(attrs.evolve(completing(attempt), outputs=told)).status == "fenced"
        assert heartbeat(world, attempt, *told) == (attempt.job,)


def test_a_call_that_is_told_again_counts_once(world: World) -> None:
    """As when the reply to a heartbeat is lost and the worker sends everything again."""
    world.create()
    attempt = world.claim_one(world.open())
    call = said("ai_call", AiCallOutput(id="c1", topic="t", model="m", cost=9))
    for _ in range(2):
        heartbeat(world, attempt, call)
    world.do(attrs.evolve(completing(attempt, [1]), outputs=(call,)))

    assert [one.id for one in world.tables().ai_calls.values()] == ["c1"]


def test_the_result_of_a_batch_counts_once(world: World) -> None:
    world.create()
    session = world.open()
    attempt = world.claim_one(session)

    def result(index: int) -> AttemptOutput:
        return said("ai_call", AiCallOutput(topic="t", model="m", batch="b", batch_index=index, cost=1))

    heartbeat(world, attempt, result(0), result(1))
    world.fail(attempt)
    again = world.claim_one(session)
    world.do(attrs.evolve(completing(again, []), outputs=(result(0), result(1), result(2))))

    calls = world.tables().ai_calls.values()
    assert [(call.batch_index, call.epoch) for call in calls] == [(0, 1), (1, 1), (2, 2)]


@pytest.mark.parametrize("kind", ["annotation", "artifact", "ai_call"])
@pytest.mark.parametrize("data", ["", "{", "[]", '{"name":1}', '{"x":1}'])
def test_what_is_said_must_have_its_form(world: World, kind: Any, data: str) -> None:
    world.create()
    attempt = world.claim_one(world.open())
    malformed = AttemptOutput(kind=kind, at=1, data=data)
    settle = attrs.evolve(settling(attempt, Completed(output=payload(1))), outputs=(malformed,))
    with world.unchanged():
        (answer,) = world.send(settle)
        assert isinstance(answer, InvalidCommandError)


@pytest.mark.parametrize(
    "fields",
    [
        {"input_tokens": -1},
        {"cost": NUMBER_MAX},
        {"duration": -1},
        {"topic": ""},
        {"batch": "b"},
        {"batch_index": 1},
        {"model": "\0"},
    ],
    ids=str,
)
def test_a_call_must_be_one_that_can_be_added_up(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidCommandError):
        attrs.evolve(AiCallOutput(topic="t", model="m"), **fields)
