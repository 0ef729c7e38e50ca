"""Commands on runs, and their replies."""

from typing import ClassVar, Literal

import attrs

from holdfast.kernel.commands.attempt_output import NamedValue, named_values
from holdfast.kernel.commands.command import Command
from holdfast.kernel.commands.jobs import ChannelMessage, Failure
from holdfast.kernel.pipelines.plan import RetryPolicy, RetryRule
from holdfast.ports.records import Micros, Payload, RunStatus
from holdfast.ports.structs import frozen


@frozen(kw_only=True)
class RunCreated:
    """The run is stored, and its first jobs with it unless it is pending. `created` is False if it was there before.

    `admits_runs` are concurrency keys for which run.claim_pending may now find a run to admit, `admits_jobs` stages, as
    `<workflow>/<stage>`, for which job.admit may now find a job: see `holdfast.kernel.commands.admissions`.
    `has_deliveries` says whether other runs are to be told of a run that has ended by it: then run.deliver is due.
    `messages` are the numbers of the rows with the signals, in their order.
    """

    run_id: str
    run: str
    generation: int
    status: RunStatus
    created: bool
    admits_runs: tuple[str, ...] = ()
    admits_jobs: tuple[str, ...] = ()
    has_deliveries: bool = False
    messages: tuple[int, ...] = ()


@frozen(kw_only=True)
class StageOverride:
    """How one stage is treated in one run. What is None is as the pipeline has it. See `StagePlan` for the fields."""

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
class RunCreate(Command[RunCreated]):
    """Store a run and its first jobs. `id` is drawn if None. UnknownWorkflowError, RunExistsError.

    A run whose `start_at` is in the future, or that has a `concurrency_key`, is stored as pending, without jobs:
    run.claim_pending lets it begin. It does so if fewer than `concurrency_limit` runs of its namespace that have the
    same key are under way. `deadline` is a length of time, from now or from a later `start_at` on: when it has passed
    and the run has not ended, run.expire ends it.

    `if_active` and `if_ended` say what to do if the newest run of this id is active, or has ended; where they are None,
    `if_exists` says it. `error` refuses, `return` answers with that run, `terminate` ends it and stores the next
    generation, `rerun` stores the next generation, and `rerun_failed` does so unless that run completed, which is
    refused.

    `signals` are for a durable function: it has got them before it begins. A run that is answered with gets them too;
    SignalRefusedError if it has ended, ChannelClosedError if it has closed a channel of theirs. Where a run that has
    ended would be run again for them, this start is kept with them: if the run ends by itself before it has received
    them, its next generation begins as this says, in the same transaction, and gets them.
    What a generation has not received when it ends, or is replaced, goes to the next one, before the signals.

    `given` is the input as the caller gave it, where `input` has defaults besides: with an idempotency key it counts
    in place of that, so the same call stays the same command when a default is changed.
    """

    type: ClassVar[Literal["run.create"]] = "run.create"
    workflow: str
    version: str | None = None
    input: Payload
    id: str | None = None
    if_exists: Literal["error", "return"] = "error"
    if_active: Literal["error", "return", "terminate"] | None = None
    if_ended: Literal["error", "return", "rerun", "rerun_failed"] | None = None
    queue: str | None = None
    priority: int = 0
    attributes: str | None = None
    annotations: tuple[NamedValue, ...] = attrs.field(default=(), validator=named_values)
    start_at: Micros | None = None
    deadline: Micros | None = None
    concurrency_key: str | None = None
    concurrency_limit: int = 1
    overrides: tuple[StageOverride, ...] = ()
    signals: tuple[ChannelMessage, ...] = ()
    given: Payload | None = None


@frozen(kw_only=True)
class RunTransitioned:
    """What `run.transition` did."""

    action: Literal["advanced", "completed", "none"]
    status: RunStatus


@frozen(kw_only=True)
class RunTransition(Command[RunTransitioned]):
    """Work out what comes next. Settling does so by itself: this is for repair. RunNotFoundError."""

    type: ClassVar[Literal["run.transition"]] = "run.transition"
    run_id: str


@frozen(kw_only=True)
class RunEnded:
    """The status the run is in now. `changed` is False if it had ended before. The rest as in RunCreated."""

    status: RunStatus
    changed: bool
    admits_runs: tuple[str, ...] = ()
    admits_jobs: tuple[str, ...] = ()
    has_deliveries: bool = False


@frozen(kw_only=True)
class RunCancel(Command[RunEnded]):
    """End a run as cancelled; what is under way loses its right to write. RunNotFoundError.

    A durable function that has begun is told of it instead, and ends when it has cleaned up: until then the run is
    `cancelling`. With a `generation`, nothing is done unless that is the newest one.
    """

    type: ClassVar[Literal["run.cancel"]] = "run.cancel"
    run_id: str
    reason: str = ""
    generation: int | None = None


@frozen(kw_only=True)
class RunTerminate(Command[RunEnded]):
    """End a run as cancelled at once, whatever it has left to clean up. RunNotFoundError.

    With a `generation`, nothing is done unless that is the newest one.
    """

    type: ClassVar[Literal["run.terminate"]] = "run.terminate"
    run_id: str
    reason: str = ""
    generation: int | None = None


