"""What a decision is made from, and what it comes to: plain data on both sides."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, Generic, TypeAlias

import attrs
from typing_extensions import TypeVar

from holdfast.kernel.pipelines.plan import Plan, plan_from_json
from holdfast.kernel.runs.rerun_plan import Past
from holdfast.ports.changes import AppendHistory, Change
from holdfast.ports.errors import InvalidCommandError, UnknownPlanError, UnreadableRowError
from holdfast.ports.json import parse
from holdfast.ports.persistence import CompletedRow, Lane, SlotPlace
from holdfast.ports.records import (
    NOTED_ROWS,
    PAID_ROWS,
    SIGNAL_RECEIVED,
    STAGE_SUSPENDED,
    START_RECEIVED,
    STEP_ENDS,
    STEP_QUEUED,
    HistoryRow,
    JobKey,
    JobKind,
    Micros,
    PassOver,
    RateName,
    Run,
    RunName,
    SinkName,
    SlotName,
    Stream,
    StreamHead,
    StreamKey,
)
from holdfast.ports.structs import frozen
from holdfast.ports.transport import Hint
from holdfast.ports.unreadable import shown
from holdfast.ports.working_set import Tables

Result = TypeVar("Result", covariant=True)


def _not_negative(_: object, field: "attrs.Attribute[int]", value: int) -> None:
    if value < 0:
        raise InvalidCommandError(f"{field.name} is {value}; it must not be negative")


def _not_negative_each(
    _: object, field: "attrs.Attribute[tuple[Lane, ...]]", value: tuple[Lane, ...]
) -> None:
    for lane in value:
        if lane.limit < 0:
            raise InvalidCommandError(f"{field.name}: the limit of {lane} must not be negative")


@frozen
class Claimable:
    """Search for queued jobs."""

    namespace: str
    lanes: tuple[Lane, ...] = attrs.field(validator=_not_negative_each)
    limit: int = attrs.field(validator=_not_negative)
    pass_over: PassOver = PassOver.NOTHING


@frozen
class Due:
    """Search for sleeping jobs whose time has come, of all kinds or of one."""

    limit: int = attrs.field(validator=_not_negative)
    kind: JobKind | None = None


@frozen(kw_only=True)
class Wakeable:
    """Search for jobs of stages that are suspended, or whose bodies run; they are read.

    Those of external work of this `key`, or of a `stage` of the newest generation of run `run_id`.
    """

    namespace: str
    key: str | None = None
    run_id: str | None = None
    stage: str | None = None
    item: int | None = None


@frozen
class Expired:
    """Search for open sessions that expired more than `grace` microseconds ago."""

    grace: Micros = attrs.field(validator=_not_negative)
    limit: int = attrs.field(validator=_not_negative)


@frozen
class Lost:
    """Search for jobs leased to dead sessions; they and their runs are read."""

    limit: int = attrs.field(validator=_not_negative)


@frozen
class MissingJobs:
    """Search, from the run key `after` on, for active runs that lack jobs; they are read whole. Or read just `run`."""

    after: str
    limit: int = attrs.field(validator=_not_negative)
    run: str | None = None


@frozen
class DueStreams:
    """Search for a sink's streams that have news."""

    namespace: str
    sink: str
    limit: int = attrs.field(validator=_not_negative)


def _a_place(_: object, __: object, value: str) -> None:
    if value:
        slot_place(value)


def slot_place(text: str) -> SlotPlace:
    """Return the place that a search is to go on from. InvalidCommandError if the text names none."""
    try:
        place = parse(text) if text else ["", ""]
    except (ValueError, RecursionError):
        place = None
    match place:
        case [str(namespace), str(key)]:
            return SlotPlace(namespace, key)
        case _:
            raise InvalidCommandError(f"after is {text[:100]!r}; it must be `next` of a reply")


@frozen(kw_only=True)
class WaitingRuns:
    """Search for runs that wait for slots of these keys of a namespace; without keys, of any, and for those due.

    The runs are read. `after` is where to go on among the keys of all namespaces.
    """

    namespace: str
    keys: tuple[str, ...]
    after: str = attrs.field(validator=_a_place)
    limit: int = attrs.field(validator=_not_negative)


@frozen(kw_only=True)
class WaitingJobs:
    """Search for jobs that wait for slots of these keys of a namespace; without keys, of any. They are read."""

    namespace: str
    keys: tuple[str, ...]
    after: str = attrs.field(validator=_a_place)
    limit: int = attrs.field(validator=_not_negative)


@frozen
class DeadLettered:
    """Search for parked streams, of a sink and of a run if these are not ""."""

    namespace: str
    sink: str
    run_id: str
    limit: int = attrs.field(validator=_not_negative)


