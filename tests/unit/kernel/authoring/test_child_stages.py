"""Pipelines as stages: types, options, and the definitions that an engine needs."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast.hosts.wiring.registry import Registry
from holdfast.kernel.authoring import ChildStage, Pipeline, Retry, each, stage
from holdfast.kernel.pipelines.plan import ChildPlan, MapPlan, StagePlan, plan_from_json
from holdfast.ports.errors import DefinitionError
from holdfast.ports.records.run import ClosePolicy


@stage
def size(text: str) -> int:
    return len(text)


@stage
def double(number: int) -> int:
    return 2 * number


@stage
def none(texts: list[str]) -> list[int]:
    return []


inner = Pipeline("inner", input=str, version="7").pipe(size)


def test_it_takes_and_gives_what_the_pipeline_does_and_has_its_name() -> None:
    child = stage(inner)

    assert isinstance(child, ChildStage)
    assert (child.name, child.input_type, child.output_type) == ("inner", str, int)
    assert Pipeline("p", input=str).pipe(child).pipe(double).output_type is int


def test_the_plan_names_the_workflow_and_what_becomes_of_it() -> None:
    plan = Pipeline("p", input=str).pipe(stage(inner)).plan()

    assert plan.nodes["inner"] == StagePlan(name="inner", child=ChildPlan(workflow="inner", version="7"))
    assert plan_from_json(plan.to_json()) == plan


@pytest.mark.parametrize("policy", list(ClosePolicy))
def test_what_becomes_of_it_can_be_said(policy: ClosePolicy) -> None:
    child = stage(close_policy=policy.value, name="other", queue="q")(inner)
    plan = Pipeline("p", input=str).pipe(child).plan()

    wanted = ChildPlan(workflow="inner", version="7", close_policy=policy)
    assert plan.nodes["other"] == StagePlan(name="other", queue="q", child=wanted)
    assert plan_from_json(plan.to_json()) == plan


def test_it_can_be_renamed_and_mapped() -> None:
    plan = Pipeline("p", input=list[str]).pipe(each(stage(inner).options(name="each"))).plan()

    found = plan.nodes["each"]
    assert isinstance(found, MapPlan)
    assert found.stage.child == ChildPlan(workflow="inner", version="7")


def test_a_pipeline_can_be_a_stage_twice_under_two_names() -> None:
    twice = Pipeline("p", input=str).parallel(stage(inner), stage(inner).options(name="second"))

    assert list(twice.plan().nodes) == ["inner", "second"]
    with pytest.raises(DefinitionError, match="two stages named 'inner'"):
        Pipeline("p", input=str).parallel(stage(inner), stage(inner))


def test_a_pipeline_s_timeout_says_nothing_about_its_children() -> None:
    """It applies to attempts, and the run of a waiting stage is not one."""
    outer = Pipeline("p", input=str, timeout=timedelta(seconds=5), retry=Retry(attempts=9), queue="q")

    found = outer.pipe(stage(inner)).plan().nodes["inner"]
    assert isinstance(found, StagePlan)
    assert (found.timeout_us, found.retry.attempts, found.queue) == (None, 9, "q")


def test_a_timeout_of_its_own_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"stage\(inner\): a pipeline has no timeout as a stage"):
        stage(timeout=timedelta(seconds=5))(inner)


@pytest.mark.parametrize("wrong", ["forget", "", None, 3])
def test_a_close_policy_is_one_of_three(wrong: Any) -> None:
    with pytest.raises(DefinitionError, match="close_policy is"):
        stage(close_policy=wrong)


def test_a_close_policy_is_for_pipelines() -> None:
    with pytest.raises(DefinitionError, match="close_policy is only for stages that are workflows"):
        stage(close_policy="abandon")(lambda: 3)


def test_what_it_is_fed_must_fit() -> None:
    with pytest.raises(DefinitionError, match="stage 'inner' takes str, but the pipeline's input is int"):
        Pipeline("p", input=int).pipe(stage(inner))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_it_has_no_body_that_could_be_called() -> None:
    with pytest.raises(RuntimeError, match="the workflow 'inner', which only an engine can run"):
        stage(inner).body("x")


def test_who_is_given_a_pipeline_has_the_code_of_its_stages_too_however_deep() -> None:
    middle = Pipeline("middle", input=list[str]).pipe(each(stage(inner)))
    outer = Pipeline("outer", input=list[str]).when(bool, stage(middle), otherwise=none)

    registry = Registry([outer])

    assert registry.definitions == ("outer@1", "middle@1", "inner@7")
    assert registry.stage("inner@7", "size") is not None


def test_a_pipeline_that_is_given_and_is_a_stage_is_there_once() -> None:
    outer = Pipeline("outer", input=str).pipe(stage(inner))

    assert Registry([inner, outer, inner]).definitions == ("inner@7", "outer@1")
    assert Registry([outer, inner]).definitions == ("outer@1", "inner@7")


def test_two_pipelines_of_one_name_are_refused_also_if_one_is_a_stage() -> None:
    other = Pipeline("inner", input=str, version="7").pipe(size.options(name="other"))
    outer = Pipeline("outer", input=str).pipe(stage(inner))

    with pytest.raises(DefinitionError, match="two workflows are called 'inner@7'"):
        Registry([outer, other])
