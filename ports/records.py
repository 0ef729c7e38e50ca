"""The rows that a store keeps, as frozen values.

Instants are whole microseconds since 1970-01-01T00:00Z (`Micros`): every database stores, compares and orders
them alike, and no session's time zone can shift them. The public API speaks in aware datetimes.
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
"""An instant, or a length of time, in microseconds."""


class RunStatus(StrEnum):
    """Where a run is. `pending` waits to be admitted; `blocked` waits for an operator."""

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
"""Nothing of a run starts in these until somebody resumes it: its jobs are held."""


class JobState(StrEnum):
    """Where a job is. A job that is done has no row. `limited` waits until fewer of its stage are under way.

    One that sleeps wakes at its `wake_at`, or, without one, when what it waits for has ended or come. One that is
    `pending_delivery` tells another run that its own has ended: it is nobody's attempt.
    """

    SLEEPING = "sleeping"
    LIMITED = "limited"
    QUEUED = "queued"
    LEASED = "leased"
    PAUSED = "paused"
    PENDING_DELIVERY = "pending_delivery"


class JobKind(StrEnum):
    """What a job does.

    It runs a stage's body, reads what a map goes over, tests which of two nodes is to be done, asks whether external
    work is done, cancels external work that is not waited for any more, starts a child and waits for its end, delivers
    what its run, which has ended, owes others, drives a durable function, or does a step that such a function has put
    into a queue.
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
    """What becomes of a child whose parent ends before it."""

    CANCEL = "cancel"
    TERMINATE = "terminate"
    ABANDON = "abandon"


class SessionState(StrEnum):
    """A dead session is never renewed; what it held is given to others."""

    OPEN = "open"
    DEAD = "dead"


class StreamState(StrEnum):
    """A parked stream stays where it is until an operator lets it go on."""

    READY = "ready"
    DEAD_LETTERED = "dead_lettered"


class PassOver(StrEnum):
    """Which queued jobs a claim leaves to others, because of what its session holds.

    `suspects` are those for which `Job.is_suspect`; `lost` are all that were lost with a worker, suspects among them.
    """

    NOTHING = "nothing"
    SUSPECTS = "suspects"
    LOST = "lost"


SUSPECT_AFTER: Final = 2
"""After how many losses a job is a suspect, which runs beside nothing else that was lost."""

LOSSES_MIN: Final = 5
"""How often what may be tried more than once is lost with its workers before that is held against it."""

PRIORITY_STEP: Final[Micros] = 60_000_000
"""What one step of priority is worth: it puts work ahead of all that has waited up to a minute longer."""

HISTORY_LONG: Final = "run.history_long"
"""The type of the history row that marks the history of a durable function which gets long."""

CLOCK_READ: Final = "clock.read"
RESULT_REFUSED: Final = "result.refused"
STEP_GIVEN: Final = "given"
"""Where a row tells what a step was called with, for what takes it back. It is in no event."""
SIGNAL_REFUSED: Final = "signal.refused"
PUBLISHED: Final = "value.published"
"""The type of the history rows that keep what a durable function shows: stores are asked for the newest."""

HEARTBEAT: Final = "heartbeat"
"""The kind of the notes that keep what a body said with its heartbeats: stores are asked for the newest."""

SIGNAL_RECEIVED: Final = "signal.received"
START_RECEIVED: Final = "start.received"
"""The type of the history rows that have starts which found their run active, for the messages that came with them."""
CHANNEL_CLOSED: Final = "channel.closed"
FUNCTION_BEGAN: Final = "function.began"
"""The type of the history rows that say which messages were there when a function began."""

