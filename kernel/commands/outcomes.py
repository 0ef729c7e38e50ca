"""."""

from typing import ClassVar

from holdfast.kernel.history.events import StepCompleted, StepFailed
from holdfast.kernel.pipelines.plan import RetryPolicy
from holdfast.ports.records.run import NO_OPTIONS, ClosePolicy, GivenOptions
from holdfast.ports.records.values import Micros, Payload
from holdfast.ports.structs import frozen


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
class CompletedAfterStep(Completed):
    """Outcome: the durable function has returned after a step whose result is not stored yet (docs/decisions/0126).

    Both are stored together, if the history has no row after `seen`. Otherwise the function has received the rows in
    another order than they are stored: then only the step is, and the function is driven again.
    """

    tag: ClassVar[str] = "completed_after_step"
    seen: int
    """Number of the last stored row that the function has received."""
    step: StepCompleted
    result: Payload
    """Result of the step."""


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
    """The function's own reason, if it raised `CancelRun` or `asyncio.CancelledError` without a request."""


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
class WaitingAfterStep(FunctionWaiting):
    """Outcome: what is stored of a `CompletedAfterStep` whose end is not: the function is driven again.

    Used inside the kernel; hosts never send it.
    """

    step: StepCompleted | StepFailed
    result: Payload | None


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
    """Idempotency key of the `RunUpdate`, or the key of an `UpdateSend`."""
    checked: bool = False
    """As in `ChannelMessage`."""
    sender: str | None = None
    """Id of the run that sent it; None if no run did."""


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
    | CompletedAfterStep
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
