"""Commands on durable functions and their replies: record history rows, send signals, request updates."""

from typing import ClassVar, Final, Literal

from holdfast.kernel.commands.command import Command
from holdfast.kernel.commands.jobs import ChannelMessage, ChildRunStarted
from holdfast.kernel.pipelines.plan import RatePlan
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import RunStatus
from holdfast.ports.records.values import Micros, Payload
from holdfast.ports.structs import frozen

RecordedType = Literal[
    "step.completed",
    "step.failed",
    "step.retrying",
    "step.started",
    "step.queued",
    "step.cancelled",
    "timer.fired",
    "patch.marked",
    "child.started",
    "child.signalled",
    "child.cancelling",
    "update.completed",
    "update.failed",
    "update.rejected",
    "value.published",
    "clock.read",
    "channel.closed",
    "function.began",
    "signal.refused",
]
"""Types of history rows that the driver of a durable function records with `JobRecord`."""
UPDATE_ANSWERS: Final = frozenset({"update.completed", "update.failed", "update.rejected"})
"""Types of the rows that end an update: its reply, its error, or why it was not carried out."""
SIGNALS_MAX: Final = 100
"""Most signals in one `RunCreate`."""


@frozen(kw_only=True)
class ChildMessage:
    """A signal or a cancellation that a durable function sends to its child run."""

    run_id: str
    signal: ChannelMessage | None = None
    """The signal to send; None: cancel the child run."""
    reason: str = ""
    """Why the child run is cancelled, for people."""


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


@frozen(kw_only=True)
class RowToRecord:
    """One history row that the driver of a durable function records. Which fields count depends on `type`."""

    type: RecordedType
    call: str
    """Name of the call or of the patch. `value.published`: name of the value. `clock.read`: number of the last row that
    the function had received, 0 at its beginning. `function.began`: number of the last row that existed then.
    `signal.refused`: number of the skipped message."""
    step: str | None = None
    """Name of the called step."""
    site: str = ""
    """File and line of the call."""
    output: Payload | None = None
    """Result of the step or update, or the published value."""
    error: str | None = None
    """JSON text of the raised error. `signal.refused`: the `channel` and the reason."""
    attempt: int = 1
    """Number of the attempt, from 1. `step.queued`: how many times the step has been queued. `value.published`: how
    many values the function has published under this name."""
    retry_at: Micros | None = None
    """Instant of the next attempt; None: no more attempts."""
    due: Micros | None = None
    """Instant of a timer. The row is left out if the store's clock has not reached it."""
    started_at: Micros | None = None
    """Start of the attempt. `clock.read`: the time that the function read."""
    child: ChildRunStarted | None = None
    """Child run to create in the same transaction. If its id belongs to another run, a `child.failed` row is recorded
    instead."""
    child_message: ChildMessage | None = None
    """Signal or cancellation to send to a child run in the same transaction."""
    undoes: str | None = None
    """The call that a compensation undoes."""
    queued: QueuedStepJob | None = None
    """Job to add for a queued step."""
    job: int | None = None
    """`step.cancelled`: number of the job to delete, because the function no longer waits for its step."""
    lost_attempts: int = 0
    """How often the step was lost with its worker, this attempt included; 0 if this attempt was not lost."""
    channel: str | None = None
    """Channel to close. The row is left out if a message for the channel arrived after `JobRecord.seen`."""
    given: str | None = None
    """JSON text of the step's arguments, if its compensation receives them."""


@frozen(kw_only=True)
class JobRecorded:
    """Reply to `JobRecord`."""

    status: Literal["recorded", "fenced"]
    """`fenced`: the attempt no longer holds the job, and nothing was stored."""
    rows: tuple[HistoryRow, ...] = ()
    """All history rows after `JobRecord.seen`, the recorded ones included."""
    run_status: RunStatus | None = None
    """Status of the run. While it is paused, the driver starts nothing new."""
    admits_jobs: tuple[str, ...] = ()
    """Concurrency keys for which `JobAdmit` may now queue a job (see `RunCreated`)."""


@frozen(kw_only=True)
class JobRecord(Command[JobRecorded]):
    """Command to append history rows of a durable function while its attempt continues.

    A late command is not an error: its reply is `fenced`. Rows that an earlier try of the command stored are skipped.
    """

    type: ClassVar[Literal["job.record"]] = "job.record"
    job: str
    """Id of the job that drives the function."""
    epoch: int
    """Epoch under which the job was claimed."""
    seen: int
    """Number of the last history row that the driver has."""
    rows: tuple[RowToRecord, ...] = ()
    host: str = ""
    """Name of the worker's process and machine, for the history."""
    lost_attempts: int = 0
    """Most losses of any step that is in progress after this command. The job's own count is lowered to it."""
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
class RunSignal(Command[RunSignalled]):
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

    Its result is a later row, with `update<number>` as its `call` and one of the types `UPDATE_ANSWERS`. There is none
    if the run ends first.
    """

    run: str
    """Key of the generation that has the update."""
    number: int
    """Number of the update's history row."""
    status: RunStatus


@frozen(kw_only=True)
class RunUpdate(Command[RunUpdated]):
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
