"""The `overrides` of a start: stages of a pipeline whose options differ for one run, as data."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import attrs

from holdfast.kernel.authoring.calls import WorkflowDefinition
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipeline_builder import plan_of
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.stages import Stage
from holdfast.kernel.commands import StageOverride
from holdfast.kernel.pipelines.plan import StagePlan, stage_of
from holdfast.ports.errors import InvalidArgumentError, InvalidOverrideError

_FIELDS = tuple(field.name for field in attrs.fields(StageOverride) if field.name != "stage")


def stage_overrides(
    workflow: WorkflowDefinition[object], overrides: Iterable[object]
) -> tuple[StageOverride, ...]:
    """Return how the given stages differ from those of the pipeline. Options that a stage does not set stay unchanged.

    Raises:
        InvalidOverrideError: The pipeline has no stage of this name and body, a stage is given twice, or it changes an
            option that can't differ for one run.
        InvalidArgumentError: An override is not a stage.
    """
    stages: Mapping[str, Stage[Any, object]] = {}
    if isinstance(workflow, Pipeline):
        stages = cast("Pipeline[Any, object]", workflow).bodies
    made: list[StageOverride] = []
    for override in overrides:
        if not isinstance(override, Stage):
            raise InvalidArgumentError(
                "overrides", f"overrides are stages, such as my_stage.options(...), not {override!r}"
            )
        changed = cast("Stage[Any, object]", override)
        original = stages.get(changed.name)
        if original is None:
            known = ", ".join(stages)
            raise InvalidOverrideError(changed.name, f"is not in {workflow.name!r}; it has {known}")
        if original.body is not changed.body:
            raise InvalidOverrideError(
                changed.name, f"differs from the stage of this name in {workflow.name!r}"
            )
        if any(one.stage == changed.name for one in made):
            raise InvalidOverrideError(changed.name, "is repeated; combine its options in one override")
        _check_change(original, changed)
        made.append(_difference(original, changed))
    return tuple(one for one in made if one != StageOverride(stage=one.stage))


def _check_change(ours: Stage[Any, object], changed: Stage[Any, object]) -> None:
    """Raise InvalidOverrideError if a change is not possible for one run.

    Exception classes are code, which a worker has: a run can only change attempts and waits. Concurrency and rate
    limits are shared by all runs.
    """
    if changed.max_concurrency not in (None, ours.max_concurrency):
        raise InvalidOverrideError(
            changed.name, "can't change max_concurrency for one run: all runs share it"
        )
    if changed.remote != ours.remote:
        raise InvalidOverrideError(changed.name, "can't change remote for one run: it says where its code is")
    if changed.rate_limit not in (None, ours.rate_limit):
        raise InvalidOverrideError(changed.name, "can't change rate_limit for one run: all runs share it")
    if changed.retry is None:
        return
    if changed.give_up_on and set(changed.give_up_on) != set(ours.give_up_on):
        raise InvalidOverrideError(
            changed.name, "can't change give_up_on for one run: it is part of the code, like its body"
        )
    known: Mapping[type[Exception], Retry] = ours.retry.by_error if ours.retry else {}
    if unknown := [error.__name__ for error in changed.retry.by_error if error not in known]:
        reason = (
            f"has rules for {', '.join(unknown)} in by_error that it lacks in the pipeline: they are code"
        )
        raise InvalidOverrideError(changed.name, reason)


def _difference(ours: Stage[Any, object], changed: Stage[Any, object]) -> StageOverride:
    before, after = stage_of(plan_of(ours)), stage_of(plan_of(changed))
    values = {
        "retry": changed.retry,
        "retry_rules": changed.retry,
        "timeout_us": changed.timeout,
        "timeout_total_us": changed.timeout_total,
        "heartbeat_timeout_us": changed.heartbeat_timeout,
        "config": changed.config_text,
        "queue": changed.queue,
        "priority": changed.priority,
    }
    set_fields = [name for name in _FIELDS if values[name] is not None]
    # Without a policy of its own, the stage has the default of the engine, which is not known here.
    is_new = {"retry", "retry_rules"} if ours.retry is None else set[str]()
    differs = {
        name: _of(after, name)
        for name in set_fields
        if name in is_new or _of(before, name) != _of(after, name)
    }
    return StageOverride(stage=changed.name, **differs)


def _of(plan: StagePlan, name: str) -> Any:  # a field of any type
    return getattr(plan, name)
