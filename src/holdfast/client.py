"""Types that the client returns: run information, logs, findings, results of bulk operations."""

from holdfast.hosts.client.bulk_actions import BulkResult
from holdfast.hosts.execution.artifacts import ArtifactInfo
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
from holdfast.kernel.commands import RunRerun
from holdfast.kernel.runs.rerun_preview import RerunPreview
from holdfast.ports.attempt_output import Actor, Scope
from holdfast.ports.records import RunStatus

__all__ = [
    "Actor",
    "AiCallInfo",
    "AiTotals",
    "AnnotationInfo",
    "ArtifactInfo",
    "BulkResult",
    "Diagnosis",
    "Finding",
    "LogLine",
    "MessageInfo",
    "ProgressInfo",
    "Reason",
    "Replayed",
    "RerunPreview",
    "RunEvent",
    "RunHistory",
    "RunInfo",
    "RunRerun",
    "RunStatus",
    "Scope",
    "Upgrade",
    "Verdict",
    "Waiting",
]
