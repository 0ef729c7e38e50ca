"""The rows of a store as immutable records: runs, jobs, history rows, sessions, sinks, streams.

Instants are whole microseconds since 1970-01-01T00:00Z (`Micros`): every database stores, compares and orders
them alike, and no session's time zone can shift them (docs/decisions/0001). The public API uses aware datetimes.
"""

from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias, cast

import attrs

from holdfast.ports.json import parse
from holdfast.ports.pagination import ListPlace
from holdfast.ports.references import KeptRows, kept_rows_from
from holdfast.ports.structs import frozen

Micros: TypeAlias = int
"""An instant since the epoch, or a duration, in microseconds."""


class RunStatus(StrEnum):
    """The state of a run. `pending` waits for admission, `waiting` for an outside event, `blocked` for an operator."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    PAUSED = "paused"
    BLOCKED = "blocked"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


TERMINAL: Final = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED})
ACTIVE: Final = frozenset(RunStatus) - TERMINAL
HELD: Final = frozenset({RunStatus.PAUSED, RunStatus.BLOCKED})
"""Statuses in which nothing of a run starts, because its jobs are paused, until it is resumed."""


class JobState(StrEnum):
    """The state of a job. A job that is done has no row.

    - `sleeping`: until `wake_at` or, without one, until what it waits for has happened.
    - `limited`: until a slot of its concurrency limit or rate limit is free.
    - `paused`: its run is paused or blocked.
    - `pending_delivery`: its run has ended, and the result has yet to be delivered to another run. No attempt.
    """

    SLEEPING = "sleeping"
    LIMITED = "limited"
    QUEUED = "queued"
    LEASED = "leased"
    PAUSED = "paused"
    PENDING_DELIVERY = "pending_delivery"


class JobKind(StrEnum):
    """The kind of work that a job does.

    - `stage`: runs a stage's body.
    - `expand_map`: reads the list that a map goes over.
    - `condition`: calls the condition of a `when`.
    - `poll`: asks whether external work is done.
    - `cancel`: cancels external work that is no longer needed.
    - `child`: starts a child run and waits for its end.
    - `deliver`: delivers the end of its run to others.
    - `workflow`: drives a durable function.
    - `step`: runs a step that a durable function has queued.
    """

    STAGE = "stage"
    EXPAND_MAP = "expand_map"
    CONDITION = "condition"
    POLL = "poll"
    CANCEL = "cancel"
    CHILD = "child"
    DELIVER = "deliver"
    WORKFLOW = "workflow"
    STEP = "step"


class ClosePolicy(StrEnum):
    """What happens to a child run when its parent ends first."""

    CANCEL = "cancel"
    TERMINATE = "terminate"
    ABANDON = "abandon"


class SessionState(StrEnum):
    """The state of a session. A dead one is never renewed, and its jobs go to other sessions."""

    OPEN = "open"
    DEAD = "dead"


class StreamState(StrEnum):
    """The state of a stream. A dead-lettered one is not delivered until an operator replays it."""

    READY = "ready"
    DEAD_LETTERED = "dead_lettered"


class PassOver(StrEnum):
    """Which queued jobs a claim leaves to other sessions, because of the jobs that its own session holds.

    `suspects` are quarantined jobs (see `Job.is_suspect`), `lost` are all that were ever lost (docs/decisions/0059).
    """

    NOTHING = "nothing"
    SUSPECTS = "suspects"
    LOST = "lost"


SUSPECT_AFTER: Final = 2
"""The number of losses from which a job is quarantined."""

LOSSES_MIN: Final = 5
"""The fewest losses after which a body with several attempts is given up."""

PRIORITY_STEP: Final[Micros] = 60_000_000
"""The head start of one step of priority: one minute (docs/decisions/0019)."""

HISTORY_LONG: Final = "run.history_long"
"""The type of the history row that marks a durable function's history as long."""

CLOCK_READ: Final = "clock.read"
RESULT_REFUSED: Final = "result.refused"
STEP_GIVEN: Final = "given"
"""The key in a step's row of its arguments, which a compensation needs. Left out of events."""
SIGNAL_REFUSED: Final = "signal.refused"
PUBLISHED: Final = "value.published"
"""The type of the history rows of published values. Stores are queried for the newest."""

HEARTBEAT: Final = "heartbeat"
"""The kind of attempt output that holds heartbeat details. Stores are queried for the newest."""

