"""Jobs as immutable records: states, kinds, and the small rules that stores and kernel share."""

from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

import attrs

from holdfast.ports.records.limits import RateName, SlotName, stage_slot
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen


class JobState(StrEnum):
    """The state of a job. A job that is done has no row.

    - `sleeping`: until `wake_at` or, without one, until what it waits for has happened.
    - `limited`: until a slot of its concurrency limit or rate limit is free.
    - `paused`: its run is paused or blocked.
    - `pending_delivery`: its run has ended or answered an update, and the result is yet to be delivered to another run.
      No attempt.
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
    - `deliver`: delivers the end of its run, or the reply to an update, to others.
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


class JobKey(NamedTuple):
    """The key of a job. Sorts in the order in which jobs are locked."""

    run: str
    """The key of its run."""
    number: int
    """The number of the job in that run."""

    @property
    def text(self) -> str:
        """The job id in messages and commands: `<run key>.<number>`."""
        return job_id(self.run, self.number)


def job_id(run: str, number: int) -> str:
    """Return the id of a job, by the key of its run and its number."""
    return f"{run}.{number}"


@lru_cache(maxsize=4_096)
def job_key(text: str) -> JobKey:
    """Return the key that a job id encodes. ValueError if the text is not a job id."""
    run, dot, number = text.rpartition(".")
    if not dot or not run or not (number.isascii() and number.isdigit()) or len(number) > 10:
        raise ValueError(f"{text!r} is not a job id; one looks like <run key>.<number>")
    return JobKey(run, int(number))


@frozen(kw_only=True)
class Job:
    """One unit of unfinished work, to be leased to a session.

    Key, `kind`, `node`, `item`, `definition`, `queue`, `max_attempts`, `input`, `queue_position`, `turn` and the limits
    never change, except that a poll may become a job that cancels the same work (see `cancelling`).
    """

    run: str
    """The key of its run."""
    number: int
    """Its number in that run."""
    namespace: str
    queue: str
    definition: str
    """The code that a worker needs: `<workflow>@<version>`, or that of a step or a remote stage by its name."""
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
    """When the first attempt that was not released began. None for polls, and for jobs that drive a function."""
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
    turn: int | None = None
    """Of the first job of a run that shares workers by key: its turn (see `FairKey`). None for all others."""

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
    def waits_for_turn(self) -> bool:
        """Whether it waits for its first claim, in a line whose keys share workers."""
        return self.turn is not None and self.epoch == 0 and self.state in (JobState.QUEUED, JobState.LIMITED)

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


def rank_of(since: Micros, priority: int) -> Micros:
    """Return the rank of work that waits since an instant with a priority: each step of priority is a head start."""
    return since - priority * PRIORITY_STEP


def waits_since(position: Micros, priority: int) -> Micros:
    """Return the instant since which work waits by its rank: the reverse of `rank_of`."""
    return position + priority * PRIORITY_STEP


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


def held_job(job: Job) -> Job:
    """Return a job paused because rows of its run can't be read.

    A leased job of a known kind may still be settled by its worker, and deliveries continue.
    """
    is_known = job.kind in _KINDS
    if is_known and job.state in (JobState.PENDING_DELIVERY, JobState.LEASED):
        return job
    return attrs.evolve(job, state=JobState.PAUSED, session=None, leased_at=None, heartbeat_by=None)


ATTEMPTS_UNLIMITED: Final = 1_000_000_000
"""`Job.max_attempts` of a body that is tried without limit: more attempts than anything makes in thirty years."""


def limit_of_attempts(most: int) -> int | None:
    """Return a maximum number of attempts as it is shown: None if there is no limit, lost attempts included or not."""
    return None if most >= ATTEMPTS_UNLIMITED else most


def attempts_text(attempt: int, most: int) -> str:
    """Return which attempt this is, for people: "attempt 2 of 3", or "attempt 17, no limit"."""
    return (
        f"attempt {attempt}, no limit" if limit_of_attempts(most) is None else f"attempt {attempt} of {most}"
    )


LOSSES_MAX: Final = 100
"""The most losses of a body, whatever its attempts: each took a worker with it."""


ATTEMPTS_MAX: Final = 10_000
"""The highest limit of attempts: each failed one is a row, and a history has at most 50,000."""


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


_REMOTE_STAGE: Final = "stage:"


def remote_stage_definition(stage: str) -> str:
    """Return the definition of a stage that remote workers run. It can't be a workflow's, which contains an @."""
    return f"{_REMOTE_STAGE}{stage}"


def remote_stage_of(definition: str) -> str | None:
    """Return the name of the remote stage that a definition stands for; None if it is something else."""
    is_remote = definition.startswith(_REMOTE_STAGE) and "@" not in definition
    return definition.removeprefix(_REMOTE_STAGE) if is_remote else None
