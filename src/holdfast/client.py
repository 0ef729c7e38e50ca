"""Types that the client returns: run information, logs, findings, results of bulk operations."""

from holdfast.hosts.client.bulk_actions import BulkResult
from holdfast.hosts.execution.artifacts import ArtifactInfo
from holdfast.hosts.functions.history_document import RunHistory
from holdfast.hosts.functions.replay_check import PendingCall, ReplayResult
from holdfast.hosts.functions.upgrade_check import UpgradeCheck, UpgradeVerdict
from holdfast.hosts.inspection.ai_calls import AiCallInfo, AiTotals
from holdfast.hosts.inspection.annotations import AnnotationInfo
from holdfast.hosts.inspection.children import ChildInfo
from holdfast.hosts.inspection.logs import LogLine, ProgressInfo
from holdfast.hosts.inspection.messages import MessageInfo
from holdfast.hosts.inspection.run_details import JobDetails, PublishedValue, RunDetails
from holdfast.hosts.inspection.run_info import ParentRun, RunError, RunEvent, RunInfo
from holdfast.hosts.inspection.stages import StageDetails
from holdfast.hosts.inspection.steps import StepDetails
from holdfast.hosts.inspection.value_previews import ValuePreview
from holdfast.hosts.inspection.why import WaitReason
from holdfast.hosts.maintenance.doctor.findings import Diagnosis, DoctorFinding
from holdfast.kernel.commands import RunRerun
from holdfast.kernel.runs.rerun_preview import RerunPreview
from holdfast.ports.actors import Actor
from holdfast.ports.attempt_output import AnnotationScope
from holdfast.ports.records.run import RunStatus

__all__ = [
    "Actor",
    "AiCallInfo",
    "AiTotals",
    "AnnotationInfo",
    "AnnotationScope",
    "ArtifactInfo",
    "BulkResult",
    "ChildInfo",
    "Diagnosis",
    "DoctorFinding",
    "JobDetails",
    "LogLine",
    "MessageInfo",
    "ParentRun",
    "PendingCall",
    "ProgressInfo",
    "PublishedValue",
    "ReplayResult",
    "RerunPreview",
    "RunDetails",
    "RunError",
    "RunEvent",
    "RunHistory",
    "RunInfo",
    "RunRerun",
    "RunStatus",
    "StageDetails",
    "StepDetails",
    "UpgradeCheck",
    "UpgradeVerdict",
    "ValuePreview",
    "WaitReason",
]
