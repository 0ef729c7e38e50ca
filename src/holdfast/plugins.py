"""Hooks: interceptors, logging handlers, prices and redaction of model calls, counts of a worker."""

from holdfast.hosts.execution.logging_bridge import AttemptLogHandler, ReplayFilter
from holdfast.hosts.wiring.interceptors import BodyCall, CommandBatch, FunctionCall, Interceptor
from holdfast.hosts.wiring.log_fields import LogFields
from holdfast.hosts.wiring.start_calls import StartCall
from holdfast.hosts.worker.worker import WorkerStats
from holdfast.kernel.authoring.ai import Price, Redact

__all__ = [
    "AttemptLogHandler",
    "BodyCall",
    "CommandBatch",
    "FunctionCall",
    "Interceptor",
    "LogFields",
    "Price",
    "Redact",
    "ReplayFilter",
    "StartCall",
    "WorkerStats",
]
