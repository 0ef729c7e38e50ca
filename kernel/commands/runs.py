"""Commands on runs and their replies: start, cancel, pause, rerun, remove, repair, deliver results."""

from typing import ClassVar, Literal

import attrs

from holdfast.kernel.commands.attempt_output import NewAnnotation, check_annotations
from holdfast.kernel.commands.command import Command, OperatorCommand
from holdfast.kernel.commands.follow_ups import WithFollowUp
from holdfast.kernel.commands.outcomes import ChannelMessage
from holdfast.kernel.pipelines.plan import RetryPolicy, RetryRule
from holdfast.ports.records.limits import OuterLevel, RunRatePlan, WhenFull
from holdfast.ports.records.run import RunStatus
from holdfast.ports.records.values import Micros, Payload
from holdfast.ports.structs import frozen


@frozen(kw_only=True)
class RunCreated(WithFollowUp):
    """Reply to `RunCreate`: the run is stored, with its first jobs unless it is pending."""

    run_id: str
    run: str
    """Key of the generation."""
    generation: int
    """Number of the generation, from 1."""
    status: RunStatus
    created: bool
    """Whether the command created the generation; False: it existed before."""
    messages: tuple[int, ...] = ()
    """Numbers of the rows of `RunCreate.signals`, in their order."""
    joined: bool = False
    """Whether the start joined a run that was gathering."""
    first_item: int | None = None
    """Of a start whose list was joined with others: the index of its first item in the joined list."""
    items: int | None = None
    """How many items it has there."""
    ended: tuple[str, ...] = ()
    """Ids of the runs of its concurrency key that were ended to make way for it, oldest first."""


@frozen(kw_only=True)
class StageOverride:
    """Options of one stage for one run. None keeps the pipeline's option. See `StagePlan` for the fields."""

    stage: str
    queue: str | None = None
    priority: int | None = None
    retry: RetryPolicy | None = None
    retry_rules: tuple[RetryRule, ...] | None = None
    timeout_us: Micros | None = None
    timeout_total_us: Micros | None = None
    heartbeat_timeout_us: Micros | None = None
    config: str | None = None


@frozen(kw_only=True)
class RunCreate(OperatorCommand[RunCreated]):
    """Command to store a run and its first jobs.

    A run with a future `start_at` or a `concurrency_key` is stored as `pending`, without jobs: `RunClaimPending` admits
    it. Messages that the previous generation has not received go to the new one, before `signals`.

    If the workflow gathers its starts, a start without an id joins the run that waits, or begins one (see `Gather`).
    Without a `concurrency_key` it comes under the concurrency limit of its workflow, if that has one.

    Errors: UnknownWorkflowError; RunExistsError; ConcurrencyFullError; RateExceededError; for `signals` also
    SignalRefusedError if the workflow is a pipeline or the returned run has ended, and ChannelClosedError if the
    returned run has closed one of the channels.
    """

    type: ClassVar[Literal["run.create"]] = "run.create"
    workflow: str
    version: str | None = None
    """Version of the workflow; None: the one that the kernel uses for new runs."""
    input: Payload
    id: str | None = None
    """Run id; None: generate one."""
    if_exists: Literal["error", "return"] = "error"
    """What to do if the id exists, as default of `if_active` and `if_ended`."""
    if_active: Literal["error", "return", "terminate"] | None = None
    """What to do if the newest generation is active: refuse, return it, or terminate it and store the next one."""
    if_ended: Literal["error", "return", "rerun", "rerun_failed"] | None = None
    """What to do if the newest generation has ended: refuse, return it, or store the next one. `rerun_failed` refuses
    if it completed."""
    queue: str | None = None
    """Queue of stages that name none; None: that of the workflow, or else `default`."""
    priority: int | None = None
    """None: that of the workflow, or else 0."""
    attributes: str | None = None
    """JSON text of an object of strings, by which runs are found."""
    headers: str | None = None
    """JSON text of an object of strings, which its steps and child runs have too. Repeated commands may differ in it.

    At most 16, with names of 1 to 64 letters, digits, and `_ . -`; 4,096 characters in all.
    """
    annotations: tuple[NewAnnotation, ...] = attrs.field(default=(), validator=check_annotations)
    start_at: Micros | None = None
    """Instant before which the run stays pending."""
    deadline: Micros | None = None
    """Microseconds, from now or from a later `start_at` on, after which the run fails; None: that of the workflow."""
    concurrency_key: str | None = None
    """Runs of the namespace with the same key share `concurrency_limit` slots."""
    concurrency_limit: int = 1
    """Most admitted runs with the `concurrency_key` at a time."""
    weight: int | None = None
    """How many turns its key gets for each one of a key of weight 1; None: as many as before, at first one.

    Only for workflows whose keys share workers.
    """
    concurrency_waiting: int | None = None
    """Most runs with the key that wait beside these. None: any number with `wait`; 1 with `replace`; 0 otherwise."""
    concurrency_full: WhenFull = WhenFull.WAIT
    """What to do if, with this run, more runs of the key would be open than `concurrency_limit` and
    `concurrency_waiting` together. Runs that are ending do not count."""
    concurrency_within: tuple[OuterLevel, ...] = ()
    """The limits around that of the `concurrency_key`, the outermost first, each with a `key`. The run starts once all
    have room. At most two."""
    rate: RunRatePlan | None = None
    """The rate of starts that the run counts against; None: that of its workflow, if that has one."""
    units: int | None = None
    """How many units of this rate the run costs; None: the number in the attribute that its rate names, or 1."""
    overrides: tuple[StageOverride, ...] = ()
    signals: tuple[ChannelMessage, ...] = ()
    """Messages that are stored with the run, at most `SIGNALS_MAX`, for durable functions only.

    A returned run receives them too. With `if_ended` `rerun` or `rerun_failed`, this start is then stored with them: if
    that run ends on its own without receiving them, the same transaction starts the next generation from it.
    """
    scheduled: str | None = None
    """JSON text of an object: the schedule that starts the run, and the nominal time. Set by `schedule.fire`."""
    items: int | None = None
    """How many items the list has that is the input. Required if the workflow joins the lists of its starts."""
    input_size: int | None = None
    """Length of the input in bytes, if it is in a blob."""
    given: Payload | None = None
    """The input as the caller passed it, while `input` also has the defaults. With an idempotency key the commands are
    compared by it, so a call stays the same command when a default changes."""


