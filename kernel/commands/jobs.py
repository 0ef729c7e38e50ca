"""Commands on jobs and their replies: the lease protocol. Also the outcomes with which attempts settle."""

from collections.abc import Iterable
from typing import ClassVar, Literal

from holdfast.kernel.commands.command import Command
from holdfast.kernel.commands.follow_ups import WithFollowUp
from holdfast.kernel.pipelines.plan import RetryPolicy
from holdfast.ports.records.job import SUSPECT_AFTER, JobKind, PassOver
from holdfast.ports.records.run import NO_OPTIONS, ClosePolicy, GivenOptions, RunStatus
from holdfast.ports.records.values import Micros, Payload
from holdfast.ports.searches import QueueClaim
from holdfast.ports.structs import frozen


@frozen(kw_only=True, cache_hash=True)
class Attempt:
    """A leased job: the right to run it once. `job` and `epoch` are its fencing token, and go with every write."""

    job: str
    """Id of the job, `<run key>.<number>`."""
    epoch: int
    """Number of the job's claim. A write with an older epoch is fenced."""
    run: str
    """Key of the run's generation."""
    definition: str
    """Code that the worker needs: `<workflow>@<version>` or `step:<name>`."""
    queue: str
    kind: JobKind
    node: str
    """Name of the stage; of a queued step, its call."""
    item: int | None
    """Index of the map item; None outside a map."""
    attempt: int
    """Number of the attempt, from 1, lost ones included."""
    max_attempts: int
    """Most attempts, lost ones not included."""
    lost_attempts: int = 0
    """How many earlier attempts were lost with their worker."""
    input: str
    """Reference to the input (see `holdfast.ports.references`)."""
    total_until: Micros | None = None
    """Instant at which the time for all attempts of the job is over; None: no limit."""

    @property
    def is_suspect(self) -> bool:
        """Whether the job is quarantined because it was lost too often: see `Job.is_suspect`."""
        return self.lost_attempts >= SUSPECT_AFTER

    @property
    def pass_over(self) -> PassOver:
        """Which jobs its session must not claim: beside a suspect no lost job, beside a lost job no suspect."""
        return pass_over_for(self.lost_attempts)


def pass_over_for(losses: int) -> PassOver:
    """Return which jobs must not run beside a job that was lost this many times."""
    if not losses:
        return PassOver.NOTHING
    return PassOver.LOST if losses >= SUSPECT_AFTER else PassOver.SUSPECTS


def combine_pass_over(held: Iterable[Attempt]) -> PassOver:
    """Return which jobs a session that holds these attempts leaves to others when it claims."""
    wanted = {attempt.pass_over for attempt in held}
    return next((one for one in (PassOver.LOST, PassOver.SUSPECTS) if one in wanted), PassOver.NOTHING)


@frozen(kw_only=True)
class JobsClaimed(WithFollowUp):
    """Reply to `JobClaim`."""

    attempts: tuple[Attempt, ...]
    """The attempts that the session now holds."""


@frozen(kw_only=True)
class JobClaim(Command[JobsClaimed]):
    """Command to lease queued jobs to a session, by priority and age.

    A quarantined job (`suspect`) is never leased together with another lost job: the first lost job that the search
    returns decides which of the others are leased with it (docs/decisions/0059). Errors: SessionLostError.
    """

    type: ClassVar[Literal["job.claim"]] = "job.claim"
    session: str
    queue_claims: tuple[QueueClaim, ...]
    """Queues to claim from, each with the definitions that the session has and its own limit."""
    limit: int
    """Most jobs over all queues."""
    pass_over: PassOver = PassOver.NOTHING
    """Jobs to leave to others because of what the session already holds: see `combine_pass_over`."""


IgnoredReason = Literal[
    "closed", "stale", "leased", "not_due", "unknown_code", "paused", "limited", "waiting", "suspect"
]
"""Why a job was not leased.

`closed`: it has ended, or has no attempt left. `stale`: it was claimed since the hint was sent. `leased`: a session
holds it. `not_due`: it sleeps until an instant. `waiting`: it sleeps until something wakes it. `unknown_code`: the
session does not have its definition. `paused`: its run is paused or blocked. `limited`: it waits for a concurrency or
rate limit. `suspect`: it must not run beside another job of the session.
"""


@frozen(kw_only=True)
class JobClaimed(WithFollowUp):
    """Reply to `JobClaimOne`."""

    attempt: Attempt | None
    """The attempt that the session now holds; None if the job was ignored."""
    ignored: IgnoredReason | None = None
    retry_after: Micros | None = None
    """Microseconds after which to deliver the hint again; None: drop it."""


