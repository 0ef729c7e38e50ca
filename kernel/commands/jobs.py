"""Commands on jobs, and their replies: the lease protocol."""

from collections.abc import Iterable
from typing import ClassVar, Literal

from holdfast.kernel.commands.command import Command
from holdfast.ports.persistence import Lane
from holdfast.ports.records import SUSPECT_AFTER, ClosePolicy, JobKind, Micros, PassOver, Payload, RunStatus
from holdfast.ports.structs import frozen


@frozen(kw_only=True, cache_hash=True)
class Attempt:
    """The right to run one job once: named by (`job`, `epoch`), which every write of it must show.

    It is the `attempt`th that counts; `lost_attempts` of those before were lost, and use up none of `max_attempts`.
    `total_until` is when the time for all attempts of the job is over; None if it has no end.
    """

    job: str
    epoch: int
    run: str
    definition: str
    queue: str
    kind: JobKind
    node: str
    item: int | None
    attempt: int
    max_attempts: int
    lost_attempts: int = 0
    input: str
    total_until: Micros | None = None

    @property
    def is_suspect(self) -> bool:
        """Whether the job was lost with its workers so often that it is a suspect: see `Job.is_suspect`."""
        return self.lost_attempts >= SUSPECT_AFTER

    @property
    def pass_over(self) -> PassOver:
        """What must not run beside it: beside a suspect nothing that was lost, beside what was lost no suspect."""
        return passed_over(self.lost_attempts)


def passed_over(losses: int) -> PassOver:
    """Return what must not run beside what was lost so often."""
    if not losses:
        return PassOver.NOTHING
    return PassOver.LOST if losses >= SUSPECT_AFTER else PassOver.SUSPECTS


def passed_over_beside(held: Iterable[Attempt]) -> PassOver:
    """Return what a session that holds these passes over when it claims."""
    wanted = {attempt.pass_over for attempt in held}
    return next((one for one in (PassOver.LOST, PassOver.SUSPECTS) if one in wanted), PassOver.NOTHING)


@frozen(kw_only=True)
class JobsClaimed:
    """The attempts that this session now holds. `admits_jobs` as in RunCreated."""

    attempts: tuple[Attempt, ...]
    admits_jobs: tuple[str, ...] = ()


@frozen(kw_only=True)
class JobClaim(Command[JobsClaimed]):
    """Lease queued jobs to a session. SessionLostError if that is dead.

    A suspect (it was lost with two workers or more) is never leased together with another job that was lost: the first
    of these that is found decides. `pass_over` says the same of what the session holds already;
    get it from `passed_over_beside`.
    """

    type: ClassVar[Literal["job.claim"]] = "job.claim"
    session: str
    lanes: tuple[Lane, ...]
    limit: int
    pass_over: PassOver = PassOver.NOTHING


IgnoredReason = Literal[
    "closed", "stale", "leased", "not_due", "unknown_code", "paused", "limited", "waiting", "suspect"
]


@frozen(kw_only=True)
class JobClaimed:
    """The attempt, or why there is none. `retry_after` is when to ask again, in microseconds; None: never.

    `admits_jobs` as in RunCreated.
    """

    attempt: Attempt | None
    ignored: IgnoredReason | None = None
    retry_after: Micros | None = None
    admits_jobs: tuple[str, ...] = ()


@frozen(kw_only=True)
class JobClaimOne(Command[JobClaimed]):
    """Lease one job by its id, if it can be had. `epoch` is the one in the message. SessionLostError.

    `pass_over` as in JobClaim: what may not run beside what the session holds is ignored as a `suspect`. What the same
    batch has leased to the session counts too.
    """

    type: ClassVar[Literal["job.claim_one"]] = "job.claim_one"
    session: str
    job: str
    epoch: int
    definitions: tuple[str, ...]
    pass_over: PassOver = PassOver.NOTHING


@frozen(kw_only=True)
class Failure:
    """Why a body failed: `code` is stable, `message` for people. With `retryable` False no attempt follows.

    `rule` is the number, from 0, of the plan's retry rule that it falls under; None if under none. `retry_after` is how
    long to wait, in microseconds, if the body has said so; at most `RETRY_AFTER_MAX`. `arguments` is the JSON text of
    what the error holds, if that is kept: see `Raised`.
    """

    code: str
    message: str
    type: str = ""
    traceback: str = ""
    retryable: bool = True
    rule: int | None = None
    retry_after: Micros | None = None
    arguments: str | None = None


@frozen(kw_only=True)
class Completed:
    """The body gave this."""

    tag: ClassVar[str] = "completed"
    output: Payload


@frozen(kw_only=True)
class MapExpanded:
    """The map goes over these."""

    tag: ClassVar[str] = "map_expanded"
    items: tuple[Payload, ...]


@frozen(kw_only=True)
class Failed:
    """The body failed."""

    tag: ClassVar[str] = "failed"
    failure: Failure


