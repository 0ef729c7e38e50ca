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
    from holdfast.hosts.handles import RunHandle
    from holdfast.hosts.hearing import LogLine, ProgressInfo
    from holdfast.hosts.infos import RunEvent, RunInfo
    from holdfast.hosts.interceptors import Batch, BodyCall, Interceptor
    from holdfast.hosts.log_bridge import AttemptLogHandler
    from holdfast.hosts.process.worker import Worker, WorkerStats
    from holdfast.hosts.serverless.host import JobMessage, JobOutcome, ServerlessHost
    from holdfast.hosts.sync_engine import SyncEngine
    from holdfast.hosts.sync_handles import SyncRunHandle
    from holdfast.hosts.why import Reason
    from holdfast.kernel.authoring.ai import Price, Redact
    from holdfast.kernel.authoring.calls import Call, Definition
    from holdfast.kernel.authoring.context import BlobRef, StageContext
    from holdfast.kernel.authoring.decorators import each, stage
    from holdfast.kernel.authoring.external import ExternalStage, NotYet, Suspended, finished, suspend
    from holdfast.kernel.authoring.nodes import Node
    from holdfast.kernel.authoring.options import Retry
    from holdfast.kernel.authoring.pipelines import Pipeline
    from holdfast.kernel.authoring.policies import AtLeast, ItemFailure, Partial, Tolerate
    from holdfast.kernel.authoring.stages import Stage
    from holdfast.kernel.commands import RunRerun
    from holdfast.kernel.previews import RerunPreview
    from holdfast.ports.errors import GiveUp, HoldfastError, RetryAfter
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
    "Definition",
    "Diagnosis",
    "Engine",
    "ExternalStage",
    "Finding",
    "GiveUp",
    "HoldfastError",
    "Interceptor",
    "ItemFailure",
    "JobMessage",
    "JobOutcome",
    "LogLine",
    "Node",
    "NotYet",
    "Partial",
    "Pipeline",
    "Price",
    "ProgressInfo",
    "Reason",
    "Redact",
    "RerunPreview",
    "Retry",
    "RetryAfter",
    "RunEvent",
    "RunHandle",
    "RunInfo",
    "RunRerun",
    "RunStatus",
    "Scope",
    "ServerlessHost",
    "Stage",
    "StageContext",
    "Suspended",
    "SyncEngine",
    "SyncRunHandle",
    "Tolerate",
    "Worker",
    "WorkerStats",
    "each",
    "finished",
    "stage",
    "suspend",
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
        "holdfast.hosts.handles": ("RunHandle",),
        "holdfast.hosts.sync_handles": ("SyncRunHandle",),
        "holdfast.hosts.hearing": ("LogLine", "ProgressInfo"),
        "holdfast.hosts.infos": ("RunEvent", "RunInfo"),
        "holdfast.hosts.interceptors": ("Batch", "BodyCall", "Interceptor"),
        "holdfast.hosts.log_bridge": ("AttemptLogHandler",),
        "holdfast.hosts.process.worker": ("Worker", "WorkerStats"),
        "holdfast.hosts.serverless.host": ("JobMessage", "JobOutcome", "ServerlessHost"),
        "holdfast.hosts.why": ("Reason",),
        "holdfast.kernel.authoring.ai": ("Price", "Redact"),
        "holdfast.kernel.authoring.calls": ("Call", "Definition"),
        "holdfast.kernel.authoring.context": ("BlobRef", "StageContext"),
        "holdfast.kernel.authoring.decorators": ("each", "stage"),
        "holdfast.kernel.authoring.external": ("ExternalStage", "NotYet", "Suspended", "finished", "suspend"),
        "holdfast.kernel.authoring.nodes": ("Node",),
        "holdfast.kernel.authoring.options": ("Retry",),
        "holdfast.kernel.authoring.pipelines": ("Pipeline",),
        "holdfast.kernel.authoring.policies": ("AtLeast", "ItemFailure", "Partial", "Tolerate"),
        "holdfast.kernel.authoring.stages": ("Stage",),
        "holdfast.kernel.commands": ("RunRerun",),
        "holdfast.kernel.previews": ("RerunPreview",),
        "holdfast.ports.errors": ("GiveUp", "HoldfastError", "RetryAfter"),
        "holdfast.ports.records": ("RunStatus",),
        "holdfast.ports.said": ("Actor", "Scope"),
    }.items()
    for name in names
}


def __getattr__(name: str) -> object:
    module = _WHERE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