@frozen(kw_only=True)
class RunPaused:
    """The status the run is in now. `changed` is False if it was so before, or has ended. The rest as in RunCreated."""

    status: RunStatus
    changed: bool
    admits_runs: tuple[str, ...] = ()
    admits_jobs: tuple[str, ...] = ()


@frozen(kw_only=True)
class RunPause(Command[RunPaused]):
    """Start nothing more of a run until it is resumed; what is under way is settled as ever. RunNotFoundError.

    With a `generation`, nothing is done unless that is the newest one.
    """

    type: ClassVar[Literal["run.pause"]] = "run.pause"
    run_id: str
    reason: str = ""
    generation: int | None = None


@frozen(kw_only=True)
class RunResume(Command[RunPaused]):
    """Let a paused or blocked run go on where it is. RunNotFoundError.

    With a `generation`, nothing is done unless that is the newest one; with a `row`, unless that is its newest row.
    """

    type: ClassVar[Literal["run.resume"]] = "run.resume"
    run_id: str
    reason: str = ""
    generation: int | None = None
    row: int | None = None


@frozen(kw_only=True)
class RunRerun:
    """The newest generation of the run, and what it runs. `started` is False if it was there before.

    `rerun_of` is the number of the generation that it came from; `terminated` says whether that one was active until
    now. `stage` is the stage with which it begins (None: from the start), `runs` are all stages that it runs, `keeps`
    those whose outputs it has from earlier generations, in the order of the plan. Of a function `stage` is the call,
    and `row` the number of the first row that it does not keep. The rest as in RunCreated.
    """

    run_id: str
    run: str
    generation: int
    status: RunStatus
    started: bool
    rerun_of: int | None = None
    stage: str | None = None
    runs: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()
    terminated: bool = False
    admits_runs: tuple[str, ...] = ()
    admits_jobs: tuple[str, ...] = ()
    has_deliveries: bool = False
    row: int | None = None


@frozen(kw_only=True)
class RunRerunFrom(Command[RunRerun]):
    """Run a run again from a stage on, as a new generation; an active one is terminated. RunNotFoundError.

    Of a durable function `stage` is a call: the name of a step, `step#2` of one of several, or the call's own name; or
    else it begins with the `row` of its history of this number. Without either it goes on where the run failed or
    stopped, or begins from the start if it was completed. What the stages before gave, or the rows before tell, is
    kept. `version` is that of the code to run it with, the same if None. With a `generation`, nothing is done unless
    that is the newest one. It waits for a slot if the run has a concurrency key, and has as much time until its
    deadline as the run had. RerunRefusedError, UnknownWorkflowError.
    """

    type: ClassVar[Literal["run.rerun_from"]] = "run.rerun_from"
    run_id: str
    stage: str | None = None
    version: str | None = None
    generation: int | None = None
    reason: str = ""
    row: int | None = None


@frozen(kw_only=True)
class RunRemoved:
    """Whether the run was removed: not if it was run again meanwhile.

    `runs` are the keys of all its generations, by which their blobs begin; `inputs` the blobs that held what they got.
    Those are for the caller to delete.
    """

    removed: bool
    runs: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()


@frozen(kw_only=True)
class RunRemove(Command[RunRemoved]):
    """Take a run that has ended out of the store, with all its generations and whatever was said of them.

    With a `generation`, nothing is done unless that is the newest one. RunNotFoundError; RemoveRefusedError if the run
    has not ended, or others are still to hear of it.
    """

    type: ClassVar[Literal["run.remove"]] = "run.remove"
    run_id: str
    generation: int | None = None


@frozen(kw_only=True)
class RunRepaired:
    """The runs that lacked a job and got it back, and where to go on (None: from the start again).

    `has_deliveries` says whether there are ends of runs that others are to be told of: then run.deliver is due.
    """

    repaired: tuple[str, ...]
    checked: int
    next: str | None
    has_deliveries: bool = False


@frozen(kw_only=True)
class RunRepair(Command[RunRepaired]):
    """Find active runs without the jobs that they need, from the run key `after` on, and give them these.

    With `run`, the key of one, only that run is looked at, whatever its row says of its jobs: it also loses those that
    it does not need. UnknownPlanError if its plan is not stored. With `tell` it owes its end, if it has ended, once
    more to the job that waits for it: what was owed may be lost.
    """

    type: ClassVar[Literal["run.repair"]] = "run.repair"
    after: str = ""
    limit: int = 500
    run: str | None = None
    tell: bool = False


@frozen(kw_only=True)
class RunDelivered:
    """`delivered` to the run that waited, or `closed`: nobody waits any more, or it was delivered before.

    `has_deliveries` says whether that run has ended, and other runs are now to be told of its end. The rest as in
    RunCreated.
    """

    status: Literal["delivered", "closed"]
    has_deliveries: bool = False
    admits_runs: tuple[str, ...] = ()
    admits_jobs: tuple[str, ...] = ()


@frozen(kw_only=True)
class RunDeliver(Command[RunDelivered]):
    """Tell others of a run's end, as its job `job` says, which is taken away with it.

    `parent` is the job that waits for the end, and `output` what the run gave if it completed; `failure` says instead
    why that can't be had any more, and the stage that waits fails with it. Without `parent` there is nobody left to
    tell: the run's children have been closed.
    """

    type: ClassVar[Literal["run.deliver"]] = "run.deliver"
    job: str
    parent: str | None = None
    output: Payload | None = None
    failure: Failure | None = None
