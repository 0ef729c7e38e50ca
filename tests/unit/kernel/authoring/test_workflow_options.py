"""Options of `@workflow` and of child stages, and the default policy of an engine, in the plan."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast.hosts.wiring.registry import Registry
from holdfast.kernel.authoring.decorators import each, stage
from holdfast.kernel.authoring.functions import Workflow, workflow
from holdfast.kernel.authoring.options import Fair, Retry
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.pipelines.plan import (
    ChildPlan,
    Plan,
    RetryPolicy,
    RetryRule,
    StagePlan,
    StepsPlan,
    plan_from_json,
    stage_of,
)
from holdfast.ports.errors import DefinitionError, InvalidArgumentError
from holdfast.ports.records.job import ATTEMPTS_UNLIMITED

PATIENT = Retry(attempts=9, by_error={ValueError: Retry(attempts=2)})
NINE, TWO = RetryPolicy(attempts=9), RetryPolicy(attempts=2)
RULE = RetryRule(error="ValueError", policy=TWO)


@workflow
async def plain(number: int) -> int:
    return number


@workflow(queue="gpu", priority=-2, deadline=60, retry=Retry(attempts=None, total_time=timedelta(hours=1)))
async def optioned(number: int) -> int:
    return number


@stage
async def own(number: int) -> int:
    return number


def only(definition: Workflow[..., Any], plan: Plan | None = None) -> StagePlan:
    return stage_of((plan or definition.plan()).node(definition.name))


def test_without_options_the_plan_is_as_it_always_was() -> None:
    assert (
        plain.plan().fingerprint == "8ff72a601d16a4dca91174cc5a80950f"
    )  # runs that are stored name their plan by it
    assert only(plain) == StagePlan(name="plain", retry=RetryPolicy(attempts=1), function=True)
    assert plain.plan().run_attempts == 1


def test_the_plan_has_the_options_of_its_workflow() -> None:
    plan = optioned.plan()
    assert (plan.queue, plan.priority, plan.deadline_us) == ("gpu", -2, 60_000_000)
    assert only(optioned).retry == RetryPolicy(attempts=ATTEMPTS_UNLIMITED, total_time_us=3_600_000_000)
    assert (only(optioned).queue, only(optioned).priority) == (None, None)  # a start's options come first
    assert plan.run_attempts == ATTEMPTS_UNLIMITED


def test_a_pipeline_may_have_a_deadline_for_its_runs() -> None:
    assert Pipeline("p", input=int, deadline=60).pipe(own).plan().deadline_us == 60_000_000
    assert Pipeline("p", input=int).pipe(own).plan().deadline_us is None
    with pytest.raises(DefinitionError, match="pipeline 'p': deadline is 0"):
        Pipeline("p", input=int, deadline=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"queue": ""}, "workflow: queue is ''"),
        ({"priority": 1.5}, "workflow: priority is 1.5"),
        ({"deadline": 0}, "workflow: deadline is 0"),
        ({"retry": 3}, r"workflow: retry is 3; it must be a Retry\(...\)"),
    ],
)
def test_invalid_options_of_a_workflow_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        workflow(**options)


def test_an_unknown_option_of_a_workflow_is_named() -> None:
    with pytest.raises(InvalidArgumentError, match=r"'retries' \(did you mean 'retry'\?\)"):
        workflow(retries=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


def test_a_child_stage_gives_its_run_a_deadline_and_attributes() -> None:
    child = stage(deadline=timedelta(hours=1), attributes={"a": "b"})(plain)
    found = Pipeline("p", input=int).pipe(child).plan().nodes["plain"]
    wanted = ChildPlan(
        workflow="plain",
        version="1",
        parameters=("number",),
        deadline_us=3_600_000_000,
        attributes='{"a":"b"}',
    )
    assert stage_of(found).child == wanted


def test_a_child_stage_gives_its_run_a_weight_that_its_plan_keeps() -> None:
    @workflow(fair=Fair(by="tenant"))
    async def fair(number: int) -> int:
        return number

    plan = Pipeline("p", input=int).pipe(stage(weight=7)(fair)).plan()

    assert plan_from_json(plan.to_json()) == plan
    child = stage_of(plan.nodes["fair"]).child
    assert child is not None
    assert child.weight == 7
    assert "weight" not in Pipeline("p", input=int).pipe(stage(fair)).plan().to_json()


@pytest.mark.parametrize("option", [{"deadline": 5}, {"attributes": {}}, {"weight": 2}])
def test_only_a_child_stage_takes_them(option: dict[str, Any]) -> None:
    (name,) = option
    with pytest.raises(DefinitionError, match=f"{name} is only for stages that are workflows"):
        stage(**option)(lambda: 3)
    with pytest.raises(DefinitionError, match=f"{name} is only for stages that are workflows"):
        own.options(**option)


def planned(definition: Pipeline[Any, Any] | Workflow[..., Any], retry: Retry | None = PATIENT) -> Plan:
    (plan,) = Registry([definition], retry=retry).plans
    return plan


def test_the_default_of_the_engine_is_for_stages_without_a_policy() -> None:
    once = own.options(retry=Retry(attempts=1), name="once")
    plan = planned(Pipeline("p", input=int).pipe(own).pipe(once))
    found = [stage_of(plan.node(name)) for name in ("own", "once")]
    assert [(one.retry, one.retry_rules) for one in found] == [(NINE, (RULE,)), (RetryPolicy(attempts=1), ())]


def test_the_default_of_a_pipeline_comes_first() -> None:
    plan = planned(Pipeline("p", input=int, retry=Retry(attempts=4)).pipe(own))
    assert stage_of(plan.node("own")).retry == RetryPolicy(attempts=4)


def test_maps_have_the_default_too() -> None:
    assert stage_of(planned(Pipeline("p", input=list[int]).pipe(each(own))).node("own")).retry == NINE


def test_the_bodies_have_the_classes_of_the_default() -> None:
    registry = Registry([Pipeline("p", input=int).pipe(own)], retry=PATIENT)
    found = registry.stage("p@1", "own")
    assert found is not None
    assert found.retry == PATIENT
    assert own.retry is None


def test_the_plan_of_a_function_has_the_default_for_its_steps_and_not_for_its_run() -> None:
    found = only(plain, planned(plain))
    assert found.steps == StepsPlan(retry=NINE, retry_rules=(RULE,))
    assert found.retry == RetryPolicy(attempts=1)


def test_without_a_default_nothing_is_stored() -> None:
    pipeline = Pipeline("p", input=int).pipe(own)
    assert planned(pipeline, None) == pipeline.plan()
    assert planned(plain, None) == plain.plan()
    assert '"steps"' not in plain.plan().to_json()
