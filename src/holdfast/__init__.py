"""Durable workflows for Python: programs that survive crashes, restarts, deploys and lost messages."""

from holdfast.hosts.engine import Engine, RunEvent, RunHandle, RunInfo, SyncEngine, SyncRunHandle
from holdfast.hosts.process.worker import Worker, WorkerStats
from holdfast.hosts.serverless.host import JobMessage, JobOutcome, ServerlessHost
from holdfast.kernel.authoring.calls import Call, Definition
from holdfast.kernel.authoring.context import BlobRef, StageContext
from holdfast.kernel.authoring.decorators import each, stage
from holdfast.kernel.authoring.nodes import Node
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.stages import Stage
from holdfast.ports.errors import HoldfastError
from holdfast.ports.records import RunStatus

__all__ = [
    "BlobRef",
    "Call",
    "Definition",
    "Engine",
    "HoldfastError",
    "JobMessage",
    "JobOutcome",
    "Node",
    "Pipeline",
    "Retry",
    "RunEvent",
    "RunHandle",
    "RunInfo",
    "RunStatus",
    "ServerlessHost",
    "Stage",
    "StageContext",
    "SyncEngine",
    "SyncRunHandle",
    "Worker",
    "WorkerStats",
    "each",
    "stage",
]
