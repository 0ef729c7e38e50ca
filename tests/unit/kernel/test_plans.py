"""Plans: plain data with a JSON form and a fingerprint."""

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.kernel.pipelines.plan import (
    CheckPlan,
    ChildPlan,
    Enough,
    Group,
    MapPlan,
    NodePlan,
    Plan,
    RemotePlan,
    RetryPolicy,
    RetryRule,
    StagePlan,
    StepsPlan,
    plan_from_json,
    stage_of,
)
from holdfast.ports.records.run import ClosePolicy
from tests.unit.kernel.world import each, pipeline, stage

RETRIES = st.builds(
    RetryPolicy,
    attempts=st.integers(1, 100),
    wait_us=st.integers(0, 10**12),
    backoff=st.floats(1.0, 10.0),
    wait_max_us=st.integers(0, 10**12),
    jitter=st.floats(0.0, 1.0),
    total_time_us=st.none() | st.integers(1, 10**12),
)
RULES = st.builds(RetryRule, error=st.text(max_size=5), policy=RETRIES)
CHECKS = st.builds(CheckPlan, retry=RETRIES, timeout_us=st.none() | st.integers(1, 10**12))
CHILDREN = st.builds(
    ChildPlan,
    workflow=st.text(max_size=5),
    version=st.text(max_size=5),
    close_policy=st.sampled_from(ClosePolicy),
    deadline_us=st.none() | st.integers(1, 10**12),
    attributes=st.none() | st.just('{"a":"b"}'),
)
STEPS = st.builds(StepsPlan, retry=RETRIES, retry_rules=st.lists(RULES, max_size=2).map(tuple))
STAGES = st.builds(
    StagePlan,
    name=st.text(max_size=5),
    queue=st.none() | st.text(max_size=5),
    priority=st.none() | st.integers(-5, 5),
    retry=RETRIES,
    timeout_us=st.none() | st.integers(1, 10**12),
    config=st.none() | st.text(max_size=5),
    retry_rules=st.lists(RULES, max_size=3).map(tuple),
    timeout_total_us=st.none() | st.integers(1, 10**12),
    heartbeat_timeout_us=st.none() | st.integers(1, 10**12),
    max_concurrency=st.none() | st.integers(1, 100),
    check=st.none() | CHECKS,
    child=st.none() | CHILDREN,
    steps=st.none() | STEPS,
    remote=st.none() | st.builds(RemotePlan, give_up_on=st.lists(st.text(max_size=5), max_size=2).map(tuple)),
)
ENOUGH = st.builds(
    Enough,
    at_least=st.none() | st.integers(1, 100),
    tolerated=st.integers(0, 100),
    share=st.floats(0.0, 1.0),
)
MAPS = st.builds(
    MapPlan,
    stage=STAGES,
    over=st.none() | st.text(max_size=5),
    limit=st.integers(1, 10**6),
    enough=st.none() | ENOUGH,
)
NODES: st.SearchStrategy[NodePlan] = STAGES | MAPS
GROUPS = st.builds(
    Group,
    nodes=st.lists(NODES, min_size=1, max_size=3).map(tuple),
    parallel=st.booleans(),
    test=st.none() | st.text(max_size=5),
)
PLANS = st.builds(
    Plan,
    workflow=st.text(max_size=5),
    version=st.text(max_size=5),
    groups=st.lists(GROUPS, max_size=3).map(tuple),
    queue=st.none() | st.text(max_size=5),
    priority=st.none() | st.integers(-5, 5),
    deadline_us=st.none() | st.integers(1, 10**12),
)


@pytest.mark.slow
@given(PLANS)
def test_a_plan_comes_back_from_its_text(plan: Plan) -> None:
    again = plan_from_json(plan.to_json())

    assert again == plan
    assert again.to_json() == plan.to_json()
    assert again.fingerprint == plan.fingerprint


def test_this_is_the_text_of_a_plan() -> None:
    """It is stored with every run, so an old one must stay readable."""
    plan = pipeline(stage("a"), (each("m", over="a", limit=5), stage("b")))
    retry = '"retry":{"attempts":3,"backoff":2.0,"jitter":0.0,"wait_max_us":300000000,"wait_us":0}'

    def named(name: str) -> str:
        return f'{{"config":null,"name":"{name}","priority":null,"queue":null,{retry},"timeout_us":null}}'

    assert plan.to_json() == (
        f'{{"groups":[{{"nodes":[{{"kind":"stage","stage":{named("a")}}}],"parallel":false}},'
        f'{{"nodes":[{{"kind":"map","limit":5,"over":"a","stage":{named("m")}}},'
        f'{{"kind":"stage","stage":{named("b")}}}],"parallel":true}}],"version":"1","workflow":"w"}}'
    )
    # Runs that are stored name their plan by it: it never changes.
    assert plan.fingerprint == "e4a82d64fa226c8091b5263dd459fc30"


