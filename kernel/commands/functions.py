"""Commands on durable functions and their replies: record history rows, send signals, request updates."""

from typing import ClassVar, Final, Literal, TypeAlias

from holdfast.kernel.commands.command import Command, OperatorCommand
from holdfast.kernel.commands.follow_ups import WithFollowUp
from holdfast.kernel.commands.jobs import AttemptOutput, PublishedEvent
from holdfast.kernel.commands.outcomes import ChannelMessage, ChildRunStarted, Failure
from holdfast.kernel.commands.topics import NewTopicMessage
from holdfast.kernel.history.events import DriverEvent, StepFailed
from holdfast.kernel.pipelines.plan import RatePlan, RetryPolicy, SlotsPlan
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import RunStatus
from holdfast.ports.records.values import Micros, Payload
from holdfast.ports.structs import frozen

SIGNALS_MAX: Final = 100
"""Most signals in one `RunCreate`."""


@frozen(kw_only=True)
class QueuedStepJob:
    """The job of a queued step: any worker that serves the queue and has the step can claim it."""

    queue: str
    input: Payload
    """Arguments of the step."""
    attempts: int
    """Most attempts over all kinds of errors; lost attempts are not counted."""
    priority: int | None = None
    """Priority of the job; None: that of its run."""
    max_concurrency: int | None = None
    """Most calls of the step in progress at a time, over all runs of the namespace; None: no limit."""
    rate: RatePlan | None = None
    """Rate limit of the step."""
    slots: SlotsPlan | None = None
    """Who shares `max_concurrency`; None: the calls of the step."""


@frozen(kw_only=True)
class EventAppend:
    """Record: append an event as it is. The result of a step, for example."""

    tag: ClassVar[str] = "event"
    event: DriverEvent
    payload: Payload | None = None
    """Result of the step or update, or the published value."""
    published: tuple[PublishedEvent, ...] = ()
    """Events that a completed step publishes."""
    artifacts: tuple[AttemptOutput, ...] = ()
    """Artifacts that a completed step has put."""


@frozen(kw_only=True)
class EventPublish:
    """Record: append an event that the function itself publishes."""

    tag: ClassVar[str] = "event_publish"
    call: str
    """Name of the output: see `UserEvent.call`."""
    published: PublishedEvent


@frozen(kw_only=True)
class StepFail:
    """Record: an attempt of an inline step failed or was lost. The kernel decides whether another one follows."""

    tag: ClassVar[str] = "step_fail"
    event: StepFailed
    """What is recorded if no attempt follows. If one does, a `step.retrying` takes its place."""
    retry: RetryPolicy | None
    """Policy that the error falls under, or that of a lost step; None: it is not retried, whatever the policy."""
    retry_after: Micros | None = None
    """Wait in microseconds that the body set with `RetryAfter`; None: by the policy."""
    first_started_at: Micros | None = None
    """When the first attempt of an inline step began; None: not known, or not recorded."""
    lost_attempts: int = 0
    """How many attempts of the step were lost so far, this one included."""
    is_alone: bool = True
    """Of a lost attempt: whether no other step that was ever lost ran beside it."""


@frozen(kw_only=True)
class TimerFire:
    """Record: a timer is due. Left out if the store's clock has not reached it."""

    tag: ClassVar[str] = "timer_fire"
    call: str
    due: Micros
    site: str = ""
    """File and line of the call."""


@frozen(kw_only=True)
class StepQueue:
    """Record: put a step into a queue."""

    tag: ClassVar[str] = "step_queue"
    call: str
    step: str
    queued: QueuedStepJob
    attempt: int = 1
    """How many times the step has been queued."""
    site: str = ""
    undoes: str | None = None
    """The call that a compensation undoes."""


@frozen(kw_only=True)
class StepCancel:
    """Record: delete the job of a queued step, because the function no longer waits for it."""

    tag: ClassVar[str] = "step_cancel"
    call: str
    job: int
    """Number of the job."""


@frozen(kw_only=True)
class ChildStart:
    """Record: create a child run in the same transaction.

    If its id belongs to another run, a `child.failed` row is recorded instead.
    """

    tag: ClassVar[str] = "child_start"
    call: str
    child: ChildRunStarted
    site: str = ""


@frozen(kw_only=True)
class SignalSend:
    """Record: send a message to a run of the namespace in the same transaction."""

    tag: ClassVar[str] = "signal_send"
    call: str
    run_id: str
    signal: ChannelMessage
    site: str = ""


@frozen(kw_only=True)
class CancelSend:
    """Record: cancel a run of the namespace in the same transaction."""

    tag: ClassVar[str] = "cancel_send"
    call: str
    run_id: str
    reason: str = ""
    """Why, for people."""
    site: str = ""


@frozen(kw_only=True)
class UpdateSend:
    """Record: send an update to a run of the namespace in the same transaction."""

    tag: ClassVar[str] = "update_send"
    call: str
    run_id: str
    update: str
    """Class and method of the exposed object, such as `Board.move_to`."""
    arguments: Payload
    """JSON object of the arguments by name."""
    checked: bool = False
    """Whether the arguments have the types of the update. See `RunUpdate.checked`."""
    site: str = ""


@frozen(kw_only=True)
class ChannelClose:
    """Record: close a channel. Left out if a message for it arrived after `JobRecord.seen`."""

    tag: ClassVar[str] = "channel_close"
    call: str
    channel: str
    site: str = ""


