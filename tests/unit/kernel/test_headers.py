"""Headers: their bounds, which runs have those of another one, and that repeated starts may differ in them."""

from datetime import timedelta

import attrs
import pytest

from holdfast.kernel.calendars.specs import Every
from holdfast.kernel.commands import (
    Attempt,
    ChildRunStarted,
    ChildStart,
    ContinuedAsNew,
    JobClaim,
    JobRecord,
    RunCreate,
    RunRerunFrom,
    RunTerminate,
    SchedulePolicy,
    SchedulePut,
    ScheduleTrigger,
)
from holdfast.kernel.history import events
from holdfast.kernel.pipelines.headers import HEADERS, headers_of, headers_text, joined_headers
from holdfast.kernel.pipelines.plan import ChildPlan, Plan, plan_from_json
from holdfast.kernel.schedules.row_data import timing_of
from holdfast.ports.changes import Update
from holdfast.ports.errors import IdempotencyConflictError, InvalidCommandError
from holdfast.ports.json import canonical
from holdfast.ports.records.run import NO_OPTIONS, GivenOptions
from tests.unit.kernel.world import World, payload, pipeline, stage

FUNCTION = attrs.evolve(stage("f", attempts=1), function=True)
PARENT, CHILD = pipeline(FUNCTION), pipeline(FUNCTION, workflow="c")
TRACE = '{"traceparent":"00-1"}'
MOST = {f"name-{number}": "text" for number in range(16)}


def started(*plans: Plan, headers: str | None = TRACE) -> tuple[World, Attempt]:
    """A run `x` with headers, and its first attempt."""
    world = World(*(plans or (PARENT, CHILD)))
    world.do(RunCreate(workflow="w", id="x", input=payload(0), headers=headers))
    (attempt,) = world.do(JobClaim(session=world.open(), queue_claims=world.lanes(), limit=9)).attempts
    return world, attempt


def start_child(world: World, attempt: Attempt, options: GivenOptions) -> None:
    child = ChildRunStarted(run_id="x/1", workflow="c", version="1", input=payload(1), options=options)
    records = (ChildStart(call="1", child=child),)
    world.do(JobRecord(job=attempt.job, epoch=attempt.epoch, seen=1, records=records))


@pytest.mark.parametrize(
    "headers",
    [{}, {"A-z_0.9": ""}, MOST, {"n" * 64: "é"}, {"n": "x" * (4_096 - len('{"n":""}'))}],
)
def test_few_short_texts_are_headers(headers: dict[str, str]) -> None:
    assert HEADERS.test(headers)
    world, _ = started(headers=canonical(headers))
    assert world.run("x").headers == canonical(headers)


@pytest.mark.parametrize(
    "headers",
    [
        *({"": "x"}, {"n" * 65: "x"}, {"a b": "x"}, {"ä": "x"}, {"a\n": "x"}),
        *({**MOST, "more": ""}, {"n": "x" * 4_089}, {"n": 1}, {"n": None}, [], "text", None),
        {"n": "caf\udce9"},
    ],
)
def test_other_values_are_no_headers(headers: object) -> None:
    assert not HEADERS.test(headers)
    if headers is None:
        return
    with pytest.raises(InvalidCommandError, match="headers"):
        started(headers=canonical(headers))


def test_a_text_that_is_not_json_is_refused() -> None:
    with pytest.raises(InvalidCommandError, match=r"headers is '\{'; it must be the JSON of a dict"):
        started(headers="{")


def test_no_headers_are_stored_as_nothing() -> None:
    assert (headers_text({}), headers_text({"a": "b"})) == (None, '{"a":"b"}')
    assert (headers_of(None), headers_of('{"a":"b"}')) == ({}, {"a": "b"})


@pytest.mark.parametrize(
    ("inherited", "given", "joined"),
    [
        ('{"p":"1"}', None, None),  # the kernel gives it those of its parent
        ('{"p":"1"}', '{"a":"2"}', '{"a":"2","p":"1"}'),
        ('{"p":"1"}', '{"p":"2"}', '{"p":"2"}'),
        (None, '{"a":"2"}', '{"a":"2"}'),
    ],
)
def test_a_start_adds_to_those_of_the_parent(
    inherited: str | None, given: str | None, joined: str | None
) -> None:
    assert joined_headers(inherited, given) == joined


def test_a_child_run_has_those_of_its_parent_or_those_in_its_options() -> None:
    for options, expected in ((NO_OPTIONS, TRACE), (GivenOptions(headers='{"a":"b"}'), '{"a":"b"}')):
        world, attempt = started()
        start_child(world, attempt, options)
        assert world.run("x/1").headers == expected


