"""Parts of a pipeline, type checks when a stage is added, and the conversion to a plan."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, cast

import attrs

from holdfast.kernel.authoring.body_types import fits
from holdfast.kernel.authoring.child_stages import ChildStage
from holdfast.kernel.authoring.concurrency import Concurrency
from holdfast.kernel.authoring.external import CANCEL_RETRY, CANCEL_TIMEOUT, ExternalStage
from holdfast.kernel.authoring.nodes import PlanNode
from holdfast.kernel.authoring.options import BodyDefaults, Fair, Rate, Retry, Slots, check_limits
from holdfast.kernel.authoring.stages import Each, Stage, stage_hint
from holdfast.kernel.pipelines.headers import headers_text
from holdfast.kernel.pipelines.input_attributes import InputAttribute
from holdfast.kernel.pipelines.plan import (
    CancelPlan,
    CheckPlan,
    ChildPlan,
    Group,
    MapPlan,
    NodePlan,
    RatePlan,
    RemotePlan,
    RetryPolicy,
    RetryRule,
    SlotsPlan,
    StagePlan,
)
from holdfast.kernel.values.type_forms import show, unwrap
from holdfast.ports.errors import DefinitionError
from holdfast.ports.json import canonical
from holdfast.ports.records.job import ATTEMPTS_UNLIMITED

_MICROSECOND: Final = timedelta(microseconds=1)


@attrs.frozen
class Condition:
    """The condition of a `when`."""

    function: Callable[[Any], bool]
    """The user's function."""
    input_type: object
    """Type of its argument, as an annotation."""

    @property
    def name(self) -> str:
        """Its name in the plan."""
        return str(getattr(self.function, "__name__", type(self.function).__name__))


@attrs.frozen
class StageGroup:
    """One position of a pipeline: nodes that run at the same time, or one or two branches of a condition."""

    nodes: tuple[PlanNode[Any, object], ...]
    parallel: bool = False
    condition: Condition | None = None


@attrs.frozen(kw_only=True)
class PipelineDefinition:
    """The definition of a pipeline."""

    name: str
    version: str
    input_type: object
    output_type: object
    """Type of the output of the last step; of the input if there are no steps yet."""
    defaults: BodyDefaults
    deadline: timedelta | None = None
    """How long its runs may take."""
    fair: Fair | None = None
    """How its runs share workers."""
    concurrency: Concurrency | None = None
    """How many of its runs may be under way and waiting."""
    rate: Rate | None = None
    """How many of its runs start in a period."""
    attributes_from: tuple[InputAttribute, ...] = ()
    """The attributes that it takes from the input of its runs."""
    groups: tuple[StageGroup, ...] = ()


def prepare_node(design: PipelineDefinition, node: object) -> PlanNode[Any, object]:
    """Return a node with the pipeline's defaults applied. DefinitionError if it can't follow the last step."""
    where = f"pipeline {design.name!r}"
    if not isinstance(node, Stage | Each):
        raise DefinitionError(f"{where} takes stages, not {node!r}{stage_hint(node)}")
    node = cast("Stage[Any, object] | Each[Any, object]", node)
    if not fits(design.output_type, node.input_type):
        before = "the stage before it returns" if design.groups else "the pipeline's input is"
        given, wanted = show(design.output_type), show(node.input_type)
        what = f"mapping {node.name!r} over it" if isinstance(node, Each) else f"stage {node.name!r}"
        raise DefinitionError(
            f"{where}: {what} takes {wanted}, but {before} {given}{_hint(design.output_type, node)}"
        )
    stage = stage_of(node)
    if isinstance(stage, ExternalStage) and stage.check_body is None:
        raise DefinitionError(
            f"{where}: external stage {stage.name!r} has no check; add one: @{stage.name}.check"
        )
    if isinstance(node, Stage):
        whole = node.with_defaults(design.defaults).with_default_config()
        check_limits(f"{where}: stage {whole.name!r}", whole.max_concurrency, whole.rate_limit)
        return whole
    if node.over:
        _check_over(design, node, node.over)
    mapped = node.stage.with_defaults(design.defaults).with_default_config()
    check_limits(f"{where}: stage {mapped.name!r}", mapped.max_concurrency, mapped.rate_limit)
    return attrs.evolve(node, stage=mapped)


def with_stage_defaults(design: PipelineDefinition, defaults: BodyDefaults) -> PipelineDefinition:
    """Return a definition whose stages have these options where they have none."""

    def configured(node: PlanNode[Any, object]) -> PlanNode[Any, object]:
        stage = stage_of(node).with_defaults(defaults)
        return attrs.evolve(node, stage=stage) if isinstance(node, Each) else stage

    groups = (attrs.evolve(one, nodes=tuple(map(configured, one.nodes))) for one in design.groups)
    return attrs.evolve(design, groups=tuple(groups))


def _check_over(design: PipelineDefinition, node: Each[Any, object], over: Stage[Any, object]) -> None:
    where = f"pipeline {design.name!r}: {node.name!r} maps over {over.name!r}"
    step = next((step for step in design.groups if any(each.name == over.name for each in step.nodes)), None)
    source = None if step is None else next(each for each in step.nodes if each.name == over.name)
    if step is not None and step.condition is not None:
        raise DefinitionError(f"{where}, which does not always run; map over the stage after it")
    if source is None:
        names = ", ".join(each.name for step in design.groups for each in step.nodes) or "none"
        raise DefinitionError(f"{where}, which is not an earlier stage; there are {names}")
    if isinstance(source, Each):
        raise DefinitionError(
            f"{where}, which is mapped itself; pipe a stage between them that returns the items"
        )
    if stage_of(source).body is not over.body:
        raise DefinitionError(f"{where}, but the earlier stage of that name is a different one")


