"""External stages: submit, check and cancel functions, and invalid ones."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import attrs
import pytest

from holdfast.kernel.authoring import (
    ExternalStage,
    NotReady,
    Pipeline,
    Retry,
    StageContext,
    Suspended,
    completed,
    each,
    stage,
    suspend,
)
from holdfast.kernel.authoring.external import KEY_MAX
from holdfast.kernel.pipelines.plan import (
    CancelPlan,
    CheckPlan,
    MapPlan,
    RetryPolicy,
    StagePlan,
    plan_from_json,
)
from holdfast.ports.errors import DefinitionError, InvalidArgumentError

SOON = timedelta(seconds=1)


@attrs.frozen
class Video:
    name: str


@attrs.frozen
class Ticket:
    number: int


@attrs.frozen
class Quality:
    lines: int = 720


class Unstorable:
    pass


@stage.external
def transcode(ctx: StageContext[Quality], video: Video) -> Suspended[Ticket, str]:
    return suspend(Ticket(ctx.config.lines), check_after=SOON)


@transcode.check
def transcoded(ctx: StageContext[Quality], ticket: Ticket) -> str | NotReady:
    return NotReady()


videos = Pipeline("p", input=Video)


# What they are --------------------------------------------------------------------------------------------------


def test_it_takes_the_input_and_gives_what_comes_of_the_work() -> None:
    assert isinstance(transcode, ExternalStage)
    assert (transcode.name, transcode.input_type, transcode.output_type) == ("transcode", Video, str)
    assert transcode.state_type is Ticket
    assert videos.pipe(transcoded).output_type is str


def test_a_check_makes_the_same_stage_anew() -> None:
    """So either name may be piped when the check redefines the stage's name."""
    assert transcoded.name == "transcode"
    assert transcoded.body is transcode.body
    assert transcoded.check_body is not None
    assert transcode.check_body is None


def test_a_check_may_do_without_the_context() -> None:
    def check(ticket: Ticket) -> str | NotReady:
        return str(ticket.number)

    found = transcode.check(cast("Any", check))  # type checkers want it there

    assert found.check_arguments(Ticket(3), None) == (Ticket(3),)


def test_a_check_is_given_the_context_and_the_state() -> None:
    context: Any = object()

    assert transcoded.check_arguments(Ticket(3), context) == (context, Ticket(3))


def test_bodies_and_checks_are_async_or_not_each_for_itself() -> None:
    @transcode.check
    async def found(ctx: StageContext[Quality], ticket: Ticket) -> str | NotReady:
        return NotReady()

    assert (found.is_async, found.is_check_async) == (False, True)
    assert (transcoded.is_async, transcoded.is_check_async) == (False, False)
    assert not transcode.is_check_async


def test_a_state_that_fits_what_the_check_takes_will_do() -> None:
    @transcode.check
    def found(ctx: StageContext[Quality], ticket: Ticket | None) -> NotReady | str:
        return NotReady()

    assert found.check_body is not None


def test_options_and_config_are_those_of_any_stage_and_leave_the_check() -> None:
    changed = transcoded.options(queue="gpu", name="again").configure(Quality(1080))

    assert (changed.queue, changed.name) == ("gpu", "again")
    assert changed.check_body is transcoded.check_body


def test_presets_make_external_stages_too() -> None:
    gpu = stage(queue="gpu", retry=Retry(attempts=9), name="other")

    @gpu.external
    def render(ctx: StageContext, video: Video) -> Suspended[int, str]:
        return suspend(3, check_after=SOON)

    assert (render.name, render.queue, render.retry) == ("other", "gpu", Retry(attempts=9))


# The plan -------------------------------------------------------------------------------------------------------


def test_the_plan_says_how_the_check_is_treated() -> None:
    found = transcode.options(timeout=timedelta(minutes=5)).check(
        retry=Retry(attempts=9, wait=timedelta(0), jitter=0), timeout=timedelta(seconds=3)
    )(_checked)

    plan = videos.pipe(found).plan()

    retry = RetryPolicy(attempts=9, wait_us=0, jitter=0.0)
    assert plan.nodes["transcode"] == StagePlan(
        name="transcode",
        timeout_us=300_000_000,
        config='{"lines":720}',
        check=CheckPlan(retry=retry, timeout_us=3_000_000),
    )
    assert plan_from_json(plan.to_json()) == plan


