"""The input and output of a rule: the rows that a command needs, the state of a batch, and the decision.

A rule is a pair of pure functions. `reads(command)` returns `Reads`; `decide(state, command, now, ids)` returns a
`Decision`. Everything here is plain data.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Generic

import attrs
from typing_extensions import TypeVar

from holdfast.kernel.commands.command import Command
from holdfast.kernel.history import events
from holdfast.kernel.history.stage_history import StageHistory
from holdfast.kernel.limits.fairness import FairLines
from holdfast.kernel.limits.quotas import QuotaUse
from holdfast.kernel.limits.start_bounds import BoundedStarts
from holdfast.kernel.pipelines.plan import Plan, plan_from_json
from holdfast.kernel.search_results import NewRun, RunRemains, SearchResult
from holdfast.ports.changes import Change, Insert
from holdfast.ports.errors import UnknownPlanError, UnreadableRowError
from holdfast.ports.records.history import STAGE_OUTCOMES, HistoryRow
from holdfast.ports.records.job import Job, JobKey, JobKind
from holdfast.ports.records.limits import LimitName, RateName, SlotName
from holdfast.ports.records.outbox import SinkName, StreamKey
from holdfast.ports.records.run import Run, RunName
from holdfast.ports.searches import CompletedRow, OpenRunsOfKey, Search, SlotPlace, not_negative
from holdfast.ports.structs import frozen
from holdfast.ports.transport import Hint
from holdfast.ports.unreadable import shown
from holdfast.ports.working_set import Tables
from holdfast.ports.zones import ZoneTables

Result = TypeVar("Result", covariant=True)


class ComposedSearch:
    """A search made of several searches of the store (see `kernel/dispatch/searches.py`)."""

    __slots__ = ()


@frozen
class RunsMissingJobs(ComposedSearch):
    """Search for active runs with missing jobs, by ascending key from `after`; all their jobs are locked.

    With `run`, only that run is read, whatever its state.
    """

    after: str
    limit: int = attrs.field(validator=not_negative)
    run: str | None = None


@frozen(kw_only=True)
class Reads:
    """The rows that a command needs. `runs`, `names` and `jobs` are locked."""

    runs: tuple[str, ...] = ()
    names: tuple[RunName, ...] = ()
    """Runs by name: their newest generations."""
    whole_names: bool = False
    """Whether all jobs of `names` are locked too."""
    whole_runs: bool = False
    """Whether all jobs of `runs` are locked too."""
    drivers: bool = False
    """Whether the jobs that drive the functions of `runs`, `names` and the runs found by the search are locked.

    For a paused or blocked run, all of its jobs are: resuming it may release them.
    """
    jobs: tuple[JobKey, ...] = ()
    unlocked_jobs: tuple[JobKey, ...] = ()
    """Jobs read without a lock: for replies, never for changes."""
    starts: tuple[JobKey, ...] = ()
    """Jobs that may be claimed: the rate-limit rows that count their starts are locked."""
    takers: tuple[JobKey, ...] = ()
    """Jobs after which the next one of their queue may be claimed: whether the queue is paused is read."""
    limits: tuple[LimitName, ...] = ()
    """Changed limits, locked."""
    sessions: tuple[str, ...] = ()
    locks_sessions: bool = False
    new_runs: tuple[NewRun, ...] = ()
    """Runs that may be started: if the number of runs of their concurrency key is bounded, it is read.

    Of `names` that may be rerun (`past_names`) it is, too.
    """
    leader_leases: tuple[str, ...] = ()
    sinks: tuple[SinkName, ...] = ()
    locks_sinks: bool = False
    streams: tuple[StreamKey, ...] = ()
    past_names: bool = False
    """Whether the history rows of `names` about stages, and of functions all rows, are read: for a rerun or fork."""
    run_remains: bool = False
    """Whether the remains of `names` are read: for a removal."""
    annotation_keys: tuple[tuple[str | RunName, str], ...] = ()
    """Idempotency keys of annotations, each with its run."""
    annotations: tuple[str, ...] = ()
    """Runs whose annotations of the run as a whole are read."""
    history_after: tuple[tuple[str, int], ...] = ()
    """Runs whose history is read after a row: pairs of run key and row number."""
    messages: tuple[str | RunName, ...] = ()
    """Runs whose unread messages are read."""
    kept_starts: tuple[str, ...] = ()
    """Runs whose unread messages are read if a start is stored with one of them."""
    retried: tuple[str, ...] = ()
    """Runs that may have failed: those that are tried again as a whole are read with their histories."""
    search: Search[Any] | ComposedSearch | None = None
    """Rows that it finds are read. Of keys that it finds, the rows are locked."""
    if_found: bool = False
    """Whether `sessions` and `sinks` are read only if the search finds something."""
    runs_of_found: bool = False
    """Whether the runs of the jobs found are locked too, with the jobs that drive their functions."""
    found_whole: bool = False
    """Whether the runs found are read whole, with all jobs and recorded results, for a repair."""
    found_starts: bool = False
    """Whether the runs found are treated as `kept_starts`."""
    holders: bool = False
    """Whether the sessions are read that hold any of the jobs read."""
    exhausted: bool = False
    """Whether all jobs are locked of runs whose functions were lost as often as allowed: they are blocked."""


NOTHING: Final = Reads()
"""The reads of a command that needs no row."""


@attrs.define(init=False)
class State:
    """The rows read for a batch, with the changes of the commands decided so far applied."""

    zones: ZoneTables | None
    """The time zones; None if this process has no time zone data."""
    excluded: frozenset[str]
    """Runs with an unreadable row: they are left out of what searches find (docs/decisions/0062)."""
    current_run: str | None
    """The run that a rule is deciding about, among those that a search found. It is blocked if the decision fails."""
    tables: Tables
    """The rows read, as changed by the commands decided so far."""
    plans_of_starts: set[str]
    """The fingerprints of plans of starts that are stored with unread messages."""
    plans: dict[str, Plan]
    """The stored plans of the runs read, by fingerprint."""
    workflows: Mapping[tuple[str, str | None], Plan]
    """The plans that this process can start runs of, by name and version; with version None, the default version."""
    stored_plans: frozenset[str]
    """Fingerprints of plans that are known to be stored."""
    found: dict[Search[Any] | ComposedSearch, SearchResult]
    """The results of the searches of the batch. Equal searches are made once."""
    completed: dict[str, list[CompletedRow]]
    """Rows with the outcomes of stages, map items and conditions, by run; only of runs read whole for a repair."""
    suspensions: dict[tuple[str, int], HistoryRow]
    """`stage.suspended` rows by run and number, of external work that is polled again or cancelled by a repair.

    Also the `stage.failed` rows of such stages.
    """
    steps: dict[str, list[HistoryRow]]
    """`step.queued` rows and rows that end steps, by run; only of runs that are read whole for a repair."""
    past: dict[str, StageHistory] | None
    """Stage rows by run, for reruns; None if no command of the batch is a rerun."""
    histories: dict[str, list[HistoryRow]]
    """Complete histories by run, with the rows kept from earlier generations: of functions that are run again."""
    new_rows: dict[str, list[HistoryRow]]
    """History rows by run, after the last row that the function of the run has received."""
    messages: dict[tuple[str, int], HistoryRow]
    """Unread messages, and the starts stored with them, by run and row number."""
    used_slots: dict[SlotName, int]
    """Slots in use of each concurrency limit that was searched, without those held in `tables`."""
    bounded_starts: dict[SlotPlace, BoundedStarts]
    """The starts of the batch under each bounded concurrency key."""
    open_beside: dict[SlotPlace, OpenRunsOfKey]
    """The open runs of each of these keys, without those in `tables`."""
    queued_by_rate: dict[RateName, int]
    """Queued jobs of each rate limit that was searched, without those in `tables`."""
    refusing: frozenset[RateName]
    """The rates that may refuse starts of the batch: they are locked."""
    run_remains: dict[RunName, RunRemains]
    commands: Sequence[Command[Any]]
    """The commands of the batch."""
    quotas: dict[str, QuotaUse]
    """The quotas of namespaces that have any and in which clients start runs."""
    fair: FairLines | None
    """The lines in which starts of the batch take turns; None if no start takes one."""
    has_limits: bool
    """Whether the store has limits that were changed, as far as a search or a read of sessions has shown."""

    def __init__(
        self,
        workflows: Mapping[tuple[str, str | None], Plan] | None = None,
        excluded: frozenset[str] = frozenset(),
        zones: ZoneTables | None = None,
    ) -> None:
        self.zones = zones
        self.excluded = excluded
        self.current_run = None
        self.tables = Tables()
        self.plans_of_starts = set()
        self.plans = {}
        self.workflows = workflows or {}
        self.stored_plans = frozenset()
        self.found = {}
        self.completed = {}
        self.suspensions = {}
        self.steps = {}
        self.past = None
        self.histories = {}
        self.new_rows = {}
        self.messages = {}
        self.used_slots = {}
        self.bounded_starts = {}
        self.open_beside = {}
        self.queued_by_rate = {}
        self.refusing = frozenset()
        self.run_remains = {}
        self.commands = ()
        self.quotas = {}
        self.fair = None
        self.has_limits = False

    def plan_of(self, run: Run) -> Plan:
        """Return the plan of a run. UnreadableRowError if it is not stored, or can't be parsed."""
        try:
            return self.plan_named(run.plan)
        except UnknownPlanError:
            why = f"no plan {shown(run.plan)} is stored that can be read"
            raise UnreadableRowError("holdfast_runs", run.key, "plan", why) from None

    def has_plan(self, run: Run) -> bool:
        """Return whether the plan of a run is stored and can be parsed."""
        with suppress(UnreadableRowError):
            self.plan_of(run)
            return True
        return False

    def plan_named(self, fingerprint: str) -> Plan:
        """Return the plan with this fingerprint. UnknownPlanError if it is not stored."""
        plan = self.plans.get(fingerprint)
        if plan is None:  # the run may have been created by an earlier command of this batch
            plan = next(
                (known for known in self.workflows.values() if known.fingerprint == fingerprint), None
            )
        if plan is None and (row := self.tables.plans.get(fingerprint)) is not None:  # with overrides
            plan = plan_from_json(row.body)
        if plan is None:
            raise UnknownPlanError(fingerprint)
        return plan

    def cancels_of(self, run: Run) -> Mapping[str, int]:
        """Return the stages whose external work is cancelled if the run ends now (see `Plan.cancels`)."""
        return self.plan_of(run).cancels if run.open_jobs else {}

    def queued_steps(self, run: str) -> list[Job]:
        """Return the run's jobs of queued steps, of the jobs that were read."""
        return [job for job in self.tables.jobs.get(run, {}).values() if job.kind is JobKind.STEP]

    def apply(self, changes: Sequence[Change]) -> None:
        """Apply the changes of a decision, so that later commands of the batch see them."""
        if self.fair is not None:
            self.fair.note(changes)
        tables = self.tables
        for change in changes:
            if not isinstance(change, Insert):
                tables.apply(change)
                continue
            row = change.record
            tables.insert(row)
            if not isinstance(row, HistoryRow):
                continue
            if row.run in self.new_rows:
                self.new_rows[row.run].append(row)
            if row.type in (events.SignalReceived.type, events.StartReceived.type):
                self.messages[row.run, row.number] = row
            if self.past is not None and (row.run in self.past or row.type == events.RunCreated.type):
                self.past.setdefault(row.run, StageHistory()).append(row)
                self._remember(row)
            elif row.run in self.histories:
                self.histories[row.run].append(row)
            if row.run in self.steps and (row.type == events.StepQueued.type or row.type in events.STEP_ENDS):
                self.steps[row.run].append(row)
            if row.type == events.StageSuspended.type:
                self.suspensions[row.run, row.number] = row
            if row.type in STAGE_OUTCOMES or row.type in events.CANCELLATION_OUTCOMES:
                completed = CompletedRow(row.run, row.number, row.node or "", row.item, row.type)
                self.completed.setdefault(row.run, []).append(completed)

    def _remember(self, row: HistoryRow) -> None:
        """Add a row to the history of a function that a later command of the batch may rerun."""
        if row.type == events.RunCreated.type:
            run = self.tables.runs[row.run]
            before = self.histories.get(run.rerun_of or "", [])
            self.histories[row.run] = before[: run.first_row - 1]
        if row.run in self.histories:
            self.histories[row.run].append(row)


@frozen
class Decision(Generic[Result]):
    """The outcome of a command: its reply, the row changes to store, and the hints to send after the commit."""

    reply: Result
    changes: tuple[Change, ...] = ()
    hints: tuple[Hint, ...] = ()