@frozen
class UndeliveredRows:
    """Search, from the run key `after` on, for runs with rows that sinks have not heard of."""

    namespace: str
    sinks: tuple[str, ...]
    after: str
    limit: int = attrs.field(validator=_not_negative)


@frozen
class HeartbeatOverdue:
    """Search for leased jobs whose heartbeat is overdue by more than `grace` microseconds. Their runs are read too."""

    grace: Micros = attrs.field(validator=_not_negative)
    limit: int = attrs.field(validator=_not_negative)


@frozen
class Overdue:
    """Search for runs whose deadline has passed, and that were not told to end; they are read."""

    limit: int = attrs.field(validator=_not_negative)


Search: TypeAlias = (
    Claimable
    | Due
    | Expired
    | Lost
    | HeartbeatOverdue
    | MissingJobs
    | DueStreams
    | DeadLettered
    | UndeliveredRows
    | WaitingRuns
    | WaitingJobs
    | Overdue
    | Wakeable
)


@frozen
class Found:
    """What a search gave: the keys of rows, or news. `next` is where to go on; None at the end.

    `has_deliveries` says whether any run owes another something.
    """

    jobs: tuple[JobKey, ...] = ()
    sessions: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    streams: tuple[StreamKey, ...] = ()
    news: tuple[StreamHead, ...] = ()
    checked: int = 0
    next: str | None = None
    has_deliveries: bool = False


@frozen(kw_only=True)
class RunRemains:
    """What all generations of a run leave: their keys, oldest first, the blobs of their inputs, and their streams.

    `has_deliveries` says whether others are to be told of something by one of them. `unheard` are the keys of sinks
    that have yet to hear of one of them, `sinks` the names of all sinks by key.
    """

    runs: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    streams: tuple[Stream, ...] = ()
    has_deliveries: bool = False
    unheard: frozenset[str] = frozenset()
    sinks: Mapping[str, str] = attrs.field(factory=dict[str, str])


@frozen(kw_only=True)
class Reads:
    """The rows that a command needs. Runs, names and jobs are locked; with `whole_names` all jobs of what they name."""

    runs: tuple[str, ...] = ()
    names: tuple[RunName, ...] = ()
    whole_names: bool = False
    whole_runs: bool = False
    """Whether all jobs of what `runs` names are locked too."""
    drivers: bool = False
    """Whether the jobs are read, and locked, that drive the functions of what `runs`, `names` and the search name.

    Of a run that is held these are all its jobs: it may be let go."""
    jobs: tuple[JobKey, ...] = ()
    seen: tuple[JobKey, ...] = ()
    """Jobs that are read without being locked: for replies, never for changes."""
    starts: tuple[JobKey, ...] = ()
    """Jobs that may be claimed: the rows are locked in which their starts are counted."""
    sessions: tuple[str, ...] = ()
    locks_sessions: bool = False
    leader_leases: tuple[str, ...] = ()
    sinks: tuple[SinkName, ...] = ()
    locks_sinks: bool = False
    streams: tuple[StreamKey, ...] = ()
    past_names: bool = False
    """Whether what has happened in the runs that `names` names is read as well."""
    run_remains: bool = False
    """Whether what the runs leave that `names` names is read as well."""
    annotation_keys: tuple[tuple[str | RunName, str], ...] = ()
    """Keys under which annotations may have been said, each with its run."""
    annotations: tuple[str, ...] = ()
    """Runs of which is read what was said of them as wholes."""
    unseen: tuple[tuple[str, int], ...] = ()
    """Runs, each with the number of the row after which its history is read."""
    messages: tuple[str | RunName, ...] = ()
    """Runs of which the messages are read that they have not received."""
    kept_starts: tuple[str, ...] = ()
    """Runs of which these are read if any of them came with a start, as those are that a search for deadlines finds."""
    search: Search | None = None


NOTHING: Final = Reads()
"""What a command needs that needs no row."""


