"""Changes: the row writes that a decision requests from a store, and their net effect over a batch."""

from collections.abc import Iterable
from typing import ClassVar, TypeAlias

import attrs

from holdfast.ports.attempt_output import AiCall, Annotation, Artifact
from holdfast.ports.records.history import HistoryRow, OutputRow
from holdfast.ports.records.job import Job, JobKey, JobKind, cancelling
from holdfast.ports.records.limits import RateName, RateWindow, SlotName
from holdfast.ports.records.outbox import Sink, Stream, StreamHead, StreamKey
from holdfast.ports.records.run import Run
from holdfast.ports.records.session import LeaderLease, Session
from holdfast.ports.records.values import IdempotencyReply, MapItems, Micros, PlanRow
from holdfast.ports.structs import frozen


@frozen
class CreateRun:
    """Insert a run."""

    tag: ClassVar[str] = "create_run"
    run: Run


@frozen
class UpdateRun:
    """Replace an existing run."""

    tag: ClassVar[str] = "update_run"
    run: Run


@frozen
class AddJob:
    """Insert a job."""

    tag: ClassVar[str] = "add_job"
    job: Job


@frozen
class UpdateJob:
    """Replace an existing job."""

    tag: ClassVar[str] = "update_job"
    job: Job


@frozen
class DeleteJob:
    """Delete a job."""

    tag: ClassVar[str] = "delete_job"
    key: JobKey


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
    """Delete all jobs of a run, except those that cancel external work."""

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
class AppendHistory:
    """Append a history row."""

    tag: ClassVar[str] = "append_history"
    row: HistoryRow


@frozen
class AddMapItems:
    """Insert a page of the items of a map."""

    tag: ClassVar[str] = "add_map_items"
    page: MapItems


@frozen
class StorePlan:
    """Insert a plan, unless it is stored already."""

    tag: ClassVar[str] = "store_plan"
    plan: PlanRow


@frozen
class StoreReply:
    """Store the reply to a command with an idempotency key."""

    tag: ClassVar[str] = "store_reply"
    reply: IdempotencyReply


@frozen
class PutSession:
    """Insert or replace a session."""

    tag: ClassVar[str] = "put_session"
    session: Session


@frozen
class UpdateLeader:
    """Replace an existing leader lease."""

    tag: ClassVar[str] = "update_leader"
    lease: LeaderLease


@frozen
class AddLeader:
    """Insert a leader lease that did not exist yet."""

    tag: ClassVar[str] = "add_leader"
    lease: LeaderLease


@frozen
class AddConcurrencyLimit:
    """Insert the row that is locked whenever a slot of a concurrency limit is assigned."""

    tag: ClassVar[str] = "add_concurrency_limit"
    slot: SlotName


@frozen
class AddRateLimit:
    """Insert the row that counts the claims of a rate limit."""

    tag: ClassVar[str] = "add_rate_limit"
    window: RateWindow


@frozen
class UpdateRateLimit:
    """Replace the row that counts the claims of a rate limit."""

    tag: ClassVar[str] = "update_rate_limit"
    window: RateWindow


@frozen
class AddAttemptOutput:
    """Insert a row of attempt output; no effect if its run has one of this id."""

    tag: ClassVar[str] = "add_attempt_output"
    note: OutputRow


@frozen
class AddSink:
    """Insert a sink."""

    tag: ClassVar[str] = "add_sink"
    sink: Sink


@frozen
class UpdateSink:
    """Replace an existing sink."""

    tag: ClassVar[str] = "update_sink"
    sink: Sink


@frozen
class DeleteSink:
    """Delete a sink. Its streams are pruned later."""

    tag: ClassVar[str] = "delete_sink"
    key: str


@frozen
class UpdateStream:
    """Replace an existing stream."""

    tag: ClassVar[str] = "update_stream"
    stream: Stream


@frozen
class AdvanceStreams:
    """Record new rows of a run in a sink's stream, which is created if necessary. `head_row` never decreases."""

    tag: ClassVar[str] = "advance_streams"
    heads: StreamHead


@frozen
class AddAnnotation:
    """Insert an annotation."""

    tag: ClassVar[str] = "add_annotation"
    annotation: Annotation


@frozen
class AddArtifact:
    """Insert an artifact."""

    tag: ClassVar[str] = "add_artifact"
    artifact: Artifact


@frozen
class AddAiCall:
    """Insert a call of an AI model, unless the run has it, or that result of the same batch, already."""

    tag: ClassVar[str] = "add_ai_call"
    call: AiCall


