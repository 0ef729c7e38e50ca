"""Plans with overrides: the plan of a single run with other options for some of its stages."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs

from holdfast.kernel.commands import StageOverride
from holdfast.kernel.pipelines.plan import MapPlan, NodePlan, Plan, RetryPolicy, StagePlan, stage_of
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.records.job import ATTEMPTS_MAX, ATTEMPTS_UNLIMITED

_FIELDS: Final = tuple(field.name for field in attrs.fields(StageOverride) if field.name != "stage")


def overridden(plan: Plan, overrides: Sequence[StageOverride]) -> Plan:
    """Return the plan with overridden stages. InvalidCommandError for an unknown stage or an invalid value."""
    if not overrides:
        return plan
    for name, times in Counter(override.stage for override in overrides).items():
        if name not in plan.nodes:
            stages = ", ".join(plan.nodes)
            raise InvalidCommandError(f"overrides: {plan.definition} has no stage {name!r}; it has {stages}")
        if times > 1:
            raise InvalidCommandError(
                f"overrides: stage {name!r} is repeated; combine its options in one override"
            )
    by_stage = {override.stage: override for override in overrides}
    groups = tuple(
        attrs.evolve(group, nodes=tuple(_changed(node, by_stage.get(node.name)) for node in group.nodes))
        for group in plan.groups
    )
    return plan if groups == plan.groups else attrs.evolve(plan, groups=groups, base=plan.fingerprint)


def _changed(node: NodePlan, override: StageOverride | None) -> NodePlan:
    if override is None:
        return node
    _check(override)
    fields = {name: value for name in _FIELDS if (value := getattr(override, name)) is not None}
    stage: StagePlan = attrs.evolve(stage_of(node), **fields)
    return attrs.evolve(node, stage=stage) if isinstance(node, MapPlan) else stage


def _check(override: StageOverride) -> None:
    policies = [rule.policy for rule in override.retry_rules or ()]
    if override.retry is not None:
        policies.append(override.retry)
    wrong: list[str] = [problem for policy in policies if (problem := _problem(policy))]
    for name in ("timeout_us", "timeout_total_us", "heartbeat_timeout_us"):
        value: int | None = getattr(override, name)
        if value is not None and value <= 0:
            wrong.append(f"{name} is {value}; it must be more than 0")
    if override.queue == "":
        wrong.append("queue is empty")
    if wrong:
        raise InvalidCommandError(f"overrides: stage {override.stage!r}: {'; '.join(wrong)}")


_BOUNDS: Final[tuple[tuple[str, Callable[[Any], bool], str], ...]] = (
    (
        "attempts",
        lambda value: 1 <= value <= ATTEMPTS_MAX or value == ATTEMPTS_UNLIMITED,
        f"from 1 to {ATTEMPTS_MAX:,}, or {ATTEMPTS_UNLIMITED} for no limit",
    ),
    ("total_time_us", lambda value: value is None or value > 0, "more than 0"),
    ("wait_us", lambda value: value >= 0, "not negative"),
    ("wait_max_us", lambda value: value >= 0, "not negative"),
    ("backoff", lambda value: 1 <= value < float("inf"), "at least 1"),
    ("jitter", lambda value: 0 <= value <= 1, "from 0 to 1"),
)


def _problem(policy: RetryPolicy) -> str | None:
    for name, fits, wanted in _BOUNDS:
        value = getattr(policy, name)
        if not fits(value):
            return f"{name} is {value}; it must be {wanted}"
    return None
