"""Types that the client returns: run information, logs, findings, results of bulk operations."""

from holdfast.hosts.client.bulk_actions import BulkResult
from holdfast.hosts.client.keys import Keys
from holdfast.hosts.client.limits import Limits
from holdfast.hosts.client.namespaces import Namespaces
from holdfast.hosts.client.schedule_handle import ScheduleHandle
from holdfast.hosts.client.schedules import AppliedSchedule
from holdfast.hosts.client.sync_keys import SyncKeys
from holdfast.hosts.client.sync_limits import SyncLimits
from holdfast.hosts.client.sync_namespaces import SyncNamespaces
from holdfast.hosts.client.sync_schedule_handle import SyncScheduleHandle
from holdfast.hosts.client.sync_triggers import SyncTriggers
from holdfast.hosts.client.triggers import Triggers
from holdfast.hosts.execution.artifacts import ArtifactInfo
from holdfast.hosts.functions.history_document import RunHistory
from holdfast.hosts.functions.replay_check import PendingCall, ReplayResult
from holdfast.hosts.functions.upgrade_check import UpgradeCheck, UpgradeVerdict
from holdfast.hosts.inspection.ai_calls import AiCallInfo, AiTotals
from holdfast.hosts.inspection.annotations import AnnotationInfo
from holdfast.hosts.inspection.audit_log import AuditInfo
from holdfast.hosts.inspection.children import ChildInfo
from holdfast.hosts.inspection.keys import KeyInfo, NewKey
from holdfast.hosts.inspection.limits import LimitInfo
from holdfast.hosts.inspection.logs import LogLine, ProgressInfo
from holdfast.hosts.inspection.messages import MessageInfo
from holdfast.hosts.inspection.namespaces import NamespaceDetails, NamespaceInfo
from holdfast.hosts.inspection.run_details import JobDetails, PublishedValue, RunDetails
from holdfast.hosts.inspection.run_info import ParentRun, RunError, RunEvent, RunInfo
from holdfast.hosts.inspection.schedules import NominalTime, ScheduleChanged, ScheduleInfo
from holdfast.hosts.inspection.stages import StageDetails
from holdfast.hosts.inspection.steps import StepDetails
from holdfast.hosts.inspection.topics import TopicGroupInfo, TopicInfo
from holdfast.hosts.inspection.triggers import TriggerChanged, TriggeredMessage, TriggerInfo
from holdfast.hosts.inspection.value_filters import OneOf, Prefix, Range, ValueFilter
from holdfast.hosts.inspection.value_previews import ValuePreview
from holdfast.hosts.inspection.why import WaitReason
from holdfast.hosts.inspection.workers import HeldWork, QueuedCode, QueueInfo, WorkerInfo
from holdfast.hosts.maintenance.doctor.findings import Diagnosis, DoctorFinding
from holdfast.kernel.authoring.scheduled_runs import Scheduled
from holdfast.kernel.commands import RunRerun, ScheduleStarted
from holdfast.kernel.runs.rerun_preview import RerunPreview
from holdfast.ports.actors import Actor
from holdfast.ports.attempt_output import AnnotationScope
from holdfast.ports.records.run import RunStatus
from holdfast.ports.scopes import Scope

__all__ = [
    "Actor",
    "AiCallInfo",
    "AiTotals",
    "AnnotationInfo",
    "AnnotationScope",
    "AppliedSchedule",
    "ArtifactInfo",
    "AuditInfo",
    "BulkResult",
    "ChildInfo",
    "Diagnosis",
    "DoctorFinding",
    "HeldWork",
    "JobDetails",
    "KeyInfo",
    "Keys",
    "LimitInfo",
    "Limits",
    "LogLine",
    "MessageInfo",
    "NamespaceDetails",
    "NamespaceInfo",
    "Namespaces",
    "NewKey",
    "NominalTime",
    "OneOf",
    "ParentRun",
    "PendingCall",
    "Prefix",
    "ProgressInfo",
    "PublishedValue",
    "QueueInfo",
    "QueuedCode",
    "Range",
    "ReplayResult",
    "RerunPreview",
    "RunDetails",
    "RunError",
    "RunEvent",
    "RunHistory",
    "RunInfo",
    "RunRerun",
    "RunStatus",
    "ScheduleChanged",
    "ScheduleHandle",
    "ScheduleInfo",
    "ScheduleStarted",
    "Scheduled",
    "Scope",
    "StageDetails",
    "StepDetails",
    "SyncKeys",
    "SyncLimits",
    "SyncNamespaces",
    "SyncScheduleHandle",
    "SyncTriggers",
    "TopicGroupInfo",
    "TopicInfo",
    "TriggerChanged",
    "TriggerInfo",
    "TriggeredMessage",
    "Triggers",
    "UpgradeCheck",
    "UpgradeVerdict",
    "ValueFilter",
    "ValuePreview",
    "WaitReason",
    "WorkerInfo",
]