SIGNAL_RECEIVED: Final = "signal.received"
START_RECEIVED: Final = "start.received"
"""The type of the history row of a start that found its run active, stored for the messages sent with it."""
CHANNEL_CLOSED: Final = "channel.closed"
FUNCTION_BEGAN: Final = "function.began"
"""The type of the history row that records, by a row number, which messages had arrived when a function began."""

STEP_QUEUED: Final = "step.queued"
STEP_CANCELLED: Final = "step.cancelled"
STEP_COMPLETED: Final = "step.completed"
STEP_FAILED: Final = "step.failed"
STEP_RETRYING: Final = "step.retrying"
STEP_STARTED: Final = "step.started"
"""The type of the history row of a new start of a lost step. Other starts are not recorded."""
STEP_ENDS: Final = frozenset({STEP_COMPLETED, STEP_FAILED, STEP_CANCELLED})
"""The types of the history rows that end a queued step."""
STAGE_EXPANDED: Final = "stage.expanded"
STAGE_SKIPPED: Final = "stage.skipped"
STAGE_COMPLETED: Final = "stage.completed"
STAGE_FAILED: Final = "stage.failed"
STAGE_SUSPENDED: Final = "stage.suspended"
STAGE_TESTED: Final = "stage.tested"
STAGE_CANCELLED: Final = "stage.cancelled"
STAGE_CANCEL_FAILED: Final = "stage.cancel_failed"
CANCELLATION_OUTCOMES: Final = (STAGE_CANCELLED, STAGE_CANCEL_FAILED)
"""The types of the history rows that record the outcome of cancelling external work. They may follow a run's end."""
STAGE_OUTCOMES: Final = (STAGE_COMPLETED, STAGE_FAILED, STAGE_SUSPENDED)
"""The types of the history rows that record the outcome of a stage or map item. Stores are queried for them."""


class RunName(NamedTuple):
    """The public name of a run."""

    namespace: str
    id: str
    """The run id, unique in its namespace."""


class SlotName(NamedTuple):
    """The name of a concurrency limit."""

    namespace: str
    name: str
    """`run:<concurrency key>` or `stage:<workflow>/<stage>`."""


class RateName(NamedTuple):
    """The name of a rate limit."""

    namespace: str
    name: str
    """The concurrency key of the jobs that share the limit."""


_RUN_SLOT: Final = "run:"
_STAGE_SLOT: Final = "stage:"


class JobKey(NamedTuple):
    """The key of a job. Sorts in the order in which jobs are locked."""

    run: str
    """The key of its run."""
    number: int
    """The number of the job in that run."""

    @property
    def text(self) -> str:
        """The job id in messages and commands: `<run key>.<number>`."""
        return f"{self.run}.{self.number}"


class SinkName(NamedTuple):
    """The public name of a sink."""

    namespace: str
    name: str


class StreamKey(NamedTuple):
    """The key of a stream: the events of one run for one sink. Sorts in the order in which streams are locked."""

    sink: str
    """The key of the sink."""
    run: str
    """The key of the run."""


@lru_cache(maxsize=4_096)
def job_key(text: str) -> JobKey:
    """Return the key that a job id encodes. ValueError if the text is not a job id."""
    run, dot, number = text.rpartition(".")
    if not dot or not run or not (number.isascii() and number.isdigit()) or len(number) > 10:
        raise ValueError(f"{text!r} is not a job id; one looks like <run key>.<number>")
    return JobKey(run, int(number))


def attribute_texts(attributes: str | None) -> dict[str, str]:
    """Return a run's attributes by name, leaving out values that are not texts."""
    if not attributes:
        return {}
    try:
        found = parse(attributes)
    except (ValueError, RecursionError):
        return {}
    items = cast("dict[str, object]", found).items() if isinstance(found, dict) else ()
    return {name: text for name, text in items if isinstance(text, str)}


@frozen(kw_only=True)
class Payload:
    """A stored value, either inline or in a blob."""

    inline: str | None = None
    """The value's canonical JSON text."""
    blob: str | None = None
    """The key of the blob that holds that text."""

    def __attrs_post_init__(self) -> None:
        if (self.inline is None) == (self.blob is None):
            raise ValueError("a payload is either inline or in a blob")