def test_a_check_of_which_nothing_was_said_is_treated_as_its_stage() -> None:
    pipeline = Pipeline("p", input=Video, retry=Retry(attempts=7), timeout=timedelta(seconds=2)).pipe(
        transcoded
    )

    found = pipeline.plan().nodes["transcode"]
    assert isinstance(found, StagePlan)
    assert found.check == CheckPlan(retry=RetryPolicy(attempts=7), timeout_us=2_000_000)


def test_an_external_stage_can_be_mapped() -> None:
    plan = Pipeline("p", input=list[Video]).pipe(each(transcoded, limit=5)).plan()

    found = plan.nodes["transcode"]
    assert isinstance(found, MapPlan)
    assert found.stage.check is not None
    assert plan_from_json(plan.to_json()) == plan


# What is refused ------------------------------------------------------------------------------------------------


def _checked(ctx: StageContext[Quality], ticket: Ticket) -> str | NotReady:
    return NotReady()


def _gives_its_result(ctx: StageContext, video: Video) -> str:
    return video.name


def _gives_a_bare_one(ctx: StageContext, video: Video) -> Suspended[str, str]:
    return suspend("", check_after=SOON)


_gives_a_bare_one.__annotations__["return"] = Suspended


def _does_not_say(ctx: StageContext, video: Video) -> None:
    pass


del _does_not_say.__annotations__["return"]


def _state_of_no_value(ctx: StageContext, video: Video) -> Suspended[Unstorable, str]:
    return suspend(Unstorable(), check_after=SOON)


