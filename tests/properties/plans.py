"""Strategies that draw pipelines."""

from attrs import evolve
from hypothesis import strategies as st

from holdfast.kernel.pipelines.plan import (
    CancelPlan,
    CheckPlan,
    ChildPlan,
    Enough,
    Group,
    MapPlan,
    NodePlan,
    Plan,
    RetryPolicy,
    RetryRule,
    StagePlan,
)
from holdfast.ports.records.run import ClosePolicy

_RETRIES = st.builds(
    RetryPolicy,
    attempts=st.integers(1, 3),
    wait_us=st.sampled_from([0, 1_000_000, 60_000_000]),
    backoff=st.sampled_from([1.0, 2.0]),
    jitter=st.sampled_from([0.0, 0.5]),
)
_RULES = st.lists(st.builds(RetryRule, error=st.just("Error"), policy=_RETRIES), max_size=2).map(tuple)
_ENOUGH = st.builds(Enough, at_least=st.integers(1, 3)) | st.builds(
    Enough, tolerated=st.integers(0, 2), share=st.sampled_from([0.0, 0.5, 1.0])
)

_CHECKS = st.builds(CheckPlan, retry=_RETRIES)
_CANCELS = st.none() | st.builds(CancelPlan, retry=_RETRIES)


@st.composite
def pipelines(
    draw: st.DrawFn,
    *,
    workflow: str = "w",
    groups_max: int = 4,
    may_leave_out: bool = False,
    may_wait: bool = False,
    may_cancel: bool = False,
    child: str | None = None,
) -> Plan:
    """Draw a plan of one to four groups of one to three nodes, some of them maps, some over earlier nodes.

    If it `may_leave_out` something, some groups have a test, and some maps need not have all of their items. If it
    `may_wait`, some stages hand their work on, and some are runs of the workflow `child`, if there is one. If it
    `may_cancel`, some that hand it on cancel it too.
    """
    waiting = ["check", "child" if child is not None else "check"] if may_wait else []
    kinds = st.sampled_from(["body", *waiting])
    names: list[str] = []
    groups: list[Group] = []
    for place in range(draw(st.integers(1, groups_max))):
        parallel = draw(st.booleans())
        is_choice = may_leave_out and not parallel and draw(st.booleans())
        nodes: list[NodePlan] = []
        for number in range(draw(st.integers(1, 3 if parallel else 2)) if parallel or is_choice else 1):
            name = f"s{place}{9 - number}"  # so that the order of the names is not that of the plan
            stage = StagePlan(
                name=name,
                retry=draw(_RETRIES),
                retry_rules=draw(_RULES),
                queue=draw(st.none() | st.just("other")),
                priority=draw(st.none() | st.integers(-1, 1)),
            )
            match draw(kinds):
                case "check":
                    cancel = draw(_CANCELS) if may_cancel else None
                    stage = evolve(stage, check=draw(_CHECKS), cancel=cancel)
                case "child":
                    policy = draw(st.sampled_from(ClosePolicy))
                    plan = ChildPlan(workflow=child or "", version="1", close_policy=policy)
                    stage = evolve(stage, child=plan)
                case _:
                    pass
            if draw(st.booleans()):
                over = draw(st.none() | st.sampled_from(names)) if names else None
                enough = draw(st.none() | _ENOUGH) if may_leave_out else None
                nodes.append(MapPlan(stage=stage, over=over, limit=draw(st.integers(1, 4)), enough=enough))
            else:
                nodes.append(stage)
        groups.append(Group(nodes=tuple(nodes), parallel=parallel, test="test" if is_choice else None))
        if not is_choice:  # nobody goes over what may not be done
            names += [node.name for node in nodes]
    return Plan(workflow=workflow, version="1", groups=tuple(groups))
