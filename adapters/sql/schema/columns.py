"""The column of each field of each record. Nothing else connects the two: a field may be renamed, a column may not.

To add a field, add it here, its column to `tables`, and a migration.
"""

from collections.abc import Collection, Mapping
from typing import Final

import attrs
from sqlalchemy import Table

from holdfast.adapters.sql.schema import tables
from holdfast.ports.attempt_output import AiCall, Annotation, Artifact
from holdfast.ports.records.audit_entry import AuditEntry
from holdfast.ports.records.browser_session import BrowserSession
from holdfast.ports.records.credential import Credential
from holdfast.ports.records.gatherings import Gathering
from holdfast.ports.records.history import HistoryRow, OutputRow
from holdfast.ports.records.job import Job
from holdfast.ports.records.limits import FairKey, LimitRow, RateWindow, SlotName
from holdfast.ports.records.namespace import NamespaceRow
from holdfast.ports.records.outbox import Sink, Stream
from holdfast.ports.records.run import Run
from holdfast.ports.records.schedule import ScheduleRow
from holdfast.ports.records.session import LeaderLease, Registration, Session
from holdfast.ports.records.topic import GroupRow, ReturnedRow, SubscriptionRow, TopicMessageRow, TopicRow
from holdfast.ports.records.trigger import TriggerRow
from holdfast.ports.records.values import IdempotencyReply, MapItems, PlanRow
from holdfast.ports.records.workflow import WorkflowRow


class ColumnMap:
    """The columns of one record.

    Raises:
        TypeError: The map lacks a field of the record or a column of the table, or names one that does not exist.
    """

    def __init__(
        self,
        record: type,
        table: Table,
        columns: Mapping[str, str],
        *,
        blobs: Collection[str] = (),
        derived: Collection[str] = (),
    ) -> None:
        """Map fields to columns, in the order of statements.

        A payload has two columns: its field stands for the inline text. `blobs` names the entries for the blob keys.
        `derived` names columns that no field has: the store computes them.
        """
        self.record = record
        self.table = table
        self.fields = tuple(columns)
        """The fields, in the order of the columns; for the key of a blob, the name of its entry."""
        self.columns = tuple(columns.values())
        self._columns = dict(columns)
        self._fields = {column: field for field, column in columns.items()}
        names = getattr(record, "_fields", ()) or [field.name for field in attrs.fields(record)]
        self._check("fields", {*names}, set(self.fields) - set(blobs))
        self._check("columns", {column.name for column in table.columns} - set(derived), set(self.columns))
        if len(self._fields) < len(self.columns):
            twice = sorted({column for column in self.columns if self.columns.count(column) > 1})
            raise TypeError(f"the column map of {record.__name__} names columns twice: {', '.join(twice)}")

    def column_of(self, field: str) -> str:
        """Return the column of a field."""
        return self._columns[field]

    def columns_of(self, fields: Collection[str]) -> tuple[str, ...]:
        """Return the columns of fields."""
        return tuple(self._columns[field] for field in fields)

    def fields_of(self, columns: Collection[str]) -> tuple[str, ...]:
        """Return the fields of columns."""
        return tuple(self._fields[column] for column in columns)

    def _check(self, what: str, expected: set[str], named: set[str]) -> None:
        if named != expected:
            missing, unknown = (
                ", ".join(sorted(names)) or "none" for names in (expected - named, named - expected)
            )
            raise TypeError(
                f"the column map of {self.record.__name__} must name the {what} that exist; missing: {missing}; "
                f"unknown: {unknown}. Correct {__name__}; a new column needs a migration"
            )