def _hint(given: object, node: PlanNode[Any, object]) -> str:
    if isinstance(node, Each) and unwrap(given) is str:
        return "; a string is not mapped letter by letter"
    if show(given) == show(node.input_type):
        return "; two types of one name"
    return ""


def stage_of(node: PlanNode[Any, object]) -> Stage[Any, object]:
    """Return the stage that a node runs."""
    return node.stage if isinstance(node, Each) else cast("Stage[Any, object]", node)


def plan_of(node: PlanNode[Any, object]) -> NodePlan:
    """Return a node as data of the plan."""
    stage = stage_of(node)
    retry = stage.retry or Retry()
    plan = StagePlan(
        name=stage.name,
        queue=stage.queue,
        priority=stage.priority,
        retry=policy_from(retry),
        timeout_us=micros_of(stage.timeout),
        config=stage.config_text,
        retry_rules=retry_rules(retry),
        timeout_total_us=micros_of(stage.timeout_total),
        heartbeat_timeout_us=micros_of(stage.heartbeat_timeout),
        max_concurrency=slots_limit(stage.max_concurrency),
        slots=slots_from(stage.max_concurrency),
        rate=rate_from(stage.rate_limit),
        check=_check_of(stage),
        child=_child_of(stage),
        cancel=_cancel_of(stage),
        remote=_remote_of(stage),
    )
    if isinstance(node, Each):
        over = node.over.name if node.over else None
        return MapPlan(stage=plan, over=over, limit=node.limit, enough=node.enough)
    return plan


def retry_rules(retry: Retry) -> tuple[RetryRule, ...]:
    """Return the policies for some errors as data of the plan."""
    return tuple(
        RetryRule(error=rule_name(error), policy=policy_from(policy))
        for error, policy in retry.by_error.items()
    )


def rate_from(rate: Rate | None) -> RatePlan | None:
    """Return a rate limit as data of the plan."""
    if rate is None:
        return None
    return RatePlan(limit=rate.limit, per_us=rate.per // _MICROSECOND, name=rate.name, by=rate.by)


def slots_limit(slots: "int | Slots | None") -> int | None:
    """Return the number of slots of a concurrency limit; None without a limit."""
    return slots.limit if isinstance(slots, Slots) else slots


def slots_from(slots: "int | Slots | None") -> SlotsPlan | None:
    """Return who shares the slots of a concurrency limit, as data of the plan; None for a plain number."""
    is_shared = isinstance(slots, Slots) and (slots.name is not None or slots.by is not None)
    return SlotsPlan(name=slots.name, by=slots.by) if is_shared and isinstance(slots, Slots) else None


def rule_name(error: type[Exception]) -> str:
    """Return the name of an exception class in a plan, without its module: in a script that is `__main__`."""
    return error.__qualname__


def micros_of(length: timedelta | None) -> int | None:
    """Return a duration as data of the plan."""
    return None if length is None else length // _MICROSECOND


def group_of(step: StageGroup) -> Group:
    """Return a step as data of the plan."""
    nodes = tuple(map(plan_of, step.nodes))
    return Group(nodes=nodes, parallel=step.parallel, test=step.condition.name if step.condition else None)


def _check_of(stage: Stage[Any, object]) -> CheckPlan | None:
    if not isinstance(stage, ExternalStage):
        return None
    timeout = stage.check_timeout or stage.timeout
    return CheckPlan(
        retry=policy_from(stage.check_retry or stage.retry or Retry()),
        timeout_us=None if timeout is None else timeout // _MICROSECOND,
    )


def _cancel_of(stage: Stage[Any, object]) -> CancelPlan | None:
    if not isinstance(stage, ExternalStage) or stage.cancel_body is None:
        return None
    timeout = stage.cancel_timeout or CANCEL_TIMEOUT
    return CancelPlan(
        retry=policy_from(stage.cancel_retry or CANCEL_RETRY), timeout_us=timeout // _MICROSECOND
    )


def _remote_of(stage: Stage[Any, object]) -> RemotePlan | None:
    if not stage.remote:
        return None
    return RemotePlan(give_up_on=tuple(map(rule_name, stage.give_up_on)))


def _child_of(stage: Stage[Any, object]) -> ChildPlan | None:
    if not isinstance(stage, ChildStage):
        return None
    child = stage.workflow
    return ChildPlan(
        workflow=child.name,
        version=child.version,
        close_policy=stage.policy,
        parameters=child.stage_parameters,
        deadline_us=micros_of(stage.deadline),
        attributes=None if stage.attributes is None else canonical(dict(stage.attributes)),
        weight=stage.weight,
        attributes_from=child.attributes_from or None,
        headers=headers_text(stage.headers or {}),
    )


def policy_from(retry: Retry) -> RetryPolicy:
    """Return a retry policy as data of the plan."""
    return RetryPolicy(
        attempts=ATTEMPTS_UNLIMITED if retry.attempts is None else retry.attempts,
        wait_us=retry.wait // _MICROSECOND,
        backoff=float(retry.backoff),
        wait_max_us=retry.wait_max // _MICROSECOND,
        jitter=float(retry.jitter),
        total_time_us=micros_of(retry.total_time),
    )