@frozen(kw_only=True)
class ResultRefused(Failed):
    """The body gave what the store will never keep. The kernel says so to itself, and hosts never do."""


@frozen(kw_only=True)
class QueuedStepCompleted:
    """The step of a queue gave this."""

    tag: ClassVar[str] = "step_completed"
    output: Payload


@frozen(kw_only=True)
class QueuedStepFailed:
    """The step of a queue raised: `error` is the JSON text of what. Without `retry_at` it is not tried again."""

    tag: ClassVar[str] = "step_failed"
    error: str
    retry_at: Micros | None = None


@frozen(kw_only=True)
class ConditionEvaluated:
    """The test of a group said so: do its first node, or the other one."""

    tag: ClassVar[str] = "condition_evaluated"
    passed: bool


@frozen(kw_only=True)
class Suspended:
    """The work is done elsewhere. `state` is what its check is given, `check_after` microseconds from now and so on.

    A check that is made at `give_up_at` or later is the last one. `key` names the work for whoever wakes the check.
    """

    tag: ClassVar[str] = "suspended"
    state: Payload
    check_after: Micros
    give_up_at: Micros | None = None
    key: str


@frozen(kw_only=True)
class NotReady:
    """The work elsewhere is not done. It is checked again after as many microseconds, or as before."""

    tag: ClassVar[str] = "not_ready"
    check_after: Micros | None = None


@frozen(kw_only=True)
class Cancelled:
    """The work elsewhere is cancelled, or there is nothing left of it to cancel.

    Of a function: it has ended as one that is cancelled does. `reason` is its own, where nobody has told it to end.
    """

    tag: ClassVar[str] = "cancelled"
    reason: str = ""


@frozen(kw_only=True)
class ChildRunStarted:
    """The stage is a run of another pipeline: it is created with this, and its parent waits for its end."""

    tag: ClassVar[str] = "child_started"
    run_id: str
    workflow: str
    version: str
    input: Payload
    close_policy: ClosePolicy = ClosePolicy.CANCEL


@frozen(kw_only=True)
class FunctionWaiting:
    """The function waits. It has been told the rows up to number `seen`: if there are more, it is driven again at once.

    `wake_at` is when time is to go on for it; None: it waits for what somebody else brings. `lost_attempts` as in
    JobRecord.
    """

    tag: ClassVar[str] = "waiting"
    seen: int
    wake_at: Micros | None = None
    lost_attempts: int = 0


@frozen(kw_only=True)
class ChannelMessage:
    """A message for one of a run's channels.

    `checked`: its sender knows what the channel takes, so if it does not fit, the code has changed since. Of any other
    message nobody knows: where it does not fit it is passed over. `given` is the message as its sender gave it, where
    `payload` has defaults besides; see `RunCreate`.
    """

    channel: str
    payload: Payload
    checked: bool = False
    given: Payload | None = None


@frozen(kw_only=True)
class CarriedUpdate:
    """An update that nobody has begun with: with its arguments, as row `again` of the generation before.

    `key` is the idempotency key under which it was asked for, `checked` as in `ChannelMessage`.
    """

    update: str
    arguments: Payload
    again: int
    key: str | None = None
    checked: bool = False


@frozen(kw_only=True)
class CarriedValue:
    """A value that the function shows, under this name."""

    name: str
    value: Payload


@frozen(kw_only=True)
class ContinuedAsNew:
    """The function goes on as a new generation of its run: as this workflow, with this input and an empty history.

    It has been told the rows up to number `seen`. `updates` are those among these that it has not begun with: the new
    generation gets them, those that have come since, and the messages that it has not received. `published` is what it
    shows, and what the new generation shows until it shows something else.
    """

    tag: ClassVar[str] = "continued_as_new"
    workflow: str
    version: str
    input: Payload
    seen: int
    updates: tuple[CarriedUpdate, ...] = ()
    published: tuple[CarriedValue, ...] = ()


@frozen(kw_only=True)
class Blocked:
    """The function can't go on until an operator has done something, as `failure` says: its run is blocked."""

    tag: ClassVar[str] = "blocked"
    failure: Failure


Outcome = (
    Completed
    | MapExpanded
    | Failed
    | QueuedStepCompleted
    | QueuedStepFailed
    | ConditionEvaluated
    | Suspended
    | NotReady
    | Cancelled
    | ChildRunStarted
    | FunctionWaiting
    | Blocked
    | ContinuedAsNew
)


OutputKind = Literal["log", "progress", "annotation", "artifact", "ai_call", "heartbeat"]


@frozen(kw_only=True)
class AttemptOutput:
    """Something that an attempt says while it runs. `data` is JSON text.

    That of an annotation, an artifact and a call is that of a `AnnotationOutput`, a `ArtifactOutput` and a
    `AiCallOutput`; that of a heartbeat is its details, a value.
    """

    kind: OutputKind
    at: Micros
    data: str


@frozen(kw_only=True)
class Published:
    """An event that a body publishes. In the run's history its type is `user.<type>`."""

    type: str
    payload: Payload