_MAPS: Final = (
    ColumnMap(
        ScheduleRow,
        tables.schedules,
        {
            "key": "key",
            "namespace": "namespace",
            "name": "name",
            "workflow": "workflow",
            "start": "start",
            "timing": "timing",
            "policy": "policy",
            "zones": "zones",
            "next_at": "next_at",
            "handled_until": "handled_until",
            "last_local": "last_local",
            "started": "started",
            "skipped": "skipped",
            "missed": "missed",
            "failures": "failures",
            "recent": "recent",
            "changes": "changes",
            "open_runs": "open_runs",
            "paused": "paused",
            "problem": "problem",
            "declared": "declared",
            "created_at": "created_at",
            "updated_at": "updated_at",
        },
    ),
    ColumnMap(
        Run,
        tables.runs,
        {
            "key": "key",
            "namespace": "namespace",
            "id": "id",
            "generation": "generation",
            "workflow": "workflow",
            "version": "version",
            "plan": "plan",
            "status": "status",
            "queue": "queue",
            "priority": "priority",
            "created_at": "created_at",
            "updated_at": "updated_at",
            "ended_at": "ended_at",
            "last_row": "last_row",
            "last_job": "last_job",
            "open_jobs": "open_jobs",
            "progress": "progress",
            "result": "result",
            "error": "error",
            "attributes": "attributes",
            "rerun_of": "rerun_of",
            "rerun_from": "rerun_from",
            "inherited": "inherited",
            "start_at": "start_at",
            "deadline": "deadline",
            "concurrency_key": "concurrency_key",
            "concurrency_limit": "concurrency_limit",
            "concurrency_waiting": "concurrency_waiting",
            "concurrency_full": "concurrency_full",
            "concurrency_outer": "concurrency_outer",
            "parent": "parent",
            "parent_run": "parent_run",
            "close_policy": "close_policy",
            "children": "children",
            "queue_position": "queue_position",
            "mailbox": "mailbox",
            "scheduled": "scheduled",
            "reported_row": "reported_row",
            "gathered": "gathered",
            "rate_key": "rate_key",
            "rate_limit": "rate_limit",
            "rate_period": "rate_period",
            "rate_units": "rate_units",
            "rate_counted_at": "rate_counted_at",
            "in_rate_line": "in_rate_line",
            "headers": "headers",
        },
    ),
    ColumnMap(
        Job,
        tables.jobs,
        {
            "run": "run",
            "number": "number",
            "namespace": "namespace",
            "queue": "queue",
            "definition": "definition",
            "kind": "kind",
            "node": "node",
            "item": "item",
            "state": "state",
            "priority": "priority",
            "wake_at": "wake_at",
            "epoch": "epoch",
            "attempts": "attempts",
            "max_attempts": "max_attempts",
            "session": "session",
            "leased_at": "leased_at",
            "lost_attempts": "lost_attempts",
            "input": "input",
            "timeout_total": "timeout_total",
            "first_claimed_at": "first_claimed_at",
            "heartbeat_timeout": "heartbeat_timeout",
            "heartbeat_by": "heartbeat_by",
            "concurrency_key": "concurrency_key",
            "concurrency_limit": "concurrency_limit",
            "queue_position": "queue_position",
            "rate_limit": "rate_limit",
            "rate_period": "rate_period",
            "turn": "turn",
            "waiting_for": "waiting_for",
            "check_after": "check_after",
            "give_up_at": "give_up_at",
        },
    ),
    ColumnMap(
        HistoryRow,
        tables.history,
        {
            "run": "run",
            "number": "number",
            "type": "type",
            "at": "at",
            "node": "node",
            "item": "item",
            "epoch": "epoch",
            "payload": "payload",
            "blob": "blob",
            "data": "data",
        },
        blobs=("blob",),
    ),
    ColumnMap(
        MapItems,
        tables.items,
        {
            "run": "run",
            "node": "node",
            "page": "page",
            "items": "items",
        },
    ),
    ColumnMap(
        PlanRow,
        tables.plans,
        {
            "fingerprint": "fingerprint",
            "workflow": "workflow",
            "version": "version",
            "body": "body",
        },
    ),
    ColumnMap(
        Session,
        tables.sessions,
        {
            "id": "id",
            "host": "host",
            "state": "state",
            "opened_at": "opened_at",
            "expires_at": "expires_at",
            "namespace": "namespace",
            "principal": "principal",
            "is_registered": "is_registered",
        },
    ),
    ColumnMap(
        Registration,
        tables.registrations,
        {"session": "session", "namespace": "namespace", "about": "about", "lease": "lease"},
    ),
    ColumnMap(
        IdempotencyReply,
        tables.replies,
        {
            "namespace": "namespace",
            "key": "key",
            "fingerprint": "fingerprint",
            "body": "body",
            "created_at": "created_at",
        },
    ),
    ColumnMap(
        LeaderLease,
        tables.leaders,
        {
            "name": "name",
            "session": "session",
            "expires_at": "expires_at",
        },
    ),
    ColumnMap(
        Sink,
        tables.sinks,
        {
            "key": "key",
            "namespace": "namespace",
            "name": "name",
            "since": "since",
            "created_at": "created_at",
            "options": "options",
            "failures": "failures",
            "retry_at": "retry_at",
            "succeeded_at": "succeeded_at",
            "swept_at": "swept_at",
            "error": "error",
            "batch": "batch",
        },
    ),
    ColumnMap(
        Stream,
        tables.outbox,
        {
            "sink": "sink",
            "run": "run",
            "head_row": "head_row",
            "delivered": "delivered",
            "state": "state",
            "due_at": "due_at",
            "holder": "holder",
            "attempts": "attempts",
            "refused_row": "refused_row",
            "failed_at": "failed_at",
            "dead_lettered_at": "dead_lettered_at",
            "error": "error",
            "skipped_rows": "skipped_rows",
        },
    ),
    ColumnMap(
        TriggerRow,
        tables.triggers,
        {
            "namespace": "namespace",
            "name": "name",
            "topic": "topic",
            "selection": "selection",
            "workflow": "workflow",
            "start": "start",
            "since": "since",
            "next_number": "next_number",
            "started": "started",
            "refused": "refused",
            "recent": "recent",
            "changes": "changes",
            "paused": "paused",
            "problem": "problem",
            "declared": "declared",
            "created_at": "created_at",
            "updated_at": "updated_at",
        },
    ),
    ColumnMap(
        TopicRow,
        tables.topics,
        {
            "namespace": "namespace",
            "name": "name",
            "last": "last",
            "after_subscription": "after_subscription",
            "kept_from": "kept_from",
        },
    ),
    ColumnMap(
        TopicMessageRow,
        tables.topic_messages,
        {
            "namespace": "namespace",
            "topic": "topic",
            "id": "id",
            "number": "number",
            "at": "at",
            "payload": "payload",
            "attributes": "attributes",
            "checked": "checked",
            "sender": "sender",
            "sender_row": "sender_row",
            "expires_at": "expires_at",
            "keep_last": "keep_last",
        },
    ),
    ColumnMap(
        SubscriptionRow,
        tables.subscriptions,
        {
            "namespace": "namespace",
            "run_id": "run_id",
            "channel": "channel",
            "topic": "topic",
            "selection": "selection",
            "digest": "digest",
            "next_number": "next_number",
            "since": "since",
            "group_key": "group_key",
            "waits_since": "waits_since",
            "holds": "holds",
        },
    ),
    ColumnMap(
        GroupRow,
        tables.topic_groups,
        {
            "namespace": "namespace",
            "topic": "topic",
            "group_key": "group_key",
            "name": "name",
            "selection": "selection",
            "next_number": "next_number",
            "since": "since",
            "used_at": "used_at",
        },
    ),
    ColumnMap(
        ReturnedRow,
        tables.returned_messages,
        {"namespace": "namespace", "topic": "topic", "group_key": "group_key", "number": "number"},
    ),
    ColumnMap(Gathering, tables.gatherings, {"namespace": "namespace", "name": "name", "run": "run"}),
    ColumnMap(SlotName, tables.slots, {"namespace": "namespace", "name": "name"}),
    ColumnMap(
        RateWindow,
        tables.rates,
        {
            "namespace": "namespace",
            "name": "name",
            "starts": "starts",
            "wakes_at": "wakes_at",
            "admits_at": "admits_at",
            "updated_at": "updated_at",
        },
    ),
    ColumnMap(
        FairKey,
        tables.fair_keys,
        {
            "namespace": "namespace",
            "line": "line",
            "key": "key",
            "next_turn": "next_turn",
            "weight": "weight",
            "updated_at": "updated_at",
        },
    ),
    ColumnMap(
        LimitRow,
        tables.limits,
        {
            "namespace": "namespace",
            "name": "name",
            "slots": "slots",
            "rate_limit": "rate_limit",
            "rate_period": "rate_period",
            "is_paused": "is_paused",
            "reason": "reason",
            "actor_kind": "actor_kind",
            "actor_id": "actor_id",
            "actor_version": "actor_version",
            "updated_at": "updated_at",
        },
    ),
    ColumnMap(
        Credential,
        tables.credentials,
        {
            "id": "id",
            "kind": "kind",
            "label": "label",
            "unique_label": "unique_label",
            "principal": "principal",
            "scopes": "scopes",
            "namespaces": "namespaces",
            "hash": "hash",
            "previous_hash": "previous_hash",
            "previous_until": "previous_until",
            "created_at": "created_at",
            "expires_at": "expires_at",
            "used_at": "used_at",
            "revoked_at": "revoked_at",
        },
    ),
    ColumnMap(
        BrowserSession,
        tables.browser_sessions,
        {
            "id": "id",
            "hash": "hash",
            "kind": "kind",
            "principal": "principal",
            "credential": "credential",
            "credential_hash": "credential_hash",
            "scopes": "scopes",
            "namespaces": "namespaces",
            "created_at": "created_at",
            "used_at": "used_at",
            "idle": "idle",
            "expires_at": "expires_at",
            "ends_at": "ends_at",
        },
    ),
    ColumnMap(
        AuditEntry,
        tables.audit_entries,
        {
            "namespace": "namespace",
            "at": "at",
            "id": "id",
            "actor_kind": "actor_kind",
            "actor_id": "actor_id",
            "actor_version": "actor_version",
            "action": "action",
            "target": "target",
            "request_id": "request_id",
            "details": "details",
        },
    ),
    ColumnMap(
        NamespaceRow,
        tables.namespaces,
        {
            "name": "name",
            "created_at": "created_at",
            "note": "note",
            "max_active_runs": "max_active_runs",
            "max_starts_per_minute": "max_starts_per_minute",
        },
    ),
    ColumnMap(
        WorkflowRow,
        tables.workflows,
        {
            "namespace": "namespace",
            "name": "name",
            "version": "version",
            "plan": "plan",
            "schemas": "schemas",
            "registered_at": "registered_at",
        },
    ),
    ColumnMap(
        OutputRow,
        tables.notes,
        {
            "run": "run",
            "id": "id",
            "job": "job",
            "epoch": "epoch",
            "call": "call",
            "at": "at",
            "kind": "kind",
            "data": "data",
        },
        derived=("log_number",),
    ),
    ColumnMap(
        Annotation,
        tables.annotations,
        {
            "run": "run",
            "at": "at",
            "id": "id",
            "namespace": "namespace",
            "name": "name",
            "value": "value",
            "scope": "scope",
            "node": "node",
            "item": "item",
            "job": "job",
            "epoch": "epoch",
            "actor_kind": "actor_kind",
            "actor_id": "actor_id",
            "actor_version": "actor_version",
            "reason": "reason",
            "key": "key",
        },
    ),
    ColumnMap(
        Artifact,
        tables.artifacts,
        {
            "run": "run",
            "job": "job",
            "epoch": "epoch",
            "call": "call",
            "name": "name",
            "node": "node",
            "item": "item",
            "at": "at",
            "content_type": "content_type",
            "size": "size",
            "sha256": "sha256",
            "blob": "blob",
        },
    ),
    ColumnMap(
        AiCall,
        tables.ai_calls,
        {
            "run": "run",
            "at": "at",
            "id": "id",
            "job": "job",
            "epoch": "epoch",
            "node": "node",
            "item": "item",
            "topic": "topic",
            "model": "model",
            "kind": "kind",
            "input_tokens": "input_tokens",
            "output_tokens": "output_tokens",
            "cost": "cost",
            "duration": "duration",
            "batch": "batch",
            "batch_index": "batch_index",
            "prompt": "prompt",
            "prompt_blob": "prompt_blob",
            "response": "response",
            "response_blob": "response_blob",
            "error": "error",
            "metadata": "metadata",
        },
        blobs=("prompt_blob", "response_blob"),
    ),
)

COLUMNS: Final[Mapping[type, ColumnMap]] = {one.record: one for one in _MAPS}
"""By record."""
