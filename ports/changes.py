"""Changes: the row writes that a decision requests from a store, and their net effect over a batch."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Generic, TypeAlias

import attrs
from typing_extensions import TypeVar

from holdfast.ports.errors import ConflictError
from holdfast.ports.records.job import Job, JobKey, JobKind, cancelling
from holdfast.ports.records.outbox import StreamHead, StreamKey
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen
from holdfast.ports.tables import JOBS, OF_RUNS, RUNS, STREAMS, TABLE_OF, OnInsert, StoredRecord, Table

Key = TypeVar("Key", default=Any)
Record = TypeVar("Record")
AnyTable: TypeAlias = Table[Any, Any]


@frozen
class Insert:
    """Insert a record into its table. `Table.on_insert` applies if it exists."""

    tag: ClassVar[str] = "insert"
    record: StoredRecord


@frozen
class Update:
    """Replace the existing row with the key of this record."""

    tag: ClassVar[str] = "update"
    record: StoredRecord


@frozen
class Delete(Generic[Key]):
    """Delete the row with this key, if it exists."""

    tag: ClassVar[str] = "delete"
    table: Table[Any, Key]
    key: Key


@frozen
class CancelExternalWork:
    """Turn the polls of a node into jobs that cancel its external work (see `cancelling`)."""

    tag: ClassVar[str] = "cancel_external_work"
    run: str
    node: str
    attempts: int
    """How often a cancellation may be tried."""


@frozen
class DeleteJobs:
    """Delete all jobs of a run, except those that cancel external work or deliver to other runs."""

    tag: ClassVar[str] = "delete_jobs"
    run: str


@frozen
class DeleteJobsOfNode:
    """Delete all jobs of one node of a run, except those that cancel external work."""

    tag: ClassVar[str] = "delete_jobs_of_node"
    run: str
    node: str


@frozen
class BlockRun:
    """Block a run whose rows may be unreadable, and pause its jobs, without decoding them (docs/decisions/0062).

    A run that has ended keeps its status. Leased jobs of a known kind stay with their workers.
    """

    tag: ClassVar[str] = "block_run"
    run: str
    at: Micros
    last_row: int | None
    """The number of its last history row; None if the run's own row is missing and only jobs exist."""


@frozen
class DeleteRun:
    """Delete a run without jobs, everything that refers to it, and these streams of it."""

    tag: ClassVar[str] = "delete_run"
    run: str
    streams: tuple[StreamKey, ...] = ()


@frozen
class AdvanceStreams:
    """Record new rows of a run in a sink's stream, which is created if necessary. `head_row` never decreases."""

    tag: ClassVar[str] = "advance_streams"
    heads: StreamHead


Change: TypeAlias = (
    Insert
    | Update
    | Delete
    | CancelExternalWork
    | DeleteJobs
    | DeleteJobsOfNode
    | BlockRun
    | DeleteRun
    | AdvanceStreams
)


