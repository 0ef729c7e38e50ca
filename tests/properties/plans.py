"""Pipelines to draw from."""

from hypothesis import strategies as st

from holdfast.kernel.plan import Group, MapPlan, NodePlan, Plan, RetryPolicy, RetryRule, StagePlan

_RETRIES = st.builds(
    RetryPolicy,
    attempts=st.integers(1, 3),
    wait_us=st.sampled_from([0, 1_000_000, 60_000_000]),
    backoff=st.sampled_from([1.0, 2.0]),
    jitter=st.sampled_from([0.0, 0.5]),
)
_RULES = st.lists(st.builds(RetryRule, error=st.just("Error"), policy=_RETRIES), max_size=2).map(tuple)


@st.composite
def pipelines(draw: st.DrawFn, *, workflow: str = "w", groups_max: int = 4) -> Plan:
    """Draw a plan of one to four groups of one to three nodes, some of them maps, some over earlier nodes."""
    names: list[str] = []
    groups: list[Group] = []
    for place in range(draw(st.integers(1, groups_max))):
        parallel = draw(st.booleans())
        nodes: list[NodePlan] = []
        for number in range(draw(st.integers(1, 3)) if parallel else 1):
            name = f"s{place}{9 - number}"  # so that the order of the names is not that of the plan
            stage = StagePlan(
                name=name,
                retry=draw(_RETRIES),
                retry_rules=draw(_RULES),
                queue=draw(st.none() | st.just("other")),
                priority=draw(st.none() | st.integers(-1, 1)),
            )
            if draw(st.booleans()):
                over = draw(st.none() | st.sampled_from(names)) if names else None
                nodes.append(MapPlan(stage=stage, over=over, limit=draw(st.integers(1, 4))))
            else:
                nodes.append(stage)
        names += [node.name for node in nodes]
        groups.append(Group(nodes=tuple(nodes), parallel=parallel))
    return Plan(workflow=workflow, version="1", groups=tuple(groups))
