"""The rows of a store as plain dictionaries: the kernel's working set, and the storage of the in-memory store."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import attrs

from holdfast.ports.attempt_output import AiCall, Annotation, Artifact
from holdfast.ports.changes import (
    AddAiCall,
    AddAnnotation,
    AddArtifact,
    AddAttemptOutput,
    AddConcurrencyLimit,
    AddJob,
    AddLeader,
    AddMapItems,
    AddRateLimit,
    AddSink,
    AdvanceStreams,
    AppendHistory,
    BlockRun,
    CancelExternalWork,
    Change,
    CreateRun,
    DeleteJob,
    DeleteJobs,
    DeleteJobsOfNode,
    DeleteRun,
    DeleteSink,
    PutSession,
    StorePlan,
    StoreReply,
    UpdateJob,
    UpdateLeader,
    UpdateRateLimit,
    UpdateRun,
    UpdateSink,
    UpdateStream,
)
from holdfast.ports.errors import ConflictError
from holdfast.ports.records.history import HistoryRow, OutputRow
from holdfast.ports.records.job import Job, JobKey, JobKind, cancelling, held_job
from holdfast.ports.records.limits import RateName, RateWindow, SlotName
from holdfast.ports.records.outbox import Sink, SinkName, Stream, StreamHead, StreamKey, StreamState
from holdfast.ports.records.run import Run, RunName, blocked_run
from holdfast.ports.records.session import LeaderLease, Session
from holdfast.ports.records.values import IdempotencyReply, MapItems, PlanRow

_UNIQUE: Final = frozenset(
    {
        CreateRun,
        AddJob,
        AppendHistory,
        StoreReply,
        AddMapItems,
        AddAttemptOutput,
        AddConcurrencyLimit,
        AddRateLimit,
        AddLeader,
        AddSink,
        AddAnnotation,
        AddArtifact,
    }
)
"""The types of changes that can conflict with existing rows. Most changes are of other types."""


@attrs.define(init=False)
class Tables:
    """All rows of a store, or those that a batch of commands has read, with changes applied one by one."""

    runs: dict[str, Run]
    newest: dict[RunName, str]
    """By name, the key of a run's newest generation."""
    jobs: dict[str, dict[int, Job]]
    """By run and number."""
    history: dict[str, list[HistoryRow]]
    """By run, in the order of their numbers."""
    pages: dict[tuple[str, str, int], MapItems]
    """Map items by run, node and page."""
    plans: dict[str, PlanRow]
    sessions: dict[str, Session]
    replies: dict[tuple[str, str], IdempotencyReply]
    """By namespace and idempotency key."""
    leaders: dict[str, LeaderLease]
    notes: dict[str, OutputRow]
    """Attempt output by id."""
    sinks: dict[str, Sink]
    streams: dict[StreamKey, Stream]
    annotations: dict[str, list[Annotation]]
    annotation_keys: dict[tuple[str, str], set[str]]
    """By run and idempotency key, the names of the annotations stored under it."""
    artifacts: dict[tuple[str, int, int, str, str], Artifact]
    """By run, job, epoch and name."""
    ai_calls: dict[str, list[AiCall]]
    ai_call_names: set[tuple[str, str, int]]
    """The unique names of calls of AI models: run, id and instant; for results of batches also run, batch and index."""
    slots: set[SlotName]
    rates: dict[RateName, RateWindow]

    def __init__(self) -> None:
        # Several are made for each transaction; `factory=dict[str, Run]` would take ten times as long.
        self.runs = {}
        self.newest = {}
        self.jobs = {}
        self.history = {}
        self.pages = {}
        self.plans = {}
        self.sessions = {}
        self.replies = {}
        self.leaders = {}
        self.notes = {}
        self.sinks = {}
        self.streams = {}
        self.annotations = {}
        self.annotation_keys = {}
        self.artifacts = {}
        self.ai_calls = {}
        self.ai_call_names = set()
        self.slots = set()
        self.rates = {}

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

    def put_run(self, run: Run) -> None:
        """Add or replace a run that was read."""
        is_known = run.key in self.runs
        self.runs[run.key] = run
        if is_known:  # then its name is in `newest`
            return
        known = self.newest.get(run.name)
        if known is None or self.runs[known].generation <= run.generation:
            self.newest[run.name] = run.key

    def put_job(self, job: Job) -> None:
        """Add or replace a job that was read."""
        self.jobs.setdefault(job.run, {})[job.number] = job

    def sink_named(self, name: SinkName) -> Sink | None:
        """Return a sink, or None if the name is unknown."""
        return next((sink for sink in self.sinks.values() if sink.sink_name == name), None)

    def advance_stream(self, head: StreamHead) -> None:
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

    def conflicts(self, change: Change) -> str | None:
        """Return why a change can't be made, which is a unique name that is taken; None if it can."""
        if type(change) not in _UNIQUE:
            return None
        # `isinstance` is several times as fast as a class pattern, and these are the most frequent changes.
        if isinstance(change, AppendHistory):
            row = change.row
            rows = self.history.get(row.run)
            if rows and rows[-1].number >= row.number:
                return f"history row {row.number} of run {row.run} exists"
            return None
        if isinstance(change, AddJob):
            job = change.job
            is_there = job.number in self.jobs.get(job.run, ())
            return f"job {job.key.text} exists" if is_there else None
        if isinstance(change, CreateRun):
            run = change.run
            known = self.run_named(run.name)
            is_there = run.key in self.runs or (known is not None and known.generation >= run.generation)
            return f"run {run.id!r} exists" if is_there else None
        match change:
            case StoreReply(reply):
                if (reply.namespace, reply.key) in self.replies:
                    return f"idempotency key {reply.key!r} is used"
            case AddMapItems(page):
                if (page.run, page.node, page.page) in self.pages:
                    return f"page {page.page} of what {page.node!r} of run {page.run} goes over exists"
            case AddConcurrencyLimit(slot):
                if slot in self.slots:
                    return f"slot {slot.name!r} exists"
            case AddRateLimit(window):
                if window.rate_name in self.rates:
                    return f"rate {window.name!r} exists"
            case AddLeader(lease):
                if lease.name in self.leaders:
                    return f"duty {lease.name!r} exists"
            case AddSink(sink):
                if sink.key in self.sinks or self.sink_named(sink.sink_name) is not None:
                    return f"sink {sink.name!r} exists"
            case AddAnnotation(annotation):
                names = self.annotation_keys.get((annotation.run, annotation.key or ""), ())
                if annotation.key is not None and annotation.name in names:
                    return f"{annotation.name!r} was stored under the key {annotation.key!r}"
            case AddArtifact(artifact):
                if artifact.key in self.artifacts:
                    return f"artifact {artifact.name!r} exists"
            case _:
                pass
        return None

    def apply(self, change: Change) -> None:
        """Make one change. ConflictError, and no effect, if `conflicts` returns a reason."""
        conflict = self.conflicts(change)
        if conflict is not None:
            raise ConflictError(conflict)
        if isinstance(change, AppendHistory):
            self.history.setdefault(change.row.run, []).append(change.row)
        elif isinstance(change, AddJob | UpdateJob):
            self.put_job(change.job)
        elif isinstance(change, CreateRun | UpdateRun):
            self.put_run(change.run)
        else:
            match change:
                case DeleteJob(key):
                    self.jobs.get(key.run, {}).pop(key.number, None)
                case PutSession(session):
                    self.sessions[session.id] = session
                case CancelExternalWork(run, node, attempts):
                    for job in checks_of(self, run, node):
                        self.put_job(cancelling(job, attempts))
                case DeleteJobs(run):
                    self._close_jobs(run, lambda _: True)
                case DeleteJobsOfNode(run, node):
                    self._close_jobs(run, lambda job: job.node == node)
                case BlockRun():
                    self._block_run(change)
                case DeleteRun(run, streams):
                    self._remove_run(run, streams)
                case AddMapItems(page):
                    self.pages[page.run, page.node, page.page] = page
                case StorePlan(plan):
                    self.plans.setdefault(plan.fingerprint, plan)
                case StoreReply(reply):
                    self.replies[reply.namespace, reply.key] = reply
                case AddLeader(lease) | UpdateLeader(lease):
                    self.leaders[lease.name] = lease
                case AddAttemptOutput(note):
                    self.notes.setdefault(note.id, note)
                case AddSink(sink) | UpdateSink(sink):
                    self.sinks[sink.key] = sink
                case DeleteSink(key):
                    self.sinks.pop(key, None)
                case UpdateStream(stream):
                    self.streams[stream.key] = stream
                case AdvanceStreams(head):
                    self.advance_stream(head)
                case AddAnnotation(annotation):
                    self.annotations.setdefault(annotation.run, []).append(annotation)
                    if annotation.key is not None:
                        self.annotation_keys.setdefault((annotation.run, annotation.key), set()).add(
                            annotation.name
                        )
                case AddArtifact(artifact):
                    self.artifacts[artifact.key] = artifact
                case AddAiCall(call):
                    self._add_ai_call(call)
                case AddConcurrencyLimit(slot):
                    self.slots.add(slot)
                case AddRateLimit(window) | UpdateRateLimit(window):
                    self.rates[window.rate_name] = window

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
        run = self.runs.pop(key, None)
        if run is not None and self.newest.get(run.name) == key:
            del self.newest[run.name]
        for stream in streams:
            self.streams.pop(stream, None)
        self.jobs.pop(key, None)
        self.history.pop(key, None)
        self.annotations.pop(key, None)
        self.ai_calls.pop(key, None)
        self.pages = {place: page for place, page in self.pages.items() if place[0] != key}
        self.notes = {id_: note for id_, note in self.notes.items() if note.run != key}
        self.annotation_keys = {
            place: names for place, names in self.annotation_keys.items() if place[0] != key
        }
        self.artifacts = {place: artifact for place, artifact in self.artifacts.items() if place[0] != key}
        self.ai_call_names = {place for place in self.ai_call_names if place[0] != key}

    def _add_ai_call(self, call: AiCall) -> None:
        names = {(call.run, call.id, call.at)}
        if call.batch is not None:
            names.add((call.run, f"batch {call.batch}", call.batch_index or 0))
        if names & self.ai_call_names:
            return
        self.ai_call_names |= names
        self.ai_calls.setdefault(call.run, []).append(call)


def checks_of(tables: Tables, run: str, node: str) -> Sequence[Job]:
    """Return the jobs that poll external work of a node."""
    of_run = tables.jobs.get(run, {}).values()
    return [job for job in of_run if (job.node, job.kind) == (node, JobKind.POLL)]