def _result_of_no_value(ctx: StageContext, video: Video) -> Suspended[str, Unstorable]:
    return suspend("x", check_after=SOON)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (_gives_its_result, r"returns str; an external stage returns Suspended\[State, Result\]"),
        (_gives_a_bare_one, r"an external stage returns Suspended\[State, Result\]"),
        (_does_not_say, "has no return annotation"),
        (_state_of_no_value, "is suspended with a state that can't be stored: .*Unstorable"),
        (_result_of_no_value, "returns a type that can't be stored: .*Unstorable"),
        (Video, "an external stage needs a function, not"),
        (3, "an external stage needs a function, not 3"),
    ],
)
def test_what_is_no_external_stage_is_refused(body: Any, problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        stage.external(body)


def test_a_stage_that_suspends_must_say_that_it_is_external() -> None:
    def hand_on(ctx: StageContext, video: Video) -> Suspended[str, str]:
        return suspend("x", check_after=SOON)

    with pytest.raises(DefinitionError, match=r"use @stage\.external"):
        stage(hand_on)


def _never_says_not_yet(ctx: StageContext[Quality], ticket: Ticket) -> str:
    return ""


def _gives_another_type(ctx: StageContext[Quality], ticket: Ticket) -> int | NotReady:
    return 1


def _gives_more(ctx: StageContext[Quality], ticket: Ticket) -> str | int | NotReady:
    return 1


def _takes_another_state(ctx: StageContext[Quality], ticket: str) -> str | NotReady:
    return ticket


def _takes_too_much(ctx: StageContext[Quality], ticket: Ticket, video: Video) -> str | NotReady:
    return ""


def _has_no_annotation(ctx: StageContext[Quality], ticket: Ticket) -> str | NotReady:
    return ""


del _has_no_annotation.__annotations__["ticket"]


@pytest.mark.parametrize(
    ("check", "problem"),
    [
        (_never_says_not_yet, r"check of stage 'transcode' returns str; it must be able to return NotReady"),
        (_gives_another_type, "check of stage 'transcode' returns int, but the stage returns str"),
        (_gives_more, "returns int, but the stage returns str"),
        (_takes_another_state, "takes str, but the stage is suspended with .*Ticket"),
        (_takes_too_much, "takes tuple.*, but the stage is suspended with .*Ticket"),
        (_has_no_annotation, "'ticket' has no annotation"),
        (3, "needs a function, not 3"),
    ],
)
def test_a_check_that_does_not_belong_to_the_stage_is_refused(check: Any, problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        transcode.check(check)
    with pytest.raises(DefinitionError, match=problem):
        transcode.check(timeout=SOON)(check)


@pytest.mark.parametrize(
    ("options", "problem"),
    [({"retry": 3}, "check: retry is 3"), ({"timeout": timedelta(0)}, "check: timeout is .*longer than")],
)
def test_options_of_a_check_are_looked_at(options: Any, problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        transcode.check(**options)


def test_a_check_has_no_other_options() -> None:
    with pytest.raises(TypeError, match="queue"):
        transcode.check(queue="x")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize(
    "add",
    [
        lambda: videos.pipe(transcode),
        lambda: Pipeline("p", input=list[Video]).map(transcode),
        lambda: videos.when(bool, transcode),
        lambda: videos.parallel(transcode, transcoded.options(name="b")),
    ],
)
def test_a_stage_without_a_check_joins_no_pipeline(add: Callable[[], object]) -> None:
    with pytest.raises(DefinitionError, match=r"'transcode' has no check; add one: @transcode\.check"):
        add()


# suspend, finished, NotReady --------------------------------------------------------------------------------------


def test_suspend_keeps_what_it_is_told() -> None:
    until = datetime(2030, 1, 1, tzinfo=UTC)
    told = suspend("job", check_after=SOON, give_up_at=until, key="k")

    assert (told.state, told.check_after, told.give_up_at, told.key) == ("job", SOON, until, "k")
    assert not told.is_finished


def test_finished_has_nothing_to_wait_for() -> None:
    assert completed("x").is_finished
    assert completed("x").value == "x"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"check_after": timedelta(0)}, "check_after is .* longer than nothing"),
        ({"check_after": -SOON}, "check_after is .* longer than nothing"),
        ({"check_after": "3"}, "check_after is '3'"),
        ({"check_after": None}, "check_after is None"),
        ({"check_after": SOON, "give_up_at": datetime(2030, 1, 1)}, "give_up_at is .* aware"),  # noqa: DTZ001
        ({"check_after": SOON, "give_up_at": 5}, "give_up_at is 5; it must be an aware datetime"),
        ({"check_after": SOON, "key": ""}, "key has 0 characters"),
        ({"check_after": SOON, "key": 5}, "key is 5; it must be a string, or None"),
        ({"check_after": SOON, "key": "k" * (KEY_MAX + 1)}, f"key has {KEY_MAX + 1} characters"),
    ],
)
def test_suspend_refuses_what_can_not_be(arguments: Any, problem: str) -> None:
    with pytest.raises(InvalidArgumentError, match=problem):
        suspend("x", **arguments)


def test_the_longest_key_will_do() -> None:
    assert suspend("x", check_after=SOON, key="k" * KEY_MAX).key == "k" * KEY_MAX


def test_not_yet_may_say_when_to_ask_again() -> None:
    assert NotReady().check_after is None
    assert NotReady(SOON).check_after == SOON
    assert NotReady(SOON.total_seconds()).check_after == SOON


@pytest.mark.parametrize("wrong", [timedelta(0), -SOON, 0, "soon"])
def test_not_yet_refuses_what_is_no_time(wrong: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="check_after is"):
        NotReady(wrong)


# What cancels the work ------------------------------------------------------------------------------------------


@transcoded.cancel
def cancellable(ctx: StageContext[Quality], ticket: Ticket) -> None:
    pass


def test_what_cancels_makes_the_same_stage_anew_before_the_check_or_after() -> None:
    first = transcode.cancel(_cancel).check(_checked)

    for found in (cancellable, first):
        assert (found.name, found.body) == ("transcode", transcode.body)
        assert found.check_body is not None
        assert found.cancel_body is not None
    assert transcoded.cancel_body is None


