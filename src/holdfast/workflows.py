"""More for workflows: calls of durable functions, how a map may complete, and types for annotations."""

from holdfast.hosts.functions.completions import Completion, new_completion
from holdfast.kernel.authoring.attempt_context import BlobRef
from holdfast.kernel.authoring.calls import Call, WorkflowDefinition
from holdfast.kernel.authoring.channels import Inbox, ReceivedMessage
from holdfast.kernel.authoring.child_runs import ChildRun
from holdfast.kernel.authoring.completion_policies import (
    AtLeast,
    ItemFailure,
    PartialResults,
    TolerateFailures,
)
from holdfast.kernel.authoring.conditions import updates_done, wait_until
from holdfast.kernel.authoring.converters import register_converter
from holdfast.kernel.authoring.external import ExternalStage
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.authoring.nodes import PlanNode
from holdfast.kernel.authoring.parallel_maps import parallel_map
from holdfast.kernel.authoring.queries import Query, QueryCall, Update, UpdateCall
from holdfast.kernel.authoring.run_info import CurrentRun, run_info
from holdfast.kernel.authoring.sent_messages import cancel_run, signal_run, update_run
from holdfast.kernel.authoring.signals import Signal
from holdfast.kernel.authoring.stages import Stage
from holdfast.kernel.authoring.step_context import StepContext
from holdfast.kernel.authoring.steps import Step
from holdfast.kernel.authoring.topics import (
    ReceivedCloudEvent,
    TopicGroup,
    TopicMessage,
    TopicSelection,
    TopicSubscription,
)
from holdfast.kernel.authoring.workflow_context import WorkflowContext
from holdfast.ports.errors import CancelRun

__all__ = [
    "AtLeast",
    "BlobRef",
    "Call",
    "CancelRun",
    "ChildRun",
    "Completion",
    "CurrentRun",
    "ExternalStage",
    "Inbox",
    "ItemFailure",
    "PartialResults",
    "PlanNode",
    "Query",
    "QueryCall",
    "ReceivedCloudEvent",
    "ReceivedMessage",
    "Signal",
    "Stage",
    "Step",
    "StepContext",
    "TolerateFailures",
    "TopicGroup",
    "TopicMessage",
    "TopicSelection",
    "TopicSubscription",
    "Update",
    "UpdateCall",
    "Workflow",
    "WorkflowContext",
    "WorkflowDefinition",
    "cancel_run",
    "new_completion",
    "parallel_map",
    "register_converter",
    "run_info",
    "signal_run",
    "update_run",
    "updates_done",
    "wait_until",
]
