"""Commands on jobs and their replies: the lease protocol. Also the outcomes with which attempts settle."""

from collections.abc import Iterable
from typing import ClassVar, Literal

from holdfast.kernel.commands.command import Command
from holdfast.kernel.commands.follow_ups import WithFollowUp
from holdfast.kernel.commands.outcomes import Outcome
from holdfast.ports.records.job import SUSPECT_AFTER, JobKind, PassOver
from holdfast.ports.records.run import RunStatus
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
session does not have its definition. `paused`: its run is paused or blocked, or its queue is paused. `limited`: it
waits for a concurrency or rate limit. `suspect`: it must not run beside another job of the session.
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