STEP_QUEUED: Final = "step.queued"
STEP_CANCELLED: Final = "step.cancelled"
STEP_COMPLETED: Final = "step.completed"
STEP_FAILED: Final = "step.failed"
STEP_RETRYING: Final = "step.retrying"
STEP_STARTED: Final = "step.started"
"""Marks that a step begins again that was lost with its worker: only of those it is recorded."""
STEP_ENDS: Final = frozenset({STEP_COMPLETED, STEP_FAILED, STEP_CANCELLED})
"""The types of the history rows with which a step is over that a function has put into a queue."""
STAGE_EXPANDED: Final = "stage.expanded"
STAGE_SKIPPED: Final = "stage.skipped"
STAGE_COMPLETED: Final = "stage.completed"
STAGE_FAILED: Final = "stage.failed"
STAGE_SUSPENDED: Final = "stage.suspended"
STAGE_TESTED: Final = "stage.tested"
STAGE_CANCELLED: Final = "stage.cancelled"
STAGE_CANCEL_FAILED: Final = "stage.cancel_failed"
PAID_ROWS: Final = (STAGE_CANCELLED, STAGE_CANCEL_FAILED)
"""The types of the history rows that say what came of cancelling external work: they may follow the end of a run."""
NOTED_ROWS: Final = (STAGE_COMPLETED, STAGE_FAILED, STAGE_SUSPENDED)
"""The types of the history rows in which a stage, or an item of a map, came to something. Stores are asked for them."""


class RunName(NamedTuple):
    """How users name a run: its namespace and its public id."""

    namespace: str
    id: str


class SlotName(NamedTuple):
    """What at most so many may have at once: `name` is `run:<concurrency key>`, or `stage:<workflow>/<stage>`."""

    namespace: str
    name: str


class RateName(NamedTuple):
    """Whose starts are counted together: the concurrency key of jobs of a stage with a rate limit."""

    namespace: str
    name: str


_RUN_SLOT: Final = "run:"
_STAGE_SLOT: Final = "stage:"


class JobKey(NamedTuple):
    """How the store names a job: its run's key, and its number in that run. Ordered like the locks."""

    run: str
    number: int

    @property
    def text(self) -> str:
        """The job's id in messages and commands: `<run key>.<number>`."""
        return f"{self.run}.{self.number}"


class SinkName(NamedTuple):
    """How users name a sink of events: its namespace, and its name there."""

    namespace: str
    name: str


class StreamKey(NamedTuple):
    """One run's events on their way to one sink: the sink's key and the run's. Ordered like the locks."""

    sink: str
    run: str


@lru_cache(maxsize=4_096)
def job_key(text: str) -> JobKey:
    """Return the key that a job id names. ValueError if it is not one."""
    run, dot, number = text.rpartition(".")
    if not dot or not run or not (number.isascii() and number.isdigit()) or len(number) > 10:
        raise ValueError(f"{text!r} is not a job id; one looks like <run key>.<number>")
    return JobKey(run, int(number))


def attribute_texts(attributes: str | None) -> dict[str, str]:
    """Return the texts in a run's attributes by name. What is no text has no place among them."""
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
    """A stored value: its canonical JSON text, or the key of the blob that holds that text."""

    inline: str | None = None
    blob: str | None = None

    def __attrs_post_init__(self) -> None:
        if (self.inline is None) == (self.blob is None):
            raise ValueError("a payload is either inline or in a blob")