def test_what_cancels_is_given_the_context_and_the_state_or_the_state_alone() -> None:
    def cancel(ticket: Ticket) -> None:
        pass

    context: Any = object()
    alone = transcoded.cancel(cast("Any", cancel))  # type checkers want the context there

    assert cancellable.cancel_arguments(Ticket(3), context) == (context, Ticket(3))
    assert alone.cancel_arguments(Ticket(3), None) == (Ticket(3),)


def test_what_cancels_is_async_or_not_for_itself() -> None:
    @transcoded.cancel
    async def found(ctx: StageContext[Quality], ticket: Ticket) -> None:
        pass

    assert (found.is_async, found.is_check_async, found.is_cancel_async) == (False, False, True)
    assert (cancellable.is_cancel_async, transcoded.is_cancel_async) == (False, False)


def test_options_and_config_leave_what_cancels() -> None:
    changed = cancellable.options(queue="gpu").configure(Quality(1080))

    assert changed.cancel_body is cancellable.cancel_body


def test_the_plan_says_how_what_cancels_is_treated() -> None:
    retry = Retry(attempts=9, wait=timedelta(0), jitter=0)
    found = transcoded.cancel(retry=retry, timeout=timedelta(seconds=3))(_cancel)

    plan = videos.pipe(found).plan()

    node = plan.nodes["transcode"]
    assert isinstance(node, StagePlan)
    policy = RetryPolicy(attempts=9, wait_us=0, jitter=0.0)
    assert node.cancel == CancelPlan(retry=policy, timeout_us=3_000_000)
    assert plan.cancels == {"transcode": 9}
    assert plan_from_json(plan.to_json()) == plan


def test_what_cancels_is_patient_if_nothing_is_said_whatever_is_said_of_its_stage() -> None:
    pipeline = Pipeline("p", input=Video, retry=Retry(attempts=1), timeout=timedelta(hours=9)).pipe(
        cancellable
    )

    node = pipeline.plan().nodes["transcode"]
    assert isinstance(node, StagePlan)
    assert node.cancel == CancelPlan(retry=RetryPolicy(attempts=10), timeout_us=60_000_000)


def test_a_pipeline_without_what_cancels_keeps_its_plan() -> None:
    plan = videos.pipe(transcoded).plan()

    assert plan.cancels == {}
    assert "cancel" not in plan.to_json()


def _cancel(ctx: StageContext[Quality], ticket: Ticket) -> None:
    pass


def _gives_something(ctx: StageContext[Quality], ticket: Ticket) -> bool:
    return True


def _says_nothing_of_it(ctx: StageContext[Quality], ticket: Ticket):  # type: ignore[no-untyped-def]
    pass


def _cancels_another_state(ctx: StageContext[Quality], ticket: str) -> None:
    pass


def _cancels_too_much(ctx: StageContext[Quality], ticket: Ticket, video: Video) -> None:
    pass


@pytest.mark.parametrize(
    ("cancel", "problem"),
    [
        (_gives_something, "what cancels the work of stage 'transcode' returns bool, .* write -> None"),
        (_says_nothing_of_it, "has no return annotation"),
        (_cancels_another_state, "takes str, but the stage is suspended with .*Ticket"),
        (_cancels_too_much, "takes tuple.*, but the stage is suspended with .*Ticket"),
        (3, "needs a function, not 3"),
    ],
)
def test_what_cancels_and_does_not_belong_to_the_stage_is_refused(cancel: Any, problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        transcoded.cancel(cancel)
    with pytest.raises(DefinitionError, match=problem):
        transcoded.cancel(timeout=SOON)(cancel)


@pytest.mark.parametrize(
    ("options", "problem"),
    [({"retry": 3}, "cancel: retry is 3"), ({"timeout": timedelta(0)}, "cancel: timeout is .*longer than")],
)
def test_options_of_what_cancels_are_looked_at(options: Any, problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        transcoded.cancel(**options)


def test_what_cancels_has_no_other_options() -> None:
    with pytest.raises(TypeError, match="queue"):
        transcoded.cancel(queue="x")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


def test_what_cancels_makes_no_check() -> None:
    with pytest.raises(DefinitionError, match="'transcode' has no check"):
        videos.pipe(transcode.cancel(_cancel))