@frozen(kw_only=True)
class TopicSend:
    """Record: publish a message to a topic in the same transaction."""

    tag: ClassVar[str] = "topic_send"
    call: str
    message: NewTopicMessage
    id: str | None = None
    """The id of the message; None: one that belongs to this call."""
    site: str = ""


@frozen(kw_only=True)
class TopicSubscribe:
    """Record: subscribe to a topic. From then on its messages arrive in a channel of the run."""

    tag: ClassVar[str] = "topic_subscribe"
    call: str
    topic: str
    channel: str
    """The name of the channel, as `channel_of` or `group_channel_of` of `kernel.topics.selections` return it."""
    selection: str = "{}"
    """JSON text of an object: the attributes that a message must have."""
    group: str | None = None
    """The name of a group: the run waits for its next message, and gets one. None: it gets every selected message."""
    since: Micros | None = None
    """The instant from which on messages were published that it gets, too; None: that of the generation's start.

    A group that exists goes on where it is."""
    site: str = ""


@frozen(kw_only=True)
class TopicUnsubscribe:
    """Record: end a subscription. No further message arrives in the channel."""

    tag: ClassVar[str] = "topic_unsubscribe"
    call: str
    topic: str
    channel: str
    site: str = ""


FunctionRecord: TypeAlias = (
    EventAppend
    | EventPublish
    | StepFail
    | TimerFire
    | StepQueue
    | StepCancel
    | ChildStart
    | SignalSend
    | CancelSend
    | UpdateSend
    | ChannelClose
    | TopicSend
    | TopicSubscribe
    | TopicUnsubscribe
)
"""What the driver of a durable function records with one `JobRecord`, besides other such records."""


@frozen(kw_only=True)
class JobRecorded(WithFollowUp):
    """Reply to `JobRecord`."""

    status: Literal["recorded", "fenced"]
    """`fenced`: the attempt no longer holds the job, and nothing was stored."""
    rows: tuple[HistoryRow, ...] = ()
    """All history rows after `JobRecord.seen`, the recorded ones included."""
    run_status: RunStatus | None = None
    """Status of the run. While it is paused, the driver starts nothing new."""
    failure: Failure | None = None
    """Why the run must be blocked, once the steps that are running have ended; None: it need not be."""


@frozen(kw_only=True)
class JobRecord(Command[JobRecorded]):
    """Command to append history rows of a durable function while its attempt continues.

    A late command is not an error: its reply is `fenced`. Records that an earlier try stored are skipped.
    """

    type: ClassVar[Literal["job.record"]] = "job.record"
    job: str
    """Id of the job that drives the function."""
    epoch: int
    """Epoch under which the job was claimed."""
    seen: int
    """Number of the last history row that the driver has."""
    records: tuple[FunctionRecord, ...] = ()
    outputs: tuple[AttemptOutput, ...] = ()
    """Output of the function and of its inline steps. That of the function comes with ids or keys."""
    reported: int = 0
    """Number of a row: with `outputs`, the function's output of all turns up to it is stored. 0: no such row."""
    lost_attempts: int = 0
    """Most losses of any step in progress, without those that a record names. The job's own count is lowered to that
    of the worst step that is in progress after this command."""
    received: tuple[int, ...] = ()
    """Numbers of the rows whose messages the function has received since it last reported them."""


@frozen(kw_only=True)
class RunSignalled:
    """Reply to `RunSignal`: the message is stored."""

    run: str
    """Key of the generation that has the message."""
    number: int
    """Number of the message's history row."""
    status: RunStatus


@frozen(kw_only=True)
class RunSignal(OperatorCommand[RunSignalled]):
    """Command to store a message for a durable function and wake it. Paused and blocked runs accept messages too.

    Errors: RunNotFoundError; SignalRefusedError if the run has ended, is a pipeline, or `generation` is not the newest;
    ChannelClosedError if the function has closed the channel.
    """

    type: ClassVar[Literal["run.signal"]] = "run.signal"
    run_id: str
    signal: ChannelMessage
    generation: int | None = None
    """The generation that is meant; None: the newest."""


@frozen(kw_only=True)
class RunUpdated:
    """Reply to `RunUpdate`: the request is stored.

    Its result is a later row, with `update<number>` as its `call`: `update.completed`, `update.failed` or
    `update.rejected`. There is none if the run ends first.
    """

    run: str
    """Key of the generation that has the update."""
    number: int
    """Number of the update's history row."""
    status: RunStatus


@frozen(kw_only=True)
class RunUpdate(OperatorCommand[RunUpdated]):
    """Command to request an update of an object that a durable function exposes.

    Errors: RunNotFoundError; UpdateRefusedError if the run has ended, is a pipeline, or `generation` is not the newest.
    """

    type: ClassVar[Literal["run.update"]] = "run.update"
    run_id: str
    update: str
    """Class and method of the exposed object, such as `Board.move_to`."""
    arguments: Payload
    """JSON object of the arguments by name."""
    generation: int | None = None
    """The generation that is meant; None: the newest."""
    given: Payload | None = None
    """The arguments as the caller passed them, without defaults. See `RunCreate.given`."""
    checked: bool = False
    """Whether the sender validated the arguments. See `ChannelMessage.checked`."""