@frozen(kw_only=True)
class Run:
    """One generation of a run.

    `key`, the name, `workflow`, `created_at`, `queue_position`, `attributes`, `deadline`, and the fields about reruns
    and concurrency never change.
    """

    key: str
    """The key of this generation, which all its rows refer to."""
    namespace: str
    """Together with `id`, the name that users see."""
    id: str
    generation: int
    """1 for the first; a rerun or continue-as-new adds one."""
    workflow: str
    version: str
    """The version of the workflow's code that it runs."""
    plan: str
    """The fingerprint of its plan."""
    status: RunStatus
    queue: str
    """The queue of its jobs, unless a stage names another."""
    priority: int
    created_at: Micros
    updated_at: Micros
    ended_at: Micros | None = None
    """None until it has ended."""
    last_row: int = 0
    """The highest number used so far in its history."""
    last_job: int = 0
    """The highest job number used so far; 0 before admission."""
    open_jobs: int = 0
    """How many jobs it has that keep it going (see `Job.outlives_run`)."""
    progress: str = "{}"
    """JSON text: how far its plan has got."""
    result: str | None = None
    """A reference to its output. A completed run without one continues as the next generation."""
    error: str | None = None
    """JSON text of why it failed or was cancelled; while a function cleans up, of why it will have."""
    attributes: str | None = None
    """JSON text: an object of texts, by which runs are found."""
    rerun_of: str | None = None
    """The key of the generation that this one runs again."""
    rerun_from: str | None = None
    """The stage that the rerun starts with; of a function, the call or history row. None for the beginning."""
    inherited: str | None = None
    """JSON text, set in a rerun.

    Of a pipeline, an object: references to the outputs of stages that it does not run again, by name. Of a function, a
    list: the rows of earlier generations that precede its own (see `KeptRows`), whose numbers continue theirs.
    """
    start_at: Micros | None = None
    """The run stays pending until then; None again once it has passed."""
    deadline: Micros | None = None
    """If it has not ended by then, it fails; a function first gets to clean up."""
    concurrency_key: str | None = None
    """Limits how many runs of the namespace with this key are admitted at a time."""
    concurrency_limit: int | None = None
    """How many that is."""
    parent: str | None = None
    """The id of the job in the parent run that waits for its end; None unless it is a child run."""
    close_policy: ClosePolicy = ClosePolicy.CANCEL
    """What happens to it when its parent ends first."""
    children: int = 0
    """How many child runs it has started."""
    queue_position: Micros = 0
    """Its rank among the runs that wait for admission: lowest first (see `rank_of`)."""
    mailbox: str | None = None
    """JSON text of its unread messages and closed channels (see `Mailbox`)."""

    @property
    def name(self) -> RunName:
        """The name that users see."""
        return RunName(self.namespace, self.id)

    @property
    def kept_rows(self) -> tuple[KeptRows, ...]:
        """The rows of earlier generations that its history begins with; empty unless it is the fork of a function."""
        return kept_rows_from(self.inherited)

    def holder_of(self, number: int) -> str:
        """Return the key of the generation that stores the history row of this number: this one, or an earlier one."""
        kept = self.kept_rows
        return next((part.run for part in kept if number <= part.last), self.key)

    @property
    def first_row(self) -> int:
        """The number of the first history row of its own, which holds its input."""
        kept = self.kept_rows
        return kept[-1].last + 1 if kept else 1

    @property
    def is_admitted(self) -> bool:
        """Whether it was ever admitted. If not, it is pending, or was paused, blocked or ended before its admission."""
        return self.last_job > 0

    @property
    def is_ending(self) -> bool:
        """Whether its function is to end and has not yet: it is cleaning up, or blocked while doing so."""
        return self.status in ACTIVE and self.error is not None

    @property
    def is_continued(self) -> bool:
        """Whether its function has continued as the next generation: it is completed, without a result."""
        return self.status is RunStatus.COMPLETED and self.result is None

    @property
    def slot(self) -> SlotName | None:
        """The concurrency limit that it needs a slot of; None if it needs none."""
        return None if self.concurrency_key is None else run_slot(self.namespace, self.concurrency_key)

    @property
    def has_slot(self) -> bool:
        """Whether it holds that slot. Only ending releases it."""
        is_under_way = self.status in ACTIVE and self.status is not RunStatus.PENDING
        return self.concurrency_key is not None and self.is_admitted and is_under_way

    @property
    def place(self) -> ListPlace:
        """The position in lists of runs."""
        return ListPlace(self.created_at, self.key)


