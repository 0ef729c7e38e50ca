"""Building blocks of pipelines: `@stage`, `Pipeline`, `Retry`, `Rate`, and what stage bodies receive.

Durable functions are in modules of their own, because those need asyncio, which a program with pipelines only does not
import.
"""

from holdfast.kernel.authoring.calls import Call, Definition
from holdfast.kernel.authoring.child_stages import ChildStage
from holdfast.kernel.authoring.completion_policies import AtLeast, ItemFailure, Partial, Tolerate
from holdfast.kernel.authoring.decorators import StageDecorator, each, stage
from holdfast.kernel.authoring.external import ExternalStage, NotYet, Suspended, finished, suspend
from holdfast.kernel.authoring.nodes import AnyNode, Node
from holdfast.kernel.authoring.options import (
    BodyDefaults,
    BodyOptions,
    Rate,
    Retry,
    StartOptions,
    check_options,
)
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.signals import Signal
from holdfast.kernel.authoring.stage_context import (
    BlobRef,
    StageBlobs,
    StageContext,
    StageOutputs,
    StageRuntime,
)
from holdfast.kernel.authoring.stages import ConfigurableStage, Stage

__all__ = [
    "AnyNode",
    "AtLeast",
    "BlobRef",
    "BodyDefaults",
    "BodyOptions",
    "Call",
    "ChildStage",
    "ConfigurableStage",
    "Definition",
    "ExternalStage",
    "ItemFailure",
    "Node",
    "NotYet",
    "Partial",
    "Pipeline",
    "Rate",
    "Retry",
    "Signal",
    "Stage",
    "StageBlobs",
    "StageContext",
    "StageDecorator",
    "StageOutputs",
    "StageRuntime",
    "StartOptions",
    "Suspended",
    "Tolerate",
    "check_options",
    "each",
    "finished",
    "stage",
    "suspend",
]