@frozen(kw_only=True)
class Run:
    """One generation of one run.

    `key` is this generation's own name, under which all its rows hang; (`namespace`, `id`) is what users call it.
    `last_row` and `last_job` are the highest numbers given out so far in its history and among its jobs. `open_jobs` is
    how many jobs it has. `progress` is the JSON text of its place in its plan. `result` is a reference to its output,
    `error` the JSON text of why it failed or was cancelled, or will be when its function has cleaned up. One that
    completed without a result goes on as the next generation. `attributes` is the JSON text of an object of texts, by
    which runs are found. `queue_position` is its place among those that wait, as that of a job. Where `start_at` is set
    the run is pending until then; it is None again once that has come. Of the runs of a namespace with the same
    `concurrency_key` at most `concurrency_limit` are admitted at a time. When `deadline` has passed, the run is ended,
    or told to end. `rerun_of` is the key of the generation that this one runs again, `rerun_from` the stage that it
    begins with, or of a function the call or the row (None: the first). `inherited` is the JSON text of an object: by
    name, references to what the stages gave that it does not run again. Of a function it is that of a list, of the rows
    of generations before that come before its own (see `KeptRows`): its own are numbered from there on. `parent` is the
    id of the job that waits for its end, if it is a child; `close_policy` says what becomes of it without. `children`
    is how many runs it has started that way. `mailbox` is the JSON text of what is unread of its messages, and which
    channels it has closed (see `Mailbox`). Key, name, workflow, `created_at`, `queue_position`, `attributes`,
    `deadline`, and what is said of concurrency and of reruns never change.
    """

    key: str
    namespace: str
    id: str
    generation: int
    workflow: str
    version: str
    plan: str
    status: RunStatus
    queue: str
    priority: int
    created_at: Micros
    updated_at: Micros
    ended_at: Micros | None = None
    last_row: int = 0
    last_job: int = 0
    open_jobs: int = 0
    progress: str = "{}"
    result: str | None = None
    error: str | None = None
    attributes: str | None = None
    rerun_of: str | None = None
    rerun_from: str | None = None
    inherited: str | None = None
    start_at: Micros | None = None
    deadline: Micros | None = None
    concurrency_key: str | None = None
    concurrency_limit: int | None = None
    parent: str | None = None
    close_policy: ClosePolicy = ClosePolicy.CANCEL
    children: int = 0
    queue_position: Micros = 0
    mailbox: str | None = None

    @property
    def name(self) -> RunName:
        """What users call it."""
        return RunName(self.namespace, self.id)

    @property
    def kept_rows(self) -> tuple[KeptRows, ...]:
        """The rows of generations before with which its history begins, if it is a function that keeps any."""
        return kept_rows_from(self.inherited)

    def holder_of(self, number: int) -> str:
        """Return the key of the generation that has the row of this number: this one, or one whose rows it keeps."""
        kept = self.kept_rows
        return next((part.run for part in kept if number <= part.last), self.key)

    @property
    def first_row(self) -> int:
        """The number of the first row of its own, which has what it was given."""
        kept = self.kept_rows
        return kept[-1].last + 1 if kept else 1

    @property
    def is_admitted(self) -> bool:
        """Whether it has begun. One that has not is pending, or was paused or ended before it began."""
        return self.last_job > 0

    @property
    def is_ending(self) -> bool:
        """Whether its function is to end, and has not yet: it cleans up, or somebody has to look at how it does."""
        return self.status in ACTIVE and self.error is not None

    @property
    def is_continued(self) -> bool:
        """Whether its function goes on as the next generation. Such a one has completed, and given nothing."""
        return self.status is RunStatus.COMPLETED and self.result is None

    @property
    def slot(self) -> SlotName | None:
        """What it has one of, or waits for one of; None if it needs none."""
        return None if self.concurrency_key is None else run_slot(self.namespace, self.concurrency_key)

    @property
    def has_slot(self) -> bool:
        """Whether it has one. It gives that back by ending, and by nothing else."""
        is_under_way = self.status in ACTIVE and self.status is not RunStatus.PENDING
        return self.concurrency_key is not None and self.is_admitted and is_under_way

    @property
    def place(self) -> ListPlace:
        """Where it is in the order in which runs are listed."""
        return ListPlace(self.created_at, self.key)