Change: TypeAlias = (
    CreateRun
    | UpdateRun
    | AddJob
    | UpdateJob
    | DeleteJob
    | CancelExternalWork
    | DeleteJobs
    | DeleteJobsOfNode
    | BlockRun
    | DeleteRun
    | AppendHistory
    | AddMapItems
    | StorePlan
    | StoreReply
    | PutSession
    | AddLeader
    | UpdateLeader
    | AddAttemptOutput
    | AddSink
    | UpdateSink
    | DeleteSink
    | UpdateStream
    | AdvanceStreams
    | AddAnnotation
    | AddArtifact
    | AddAiCall
    | AddConcurrencyLimit
    | AddRateLimit
    | UpdateRateLimit
)


@attrs.define(init=False)
class NetChanges:
    """The net effect of a batch of changes: at most one write for each row, grouped by table.

    Stores write the fields in their order, each by ascending key, so that all transactions lock rows and index entries
    in one order.
    """

    removed_runs: set[str]
    removed_streams: set[StreamKey]
    new_runs: dict[str, Run]
    runs: dict[str, Run]
    blocked_runs: dict[str, BlockRun]
    cancelled_work: dict[tuple[str, str], int]
    """The attempts of each cancellation, by run and node."""
    closed_runs: set[str]
    """Runs whose jobs are deleted."""
    closed_nodes: set[tuple[str, str]]
    """(run, node) pairs whose jobs are deleted."""
    closed_jobs: set[JobKey]
    """Jobs that are deleted one by one."""
    new_jobs: dict[JobKey, Job]
    jobs: dict[JobKey, Job]
    history: list[HistoryRow]
    pages: list[MapItems]
    """Pages of map items."""
    plans: dict[str, PlanRow]
    replies: list[IdempotencyReply]
    sessions: dict[str, Session]
    new_leaders: dict[str, LeaderLease]
    leaders: dict[str, LeaderLease]
    notes: list[OutputRow]
    """Attempt output."""
    new_sinks: dict[str, Sink]
    sinks: dict[str, Sink]
    removed_sinks: set[str]
    streams: dict[StreamKey, Stream]
    stream_heads: dict[StreamKey, StreamHead]
    annotations: list[Annotation]
    artifacts: list[Artifact]
    ai_calls: list[AiCall]
    slots: set[SlotName]
    new_rates: dict[RateName, RateWindow]
    rates: dict[RateName, RateWindow]

    def __init__(self) -> None:
        # One is made for each transaction; `factory=dict[str, Run]` would take ten times as long.
        self.removed_runs = set()
        self.removed_streams = set()
        self.new_runs = {}
        self.runs = {}
        self.blocked_runs = {}
        self.cancelled_work = {}
        self.closed_runs = set()
        self.closed_nodes = set()
        self.closed_jobs = set()
        self.new_jobs = {}
        self.jobs = {}
        self.history = []
        self.pages = []
        self.plans = {}
        self.replies = []
        self.sessions = {}
        self.new_leaders = {}
        self.leaders = {}
        self.notes = []
        self.new_sinks = {}
        self.sinks = {}
        self.removed_sinks = set()
        self.streams = {}
        self.stream_heads = {}
        self.annotations = []
        self.artifacts = []
        self.ai_calls = []
        self.slots = set()
        self.new_rates = {}
        self.rates = {}

    def _cancel_work(self, change: CancelExternalWork) -> None:
        """Stores write this before new jobs, so jobs that the batch deletes must stay out of it."""
        place = (change.run, change.node)
        if change.run not in self.closed_runs and place not in self.closed_nodes:
            self.cancelled_work.setdefault(place, change.attempts)
        for jobs in (self.new_jobs, self.jobs):
            for key, job in jobs.items():
                if (job.run, job.node, job.kind) == (change.run, change.node, JobKind.POLL):
                    jobs[key] = cancelling(job, change.attempts)

    def _close_jobs(self, run: str) -> None:
        """Jobs deleted one by one stay in `closed_jobs`: they may be ones that the end of a run spares."""
        self.closed_runs.add(run)
        for jobs in (self.new_jobs, self.jobs):
            for key in [key for key, job in jobs.items() if key.run == run and _is_closed_with_others(job)]:
                del jobs[key]

    def _close_node(self, run: str, node: str) -> None:
        self.closed_nodes.add((run, node))
        for jobs in (self.new_jobs, self.jobs):
            for key, job in list(jobs.items()):
                if key.run == run and job.node == node and _is_closed_with_others(job):
                    del jobs[key]

    def _close_job(self, key: JobKey) -> None:
        self.jobs.pop(key, None)
        if self.new_jobs.pop(key, None) is None:
            self.closed_jobs.add(key)

    def _update_job(self, job: Job) -> None:
        if job.key in self.new_jobs:
            self.new_jobs[job.key] = job
        else:
            self.jobs[job.key] = job

    def _update_run(self, run: Run) -> None:
        if run.key in self.new_runs:
            self.new_runs[run.key] = run
        else:
            self.runs[run.key] = run

    def _remove_run(self, key: str, streams: Iterable[StreamKey]) -> None:
        """Drop all other changes of the batch to this run."""
        self.removed_runs.add(key)
        self.removed_streams.update(streams)
        self.new_runs.pop(key, None)
        self.runs.pop(key, None)
        self.blocked_runs.pop(key, None)
        self.cancelled_work = {place: most for place, most in self.cancelled_work.items() if place[0] != key}
        self.closed_runs.discard(key)
        self.closed_jobs = {job for job in self.closed_jobs if job.run != key}
        self.new_jobs = {place: job for place, job in self.new_jobs.items() if place.run != key}
        self.jobs = {place: job for place, job in self.jobs.items() if place.run != key}
        self.closed_nodes = {place for place in self.closed_nodes if place[0] != key}
        self.streams = {place: stream for place, stream in self.streams.items() if place.run != key}
        self.stream_heads = {place: head for place, head in self.stream_heads.items() if place.run != key}
        self.history = [row for row in self.history if row.run != key]
        self.pages = [page for page in self.pages if page.run != key]
        self.notes = [note for note in self.notes if note.run != key]
        self.annotations = [annotation for annotation in self.annotations if annotation.run != key]
        self.artifacts = [artifact for artifact in self.artifacts if artifact.run != key]
        self.ai_calls = [call for call in self.ai_calls if call.run != key]

    def _update_sink(self, sink: Sink) -> None:
        if sink.key in self.new_sinks:
            self.new_sinks[sink.key] = sink
        else:
            self.sinks[sink.key] = sink

    def _remove_sink(self, key: str) -> None:
        self.sinks.pop(key, None)
        if self.new_sinks.pop(key, None) is None:
            self.removed_sinks.add(key)

    def _update_rate(self, window: RateWindow) -> None:
        if window.rate_name in self.new_rates:
            self.new_rates[window.rate_name] = window
        else:
            self.rates[window.rate_name] = window

    def _advance_stream(self, head: StreamHead) -> None:
        """Merge two heads: the first one has the instant from which the stream is due, the highest one its last row."""
        key = StreamKey(head.sink, head.run)
        known = self.stream_heads.get(key)
        self.stream_heads[key] = (
            head if known is None else attrs.evolve(known, head_row=max(known.head_row, head.head_row))
        )

    def add(self, change: Change) -> None:
        """Fold in one more change."""
        # `isinstance` is several times as fast as a class pattern, and these are the most frequent changes.
        if isinstance(change, AppendHistory):
            self.history.append(change.row)
        elif isinstance(change, AddJob):
            self.new_jobs[change.job.key] = change.job
        elif isinstance(change, UpdateRun):
            self._update_run(change.run)
        elif isinstance(change, UpdateJob):
            self._update_job(change.job)
        elif isinstance(change, DeleteJob):
            self._close_job(change.key)
        elif isinstance(change, CreateRun):
            self.new_runs[change.run.key] = change.run
        else:
            match change:
                case CancelExternalWork():
                    self._cancel_work(change)
                case DeleteJobs(run):
                    self._close_jobs(run)
                case DeleteJobsOfNode(run, node):
                    self._close_node(run, node)
                case BlockRun(run):
                    self.blocked_runs[run] = change
                case DeleteRun(run, streams):
                    self._remove_run(run, streams)
                case AddMapItems(page):
                    self.pages.append(page)
                case StorePlan(plan):
                    self.plans[plan.fingerprint] = plan
                case StoreReply(reply):
                    self.replies.append(reply)
                case PutSession(session):
                    self.sessions[session.id] = session
                case AddLeader(lease):
                    self.new_leaders[lease.name] = lease
                case UpdateLeader(lease) if lease.name in self.new_leaders:
                    self.new_leaders[lease.name] = lease
                case UpdateLeader(lease):
                    self.leaders[lease.name] = lease
                case AddAttemptOutput(note):
                    self.notes.append(note)
                case AddSink(sink):
                    self.new_sinks[sink.key] = sink
                case UpdateSink(sink):
                    self._update_sink(sink)
                case DeleteSink(key):
                    self._remove_sink(key)
                case UpdateStream(stream):
                    self.streams[stream.key] = stream
                case AdvanceStreams(head):
                    self._advance_stream(head)
                case AddAnnotation(annotation):
                    self.annotations.append(annotation)
                case AddArtifact(artifact):
                    self.artifacts.append(artifact)
                case AddAiCall(call):
                    self.ai_calls.append(call)
                case AddConcurrencyLimit(slot):
                    self.slots.add(slot)
                case AddRateLimit(window):
                    self.new_rates[window.rate_name] = window
                case UpdateRateLimit(window):
                    self._update_rate(window)


def _is_closed_with_others(job: Job) -> bool:
    return job.kind is not JobKind.CANCEL


def net_changes(changes: Iterable[Change]) -> NetChanges:
    """Return the net effect of changes, in order."""
    net = NetChanges()
    for change in changes:
        net.add(change)
    return net