@attrs.define(init=False)
class NetChanges:
    """The net effect of a batch of changes: at most one write for each row.

    Stores write one table after the other, in the order of `TABLES`. In each, they delete, insert and update rows in
    this order, each by ascending key, so that all transactions lock rows and index entries in one order.
    """

    deleted: defaultdict[AnyTable, set[Any]]
    """The keys of rows to delete, by table."""
    inserted: defaultdict[AnyTable, dict[Any, Any]]
    """New rows by table and key."""
    updated: defaultdict[AnyTable, dict[Any, Any]]
    """Changed rows by table and key."""
    removed_runs: set[str]
    """Runs that are deleted before anything else is written, with all rows of `OF_RUNS`."""
    blocked_runs: dict[str, BlockRun]
    """Written after the updates of runs; their jobs before other changes of jobs."""
    cancelled_work: dict[tuple[str, str], int]
    """The attempts of each cancellation, by run and node. Written before other changes of jobs."""
    closed_runs: set[str]
    """Runs whose jobs are deleted, before single jobs are."""
    closed_nodes: set[tuple[str, str]]
    """(run, node) pairs whose jobs are deleted, before single jobs are."""
    stream_heads: dict[StreamKey, StreamHead]
    """Written after the updates of streams."""

    def __init__(self) -> None:
        self.deleted = defaultdict(set)
        self.inserted = defaultdict(dict)
        self.updated = defaultdict(dict)
        self.removed_runs = set()
        self.blocked_runs = {}
        self.cancelled_work = {}
        self.closed_runs = set()
        self.closed_nodes = set()
        self.stream_heads = {}

    def add(self, change: Change) -> None:
        """Fold in one more change. ConflictError if two new rows have the same key, unless their table allows it."""
        if isinstance(change, Insert):
            self._insert(change.record)
        elif isinstance(change, Update):
            table = TABLE_OF[type(change.record)]
            key = table.key_of(change.record)
            inserted = self.inserted.get(table)
            rows = inserted if inserted and key in inserted else self.updated[table]
            rows[key] = change.record
        elif isinstance(change, Delete):
            self._delete(change.table, change.key)
        else:
            match change:
                case CancelExternalWork():
                    self._cancel_work(change)
                case DeleteJobs(run):
                    self.closed_runs.add(run)
                    self._drop_jobs(run, lambda job: job.kind is not JobKind.DELIVER)
                case DeleteJobsOfNode(run, node):
                    self.closed_nodes.add((run, node))
                    self._drop_jobs(run, lambda job: job.node == node)
                case BlockRun(run):
                    self.blocked_runs[run] = change
                case DeleteRun(run, streams):
                    self._remove_run(run, streams)
                case AdvanceStreams(head):
                    self._advance_stream(head)

    def _insert(self, record: StoredRecord) -> None:
        table = TABLE_OF[type(record)]
        key = table.key_of(record)
        rows = self.inserted[table]
        if key not in rows or table.on_insert is OnInsert.REPLACE:
            rows[key] = record
        elif table.on_insert is OnInsert.REFUSE:
            raise ConflictError(f"{table.name}: two new rows have the key {key}")

    def _delete(self, table: AnyTable, key: Any) -> None:
        self.updated[table].pop(key, None)
        is_new = self.inserted[table].pop(key, None) is not None
        # The row may have been there before its insert, unless that is refused then.
        if not is_new or table.on_insert is not OnInsert.REFUSE:
            self.deleted[table].add(key)

    def _new_and_changed_jobs(self) -> tuple[dict[JobKey, Job], dict[JobKey, Job]]:
        return self.inserted[JOBS], self.updated[JOBS]

    def _cancel_work(self, change: CancelExternalWork) -> None:
        """Stores write this before new jobs, so jobs that the batch deletes must stay out of it."""
        place = (change.run, change.node)
        if change.run not in self.closed_runs and place not in self.closed_nodes:
            self.cancelled_work.setdefault(place, change.attempts)
        for jobs in self._new_and_changed_jobs():
            for key, job in jobs.items():
                if (job.run, job.node, job.kind) == (change.run, change.node, JobKind.POLL):
                    jobs[key] = cancelling(job, change.attempts)

    def _drop_jobs(self, run: str, is_meant: Callable[[Job], bool]) -> None:
        """Jobs deleted one by one stay in `deleted`: they may be ones that the end of a run spares."""
        for jobs in self._new_and_changed_jobs():
            for key, job in list(jobs.items()):
                if key.run == run and job.kind is not JobKind.CANCEL and is_meant(job):
                    del jobs[key]

    def _remove_run(self, run: str, streams: Iterable[StreamKey]) -> None:
        """Drop all other changes of the batch to this run."""
        for rows in (self.inserted, self.updated):
            rows[RUNS].pop(run, None)
            for table in OF_RUNS:
                rows[table] = {key: row for key, row in rows[table].items() if key[0] != run}
            rows[STREAMS] = {key: row for key, row in rows[STREAMS].items() if key.run != run}
        for table in OF_RUNS:
            self.deleted[table] = {key for key in self.deleted[table] if key[0] != run}
        self.removed_runs.add(run)
        self.deleted[STREAMS].update(streams)
        self.blocked_runs.pop(run, None)
        self.closed_runs.discard(run)
        self.closed_nodes = {place for place in self.closed_nodes if place[0] != run}
        self.cancelled_work = {place: most for place, most in self.cancelled_work.items() if place[0] != run}
        self.stream_heads = {key: head for key, head in self.stream_heads.items() if key.run != run}

    def _advance_stream(self, head: StreamHead) -> None:
        """Merge two heads: the first one has the instant from which the stream is due, the highest one its last row."""
        key = StreamKey(head.sink, head.run)
        known = self.stream_heads.get(key)
        self.stream_heads[key] = (
            head if known is None else attrs.evolve(known, head_row=max(known.head_row, head.head_row))
        )


def inserted(changes: Iterable[Change], record: type[Record]) -> Iterator[Record]:
    """Yield the new rows of one class, in order."""
    for change in changes:
        if isinstance(change, Insert) and isinstance(change.record, record):
            yield change.record


def net_changes(changes: Iterable[Change]) -> NetChanges:
    """Return the net effect of changes, in order."""
    net = NetChanges()
    new = net.inserted
    for change in changes:
        if isinstance(change, Insert):  # nearly all: `add` without two calls, unless another row has the key
            record = change.record
            table = TABLE_OF[type(record)]
            key: Any = table.key_of(record)
            if key not in (rows := new[table]):
                rows[key] = record
                continue
        net.add(change)
    return net