@frozen(kw_only=True)
class JobSettled:
    """`settled`, or `fenced`: the attempt was no longer this session's, and nothing was changed.

    `retry_at` is when a failed body is tried again, or external work is asked about; None if neither. `has_deliveries`
    says whether other runs are to be told of an end: then run.deliver is due. `next` is the attempt that was leased to
    `take_next`. With it, `row` is the number of the history row that has what the body gave, to which the input of
    `next` may refer, and `more` says whether other jobs were opened that can be claimed. `admits_runs` and
    `admits_jobs` as in RunCreated.
    """

    status: Literal["settled", "fenced"]
    run_status: RunStatus | None = None
    retry_at: Micros | None = None
    next: Attempt | None = None
    row: int | None = None
    more: bool = False
    admits_runs: tuple[str, ...] = ()
    admits_jobs: tuple[str, ...] = ()
    has_deliveries: bool = False


@frozen(kw_only=True)
class JobSettle(Command[JobSettled]):
    """Say how an attempt ended; the run goes on in the same transaction. Never refused for being late: `fenced`.

    `started_at` is when the body started, `host` where: they go into the history. `said` is what the attempt has
    said and no heartbeat has told yet. `take_next` is a session to which the run's next job is leased at once, if there
    is one for the same queue; it is a claim like any other. A session that is dead takes nothing. `events` are what a
    body that has completed publishes: they are stored if its output is. `received` are the numbers of the rows with the
    messages that a function has received, as far as that is not recorded yet.
    """

    type: ClassVar[Literal["job.settle"]] = "job.settle"
    job: str
    epoch: int
    outcome: Outcome
    started_at: Micros | None = None
    host: str = ""
    outputs: tuple[AttemptOutput, ...] = ()
    take_next: str | None = None
    events: tuple[Published, ...] = ()
    received: tuple[int, ...] = ()


@frozen(kw_only=True)
class JobReleased:
    """`released`, or `fenced` as for job.settle. `admits_jobs` as in RunCreated."""

    status: Literal["released", "fenced"]
    admits_jobs: tuple[str, ...] = ()


@frozen(kw_only=True)
class JobRelease(Command[JobReleased]):
    """Give an attempt back unused; it does not count. After `delay` microseconds the job can be claimed again."""

    type: ClassVar[Literal["job.release"]] = "job.release"
    job: str
    epoch: int
    delay: Micros = 0


@frozen(kw_only=True)
class HeldAttempt:
    """An attempt that its holder believes to hold, and what it has said since the last heartbeat."""

    job: str
    epoch: int
    outputs: tuple[AttemptOutput, ...] = ()


@frozen(kw_only=True)
class JobsHeld:
    """The ids of the jobs that are no longer held, by whatever cause: stop working on them."""

    lost: tuple[str, ...]


@frozen(kw_only=True)
class JobHeartbeat(Command[JobsHeld]):
    """Ask which attempts are still held, and store what they have said."""

    type: ClassVar[Literal["job.heartbeat"]] = "job.heartbeat"
    attempts: tuple[HeldAttempt, ...]


@frozen(kw_only=True)
class SilentReaped:
    """How many jobs are tried again because nothing was heard of their bodies, and how many have failed for it."""

    freed: int
    dead: int


@frozen(kw_only=True)
class JobReapSilent(Command[SilentReaped]):
    """Take jobs from attempts of which nothing was heard for longer than their stage allows, by more than `grace`.

    It counts as a failed attempt, with the code `heartbeat_timeout`.
    """

    type: ClassVar[Literal["job.reap_silent"]] = "job.reap_silent"
    grace: Micros = 0
    limit: int = 500


@frozen(kw_only=True)
class JobsWoken:
    """How many jobs woke. If that is the limit, there may be more. `admits_jobs` as in RunCreated."""

    woken: int
    admits_jobs: tuple[str, ...] = ()


@frozen(kw_only=True)
class JobWakeDue(Command[JobsWoken]):
    """Queue the sleeping jobs that are due."""

    type: ClassVar[Literal["job.wake_due"]] = "job.wake_due"
    limit: int = 500


@frozen(kw_only=True)
class JobExecuted:
    """What became of a message: what the body did, or why it was not run and what to do with the message."""

    status: Literal["completed", "suspended", "failed", "retrying", "fenced", "ignored"]
    reason: IgnoredReason | None = None
    acknowledge: bool = True
    retry_after: Micros | None = None
    has_deliveries: bool = False


@frozen(kw_only=True)
class JobExecute(Command[JobExecuted]):
    """Claim one job, run its body, settle it. Not transactional as a whole; takes no idempotency key.

    With a `lease` the session is renewed too. `pass_over` as in JobClaimOne. SessionLostError if it is dead.
    """

    type: ClassVar[Literal["job.execute"]] = "job.execute"
    session: str
    job: str
    epoch: int
    lease: Micros | None = None
    pass_over: PassOver = PassOver.NOTHING
