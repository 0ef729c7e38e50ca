"""Durable workflows for Python: programs that survive crashes, restarts, deploys and lost messages.

Each name is imported when it is first asked for: a program that only wants some of them pays for no more.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from holdfast.hosts.ai import AiCallInfo, AiTotals
    from holdfast.hosts.annotating import AnnotationInfo
    from holdfast.hosts.artifacts import ArtifactInfo
    from holdfast.hosts.bulk import BulkResult
    from holdfast.hosts.engine import Engine
    from holdfast.hosts.findings import Diagnosis, Finding
    from holdfast.hosts.functions.replaying import Replayed, Waiting
    from holdfast.hosts.functions.upgrading import Upgrade, Verdict
    from holdfast.hosts.handles import RunHandle
    from holdfast.hosts.hearing import LogLine, ProgressInfo
    from holdfast.hosts.infos import RunEvent, RunInfo
    from holdfast.hosts.interceptors import Batch, BodyCall, Interceptor
    from holdfast.hosts.log_bridge import AttemptLogHandler, ReplayFilter
    from holdfast.hosts.messages import MessageInfo
    from holdfast.hosts.process.worker import Worker, WorkerStats
    from holdfast.hosts.run_histories import RunHistory
    from holdfast.hosts.serverless.host import JobOutcome, ServerlessHost
    from holdfast.hosts.serverless.messages import JobMessage
    from holdfast.hosts.sync_engine import SyncEngine
    from holdfast.hosts.sync_handles import SyncRunHandle
    from holdfast.hosts.why import Reason
    from holdfast.kernel.authoring.ai import Price, Redact
    from holdfast.kernel.authoring.calls import Call, Definition
    from holdfast.kernel.authoring.channels import Channel, Inbox, select
    from holdfast.kernel.authoring.child_runs import ChildRun, start_child
    from holdfast.kernel.authoring.context import BlobRef, StageContext
    from holdfast.kernel.authoring.continuing import continue_as_new
    from holdfast.kernel.authoring.decorators import each, stage
    from holdfast.kernel.authoring.exposed import Query, QueryCall, Update, UpdateCall, expose, query, update
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
    from holdfast.kernel.authoring.policies import AtLeast, ItemFailure, Partial, Tolerate
    from holdfast.kernel.authoring.publishing import publish
    from holdfast.kernel.authoring.signals import Signal
    from holdfast.kernel.authoring.stages import Stage
    from holdfast.kernel.authoring.step_context import StepContext, step_context
    from holdfast.kernel.authoring.steps import Step, step
    from holdfast.kernel.commands import RunRerun
    from holdfast.kernel.previews import RerunPreview
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
    from holdfast.ports.said import Actor, Scope

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
        "holdfast.hosts.ai": ("AiCallInfo", "AiTotals"),
        "holdfast.hosts.annotating": ("AnnotationInfo",),
        "holdfast.hosts.artifacts": ("ArtifactInfo",),
        "holdfast.hosts.bulk": ("BulkResult",),
        "holdfast.hosts.engine": ("Engine",),
        "holdfast.hosts.sync_engine": ("SyncEngine",),
        "holdfast.hosts.findings": ("Diagnosis", "Finding"),
        "holdfast.hosts.functions.replaying": ("Replayed", "Waiting"),
        "holdfast.hosts.functions.upgrading": ("Upgrade", "Verdict"),
        "holdfast.hosts.handles": ("RunHandle",),
        "holdfast.hosts.sync_handles": ("SyncRunHandle",),
        "holdfast.hosts.hearing": ("LogLine", "ProgressInfo"),
        "holdfast.hosts.infos": ("RunEvent", "RunInfo"),
        "holdfast.hosts.messages": ("MessageInfo",),
        "holdfast.hosts.interceptors": ("Batch", "BodyCall", "Interceptor"),
        "holdfast.hosts.log_bridge": ("AttemptLogHandler", "ReplayFilter"),
        "holdfast.hosts.run_histories": ("RunHistory",),
        "holdfast.hosts.process.worker": ("Worker", "WorkerStats"),
        "holdfast.hosts.serverless.host": ("JobOutcome", "ServerlessHost"),
        "holdfast.hosts.serverless.messages": ("JobMessage",),
        "holdfast.hosts.why": ("Reason",),
        "holdfast.kernel.authoring.ai": ("Price", "Redact"),
        "holdfast.kernel.authoring.calls": ("Call", "Definition"),
        "holdfast.kernel.authoring.channels": ("Channel", "Inbox", "select"),
        "holdfast.kernel.authoring.child_runs": ("ChildRun", "start_child"),
        "holdfast.kernel.authoring.context": ("BlobRef", "StageContext"),
        "holdfast.kernel.authoring.continuing": ("continue_as_new",),
        "holdfast.kernel.authoring.decorators": ("each", "stage"),
        "holdfast.kernel.authoring.exposed": (
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
        "holdfast.kernel.authoring.policies": ("AtLeast", "ItemFailure", "Partial", "Tolerate"),
        "holdfast.kernel.authoring.publishing": ("publish",),
        "holdfast.kernel.authoring.signals": ("Signal",),
        "holdfast.kernel.authoring.stages": ("Stage",),
        "holdfast.kernel.authoring.step_context": ("StepContext", "step_context"),
        "holdfast.kernel.authoring.steps": ("Step", "step"),
        "holdfast.kernel.commands": ("RunRerun",),
        "holdfast.kernel.previews": ("RerunPreview",),
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
        "holdfast.ports.said": ("Actor", "Scope"),
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