@frozen(kw_only=True)
class Job:
    """One unit of unfinished work, to be leased to a session.

    Key, `kind`, `node`, `item`, `definition`, `queue`, `max_attempts`, `input`, `queue_position` and the limits never
    change, except that a poll may become a job that cancels the same work (see `cancelling`).
    """

    run: str
    """The key of its run."""
    number: int
    """Its number in that run."""
    namespace: str
    queue: str
    definition: str
    """The code that a worker needs: `<workflow>@<version>`, or a step's (see `step_definition`)."""
    kind: JobKind
    node: str
    """Its stage; of a queued step, the call."""
    item: int | None = None
    """The index of its map item, if it has one."""
    state: JobState = JobState.QUEUED
    priority: int = 0
    wake_at: Micros | None = None
    """When a sleeping job wakes; None if only an event wakes it."""
    epoch: int = 0
    """The number of its latest claim. Rises by one with every claim and is never reused: the fencing token."""
    attempts: int = 0
    """How many claims were not released."""
    max_attempts: int = 1
    """The most attempts that count (see `tries`)."""
    session: str | None = None
    """The id of the session that it is leased to."""
    leased_at: Micros | None = None
    lost_attempts: int = 0
    """How many attempts were lost with their worker.

    They do not count against `max_attempts` (see `losses_max`). Of a job that drives a function: how often the worst of
    its steps under way was lost, and how often the job itself was since the last row was recorded.
    """
    input: str = "null"
    """A reference to the input of its body (see `holdfast.ports.references`)."""
    timeout_total: Micros | None = None
    """How long all its attempts together may take."""
    first_claimed_at: Micros | None = None
    """When the first attempt that was not released began. Only set with a `timeout_total`."""
    heartbeat_timeout: Micros | None = None
    """How long an attempt may go without a heartbeat of its body."""
    heartbeat_by: Micros | None = None
    """When the running attempt is lost unless a heartbeat arrives. Only set with a `heartbeat_timeout`."""
    concurrency_key: str | None = None
    """Limits jobs of the namespace with this key."""
    concurrency_limit: int | None = None
    """How many of them are queued or leased at a time; None for no limit."""
    queue_position: Micros = 0
    """Its rank among queued jobs, set once (see `rank_of`). Order: lowest rank, oldest run, lowest number.

    As it never changes, a waiting job moves ahead of everything that arrives later, of any priority.
    """
    rate_limit: int | None = None
    """How many of them are claimed in any span of `rate_period`; None for no limit."""
    rate_period: Micros | None = None

    @property
    def total_until(self) -> Micros | None:
        """When the time for all attempts is over; None without such a limit, or before the first attempt."""
        if self.timeout_total is None or self.first_claimed_at is None:
            return None
        return self.first_claimed_at + self.timeout_total

    waiting_for: str | None = None
    """The id of the child run whose end it waits for, or the key of the external work that it polls or cancels."""
    check_after: Micros | None = None
    """The interval between polls of external work."""
    give_up_at: Micros | None = None
    """When polling stops."""

    @property
    def slot(self) -> SlotName | None:
        """The concurrency limit that it needs a slot of; None if it needs none."""
        if self.concurrency_key is None or self.concurrency_limit is None:
            return None
        return stage_slot(self.namespace, self.concurrency_key)

    @property
    def has_slot(self) -> bool:
        """Whether it holds that slot: while it is queued or leased."""
        return self.concurrency_limit is not None and self.state in (JobState.QUEUED, JobState.LEASED)

    @property
    def rate(self) -> RateName | None:
        """The rate limit that its claims count against; None if it has none."""
        if self.concurrency_key is None or self.rate_limit is None:
            return None
        return RateName(self.namespace, self.concurrency_key)

    @property
    def is_suspect(self) -> bool:
        """Whether it is quarantined: lost so often that it may kill its workers, or have run beside a job that does.

        It runs beside no other job that was lost, so that a killer takes no innocent one with it.
        """
        return self.lost_attempts >= SUSPECT_AFTER

    @property
    def tries(self) -> int:
        """How many attempts count against `max_attempts`: lost ones do not.

        Of a job that drives a function, all count that have recorded nothing.
        """
        return self.attempts if self.kind is JobKind.WORKFLOW else self.attempts - self.lost_attempts

    @property
    def outlives_run(self) -> bool:
        """Whether it may outlive its run: it delivers to another run, or cancels external work."""
        return self.state is JobState.PENDING_DELIVERY or self.kind is JobKind.CANCEL

    @property
    def waits_for_child(self) -> bool:
        """Whether it sleeps until its child run ends."""
        return self.kind is JobKind.CHILD and self.waiting_for is not None

    @property
    def is_woken(self) -> bool:
        """Whether it may sleep without a `wake_at`: the end of a child run, or a message to its function, wakes it."""
        return self.waits_for_child or self.kind is JobKind.WORKFLOW

    def is_passed_over(self, pass_over: PassOver) -> bool:
        """Whether a claim with this setting leaves the job to other sessions."""
        match pass_over:
            case PassOver.NOTHING:
                return False
            case PassOver.SUSPECTS:
                return self.is_suspect
            case PassOver.LOST:
                return self.lost_attempts > 0

    @property
    def key(self) -> JobKey:
        """The key in the store."""
        return JobKey(self.run, self.number)


