"""The rows of a store as plain dictionaries: the kernel's working set, and the storage of the in-memory store."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import attrs

from holdfast.ports.attempt_output import AiCall, Annotation, Artifact
from holdfast.ports.changes import (
    AdvanceStreams,
    AnyTable,
    BlockRun,
    CancelExternalWork,
    Change,
    Delete,
    DeleteJobs,
    DeleteJobsOfNode,
    DeleteRun,
    Insert,
    Update,
)
from holdfast.ports.errors import ConflictError
from holdfast.ports.records.audit_entry import AuditEntry
from holdfast.ports.records.browser_session import BrowserSession
from holdfast.ports.records.credential import Credential
from holdfast.ports.records.gatherings import Gathering, GatheringName
from holdfast.ports.records.history import HistoryRow, OutputRow
from holdfast.ports.records.job import Job, JobKey, JobKind, cancelling, held_job
from holdfast.ports.records.limits import (
    FairKey,
    FairKeyName,
    LimitName,
    LimitRow,
    RateName,
    RateWindow,
    SlotName,
)
from holdfast.ports.records.namespace import NamespaceRow
from holdfast.ports.records.outbox import Sink, SinkName, Stream, StreamHead, StreamKey, StreamState
from holdfast.ports.records.run import Run, RunName, blocked_run
from holdfast.ports.records.schedule import ScheduleName, ScheduleRow
from holdfast.ports.records.session import LeaderLease, Registration, Session
from holdfast.ports.records.topic import (
    GroupName,
    GroupRow,
    MessageName,
    ReturnedName,
    ReturnedRow,
    SubscriptionName,
    SubscriptionRow,
    TopicMessageRow,
    TopicName,
    TopicRow,
)
from holdfast.ports.records.trigger import TriggerName, TriggerRow
from holdfast.ports.records.values import IdempotencyReply, MapItems, PlanRow
from holdfast.ports.records.workflow import WorkflowKey, WorkflowRow
from holdfast.ports.tables import (
    AI_CALLS,
    ANNOTATIONS,
    ARTIFACTS,
    AUDIT_ENTRIES,
    BROWSER_SESSIONS,
    CREDENTIALS,
    FAIR_KEYS,
    GATHERINGS,
    GROUPS,
    JOBS,
    LEADERS,
    LIMITS,
    MAP_ITEMS,
    NAMESPACES,
    OF_RUNS,
    OUTPUT,
    PLANS,
    RATES,
    REGISTRATIONS,
    REPLIES,
    RETURNED_MESSAGES,
    RUNS,
    SCHEDULES,
    SESSIONS,
    SINKS,
    SLOTS,
    STREAMS,
    SUBSCRIPTIONS,
    TABLE_OF,
    TABLES,
    TOPIC_MESSAGES,
    TOPICS,
    TRIGGERS,
    WORKFLOWS,
    OnInsert,
    StoredRecord,
)

_NAMED: Final = tuple(table for table in TABLES if table.unique)


@attrs.define(init=False)
class Tables:
    """All rows of a store, or those that a batch of commands has read, with changes applied one by one."""

    rows: dict[AnyTable, dict[Any, Any]]
    """The rows of each table by key, except jobs and history rows. Most tables have an attribute, too."""
    names: dict[AnyTable, set[Any]]
    """The unique names that are taken (see `Table.unique`), by table."""
    jobs: dict[str, dict[int, Job]]
    """By run and number."""
    history: dict[str, list[HistoryRow]]
    """By run, in the order of their numbers."""
    newest: dict[RunName, str]
    """By name, the key of a run's newest generation."""
    runs: dict[str, Run]
    schedules: dict[str, ScheduleRow]
    pages: dict[tuple[str, str, int], MapItems]
    """Map items."""
    plans: dict[str, PlanRow]
    sessions: dict[str, Session]
    registrations: dict[str, Registration]
    replies: dict[tuple[str, str], IdempotencyReply]
    leaders: dict[str, LeaderLease]
    notes: dict[tuple[str, str], OutputRow]
    """Attempt output."""
    sinks: dict[str, Sink]
    streams: dict[StreamKey, Stream]
    annotations: dict[tuple[str, int, str], Annotation]
    artifacts: dict[tuple[str, int, int, str, str], Artifact]
    ai_calls: dict[tuple[str, int, str], AiCall]
    gatherings: dict[GatheringName, Gathering]
    slots: dict[SlotName, SlotName]
    rates: dict[RateName, RateWindow]
    fair_keys: dict[FairKeyName, FairKey]
    limits: dict[LimitName, LimitRow]
    credentials: dict[str, Credential]
    browser_sessions: dict[str, BrowserSession]
    audit_entries: dict[tuple[str, int, str], AuditEntry]
    namespaces: dict[str, NamespaceRow]
    workflows: dict[WorkflowKey, WorkflowRow]
    triggers: dict[TriggerName, TriggerRow]
    topics: dict[TopicName, TopicRow]
    topic_messages: dict[MessageName, TopicMessageRow]
    subscriptions: dict[SubscriptionName, SubscriptionRow]
    groups: dict[GroupName, GroupRow]
    returned_messages: dict[ReturnedName, ReturnedRow]

    def __init__(self) -> None:
        # Several are made for each transaction; `factory=dict[str, Run]` would take ten times as long.
        rows: dict[AnyTable, dict[Any, Any]] = {table: {} for table in TABLES}
        self.rows = rows
        self.names = {table: set() for table in _NAMED}
        self.jobs = {}
        self.history = {}
        self.newest = {}
        self.runs = rows[RUNS]
        self.schedules = rows[SCHEDULES]
        self.pages = rows[MAP_ITEMS]
        self.plans = rows[PLANS]
        self.sessions = rows[SESSIONS]
        self.registrations = rows[REGISTRATIONS]
        self.replies = rows[REPLIES]
        self.leaders = rows[LEADERS]
        self.notes = rows[OUTPUT]
        self.sinks = rows[SINKS]
        self.streams = rows[STREAMS]
        self.annotations = rows[ANNOTATIONS]
        self.artifacts = rows[ARTIFACTS]
        self.ai_calls = rows[AI_CALLS]
        self.gatherings = rows[GATHERINGS]
        self.slots = rows[SLOTS]
        self.rates = rows[RATES]
        self.fair_keys = rows[FAIR_KEYS]
        self.limits = rows[LIMITS]
        self.credentials = rows[CREDENTIALS]
        self.browser_sessions = rows[BROWSER_SESSIONS]
        self.audit_entries = rows[AUDIT_ENTRIES]
        self.namespaces = rows[NAMESPACES]
        self.workflows = rows[WORKFLOWS]
        self.triggers = rows[TRIGGERS]
        self.topics = rows[TOPICS]
        self.topic_messages = rows[TOPIC_MESSAGES]
        self.subscriptions = rows[SUBSCRIPTIONS]
        self.groups = rows[GROUPS]
        self.returned_messages = rows[RETURNED_MESSAGES]

    def job(self, key: JobKey) -> Job | None:
        """Return a job, or None if it does not exist."""
        of_run = self.jobs.get(key.run)
        return of_run.get(key.number) if of_run else None

    def whole_history(self, run: Run) -> list[HistoryRow]:
        """Return the history of a run, with the rows that it keeps of earlier generations."""
        rows: list[HistoryRow] = []
        for part in run.kept_rows:
            first = len(rows)
            rows += (row for row in self.history.get(part.run, ()) if first < row.number <= part.last)
        return [*rows, *self.history.get(run.key, ())]

    def run_named(self, name: RunName) -> Run | None:
        """Return the newest generation of a run, or None."""
        key = self.newest.get(name)
        return None if key is None else self.runs[key]

    def all_jobs(self) -> Iterator[Job]:
        """Yield every job, in no order."""
        for of_run in self.jobs.values():
            yield from of_run.values()

    def sink_named(self, name: SinkName) -> Sink | None:
        """Return a sink, or None if the name is unknown."""
        return next((sink for sink in self.sinks.values() if sink.sink_name == name), None)

    def schedule_named(self, name: ScheduleName) -> ScheduleRow | None:
        """Return a schedule, or None if the name is unknown."""
        return next((row for row in self.schedules.values() if row.schedule_name == name), None)

    def copy(self) -> "Tables":
        """Return a copy with the same rows."""
        copy = Tables()
        for table, rows in self.rows.items():
            copy.rows[table].update(rows)
        for table, names in self.names.items():
            copy.names[table].update(names)
        copy.jobs = {run: dict(jobs) for run, jobs in self.jobs.items() if jobs}
        copy.history = {run: list(rows) for run, rows in self.history.items()}
        copy.newest = dict(self.newest)
        return copy

    def put(self, record: StoredRecord) -> None:
        """Add a row that was read, or replace the one with its key."""
        if isinstance(record, HistoryRow):
            self.history.setdefault(record.run, []).append(record)
        elif isinstance(record, Job):
            self.jobs.setdefault(record.run, {})[record.number] = record
        else:
            table = TABLE_OF[type(record)]
            key, rows = table.key_of(record), self.rows[table]
            is_new = key not in rows
            rows[key] = record
            if is_new and table.unique:
                self._note_name(table, table.name_of(record), record)

    def taken(self, record: StoredRecord) -> object | None:
        """Return the key or the unique name of a new row that another one has; None if both are free."""
        # Rows of a history and jobs are inserted most often.
        if isinstance(record, HistoryRow):
            rows = self.history.get(record.run)
            return (record.run, record.number) if rows and rows[-1].number >= record.number else None
        if isinstance(record, Job):
            return record.key.text if record.number in self.jobs.get(record.run, ()) else None
        table = TABLE_OF[type(record)]
        key: object = table.key_of(record)
        if key in self.rows[table]:
            return key
        name = table.name_of(record)
        return name if name is not None and name in self.names[table] else None

    def apply(self, change: Change) -> None:
        """Make one change. ConflictError, and no effect, if the key or name of a new row is taken."""
        if isinstance(change, Insert):
            self.insert(change.record)
        elif isinstance(change, Update):
            self.put(change.record)
        elif isinstance(change, Delete):
            self._delete(change.table, change.key)
        else:
            match change:
                case CancelExternalWork(run, node, attempts):
                    for job in checks_of(self, run, node):
                        self.put(cancelling(job, attempts))
                case DeleteJobs(run):
                    self._close_jobs(run, lambda job: job.kind is not JobKind.DELIVER)
                case DeleteJobsOfNode(run, node):
                    self._close_jobs(run, lambda job: job.node == node)
                case BlockRun():
                    self._block_run(change)
                case DeleteRun(run, streams):
                    self._remove_run(run, streams)
                case AdvanceStreams(head):
                    self._advance_stream(head)

    def _note_name(self, table: AnyTable, name: object | None, record: Any) -> None:
        if name is not None:
            self.names[table].add(name)
        if isinstance(record, Run):
            known = self.newest.get(record.name)
            if known is None or self.runs[known].generation <= record.generation:
                self.newest[record.name] = record.key

    def insert(self, record: StoredRecord) -> None:
        """Insert a row. ConflictError, and no effect, if its key or name is taken, unless the table allows that."""
        # The same as `taken`, then `put`, without these calls: every new row of a batch is inserted here.
        if isinstance(record, HistoryRow):
            rows = self.history.setdefault(record.run, [])
            if rows and rows[-1].number >= record.number:
                raise ConflictError(f"history: {(record.run, record.number)} exists")
            rows.append(record)
            return
        if isinstance(record, Job):
            jobs = self.jobs.setdefault(record.run, {})
            if record.number in jobs:
                raise ConflictError(f"jobs: {record.key.text} exists")
            jobs[record.number] = record
            return
        table = TABLE_OF[type(record)]
        if table.on_insert is OnInsert.REPLACE:
            self.put(record)
            return
        key: Any = table.key_of(record)
        known = self.rows[table]
        name = table.name_of(record) if table.unique else None
        if key in known or (name is not None and name in self.names[table]):
            if table.on_insert is OnInsert.KEEP:
                return
            raise ConflictError(f"{table.name}: {key if key in known else name} exists")
        known[key] = record
        if table.unique:
            self._note_name(table, name, record)

    def _delete(self, table: AnyTable, key: Any) -> None:
        if table is JOBS:
            self.jobs.get(key.run, {}).pop(key.number, None)
            return
        row = self.rows[table].pop(key, None)
        if row is not None and table.unique:
            self.names[table].discard(table.name_of(row))

    def _block_run(self, change: BlockRun) -> None:
        run = self.runs.get(change.run)
        if run is not None and change.last_row is not None:
            self.runs[run.key] = blocked_run(run, change.at, change.last_row)
        of_run = self.jobs.get(change.run, {})
        self.jobs.update(
            {change.run: {number: held_job(job) for number, job in of_run.items()}} if of_run else {}
        )

    def _close_jobs(self, run: str, is_meant: Callable[[Job], bool]) -> None:
        of_run = self.jobs.pop(run, {})
        left = {
            number: job for number, job in of_run.items() if job.kind is JobKind.CANCEL or not is_meant(job)
        }
        if left:
            self.jobs[run] = left

    def _remove_run(self, key: str, streams: Iterable[StreamKey]) -> None:
        run = self.runs.get(key)
        if run is not None and self.newest.get(run.name) == key:
            del self.newest[run.name]
        self._delete(RUNS, key)
        for stream in streams:
            self._delete(STREAMS, stream)
        self.jobs.pop(key, None)
        self.history.pop(key, None)
        for table in OF_RUNS:
            for place in [place for place in self.rows[table] if place[0] == key]:
                self._delete(table, place)

    def _advance_stream(self, head: StreamHead) -> None:
        """Record new rows in a stream. It becomes due, unless it is due already, being delivered, or dead-lettered."""
        key = StreamKey(head.sink, head.run)
        known = self.streams.get(key)
        if known is None:
            stream = Stream(sink=head.sink, run=head.run, head_row=head.head_row, due_at=head.at)
        else:
            is_idle = known.state is StreamState.READY and known.due_at is None
            due_at = head.at if is_idle else known.due_at
            stream = attrs.evolve(known, head_row=max(known.head_row, head.head_row), due_at=due_at)
        self.streams[key] = stream


def checks_of(tables: Tables, run: str, node: str) -> Sequence[Job]:
    """Return the jobs that poll external work of a node."""
    of_run = tables.jobs.get(run, {}).values()
    return [job for job in of_run if (job.node, job.kind) == (node, JobKind.POLL)]