@frozen(kw_only=True)
class JobClaimOne(Command[JobClaimed]):
    """Command to lease the job that a hint names. A job that sleeps and is due is woken first.

    Errors: SessionLostError.
    """

    type: ClassVar[Literal["job.claim_one"]] = "job.claim_one"
    session: str
    job: str
    """Id of the job."""
    epoch: int
    """Epoch in the hint."""
    definitions: tuple[str, ...]
    """Definitions that the session has."""
    pass_over: PassOver = PassOver.NOTHING
    """As in `JobClaim`. Jobs that the same batch has leased to the session count too."""


@frozen(kw_only=True)
class Failure:
    """Error of a body."""

    code: str
    """Stable error code."""
    message: str
    """Message for people."""
    type: str = ""
    """Name of the exception class."""
    traceback: str = ""
    retryable: bool = True
    """Whether another attempt may follow."""
    rule: int | None = None
    """Index of the stage's retry rule that matches the error, from 0; None: no rule matches."""
    retry_after: Micros | None = None
    """Wait in microseconds that the body set with `RetryAfter`, at most `RETRY_AFTER_MAX`; None: by the policy."""
    arguments: str | None = None
    """JSON text of the exception's own data, if it is kept: see `Raised`."""


@frozen(kw_only=True)
class Completed:
    """Outcome: the body returned, or a check found the external work done."""

    tag: ClassVar[str] = "completed"
    output: Payload


@frozen(kw_only=True)
class MapExpanded:
    """Outcome: the items of a map are known."""

    tag: ClassVar[str] = "map_expanded"
    items: tuple[Payload, ...]


@frozen(kw_only=True)
class Failed:
    """Outcome: the body raised an error. A check may be made again; a failed cancellation never fails its run."""

    tag: ClassVar[str] = "failed"
    failure: Failure


@frozen(kw_only=True)
class ResultRefused(Failed):
    """Outcome: the store will never accept the body's output. Used inside the kernel; hosts never send it."""


@frozen(kw_only=True)
class QueuedStepCompleted:
    """Outcome: a queued step returned."""

    tag: ClassVar[str] = "step_completed"
    output: Payload


@frozen(kw_only=True)
class QueuedStepFailed:
    """Outcome: a queued step raised an error."""

    tag: ClassVar[str] = "step_failed"
    error: str
    """JSON text of the error: its `type`, `message` and `code`."""
    retry: RetryPolicy | None = None
    """Policy that the error falls under; None: it is not retried, whatever the policy."""
    retry_after: Micros | None = None
    """Wait in microseconds that the body set with `RetryAfter`; None: by the policy."""


@frozen(kw_only=True)
class ConditionEvaluated:
    """Outcome: the condition of a `when` was evaluated."""

    tag: ClassVar[str] = "condition_evaluated"
    passed: bool
    """Whether the first branch runs; otherwise the second, if there is one."""


@frozen(kw_only=True)
class StageSuspended:
    """Outcome: the body submitted external work, and its stage is suspended until a check finds the work done."""

    tag: ClassVar[str] = "suspended"
    state: Payload
    """Input of the checks."""
    check_after: Micros
    """Microseconds until the first check and between checks; more than 0."""
    give_up_at: Micros | None = None
    """Instant of the last check: if it finds the work unfinished, the stage fails; None: no limit."""
    key: str
    """Name of the external work, by which `StageWake` finds the check."""


@frozen(kw_only=True)
class PollNotReady:
    """Outcome: the external work is not done. Leaves no history row."""

    tag: ClassVar[str] = "not_ready"
    check_after: Micros | None = None
    """Microseconds until the next check; None: as the suspension set it."""


@frozen(kw_only=True)
class Cancelled:
    """Outcome: external work was cancelled or had ended, or a durable function ended as cancelled."""

    tag: ClassVar[str] = "cancelled"
    reason: str = ""
    """The function's own reason, if it raised `asyncio.CancelledError` without a cancellation request."""


@frozen(kw_only=True)
class ChildRunStarted:
    """Outcome: the stage is a child run. It is created in the same transaction, and the job sleeps until it ends."""

    tag: ClassVar[str] = "child_started"
    run_id: str
    """Id of the child run."""
    workflow: str
    version: str
    input: Payload
    close_policy: ClosePolicy = ClosePolicy.CANCEL
    """What happens to the child run if its parent ends first."""
    options: GivenOptions = NO_OPTIONS