@frozen(kw_only=True)
class Job:
    """One unit of leased work.

    `definition` is `<workflow>@<version>`, or that of a step (see `step_definition`): what code a worker needs for it.
    `node` is the stage that it is of; of a step, the call that it does. `item` is the index of a map's item. `epoch`
    rises by one with every claim and is never reused; `attempts` counts the claims that were not given back.
    `lost_attempts` is how many of these were lost with the worker that held them: they use up none of `max_attempts`,
    and have a maximum of their own (see `losses_max`). Of a job that drives a function it is how often the worst of the
    steps under way was lost, and how often it was itself since something was recorded. Of the jobs of a namespace with
    the same `concurrency_key` at most `concurrency_limit` are queued or leased at a time, and at most `rate_limit` are
    claimed in any span of `rate_period`, if these are not None. None of these ever changes. `queue_position` is its
    place among those that wait: the lowest is first, then the oldest run, then the lowest number (see `rank_of`). It
    never changes, so what waits gets older than whatever comes later, of any priority. `input` is a reference to
    what the body gets (see `holdfast.ports.references`). `timeout_total` is how long all its attempts together may
    take. Where there is one, `first_claimed_at` is when the first of them began that was not given back.
    `heartbeat_timeout` is how long an attempt may go without a heartbeat of its body; where there is one,
    `heartbeat_by` is when the attempt that holds the job is lost without one. `waiting_for` is the id of the run whose
    end it waits for, or the key of the external work that it checks, by which it can be woken, or that it cancels. A
    check is made every `check_after` microseconds, until `give_up_at`.
    """

    run: str
    number: int
    namespace: str
    queue: str
    definition: str
    kind: JobKind
    node: str
    item: int | None = None
    state: JobState = JobState.QUEUED
    priority: int = 0
    wake_at: Micros | None = None
    epoch: int = 0
    attempts: int = 0
    max_attempts: int = 1
    session: str | None = None
    leased_at: Micros | None = None
    lost_attempts: int = 0
    input: str = "null"
    timeout_total: Micros | None = None
    first_claimed_at: Micros | None = None
    heartbeat_timeout: Micros | None = None
    heartbeat_by: Micros | None = None
    concurrency_key: str | None = None
    concurrency_limit: int | None = None
    queue_position: Micros = 0
    rate_limit: int | None = None
    rate_period: Micros | None = None

    @property
    def total_until(self) -> Micros | None:
        """When the time for all its attempts is over; None if it has no end, or none has begun."""
        if self.timeout_total is None or self.first_claimed_at is None:
            return None
        return self.first_claimed_at + self.timeout_total

    waiting_for: str | None = None
    check_after: Micros | None = None
    give_up_at: Micros | None = None

    @property
    def slot(self) -> SlotName | None:
        """What it has one of, or waits for one of; None if it needs none."""
        if self.concurrency_key is None or self.concurrency_limit is None:
            return None
        return stage_slot(self.namespace, self.concurrency_key)

    @property
    def has_slot(self) -> bool:
        """Whether it has one: as long as it can be claimed, or is."""
        return self.concurrency_limit is not None and self.state in (JobState.QUEUED, JobState.LEASED)

    @property
    def rate(self) -> RateName | None:
        """With which others its starts are counted; None if nobody counts them."""
        if self.concurrency_key is None or self.rate_limit is None:
            return None
        return RateName(self.namespace, self.concurrency_key)

    @property
    def is_suspect(self) -> bool:
        """Whether it was lost so often that it may be what kills its workers, or was beside what does.

        It runs beside no other job that was lost: what kills has nobody else given up for it.
        """
        return self.lost_attempts >= SUSPECT_AFTER

    @property
    def tries(self) -> int:
        """How many of its attempts count against `max_attempts`: not those that were lost.

        Of a job that drives a function all count that have recorded nothing.
        """
        return self.attempts if self.kind is JobKind.WORKFLOW else self.attempts - self.lost_attempts

    @property
    def outlives_run(self) -> bool:
        """Whether it is none of those by which its run goes on: what it does is owed to others, also after the end."""
        return self.state is JobState.PENDING_DELIVERY or self.kind is JobKind.CANCEL

    @property
    def waits_for_child(self) -> bool:
        """Whether it rests until a run has ended that it has started."""
        return self.kind is JobKind.CHILD and self.waiting_for is not None

    @property
    def is_woken(self) -> bool:
        """Whether it may sleep without an end: the end of another run wakes it, or what a function is sent."""
        return self.waits_for_child or self.kind is JobKind.WORKFLOW

    def is_passed_over(self, pass_over: PassOver) -> bool:
        """Whether a claim that passes these over leaves this job to others."""
        match pass_over:
            case PassOver.NOTHING:
                return False
            case PassOver.SUSPECTS:
                return self.is_suspect
            case PassOver.LOST:
                return self.lost_attempts > 0

    @property
    def key(self) -> JobKey:
        """How the store names it."""
        return JobKey(self.run, self.number)


