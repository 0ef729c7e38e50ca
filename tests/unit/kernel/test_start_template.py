"""The start template: a run started from it equals one started without it."""

from typing import Final

import attrs
import pytest

from holdfast.kernel.commands import FollowUp, NewAnnotation, RunCreate, StageOverride
from holdfast.kernel.pipelines.plan import MapPlan, Plan, RatePlan, RemotePlan
from holdfast.kernel.rules import starts
from holdfast.kernel.rules.run_creation import Parent
from holdfast.kernel.rules.start_template import start_template_of
from holdfast.kernel.rules.starts import decide_create, new_child
from holdfast.kernel.state import Decision, State
from holdfast.ports.records.run import ClosePolicy
from holdfast.testing.ids import SeededIds
from tests.unit.kernel.world import World, child, each, external, payload, pipeline, stage, when

NOW: Final = 1_000_000_000
LIMITED: Final = pipeline(attrs.evolve(stage("a"), max_concurrency=2))
RATED: Final = pipeline((stage("a"), attrs.evolve(stage("b"), rate=RatePlan(limit=1, per_us=5))))
PLANS: Final = {
    "stage": pipeline(stage("a"), stage("b")),
    "treated": pipeline(stage("a", attempts=7, queue="slow", priority=3)),
    "priority of 0": pipeline(stage("a", priority=0)),
    "times": pipeline(attrs.evolve(stage("a"), timeout_total_us=5, heartbeat_timeout_us=7)),
    "function": pipeline(attrs.evolve(stage("a"), function=True, timeout_total_us=5, heartbeat_timeout_us=7)),
    "parallel": pipeline((stage("a", queue="one"), stage("b", priority=-2), each("c"), child("d"))),
    "map": pipeline(each("a"), stage("b")),
    "test": pipeline(when(stage("a", queue="q"), stage("b"))),
    "test of a map": pipeline(when(each("a"))),
    "external": pipeline(external("a", cancels=2)),
    "child": pipeline(child("a")),
    "limited later": pipeline(stage("a"), attrs.evolve(stage("b"), max_concurrency=2)),
    "remote": pipeline(attrs.evolve(stage("a", queue="far"), remote=RemotePlan())),
    "map of remote": pipeline(MapPlan(stage=attrs.evolve(stage("a", queue="far"), remote=RemotePlan()))),
    "limited": LIMITED,
    "rated": RATED,
}
COMMANDS: Final = {
    "plain": RunCreate(workflow="w", input=payload(1)),
    "named": RunCreate(workflow="w", input=payload(1), id="x", namespace="n"),
    "treated": RunCreate(workflow="w", input=payload(1), queue="other", priority=4),
    "deadline": RunCreate(workflow="w", input=payload(1), deadline=77),
    "said": RunCreate(
        workflow="w",
        input=payload(1),
        attributes='{"a":"b"}',
        annotations=(NewAnnotation(name="a", value="1"), NewAnnotation(name="b", value="2")),
    ),
    "overridden": RunCreate(
        workflow="w", input=payload(1), overrides=(StageOverride(stage="a", queue="z", priority=2),)
    ),
    "started later": RunCreate(workflow="w", input=payload(1), start_at=NOW + 5),
    "started before": RunCreate(workflow="w", input=payload(1), start_at=NOW - 5),
    "in line": RunCreate(workflow="w", input=payload(1), concurrency_key="k", concurrency_limit=3),
}


def no_opening(_: Plan) -> None:
    """Disable the start template."""


def state_of(plan: Plan) -> State:
    return State({(plan.workflow, plan.version): plan, (plan.workflow, None): plan})


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_run_begins_as_it_would_by_itself(
    plan: Plan, command: RunCreate, monkeypatch: pytest.MonkeyPatch
) -> None:
    shortly = decide_create(state_of(plan), command, NOW, SeededIds(1))
    monkeypatch.setattr(starts, "start_template_of", no_opening)

    assert shortly == decide_create(state_of(plan), command, NOW, SeededIds(1))


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_child_begins_as_it_would_by_itself(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    command = RunCreate(workflow="w", input=payload(1), id="x", queue="q", priority=2)

    def made() -> Decision[FollowUp]:
        policy = ClosePolicy.ABANDON
        return new_child(
            state_of(plan),
            command,
            plan,
            NOW,
            SeededIds(1),
            parent=Parent("p.1", "p"),
            close_policy=policy,
        )

    shortly = made()
    monkeypatch.setattr(starts, "start_template_of", no_opening)

    assert shortly == made()


def test_where_a_stage_has_a_limit_no_two_runs_need_begin_alike() -> None:
    assert [name for name, plan in PLANS.items() if start_template_of(plan) is None] == ["limited", "rated"]


def test_plans_that_differ_begin_each_in_its_own_way() -> None:
    world = World(pipeline(stage("a")), pipeline(stage("b", queue="q"), workflow="v"))
    world.create("x")
    world.create("y", workflow="v")
    assert sorted((job.node, job.queue) for job in world.tables().all_jobs()) == [
        ("a", "default"),
        ("b", "q"),
    ]