@frozen(kw_only=True)
class FunctionWaiting:
    """Outcome: the durable function waits for a timer or for a new row."""

    tag: ClassVar[str] = "waiting"
    seen: int
    """Number of the last row that the function has received. If the history has more, the job is queued at once."""
    wake_at: Micros | None = None
    """Instant of the function's next timer; None: it waits for rows only."""
    lost_attempts: int = 0
    """Most losses of any step in progress, as in `JobRecord`."""


@frozen(kw_only=True)
class ChannelMessage:
    """A message for a channel of a run."""

    channel: str
    payload: Payload
    checked: bool = False
    """Whether the sender validated the message against the channel's type. If the function cannot read a validated
    message, its code has changed, and the run is blocked. Other messages that it cannot read are skipped."""
    given: Payload | None = None
    """The message as the sender passed it, without defaults. See `RunCreate.given`."""


@frozen(kw_only=True)
class CarriedUpdate:
    """An update that the function has not started, handed on to the next generation."""

    update: str
    """Class and method of the exposed object."""
    arguments: Payload
    again: int
    """Number of the update's row in the previous generation."""
    key: str | None = None
    """Idempotency key of the `RunUpdate`."""
    checked: bool = False
    """As in `ChannelMessage`."""


@frozen(kw_only=True)
class CarriedValue:
    """A published value, handed on to the next generation."""

    name: str
    value: Payload


@frozen(kw_only=True)
class ContinuedAsNew:
    """Outcome: continue-as-new. The next generation starts with an empty history in the same transaction.

    It receives the unread messages, and the updates that were not started.
    """

    tag: ClassVar[str] = "continued_as_new"
    workflow: str
    """Workflow of the next generation."""
    version: str
    input: Payload
    seen: int
    """Number of the last row that the function has received."""
    updates: tuple[CarriedUpdate, ...] = ()
    """Updates up to row `seen` that the function has not started. Later ones are added."""
    published: tuple[CarriedValue, ...] = ()
    """Published values, which the next generation keeps until it publishes others."""


@frozen(kw_only=True)
class Blocked:
    """Outcome: the stage or function cannot continue. Its run is blocked until an operator or a deploy resumes it."""

    tag: ClassVar[str] = "blocked"
    failure: Failure


Outcome = (
    Completed
    | MapExpanded
    | Failed
    | QueuedStepCompleted
    | QueuedStepFailed
    | ConditionEvaluated
    | StageSuspended
    | PollNotReady
    | Cancelled
    | ChildRunStarted
    | FunctionWaiting
    | Blocked
    | ContinuedAsNew
)
"""How an attempt ended. `JobSettle` refuses outcomes that do not fit the job's kind."""


OutputKind = Literal["log", "progress", "annotation", "artifact", "ai_call", "heartbeat"]


@frozen(kw_only=True)
class AttemptOutput:
    """One item of attempt output: a log line, progress, a heartbeat, an annotation, an artifact or an AI call."""

    kind: OutputKind
    at: Micros
    id: str | None = None
    """Id under which a log line is stored once; None: a new one."""
    node: str | None = None
    """Name of the step that it is from; None: the stage or function of the job."""
    call: str = ""
    """The call of that step."""
    data: str
    """JSON text. Of annotations, artifacts and AI calls: the fields of `AnnotationOutput`, `ArtifactOutput` and
    `AiCallOutput`. Of heartbeats: the details, a value."""


@frozen(kw_only=True)
class PublishedEvent:
    """An event that a body publishes."""

    type: str
    """Type of the event. In the run's history it is `user.<type>`."""
    payload: Payload


@frozen(kw_only=True)
class JobSettled(WithFollowUp):
    """Reply to `JobSettle`."""

    status: Literal["settled", "fenced"]
    """`fenced`: the attempt no longer holds the job, and nothing was changed."""
    run_status: RunStatus | None = None
    """Status of the run afterwards."""
    retry_at: Micros | None = None
    """Instant of the next attempt or check, or of a waiting function's timer; None: not scheduled."""
    next: Attempt | None = None
    """The attempt that was leased to `JobSettle.take_next`."""
    row: int | None = None
    """With `next`: number of the row with the output, to which the input of `next` may refer."""
    more: bool = False
    """With `next`: whether further jobs were queued."""