@frozen(kw_only=True)
class RunTransitioned:
    """Reply to `RunTransition`."""

    action: Literal["advanced", "completed", "none"]
    """Whether the run continued with its next stages, ended, or was left unchanged."""
    status: RunStatus


@frozen(kw_only=True)
class RunTransition(Command[RunTransitioned]):
    """Command to continue a run whose current stages are all done. Only for repair: settling does the same.

    Errors: RunNotFoundError.
    """

    type: ClassVar[Literal["run.transition"]] = "run.transition"
    run_id: str


@frozen(kw_only=True)
class RunStopped(WithFollowUp):
    """Reply to `RunCancel` and `RunTerminate`."""

    status: RunStatus
    """Status of the run afterwards."""
    changed: bool
    """Whether the command changed the run; False if it had ended, was ending, or has a newer generation."""


@frozen(kw_only=True)
class RunCancel(OperatorCommand[RunStopped]):
    """Command to cancel a run. Its attempts are fenced.

    A durable function that has started cleans up first: its run is `cancelling` until then. Errors: RunNotFoundError.
    """

    type: ClassVar[Literal["run.cancel"]] = "run.cancel"
    run_id: str
    reason: str = ""
    """Why, for people."""
    generation: int | None = None
    """Do nothing unless this is the newest generation."""


@frozen(kw_only=True)
class RunTerminate(OperatorCommand[RunStopped]):
    """Command to end a run as cancelled at once, without cleanup. Errors: RunNotFoundError."""

    type: ClassVar[Literal["run.terminate"]] = "run.terminate"
    run_id: str
    reason: str = ""
    """Why, for people."""
    generation: int | None = None
    """Do nothing unless this is the newest generation."""


@frozen(kw_only=True)
class RunPaused(WithFollowUp):
    """Reply to `RunPause` and `RunResume`."""

    status: RunStatus
    """Status of the run afterwards."""
    changed: bool
    """Whether the command changed the run; False if its status does not allow it, or the generation or row is old."""


@frozen(kw_only=True)
class RunPause(OperatorCommand[RunPaused]):
    """Command to pause a running or pending run: attempts in progress settle, and nothing new starts.

    Errors: RunNotFoundError.
    """

    type: ClassVar[Literal["run.pause"]] = "run.pause"
    run_id: str
    reason: str = ""
    """Why, for people."""
    generation: int | None = None
    """Do nothing unless this is the newest generation."""


@frozen(kw_only=True)
class RunResume(OperatorCommand[RunPaused]):
    """Command to resume a paused or blocked run. Errors: RunNotFoundError."""

    type: ClassVar[Literal["run.resume"]] = "run.resume"
    run_id: str
    reason: str = ""
    """Why, for people."""
    generation: int | None = None
    """Do nothing unless this is the newest generation."""
    row: int | None = None
    """Do nothing unless this is the last row of its history."""