@frozen
class HistoryRow:
    """One entry of a run's history. Never changed."""

    run: str
    number: int
    """Counts from 1 without gaps; in a fork it continues the rows that the fork keeps."""
    type: str
    at: Micros
    node: str | None = None
    """The stage, or the call of a function, that it is about."""
    item: int | None = None
    """The index of the map item that it is about."""
    epoch: int | None = None
    """The epoch of the job whose attempt recorded it."""
    payload: Payload | None = None
    """A value: an input, a result, a message."""
    data: str | None = None
    """JSON text of small facts, such as errors, authors and times."""


@frozen(kw_only=True)
class MapItems:
    """One page of the items that a map goes over."""

    run: str
    node: str
    page: int
    items: str
    """JSON text: a list of payloads."""


@frozen(kw_only=True)
class PlanRow:
    """The plan of a pipeline, stored once."""

    fingerprint: str
    workflow: str
    version: str
    body: str
    """Canonical JSON text."""


@frozen(kw_only=True)
class Session:
    """One life of a worker process or serverless function, to which jobs are leased."""

    id: str
    host: str
    """Where it runs."""
    state: SessionState
    opened_at: Micros
    expires_at: Micros
    """It may be declared dead after this, unless it was renewed."""


@frozen(kw_only=True)
class IdempotencyReply:
    """The stored reply to a command with an idempotency key."""

    namespace: str
    key: str
    fingerprint: str
    """Identifies the command: the same key with another command is refused."""
    body: str
    """The reply's canonical JSON text."""
    created_at: Micros


@frozen(kw_only=True)
class LeaderLease:
    """The lease of a task that one session at a time does for all, such as maintenance."""

    name: str
    """The name of the task."""
    session: str
    """The id of the session that holds the lease."""
    expires_at: Micros


@frozen(kw_only=True)
class RateWindow:
    """The recent claims that count against one rate limit (docs/decisions/0023)."""

    namespace: str
    name: str
    starts: str = "{}"
    """JSON text of an object: `at` lists instants, each with the number of claims then; `span` is the longest
    `rate_period` of these jobs, in microseconds. Claims older than that are dropped.
    """
    wakes_at: Micros | None = None
    """When the first waiting job wakes; None if none waits."""
    updated_at: Micros

    @property
    def rate_name(self) -> RateName:
        """The key in the store."""
        return RateName(self.namespace, self.name)


@frozen(kw_only=True)
class OutputRow:
    """A row of attempt output. Not numbered."""

    id: str
    run: str
    job: int
    """The number of the job whose attempt wrote it."""
    epoch: int
    at: Micros
    kind: str
    """`log`, `progress` or `heartbeat`."""
    data: str
    """JSON text; of a heartbeat, the value of its details."""


@frozen(kw_only=True)
class Sink:
    """A registered receiver of events. The object that receives them is passed to hosts, under the same name."""

    key: str
    """The key of this registration: a sink that is removed and registered again starts from scratch."""
    namespace: str
    name: str
    since: Micros
    """Rows stored at this instant or later are delivered."""
    created_at: Micros
    options: str | None = None
    """JSON text."""
    failures: int = 0
    """How many deliveries failed in a row."""
    retry_at: Micros | None = None
    """Nothing is sent before this."""
    succeeded_at: Micros | None = None
    """When the last delivery succeeded."""
    swept_at: Micros | None = None
    """When the last complete sweep over all runs began: no stream was overlooked before that."""
    error: str | None = None
    """The last failure."""

    @property
    def sink_name(self) -> SinkName:
        """The name that users see."""
        return SinkName(self.namespace, self.name)