@frozen(kw_only=True)
class JobSettle(Command[JobSettled]):
    """Command to store the outcome of an attempt and open the next jobs, in one transaction.

    A late command is not an error: its reply is `fenced`. Errors: InvalidCommandError if the outcome or the events are
    not of the job's kind.
    """

    type: ClassVar[Literal["job.settle"]] = "job.settle"
    job: str
    """Id of the job."""
    epoch: int
    """Epoch under which it was claimed."""
    outcome: Outcome
    started_at: Micros | None = None
    """Start of the body, for the history."""
    host: str = ""
    """Name of the worker's process and machine, for the history."""
    outputs: tuple[AttemptOutput, ...] = ()
    """Attempt output that no heartbeat has sent yet."""
    take_next: str | None = None
    """Session that claims the run's next job at once, if that is for the same queue. Ignored if the session is dead."""
    events: tuple[PublishedEvent, ...] = ()
    """Events that a completed stage or queued step publishes. They are stored if its output is."""
    received: tuple[int, ...] = ()
    """Numbers of the rows whose messages the function has received since it last reported them."""


@frozen(kw_only=True)
class JobReleased(WithFollowUp):
    """Reply to `JobRelease`."""

    status: Literal["released", "fenced"]
    """`fenced`: the attempt no longer holds the job, and nothing was changed."""


@frozen(kw_only=True)
class JobRelease(Command[JobReleased]):
    """Command to give a job back unused. The attempt is not counted."""

    type: ClassVar[Literal["job.release"]] = "job.release"
    job: str
    """Id of the job."""
    epoch: int
    """Epoch under which it was claimed."""
    delay: Micros = 0
    """Microseconds until the job can be claimed again."""


@frozen(kw_only=True)
class AttemptReport:
    """An attempt that a worker runs, with its new output."""

    job: str
    """Id of the job."""
    epoch: int
    """Epoch under which it was claimed."""
    outputs: tuple[AttemptOutput, ...] = ()
    """Attempt output since the last `JobHeartbeat`."""


@frozen(kw_only=True)
class JobsHeld:
    """Reply to `JobHeartbeat`."""

    lost: tuple[str, ...]
    """Ids of the jobs that the attempts no longer hold: stop their bodies."""


@frozen(kw_only=True)
class JobHeartbeat(Command[JobsHeld]):
    """Command to store attempt output and learn which attempts still hold their jobs.

    An output of the kind `heartbeat` extends an attempt whose stage has a heartbeat timeout.
    """

    type: ClassVar[Literal["job.heartbeat"]] = "job.heartbeat"
    attempts: tuple[AttemptReport, ...]


@frozen(kw_only=True)
class UnresponsiveReaped:
    """Reply to `JobReapUnresponsive`."""

    freed: int
    """How many jobs will be tried again."""
    dead: int
    """How many jobs had no attempt or time left, so that their stages failed."""


@frozen(kw_only=True)
class JobReapUnresponsive(Command[UnresponsiveReaped]):
    """Command to fail attempts that missed their heartbeat timeout, with the code `heartbeat_timeout`."""

    type: ClassVar[Literal["job.reap_unresponsive"]] = "job.reap_unresponsive"
    grace: Micros = 0
    """Microseconds by which a heartbeat must be overdue."""
    limit: int = 500
    """Most jobs that are read."""


@frozen(kw_only=True)
class JobsWoken(WithFollowUp):
    """Reply to `JobWakeDue` and `StagePollSuspended`."""

    woken: int
    """How many jobs were woken. If it equals the limit, there may be more."""


@frozen(kw_only=True)
class JobWakeDue(Command[JobsWoken]):
    """Command to wake sleeping jobs that are due."""

    type: ClassVar[Literal["job.wake_due"]] = "job.wake_due"
    limit: int = 500
    """Most jobs that are woken."""


@frozen(kw_only=True)
class JobExecuted(WithFollowUp):
    """Reply to `JobExecute`."""

    status: Literal["completed", "suspended", "failed", "retrying", "fenced", "ignored"]
    """`suspended`: the job waits and continues later. `ignored`: the body did not run."""
    reason: IgnoredReason | None = None
    """Why the job was ignored."""
    acknowledge: bool = True
    """Whether the message that named the job can be deleted."""
    retry_after: Micros | None = None
    """Microseconds after which to deliver the message again."""


@frozen(kw_only=True)
class JobExecute(Command[JobExecuted]):
    """Command to claim one job, run its body and settle it. Several transactions; takes no idempotency key.

    Errors: SessionLostError; InvalidCommandError if the kernel has no executor.
    """

    type: ClassVar[Literal["job.execute"]] = "job.execute"
    session: str
    job: str
    """Id of the job."""
    epoch: int
    """Epoch in the message."""
    lease: Micros | None = None
    """Microseconds by which to renew the session as well; None: do not."""
    pass_over: PassOver = PassOver.NOTHING
    """As in `JobClaimOne`."""
