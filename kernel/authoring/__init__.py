"""Building blocks of pipelines: `@stage`, `Pipeline`, `Retry`, `Rate`, and what stage bodies receive.

Durable functions are in modules of their own, because those need asyncio, which a program with pipelines only does not
import.
"""

from holdfast.kernel.authoring.attempt_context import BlobRef, Blobs
from holdfast.kernel.authoring.calls import Call, WorkflowDefinition
from holdfast.kernel.authoring.child_stages import ChildStage
from holdfast.kernel.authoring.completion_policies import (
    AtLeast,
    ItemFailure,
    PartialResults,
    TolerateFailures,
)
from holdfast.kernel.authoring.decorators import StageDecorator, each, stage
from holdfast.kernel.authoring.external import ExternalStage, NotReady, Suspended, completed, suspend
from holdfast.kernel.authoring.nodes import AnyNode, PlanNode
from holdfast.kernel.authoring.options import (
    BodyDefaults,
    BodyOptions,
    Fair,
    Rate,
    Retry,
    Slots,
    StartOptions,
    check_options,
)
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.signals import Signal
from holdfast.kernel.authoring.stage_context import StageContext, StageOutputs, StageRuntime
from holdfast.kernel.authoring.stages import ConfigurableStage, Stage

__all__ = [
    "AnyNode",
    "AtLeast",
    "BlobRef",
    "Blobs",
    "BodyDefaults",
    "BodyOptions",
    "Call",
    "ChildStage",
    "ConfigurableStage",
    "ExternalStage",
    "Fair",
    "ItemFailure",
    "NotReady",
    "PartialResults",
    "Pipeline",
    "PlanNode",
    "Rate",
    "Retry",
    "Signal",
    "Slots",
    "Stage",
    "StageContext",
    "StageDecorator",
    "StageOutputs",
    "StageRuntime",
    "StartOptions",
    "Suspended",
    "TolerateFailures",
    "WorkflowDefinition",
    "check_options",
    "completed",
    "each",
    "stage",
    "suspend",
]
