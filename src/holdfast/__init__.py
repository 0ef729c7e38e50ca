"""Durable workflows for Python: programs that survive crashes, restarts, deploys and lost messages.

What defines workflows is imported at once; what runs them when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

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
from holdfast.ports.errors import GiveUp, HoldfastError, RetryAfter
from holdfast.ports.records import RunStatus
from holdfast.ports.said import Actor, Scope

if TYPE_CHECKING:
    from holdfast.hosts.ai import AiCallInfo, AiTotals
    from holdfast.hosts.annotating import AnnotationInfo
    from holdfast.hosts.artifacts import ArtifactInfo
    from holdfast.hosts.bulk import BulkResult
    from holdfast.hosts.engine import Engine, SyncEngine
    from holdfast.hosts.handles import RunHandle, SyncRunHandle
    from holdfast.hosts.hearing import LogLine, ProgressInfo
    from holdfast.hosts.infos import RunEvent, RunInfo
    from holdfast.hosts.interceptors import Batch, BodyCall, Interceptor
    from holdfast.hosts.log_bridge import AttemptLogHandler
    from holdfast.hosts.process.worker import Worker, WorkerStats
    from holdfast.hosts.serverless.host import JobMessage, JobOutcome, ServerlessHost
    from holdfast.hosts.why import Reason
    from holdfast.kernel.commands import RunRerun
    from holdfast.kernel.previews import RerunPreview

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
    "Engine",
    "ExternalStage",
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

_LATER: Final = {
    **dict.fromkeys(("Engine", "SyncEngine"), "holdfast.hosts.engine"),
    **dict.fromkeys(("RunHandle", "SyncRunHandle"), "holdfast.hosts.handles"),
    "Reason": "holdfast.hosts.why",
    **dict.fromkeys(("RunEvent", "RunInfo"), "holdfast.hosts.infos"),
    **dict.fromkeys(("AiCallInfo", "AiTotals"), "holdfast.hosts.ai"),
    "AnnotationInfo": "holdfast.hosts.annotating",
    "ArtifactInfo": "holdfast.hosts.artifacts",
    "AttemptLogHandler": "holdfast.hosts.log_bridge",
    **dict.fromkeys(("LogLine", "ProgressInfo"), "holdfast.hosts.hearing"),
    **dict.fromkeys(("Batch", "BodyCall", "Interceptor"), "holdfast.hosts.interceptors"),
    **dict.fromkeys(("Worker", "WorkerStats"), "holdfast.hosts.process.worker"),
    "BulkResult": "holdfast.hosts.bulk",
    "RunRerun": "holdfast.kernel.commands",
    "RerunPreview": "holdfast.kernel.previews",
    **dict.fromkeys(("JobMessage", "JobOutcome", "ServerlessHost"), "holdfast.hosts.serverless.host"),
}


def __getattr__(name: str) -> object:
    module = _LATER.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