@frozen
class HistoryRow:
    """What happened to a run: numbered from 1 without gaps, never changed.

    `payload` is a value that came out or went in; `data` is JSON text of small facts (errors, who, when).
    """

    run: str
    number: int
    type: str
    at: Micros
    node: str | None = None
    item: int | None = None
    epoch: int | None = None
    payload: Payload | None = None
    data: str | None = None


@frozen(kw_only=True)
class MapItems:
    """Some of the items that a map goes over: `items` is the JSON text of a list of payloads."""

    run: str
    node: str
    page: int
    items: str


@frozen(kw_only=True)
class PlanRow:
    """A pipeline's plan, stored once. `body` is its canonical JSON text."""

    fingerprint: str
    workflow: str
    version: str
    body: str


@frozen(kw_only=True)
class Session:
    """One life of a worker process, or of a serverless function. It holds leases until `expires_at` or later."""

    id: str
    host: str
    state: SessionState
    opened_at: Micros
    expires_at: Micros


@frozen(kw_only=True)
class IdempotencyReply:
    """What a command with an idempotency key was answered: `body` is the reply's canonical JSON text."""

    namespace: str
    key: str
    fingerprint: str
    body: str
    created_at: Micros


@frozen(kw_only=True)
class LeaderLease:
    """Work that one session at a time does for all, such as maintenance, until `expires_at`."""

    name: str
    session: str
    expires_at: Micros


@frozen(kw_only=True)
class RateWindow:
    """When jobs were claimed whose starts are counted together.

    `starts` is JSON text: `at`, instants, each with how many that were, without those that count no more; `span`, the
    longest period, in microseconds, that any of these jobs had, for which they are kept. At `wakes_at` a
    job wakes that is the first of those who wait; None if there was none. `updated_at` is when that was last changed.
    """

    namespace: str
    name: str
    starts: str = "{}"
    wakes_at: Micros | None = None
    updated_at: Micros

    @property
    def rate_name(self) -> RateName:
        """How the store names it."""
        return RateName(self.namespace, self.name)


@frozen(kw_only=True)
class OutputRow:
    """Something an attempt said while it ran. Not numbered.

    `kind` is `log`, `progress` or `heartbeat`, `data` JSON text; that of a heartbeat is its details, a value.
    """

    id: str
    run: str
    job: int
    epoch: int
    at: Micros
    kind: str
    data: str


@frozen(kw_only=True)
class Sink:
    """Where events go. What takes them is given to hosts, under the name.

    `key` is this registration's own: one that is removed and made again begins anew. Rows that were stored at `since`
    or later count. `options` is JSON text. `failures` are those in a row, after which nothing is sent before
    `retry_at`. `swept_at` is when a walk over all runs began that has come to its end: none was overlooked until then.
    """

    key: str
    namespace: str
    name: str
    since: Micros
    created_at: Micros
    options: str | None = None
    failures: int = 0
    retry_at: Micros | None = None
    succeeded_at: Micros | None = None
    swept_at: Micros | None = None
    error: str | None = None

    @property
    def sink_name(self) -> SinkName:
        """What users call it."""
        return SinkName(self.namespace, self.name)