@frozen(kw_only=True)
class StreamHead:
    """A note that a run has rows for a sink."""

    sink: str
    run: str
    head_row: int
    """The number of the run's last row."""
    at: Micros
    """When that was."""


@frozen(kw_only=True)
class Stream:
    """The delivery of one run's events to one sink."""

    sink: str
    run: str
    head_row: int
    """The number of the last known row."""
    delivered: int = 0
    """The number of the last row that the sink has accepted."""
    state: StreamState = StreamState.READY
    due_at: Micros | None = None
    """When a host should look at it; None if there is nothing to deliver."""
    holder: str | None = None
    """Identifies the host that is delivering. It moves `due_at` ahead, so that another host takes over if it stops."""
    attempts: int = 0
    """How many deliveries of `refused_row` failed while the sink accepted other events."""
    refused_row: int | None = None
    """The number of the event that the sink refuses."""
    failed_at: Micros | None = None
    """When the last of these failed."""
    dead_lettered_at: Micros | None = None
    error: str | None = None
    skipped_rows: str | None = None
    """JSON text of an object: by row number, why an operator skipped an event."""

    @property
    def key(self) -> StreamKey:
        """The key in the store."""
        return StreamKey(self.sink, self.run)


def rank_of(since: Micros, priority: int) -> Micros:
    """Return the rank of work that waits since an instant with a priority: each step of priority is a head start."""
    return since - priority * PRIORITY_STEP


def cancelling(check: Job, attempts: int) -> Job:
    """Return a poll turned into the job that cancels its external work: queued, with up to `attempts` attempts.

    It keeps its number, so that only one exists, and its epoch, so that the next claim fences off the poll's holder.
    """
    return attrs.evolve(
        check,
        kind=JobKind.CANCEL,
        state=JobState.QUEUED,
        wake_at=None,
        attempts=0,
        max_attempts=attempts,
        session=None,
        leased_at=None,
        lost_attempts=0,
        check_after=None,
        give_up_at=None,
    )


_KINDS: Final = frozenset(kind.value for kind in JobKind)


def blocked_run(run: Run, now: Micros, last_row: int) -> Run:
    """Return a run blocked because rows of it can't be read. One that has ended keeps its status."""
    return attrs.evolve(
        run,
        status=run.status if run.status in TERMINAL else RunStatus.BLOCKED,
        close_policy=run.close_policy if run.close_policy in set(ClosePolicy) else ClosePolicy.CANCEL,
        updated_at=now,
        last_row=last_row,
    )


def held_job(job: Job) -> Job:
    """Return a job paused because rows of its run can't be read.

    A leased job of a known kind may still be settled by its worker, and deliveries continue.
    """
    is_known = job.kind in _KINDS
    if is_known and job.state in (JobState.PENDING_DELIVERY, JobState.LEASED):
        return job
    return attrs.evolve(job, state=JobState.PAUSED, session=None, leased_at=None, heartbeat_by=None)


LOSSES_MAX: Final = 100
"""The most losses of a body, whatever its attempts: each took a worker with it."""

ATTEMPTS_MAX: Final = 10_000
"""The most attempts of a body: each failed one is a row, and a history has at most 50,000."""


def losses_max(attempts: int) -> int:
    """Return the number of losses after which a body with so many attempts is given up.

    With one attempt it is never started twice. Otherwise it is quarantined first and has several losses there, so that
    neither a killer beside it nor a failing machine counts against it.
    """
    return 1 if attempts == 1 else min(max(attempts, LOSSES_MIN), LOSSES_MAX)


_STEP: Final = "step:"


def step_definition(step: str) -> str:
    """Return the definition of a queued step. It can't be a workflow's, which contains an @."""
    return f"{_STEP}{step}"


def step_of(definition: str) -> str | None:
    """Return the name of the step that a definition stands for; None if it is a workflow's."""
    is_step = definition.startswith(_STEP) and "@" not in definition
    return definition.removeprefix(_STEP) if is_step else None


def run_slot(namespace: str, key: str) -> SlotName:
    """Return the name of the limit for runs with a concurrency key."""
    return SlotName(namespace, f"{_RUN_SLOT}{key}")


def stage_slot(namespace: str, key: str) -> SlotName:
    """Return the name of the limit for jobs with a concurrency key, `<workflow>/<stage>`."""
    return SlotName(namespace, f"{_STAGE_SLOT}{key}")