def test_a_stage_says_no_more_than_it_has_to() -> None:
    """Otherwise each new option of stages would change the fingerprint of every plan."""
    plan = pipeline(
        StagePlan(
            name="a",
            retry_rules=(RetryRule(error="Busy", policy=RetryPolicy(attempts=9)),),
            timeout_total_us=5,
        )
    )

    assert '"retry_rules":[{"error":"Busy","policy":{"attempts":9,' in plan.to_json()
    assert '"timeout_total_us":5' in plan.to_json()
    assert plan_from_json(plan.to_json()) == plan


def test_there_are_as_many_attempts_as_the_most_patient_policy_has() -> None:
    rules = tuple(RetryRule(error="E", policy=RetryPolicy(attempts=number)) for number in (2, 9, 4))
    plan = StagePlan(name="a", retry=RetryPolicy(attempts=3), retry_rules=rules)

    assert (plan.max_attempts, StagePlan(name="a").max_attempts) == (9, 3)
    assert [plan.policy(rule).attempts for rule in (None, 0, 1, 2, 3, -1)] == [3, 2, 9, 4, 3, 3]


def test_any_difference_is_another_fingerprint() -> None:
    plans: list[Any] = [
        pipeline(stage("a"), stage("b")),
        pipeline(stage("b"), stage("a")),
        pipeline((stage("a"), stage("b"))),
        pipeline((stage("b"), stage("a"))),
        pipeline(stage("a"), stage("b"), version="2"),
        pipeline(stage("a"), stage("b"), workflow="v"),
        pipeline(stage("a"), stage("b", attempts=4)),
        pipeline(stage("a"), stage("b", queue="q")),
        pipeline(stage("a"), each("b")),
        pipeline(stage("a"), each("b", over="a")),
        pipeline(stage("a"), each("b", limit=2)),
        pipeline(stage("a")),
        pipeline((stage("a"),)),
        pipeline(StagePlan(name="a", check=CheckPlan())),
        pipeline(StagePlan(name="a", check=CheckPlan(timeout_us=5))),
        pipeline(StagePlan(name="a", child=ChildPlan(workflow="v", version="1"))),
        pipeline(StagePlan(name="a", child=ChildPlan(workflow="v", version="2"))),
        pipeline(
            StagePlan(name="a", child=ChildPlan(workflow="v", version="1", close_policy=ClosePolicy.ABANDON))
        ),
        pipeline(stage("a"), MapPlan(stage=StagePlan(name="b"), enough=Enough())),
        pipeline(stage("a"), MapPlan(stage=StagePlan(name="b"), enough=Enough(at_least=1))),
        pipeline(stage("a"), MapPlan(stage=StagePlan(name="b"), enough=Enough(tolerated=1))),
        pipeline(stage("a"), MapPlan(stage=StagePlan(name="b"), enough=Enough(share=0.5))),
        Plan(workflow="w", version="1", groups=(Group(nodes=(StagePlan(name="a"),), test="t"),)),
        Plan(workflow="w", version="1", groups=(Group(nodes=(StagePlan(name="a"),), test="u"),)),
        attrs.evolve(pipeline(stage("a")), queue="q"),
        attrs.evolve(pipeline(stage("a")), priority=0),
        attrs.evolve(pipeline(stage("a")), deadline_us=5),
        pipeline(StagePlan(name="a", retry=RetryPolicy(total_time_us=5))),
        pipeline(StagePlan(name="a", steps=StepsPlan(retry=RetryPolicy()))),
        pipeline(StagePlan(name="a", child=ChildPlan(workflow="v", version="1", deadline_us=5))),
        pipeline(StagePlan(name="a", child=ChildPlan(workflow="v", version="1", attributes="{}"))),
    ]

    assert len({plan.fingerprint for plan in plans}) == len(plans)


def test_nodes_are_found_by_name() -> None:
    plan = pipeline(stage("a"), (each("m", over="a"), each("n", over="m"), stage("b")))

    assert list(plan.nodes) == ["a", "m", "n", "b"]
    assert plan.mapped_over == {"a", "m"}
    assert plan.definition == "w@1"
    assert plan.node("m") is plan.groups[1].nodes[0]
    assert stage_of(plan.node("m")).name == plan.node("m").name == "m"