@frozen(kw_only=True)
class StreamHead:
    """That a run has rows up to `head_row` for a sink, said at an instant."""

    sink: str
    run: str
    head_row: int
    at: Micros


@frozen(kw_only=True)
class Stream:
    """One run's events on their way to one sink.

    There are rows up to `head_row`, and those up to `delivered` were taken. It is to be looked at from `due_at` on;
    None: there is nothing to do. Whoever looks becomes its `holder` and puts `due_at` off, so that it is looked at
    again if nothing more is heard of that one. `attempts` are those at event `refused_row` that failed while the sink
    took others, the last at `failed_at`. `skipped_rows` is the JSON text of why an operator had events left out, by
    their numbers.
    """

    sink: str
    run: str
    head_row: int
    delivered: int = 0
    state: StreamState = StreamState.READY
    due_at: Micros | None = None
    holder: str | None = None
    attempts: int = 0
    refused_row: int | None = None
    failed_at: Micros | None = None
    dead_lettered_at: Micros | None = None
    error: str | None = None
    skipped_rows: str | None = None

    @property
    def key(self) -> StreamKey:
        """How the store names it."""
        return StreamKey(self.sink, self.run)


def rank_of(since: Micros, priority: int) -> Micros:
    """Return the rank of what waits since an instant with a priority: a head start, and never more than that."""
    return since - priority * PRIORITY_STEP


def cancelling(check: Job, attempts: int) -> Job:
    """Return what a check becomes whose work is not waited for any more: a job that cancels it, queued, with no holder.

    It keeps its number, so that there is never more than one of them, and its epoch, so that whoever holds the check
    holds nothing any more. It may be tried up to `attempts` times.
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
    """Return a run as it is once it is blocked because rows of it can't be read: one that has ended stays so."""
    return attrs.evolve(
        run,
        status=run.status if run.status in TERMINAL else RunStatus.BLOCKED,
        close_policy=run.close_policy if run.close_policy in set(ClosePolicy) else ClosePolicy.CANCEL,
        updated_at=now,
        last_row=last_row,
    )


def held_job(job: Job) -> Job:
    """Return a job as it is once its run is blocked because rows of it can't be read.

    A worker that holds it may end it, if it is of a kind that is known; and what is owed is told.
    """
    is_known = job.kind in _KINDS
    if is_known and job.state in (JobState.PENDING_DELIVERY, JobState.LEASED):
        return job
    return attrs.evolve(job, state=JobState.PAUSED, session=None, leased_at=None, heartbeat_by=None)


LOSSES_MAX: Final = 100
"""After so many losses a body is given up, however often it may be tried: each took a worker with it."""

ATTEMPTS_MAX: Final = 10_000
"""How often a body may be tried: each failed try is a row, of which a history has 50,000 at the most."""


def losses_max(attempts: int) -> int:
    """Return after how many losses what may be tried so often is given up.

    What may be tried once is never started twice. Anything else is first lost as a suspect, more than once: what was
    beside a killer, or on a machine that fails, is not what kills.
    """
    return 1 if attempts == 1 else min(max(attempts, LOSSES_MIN), LOSSES_MAX)


_STEP: Final = "step:"


def step_definition(step: str) -> str:
    """Return what code a worker needs for a step that is in a queue: no workflow's, as that has an @ in it."""
    return f"{_STEP}{step}"


def step_of(definition: str) -> str | None:
    """Return the name of the step that a definition says; None if it is that of a workflow."""
    is_step = definition.startswith(_STEP) and "@" not in definition
    return definition.removeprefix(_STEP) if is_step else None


def run_slot(namespace: str, key: str) -> SlotName:
    """Return what runs of a concurrency key wait for."""
    return SlotName(namespace, f"{_RUN_SLOT}{key}")


def stage_slot(namespace: str, key: str) -> SlotName:
    """Return what jobs of a stage wait for. The key is `<workflow>/<stage>`."""
    return SlotName(namespace, f"{_STAGE_SLOT}{key}")
