"""Durable workflows for Python: programs that survive crashes, restarts, deploys and lost messages.

Each name is imported when it is first asked for: a program that only wants some of them pays for no more.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from holdfast.hosts.client.bulk_actions import BulkResult
    from holdfast.hosts.client.engine import Engine
    from holdfast.hosts.client.run_handle import RunHandle
    from holdfast.hosts.client.sync_engine import SyncEngine
    from holdfast.hosts.client.sync_run_handle import SyncRunHandle
    from holdfast.hosts.execution.artifacts import ArtifactInfo
    from holdfast.hosts.execution.logging_bridge import AttemptLogHandler, ReplayFilter
    from holdfast.hosts.functions.history_document import RunHistory
    from holdfast.hosts.functions.replay_check import Replayed, Waiting
    from holdfast.hosts.functions.upgrade_check import Upgrade, Verdict
    from holdfast.hosts.inspection.ai_calls import AiCallInfo, AiTotals
    from holdfast.hosts.inspection.annotations import AnnotationInfo
    from holdfast.hosts.inspection.logs import LogLine, ProgressInfo
    from holdfast.hosts.inspection.messages import MessageInfo
    from holdfast.hosts.inspection.run_info import RunEvent, RunInfo
    from holdfast.hosts.inspection.why import Reason
    from holdfast.hosts.maintenance.doctor.findings import Diagnosis, Finding
    from holdfast.hosts.serverless.host import JobOutcome, ServerlessHost
    from holdfast.hosts.serverless.job_messages import JobMessage
    from holdfast.hosts.wiring.interceptors import Batch, BodyCall, Interceptor
    from holdfast.hosts.worker.worker import Worker, WorkerStats
    from holdfast.kernel.authoring.ai import Price, Redact
    from holdfast.kernel.authoring.calls import Call, Definition
    from holdfast.kernel.authoring.channels import Channel, Inbox, select
    from holdfast.kernel.authoring.child_runs import ChildRun, start_child
    from holdfast.kernel.authoring.completion_policies import AtLeast, ItemFailure, Partial, Tolerate
    from holdfast.kernel.authoring.continue_as_new import continue_as_new
    from holdfast.kernel.authoring.decorators import each, stage
    from holdfast.kernel.authoring.external import ExternalStage, NotYet, Suspended, finished, suspend
    from holdfast.kernel.authoring.functions import (
        Workflow,
        compensate_with,
        now,
        patched,
        random,
        side_effect,
        sleep,
        sleep_until,
        uuid4,
        workflow,
    )
    from holdfast.kernel.authoring.nodes import Node
    from holdfast.kernel.authoring.options import Rate, Retry
    from holdfast.kernel.authoring.pipelines import Pipeline
    from holdfast.kernel.authoring.publications import publish
    from holdfast.kernel.authoring.queries import Query, QueryCall, Update, UpdateCall, expose, query, update
    from holdfast.kernel.authoring.signals import Signal
    from holdfast.kernel.authoring.stage_context import BlobRef, StageContext
    from holdfast.kernel.authoring.stages import Stage
    from holdfast.kernel.authoring.step_context import StepContext, step_context
    from holdfast.kernel.authoring.steps import Step, step
    from holdfast.kernel.commands import RunRerun
    from holdfast.kernel.runs.rerun_preview import RerunPreview
    from holdfast.ports.attempt_output import Actor, Scope
    from holdfast.ports.errors import (
        ChannelClosedError,
        ChildRefusedError,
        CompensationError,
        ContinueRefusedError,
        DefinitionError,
        GiveUp,
        HoldfastError,
        InvalidArgumentError,
        InvalidValueError,
        NondeterminismError,
        NotDurableError,
        NotExposedError,
        NoTransactionError,
        QueryFailedError,
        RestlessError,
        RetryAfter,
        RunCancelledError,
        RunExistsError,
        RunFailedError,
        RunNotFoundError,
        SignalRefusedError,
        StepFailedError,
        StepLostError,
        StepResultError,
        TransactionEndedError,
        UnavailableError,
        UnknownChannelError,
        UnknownWorkflowError,
        UnreadableInputError,
        UnreadableValueError,
        UnreadMessagesError,
        UpdateFailedError,
        UpdateLostError,
        UpdateRefusedError,
        UpdateRejectedError,
    )
    from holdfast.ports.records import RunStatus

__all__ = [
    "Actor",
    "AiCallInfo",
    "AiTotals",
    "AnnotationInfo",
    "ArtifactInfo",
    "AtLeast",
    "AttemptLogHandler",
    "Batch",
    "BlobRef",
    "BodyCall",
    "BulkResult",
    "Call",
    "Channel",
    "ChannelClosedError",
    "ChildRefusedError",
    "ChildRun",
    "CompensationError",
    "ContinueRefusedError",
    "Definition",
    "DefinitionError",
    "Diagnosis",
    "Engine",
    "ExternalStage",
    "Finding",
    "GiveUp",
    "HoldfastError",
    "Inbox",
    "Interceptor",
    "InvalidArgumentError",
    "InvalidValueError",
    "ItemFailure",
    "JobMessage",
    "JobOutcome",
    "LogLine",
    "MessageInfo",
    "NoTransactionError",
    "Node",
    "NondeterminismError",
    "NotDurableError",
    "NotExposedError",
    "NotYet",
    "Partial",
    "Pipeline",
    "Price",
    "ProgressInfo",
    "Query",
    "QueryCall",
    "QueryFailedError",
    "Rate",
    "Reason",
    "Redact",
    "ReplayFilter",
    "Replayed",
    "RerunPreview",
    "RestlessError",
    "Retry",
    "RetryAfter",
    "RunCancelledError",
    "RunEvent",
    "RunExistsError",
    "RunFailedError",
    "RunHandle",
    "RunHistory",
    "RunInfo",
    "RunNotFoundError",
    "RunRerun",
    "RunStatus",
    "Scope",
    "ServerlessHost",
    "Signal",
    "SignalRefusedError",
    "Stage",
    "StageContext",
    "Step",
    "StepContext",
    "StepFailedError",
    "StepLostError",
    "StepResultError",
    "Suspended",
    "SyncEngine",
    "SyncRunHandle",
    "Tolerate",
    "TransactionEndedError",
    "UnavailableError",
    "UnknownChannelError",
    "UnknownWorkflowError",
    "UnreadMessagesError",
    "UnreadableInputError",
    "UnreadableValueError",
    "Update",
    "UpdateCall",
    "UpdateFailedError",
    "UpdateLostError",
    "UpdateRefusedError",
    "UpdateRejectedError",
    "Upgrade",
    "Verdict",
    "Waiting",
    "Worker",
    "WorkerStats",
    "Workflow",
    "compensate_with",
    "continue_as_new",
    "each",
    "expose",
    "finished",
    "now",
    "patched",
    "publish",
    "query",
    "random",
    "select",
    "side_effect",
    "sleep",
    "sleep_until",
    "stage",
    "start_child",
    "step",
    "step_context",
    "suspend",
    "update",
    "uuid4",
    "workflow",
]

_WHERE: Final = {
    name: module
    for module, names in {
        "holdfast.hosts.inspection.ai_calls": ("AiCallInfo", "AiTotals"),
        "holdfast.hosts.inspection.annotations": ("AnnotationInfo",),
        "holdfast.hosts.execution.artifacts": ("ArtifactInfo",),
        "holdfast.hosts.client.bulk_actions": ("BulkResult",),
        "holdfast.hosts.client.engine": ("Engine",),
        "holdfast.hosts.client.sync_engine": ("SyncEngine",),
        "holdfast.hosts.maintenance.doctor.findings": ("Diagnosis", "Finding"),
        "holdfast.hosts.functions.replay_check": ("Replayed", "Waiting"),
        "holdfast.hosts.functions.upgrade_check": ("Upgrade", "Verdict"),
        "holdfast.hosts.client.run_handle": ("RunHandle",),
        "holdfast.hosts.client.sync_run_handle": ("SyncRunHandle",),
        "holdfast.hosts.inspection.logs": ("LogLine", "ProgressInfo"),
        "holdfast.hosts.inspection.run_info": ("RunEvent", "RunInfo"),
        "holdfast.hosts.inspection.messages": ("MessageInfo",),
        "holdfast.hosts.wiring.interceptors": ("Batch", "BodyCall", "Interceptor"),
        "holdfast.hosts.execution.logging_bridge": ("AttemptLogHandler", "ReplayFilter"),
        "holdfast.hosts.functions.history_document": ("RunHistory",),
        "holdfast.hosts.worker.worker": ("Worker", "WorkerStats"),
        "holdfast.hosts.serverless.host": ("JobOutcome", "ServerlessHost"),
        "holdfast.hosts.serverless.job_messages": ("JobMessage",),
        "holdfast.hosts.inspection.why": ("Reason",),
        "holdfast.kernel.authoring.ai": ("Price", "Redact"),
        "holdfast.kernel.authoring.calls": ("Call", "Definition"),
        "holdfast.kernel.authoring.channels": ("Channel", "Inbox", "select"),
        "holdfast.kernel.authoring.child_runs": ("ChildRun", "start_child"),
        "holdfast.kernel.authoring.stage_context": ("BlobRef", "StageContext"),
        "holdfast.kernel.authoring.continue_as_new": ("continue_as_new",),
        "holdfast.kernel.authoring.decorators": ("each", "stage"),
        "holdfast.kernel.authoring.queries": (
            "Query",
            "QueryCall",
            "Update",
            "UpdateCall",
            "expose",
            "query",
            "update",
        ),
        "holdfast.kernel.authoring.external": ("ExternalStage", "NotYet", "Suspended", "finished", "suspend"),
        "holdfast.kernel.authoring.functions": (
            "Workflow",
            "compensate_with",
            "now",
            "patched",
            "random",
            "side_effect",
            "sleep",
            "sleep_until",
            "uuid4",
            "workflow",
        ),
        "holdfast.kernel.authoring.nodes": ("Node",),
        "holdfast.kernel.authoring.options": ("Rate", "Retry"),
        "holdfast.kernel.authoring.pipelines": ("Pipeline",),
        "holdfast.kernel.authoring.completion_policies": ("AtLeast", "ItemFailure", "Partial", "Tolerate"),
        "holdfast.kernel.authoring.publications": ("publish",),
        "holdfast.kernel.authoring.signals": ("Signal",),
        "holdfast.kernel.authoring.stages": ("Stage",),
        "holdfast.kernel.authoring.step_context": ("StepContext", "step_context"),
        "holdfast.kernel.authoring.steps": ("Step", "step"),
        "holdfast.kernel.commands": ("RunRerun",),
        "holdfast.kernel.runs.rerun_preview": ("RerunPreview",),
        "holdfast.ports.errors": (
            "ChannelClosedError",
            "ChildRefusedError",
            "CompensationError",
            "ContinueRefusedError",
            "DefinitionError",
            "GiveUp",
            "HoldfastError",
            "InvalidArgumentError",
            "InvalidValueError",
            "NoTransactionError",
            "NondeterminismError",
            "NotDurableError",
            "NotExposedError",
            "QueryFailedError",
            "RestlessError",
            "RetryAfter",
            "RunCancelledError",
            "RunExistsError",
            "RunFailedError",
            "RunNotFoundError",
            "SignalRefusedError",
            "StepFailedError",
            "StepLostError",
            "StepResultError",
            "TransactionEndedError",
            "UnavailableError",
            "UnknownChannelError",
            "UnknownWorkflowError",
            "UnreadMessagesError",
            "UnreadableInputError",
            "UnreadableValueError",
            "UpdateFailedError",
            "UpdateLostError",
            "UpdateRefusedError",
            "UpdateRejectedError",
        ),
        "holdfast.ports.records": ("RunStatus",),
        "holdfast.ports.attempt_output": ("Actor", "Scope"),
    }.items()
    for name in names
}


def __getattr__(name: str) -> object:
    module = _WHERE.get(name)
    if module is None:
        hint = f"; all errors are in {__name__}.errors" if name.endswith("Error") else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
    value: object = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
