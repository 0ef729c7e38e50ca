"""Commands on driven functions, and their replies: what the calls of a function have come to."""

from typing import ClassVar, Final, Literal

from holdfast.kernel.commands.command import Command
from holdfast.kernel.commands.jobs import ChannelMessage, ChildRunStarted
from holdfast.kernel.pipelines.plan import RatePlan
from holdfast.ports.records import HistoryRow, Micros, Payload, RunStatus
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
UPDATE_ANSWERS: Final = frozenset({"update.completed", "update.failed", "update.rejected"})
"""The types of what is recorded of an update: its reply, what it raised, or why it was not carried out."""
SIGNALS_MAX: Final = 100
"""With how many signals a run may be started."""


@frozen(kw_only=True)
class ChildMessage:
    """What a function tells a run that it has started: a message, or that it is cancelled, for people with a reason."""

    run_id: str
    signal: ChannelMessage | None = None
    reason: str = ""


@frozen(kw_only=True)
class Queued:
    """A step that is to be done as a job of its own, by whoever serves the `queue` and knows the step.

    `input` are its arguments, `attempts` is how often it may be tried, whatever it fails by. With a `priority` it goes
    by that, else by its run's. At most `max_concurrency` of its calls, in all runs of the namespace, are under way at a
    time, and no more start in a time than `rate` says.
    """

    queue: str
    input: Payload
    attempts: int
    priority: int | None = None
    max_concurrency: int | None = None
    rate: RatePlan | None = None


@frozen(kw_only=True)
class Recorded:
    """What a call of a durable function has come to: a row of its history.

    `call` names the call, or what is patched; `step` is what was called, `site` where in the code. `output` is what a
    step gave, `error` the JSON text of what it raised. `attempt` is how often it was tried, `retry_at` when that is
    done again. Of a try that was lost with its worker `lost_attempts` says the how-manieth that is. A timer is recorded
    only once its time `due` has come. `child` is the run that is started with it; if its id is somebody else's, a
    `child.failed` is recorded instead. `child_message` is what is sent to a child with it. `undoes` is the call that a
    compensation takes back. `queued` is how a step gets into its queue; then `attempt` says the how-manieth time that
    is. `job` is the number of the job that is taken away because nobody is interested in its step any more. Of what the
    function publishes `call` is the name, `output` the value, and `attempt` says the how-manieth of that name it is. Of
    a clock that was read `call` is the number of the row that the function was told just before, 0 at its beginning,
    and `started_at` what it showed. A `channel` is closed only if no message has come for it that the function has not
    been told. `given` is the JSON text of what a step was called with, if what takes it back is to have it. Of a
    function that began `call` is the number of the last row that was there then.
    """

    type: RecordedType
    call: str
    step: str | None = None
    site: str = ""
    output: Payload | None = None
    error: str | None = None
    attempt: int = 1
    retry_at: Micros | None = None
    due: Micros | None = None
    started_at: Micros | None = None
    child: ChildRunStarted | None = None
    child_message: ChildMessage | None = None
    undoes: str | None = None
    queued: Queued | None = None
    job: int | None = None
    lost_attempts: int = 0
    channel: str | None = None
    given: str | None = None


@frozen(kw_only=True)
class JobRecorded:
    """`recorded`, or `fenced`. `rows` are all rows of the history after those that were seen, what was recorded too.

    `run_status` is where the run is: of one that is paused nothing more is to be started. `admits_jobs` as in
    RunCreated.
    """

    status: Literal["recorded", "fenced"]
    rows: tuple[HistoryRow, ...] = ()
    run_status: RunStatus | None = None
    admits_jobs: tuple[str, ...] = ()


@frozen(kw_only=True)
class JobRecord(Command[JobRecorded]):
    """Store what calls of a driven function have come to, without ending its attempt. `seen` is the last row it knows.

    `lost_attempts` is how often the worst of the steps that are under way after that was lost with its worker.
    `received` are the numbers of the rows with the messages that it has received, as far as that is not recorded yet.
    Never refused for being late: `fenced`.
    """

    type: ClassVar[Literal["job.record"]] = "job.record"
    job: str
    epoch: int
    seen: int
    rows: tuple[Recorded, ...] = ()
    host: str = ""
    lost_attempts: int = 0
    received: tuple[int, ...] = ()


@frozen(kw_only=True)
class RunSignalled:
    """The signal is stored, as row `number` of the history of `run`. `status` is where the run is."""

    run: str
    number: int
    status: RunStatus


@frozen(kw_only=True)
class RunSignal(Command[RunSignalled]):
    """Store a message for a run's function, which is told of it wherever it is, paused or blocked runs too.

    With a `generation`, it is refused unless that is the newest one. RunNotFoundError; SignalRefusedError if the run
    has ended, or is none of a durable function; ChannelClosedError if the function has closed the channel.
    """

    type: ClassVar[Literal["run.signal"]] = "run.signal"
    run_id: str
    signal: ChannelMessage
    generation: int | None = None


@frozen(kw_only=True)
class RunUpdated:
    """The update is stored, as row `number` of the history of `run`. `status` is where the run is.

    What comes of it is a row too: of one of the types `UPDATE_ANSWERS`, with `update<number>` as `call`.
    """

    run: str
    number: int
    status: RunStatus


@frozen(kw_only=True)
class RunUpdate(Command[RunUpdated]):
    """Ask a run's function for an update, by its name, as `Board.move_to`; `arguments` are those that it takes by name.

    With a `generation`, it is refused unless that is the newest one. RunNotFoundError; UpdateRefusedError if the run
    has ended, or is none of a durable function. `given` is to `arguments` what it is to the input of a `RunCreate`, and
    `checked` says of them what it does of a message; see `ChannelMessage`.
    """

    type: ClassVar[Literal["run.update"]] = "run.update"
    run_id: str
    update: str
    arguments: Payload
    generation: int | None = None
    given: Payload | None = None
    checked: bool = False
