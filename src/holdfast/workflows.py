"""Types behind workflows, pipelines, steps, stages and channels, for annotations; and how a map may complete."""

from holdfast.kernel.authoring.attempt_context import BlobRef
from holdfast.kernel.authoring.calls import Call, WorkflowDefinition
from holdfast.kernel.authoring.channels import Inbox
from holdfast.kernel.authoring.child_runs import ChildRun
from holdfast.kernel.authoring.completion_policies import (
    AtLeast,
    ItemFailure,
    PartialResults,
    TolerateFailures,
)
from holdfast.kernel.authoring.external import ExternalStage
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.authoring.nodes import PlanNode
from holdfast.kernel.authoring.queries import Query, QueryCall, Update, UpdateCall
from holdfast.kernel.authoring.signals import Signal
from holdfast.kernel.authoring.stages import Stage
from holdfast.kernel.authoring.step_context import StepContext
from holdfast.kernel.authoring.steps import Step
from holdfast.kernel.authoring.workflow_context import WorkflowContext

__all__ = [
    "AtLeast",
    "BlobRef",
    "Call",
    "ChildRun",
    "ExternalStage",
    "Inbox",
    "ItemFailure",
    "PartialResults",
    "PlanNode",
    "Query",
    "QueryCall",
    "Signal",
    "Stage",
    "Step",
    "StepContext",
    "TolerateFailures",
    "Update",
    "UpdateCall",
    "Workflow",
    "WorkflowContext",
    "WorkflowDefinition",
]
