"""Stages that are workflows: each starts a child run and waits for its result."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, Generic, NoReturn, cast

import attrs
from typing_extensions import override

from holdfast.kernel.authoring.body_types import Shape
from holdfast.kernel.authoring.calls import WorkflowDefinition
from holdfast.kernel.authoring.nodes import In, Out
from holdfast.kernel.authoring.options import BodyDefaults, to_timedelta
from holdfast.kernel.authoring.stages import Stage
from holdfast.ports.errors import DefinitionError
from holdfast.ports.records.run import ClosePolicy

BODY_ONLY_OPTIONS: Final = frozenset(
    {"timeout", "timeout_total", "heartbeat_timeout", "max_concurrency", "rate_limit", "remote"}
)
"""Options of bodies, which a child run does not have."""


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ChildStage(Stage[In, Out], Generic[In, Out]):
    """A stage that runs another workflow as a child run, made by `stage(pipeline)` or `stage(function)`."""

    workflow: WorkflowDefinition[object]
    """The workflow of the child run."""
    close_policy: str = "cancel"
    """What happens to the child run if its parent ends first."""
    deadline: timedelta | None = attrs.field(default=None, converter=to_timedelta)
    """How long the child run may take; None for the deadline of its workflow."""
    attributes: Mapping[str, str] | None = None
    """Texts by which the child run is found; None for those of the parent run."""
    headers: Mapping[str, str] | None = None
    """Headers of the child run, besides those of the parent run."""
    weight: int | None = None
    """How many turns the key of the child run gets; None for as many as before."""

    @override
    def __attrs_post_init__(self) -> None:
        if self.weight is not None and not self.workflow.is_fair:
            raise DefinitionError(
                f"stage {self.name!r}: weight is for workflows whose keys share workers, and {self.workflow.name!r} has"
                " no fair=Fair(by=...); add it there, or leave the weight out"
            )

    @override
    def with_defaults(self, defaults: BodyDefaults) -> "ChildStage[In, Out]":
        child_defaults = {name: value for name, value in defaults.items() if name not in BODY_ONLY_OPTIONS}
        return super().with_defaults(cast("BodyDefaults", child_defaults))

    @property
    def policy(self) -> ClosePolicy:
        """The close policy as plans store it."""
        return ClosePolicy(self.close_policy)


def child_stage(workflow: WorkflowDefinition[object], options: dict[str, Any]) -> ChildStage[Any, object]:
    """Return the stage that runs a workflow as a child run. `options` have been checked."""
    name = options.pop("name", workflow.name)
    shape = Shape(
        takes_context=False,
        config_type=None,
        values=1,
        input_type=workflow.stage_type,
        output_type=workflow.output_type,
    )

    def body(_: object) -> NoReturn:
        raise RuntimeError(f"stage {name!r} is the workflow {workflow.name!r}, which only an engine can run")

    return ChildStage(
        name=name,
        input_type=workflow.stage_type,
        output_type=workflow.output_type,
        body=body,
        shape=shape,
        workflow=workflow,
        **options,
    )