@attrs.define(init=False)
class State:
    """The rows read for a batch, with the changes of the commands decided so far applied to them.

    `plans` are the stored plans that the runs read follow; `workflows` what this process can create runs of, by
    name and version (the version None gives the one to use where a command names none); `stored_plans` the
    fingerprints that are known to be in the store. `used` are how many have a slot of those that a search was for,
    beside what is in the tables.
    """

    excluded: frozenset[str]
    """Runs of which a row can't be read: what searches find of them is passed over."""
    current_run: str | None
    """The run that is decided about, of those that a search has found."""
    tables: Tables
    plans: dict[str, Plan]
    workflows: Mapping[tuple[str, str | None], Plan]
    stored_plans: frozenset[str]
    found: dict[Search, Found]
    completed: dict[str, list[CompletedRow]]
    suspensions: dict[tuple[str, int], HistoryRow]
    """By run and number, the rows in which those stages were suspended that are to be asked about anew, or whose work
    is to be cancelled after all, and those in which these failed."""
    steps: dict[str, list[HistoryRow]]
    """By run, of those that are read whole, the rows that put steps into queues, and those with which they are over."""
    past: dict[str, Past] | None
    """What has happened in runs that are to be run again; None if no command of the batch is about that."""
    histories: dict[str, list[HistoryRow]]
    """Of those of them that are functions, all rows, with those that they keep of generations before."""
    unseen: dict[str, list[HistoryRow]]
    """By run, the rows of its history after those that its function is known to have been told."""
    messages: dict[tuple[str, int], HistoryRow]
    """By run and number, the rows with messages that runs have not received, and with the starts they came with."""
    used: dict[SlotName, int]
    rated: dict[RateName, int]
    """How many queued jobs there are of each rate that a search was for, beside those in the tables."""
    run_remains: dict[RunName, RunRemains]

    def __init__(
        self,
        workflows: Mapping[tuple[str, str | None], Plan] | None = None,
        excluded: frozenset[str] = frozenset(),
    ) -> None:
        self.excluded = excluded
        self.current_run = None
        self.tables = Tables()
        self.plans = {}
        self.workflows = workflows or {}
        self.stored_plans = frozenset()
        self.found = {}
        self.completed = {}
        self.suspensions = {}
        self.steps = {}
        self.past = None
        self.histories = {}
        self.unseen = {}
        self.messages = {}
        self.used = {}
        self.rated = {}
        self.run_remains = {}

    def plan_of(self, run: Run) -> Plan:
        """Return the plan that a run follows. UnreadableRowError if it is not stored, or can't be read."""
        try:
            return self.plan_named(run.plan)
        except UnknownPlanError:
            why = f"no plan {shown(run.plan)} is stored that can be read"
            raise UnreadableRowError("holdfast_runs", run.key, "plan", why) from None

    def has_plan(self, run: Run) -> bool:
        """Return whether the plan that a run follows is stored, and can be read."""
        with suppress(UnreadableRowError):
            self.plan_of(run)
            return True
        return False

    def plan_named(self, fingerprint: str) -> Plan:
        """Return the plan of this fingerprint. UnknownPlanError if it is not stored."""
        plan = self.plans.get(fingerprint)
        if plan is None:  # the run may have been created by a command before, of this batch
            plan = next(
                (known for known in self.workflows.values() if known.fingerprint == fingerprint), None
            )
        if plan is None and (row := self.tables.plans.get(fingerprint)) is not None:  # with a plan of its own
            plan = plan_from_json(row.body)
        if plan is None:
            raise UnknownPlanError(fingerprint)
        return plan

    def cancels_of(self, run: Run) -> Mapping[str, int]:
        """Return of which stages a run that ends now may leave work to be cancelled (see `Plan.cancels`)."""
        return self.plan_of(run).cancels if run.open_jobs else {}

    def apply(self, changes: Sequence[Change]) -> None:
        """Make the changes of a decision, so that the commands after it see them."""
        for change in changes:
            self.tables.apply(change)
            if not isinstance(change, AppendHistory):
                continue
            row = change.row
            if row.run in self.unseen:
                self.unseen[row.run].append(row)
            if row.type in (SIGNAL_RECEIVED, START_RECEIVED):
                self.messages[row.run, row.number] = row
            if self.past is not None and (row.run in self.past or row.type == "run.created"):
                self.past.setdefault(row.run, Past()).append(row)
                self._remember(row)
            if row.run in self.steps and (row.type == STEP_QUEUED or row.type in STEP_ENDS):
                self.steps[row.run].append(row)
            if row.type == STAGE_SUSPENDED:
                self.suspensions[row.run, row.number] = row
            if row.type in NOTED_ROWS or row.type in PAID_ROWS:
                completed = CompletedRow(row.run, row.number, row.node or "", row.item, row.type)
                self.completed.setdefault(row.run, []).append(completed)

    def _remember(self, row: HistoryRow) -> None:
        """Add a row to the history of a function that may be run again, by a command after this one."""
        if row.type == "run.created":
            run = self.tables.runs[row.run]
            before = self.histories.get(run.rerun_of or "", [])
            self.histories[row.run] = before[: run.first_row - 1]
        if row.run in self.histories:
            self.histories[row.run].append(row)


@frozen
class Decision(Generic[Result]):
    """What a command comes to: its reply, what to store, and what to tell others once it is stored."""

    reply: Result
    changes: tuple[Change, ...] = ()
    hints: tuple[Hint, ...] = ()