@pytest.mark.parametrize(
    "texts", [{"file": "caf\udce9"}, {"caf\udce9": "file"}, {"a": "\U0001f600", "b": "\ud83d"}]
)
def test_attributes_with_half_of_a_surrogate_pair_are_refused(texts: dict[str, str]) -> None:
    world = World(PARENT)
    start = RunCreate(workflow="w", input=payload(0), attributes=canonical(texts))
    for command in (
        start,
        attrs.evolve(start, attributes=canonical(texts).replace("ud", "uD")),
        SchedulePut(
            schedule="s", start=start, timing=timing_of((Every(timedelta(hours=1)),)), policy=SchedulePolicy()
        ),
    ):
        with pytest.raises(InvalidCommandError, match=r"attributes has .* with half of a surrogate pair"):
            world.do(command)


def test_attributes_with_whole_surrogate_pairs_and_nul_are_stored() -> None:
    world = World(PARENT)
    texts = canonical({"a": "\U0001f600", "b": "\0", "c": "\\ud83d"})
    world.do(RunCreate(workflow="w", id="x", input=payload(0), attributes=texts))
    assert world.run("x").attributes == texts


def test_a_child_run_has_texts_of_an_old_parent_that_are_refused_now() -> None:
    world, attempt = started()
    half = canonical({"file": "caf\udce9"})
    world.put(Update(attrs.evolve(world.run("x"), attributes=half, headers=half)))
    start_child(world, attempt, NO_OPTIONS)
    child = world.run("x/1")
    assert (child.attributes, child.headers) == (half, half)


def test_too_many_headers_of_a_child_run_are_refused_where_its_parent_sees_it() -> None:
    world, attempt = started()
    start_child(world, attempt, GivenOptions(headers=canonical({**MOST, "more": ""})))
    event = events.event_of(world.history("x")[-1])
    assert isinstance(event, events.ChildFailed)
    assert event.code == InvalidCommandError.code
    assert "at most 16" in (event.message or "")
    assert [run.id for run in world.tables().runs.values()] == ["x"]


def test_the_next_generation_has_the_same_headers() -> None:
    world, attempt = started()
    world.settle(attempt, ContinuedAsNew(workflow="w", version="1", input=payload(1), seen=1))
    assert (world.run("x").generation, world.run("x").headers) == (2, TRACE)


def test_a_rerun_has_the_same_headers() -> None:
    world, _ = started()
    world.do(RunTerminate(run_id="x"))
    world.do(RunRerunFrom(run_id="x"))
    assert (world.run("x").generation, world.run("x").headers) == (2, TRACE)


def test_a_start_that_reruns_a_run_brings_its_own_headers() -> None:
    world, _ = started()
    world.do(RunTerminate(run_id="x"))
    world.do(RunCreate(workflow="w", id="x", input=payload(0), if_ended="rerun", headers='{"a":"b"}'))
    assert (world.run("x").generation, world.run("x").headers) == (2, '{"a":"b"}')


def test_a_repeated_start_may_have_other_headers_and_changes_nothing() -> None:
    world = World(PARENT)
    first = RunCreate(
        workflow="w", input=payload(0), headers=TRACE, attributes='{"a":"b"}', idempotency_key="k"
    )
    run_id = world.do(first).run_id
    assert world.do(attrs.evolve(first, headers='{"traceparent":"00-2"}')).run_id == run_id
    assert world.run(run_id).headers == TRACE
    with pytest.raises(IdempotencyConflictError):
        world.do(attrs.evolve(first, attributes='{"a":"c"}'))


def test_the_runs_of_a_schedule_have_the_headers_of_its_start() -> None:
    world = World(PARENT)
    start = RunCreate(workflow="w", input=payload(0), headers=TRACE)
    timing = timing_of((Every(timedelta(hours=1)),))
    world.do(SchedulePut(schedule="s", start=start, timing=timing, policy=SchedulePolicy()))
    world.do(ScheduleTrigger(schedule="s"))
    assert [run.headers for run in world.tables().runs.values()] == [TRACE]


def test_a_plan_keeps_the_headers_of_a_child_run_and_its_form_without_them() -> None:
    for headers, is_stored in ((None, False), (TRACE, True)):
        child = ChildPlan(workflow="c", version="1", headers=headers)
        plan = pipeline(attrs.evolve(stage("a"), child=child))
        assert ("headers" in plan.to_json()) is is_stored
        assert plan_from_json(plan.to_json()) == plan
