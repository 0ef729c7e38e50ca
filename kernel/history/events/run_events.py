"""Events of a run as a whole: its start, its end, and what operators do with it."""

from collections.abc import Mapping
from typing import ClassVar

from typing_extensions import override

from holdfast.kernel.history.events.event import HistoryEvent, OperatorEvent
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen


@frozen(kw_only=True)
class RunCreated(OperatorEvent):
    """A generation of the run was stored: by a start, a rerun, or a function that continued as new."""

    type: ClassVar[str] = "run.created"
    may_precede_code: ClassVar[bool] = True
    payload: ClassVar[str | None] = "the input"
    json_names: ClassVar[Mapping[str, str]] = {"from_": "from"}
    read_first: ClassVar[bool] = True
    definition: str
    """The workflow and its version, `order@3`."""
    parent: str | None = None
    """The job of the parent run that waits for it, `<run key>.<number>`, if it is a stage of another run."""
    start_at: Micros | None = None
    """When it may start at the earliest."""
    deadline: Micros | None = None
    """When the run fails if it has not ended."""
    concurrency_key: str | None = None
    """The concurrency key, if the run has one."""
    concurrency_limit: int | None = None
    """How many runs with this key may run at a time."""
    concurrency_waiting: int | None = None
    """How many more may wait; None without a bound."""
    concurrency_full: str | None = None
    """What the start did if more were open (see `WhenFull`); None without a bound."""
    concurrency_outer: tuple[int, ...] | None = None
    """The limits of the outer levels of the key, the outermost first; None if it has no such levels."""
    rate_key: str | None = None
    """The rate that its start counts against, `run-rate:<name>`, if it has one."""
    rate_limit: int | None = None
    """How many units may start in any span of `rate_period`."""
    rate_period: Micros | None = None
    """Microseconds."""
    rate_units: int | None = None
    """How many units it costs."""
    ended: tuple[str, ...] | None = None
    """The runs of the key that were ended to make way for it."""
    scheduled: Mapping[str, object] | None = None
    """The schedule that started it, and the nominal time."""
    inbox: int | None = None
    """The number of the last row of the messages and updates that were stored with it."""
    start: int | None = None
    """The row in the previous generation with the start that caused this one."""
    continues: int | None = None
    """The generation that it continues as new."""
    rerun_of: int | None = None
    """The generation that it reruns."""
    from_: str | None = None
    """The stage or the call that a rerun starts at; None: the start."""
    keeps: tuple[str, ...] | None = None
    """The stages whose outputs a rerun of a pipeline keeps."""
    row: int | None = None
    """The number of this row, in a rerun of a durable function: the rows before it are kept."""
    reason: str = ""
    """Why it was run again."""
    attempt: int | None = None
    """Which attempt this is of a run that is retried as a whole, from 2; None for the first one."""
    first_attempt_at: Micros | None = None
    """When its first attempt began."""

    @property
    @override
    def facts(self) -> dict[str, object]:
        facts = super().facts
        if self.rerun_of is not None:
            facts["from"] = self.from_  # a rerun from the start says so
        return facts


@frozen(kw_only=True)
class RunGathered(OperatorEvent):
    """Another start of the workflow joined the run, which had not begun."""

    type: ClassVar[str] = "run.gathered"
    may_precede_code: ClassVar[bool] = True
    payload: ClassVar[str | None] = "the input of that start"
    start: int
    """Which of its starts it is, from 2."""
    start_at: Micros | None = None
    """When the run begins now at the earliest; None: it begins at once, or waits for its concurrency limit."""
    items: int | None = None
    """How many items its list has, if the lists of all starts are joined."""
    key: str | None = None
    """The idempotency key of the start."""


@frozen(kw_only=True)
class RunAdmitted(HistoryEvent):
    """A pending run was admitted: its start time is reached, and it has a slot of its concurrency limit."""

    type: ClassVar[str] = "run.admitted"
    may_precede_code: ClassVar[bool] = True


@frozen(kw_only=True)
class RunPaused(OperatorEvent):
    """The run was paused; nothing new starts."""

    type: ClassVar[str] = "run.paused"
    may_precede_code: ClassVar[bool] = True
    reason: str = ""
    """The reason that was given."""


@frozen(kw_only=True)
class RunResumed(OperatorEvent):
    """The run was resumed."""

    type: ClassVar[str] = "run.resumed"
    may_precede_code: ClassVar[bool] = True
    reason: str = ""
    """The reason that was given."""


@frozen(kw_only=True)
class RunBlocked(HistoryEvent):
    """The run cannot continue, and an operator must look at it; or a row of it cannot be read."""

    type: ClassVar[str] = "run.blocked"
    json_names: ClassVar[Mapping[str, str]] = {"error_type": "type"}
    code: str
    """The code of the problem, such as `nondeterminism`."""
    message: str
    """What is wrong, and what to do."""
    error_type: str | None = None
    """The class of the exception; "" if there was none; None: a row cannot be read."""
    attempt: int | None = None
    """The number of the attempt that found the problem."""
    job: int | None = None
    """The number of the job that cannot continue."""
    status: str | None = None
    """The status of the run before, if a row of it cannot be read."""
    started_at: Micros | None = None
    """When the attempt started."""
    host: str | None = None
    """The worker's machine and process."""
    traceback: str | None = None
    """The traceback of the exception."""


@frozen(kw_only=True)
class RunRepaired(OperatorEvent):
    """Jobs were missing after a fault, or the run otherwise did not match its history, and this was repaired."""

    type: ClassVar[str] = "run.repaired"
    cause: str
    """What was wrong."""
    jobs: int = 0
    """How many jobs were added."""


@frozen(kw_only=True)
class RunCancelling(OperatorEvent):
    """A durable function was cancelled, by a request or its deadline, and cleans up first."""

    type: ClassVar[str] = "run.cancelling"
    reaches_function: ClassVar[bool] = True
    reason: str = ""
    """The reason that was given."""
    deadline: Micros | None = None
    """The deadline that passed; None: it was requested."""
    superseded_by: str | None = None
    """The run that took its place, if it was started while the concurrency key was full."""


@frozen(kw_only=True)
class RunCompleted(HistoryEvent):
    """The run has a result."""

    type: ClassVar[str] = "run.completed"
    ends_run: ClassVar[bool] = True


@frozen(kw_only=True)
class RunContinued(HistoryEvent):
    """The function continues as a new generation with an empty history."""

    type: ClassVar[str] = "run.continued"
    payload: ClassVar[str | None] = "the input of the next generation"
    ends_run: ClassVar[bool] = True
    generation: int
    """The number of the next generation."""
    definition: str
    """The workflow and version of the next generation."""


@frozen(kw_only=True)
class RunFailed(HistoryEvent):
    """A stage or function failed for good, or the deadline passed."""

    type: ClassVar[str] = "run.failed"
    json_names: ClassVar[Mapping[str, str]] = {"error_type": "type"}
    ends_run: ClassVar[bool] = True
    code: str
    """The code of the error, such as `body_error` or `deadline_exceeded`."""
    message: str
    """The text of the error."""
    deadline: Micros | None = None
    """The deadline that passed; None: a stage or function failed."""
    error_type: str | None = None
    """The class of the exception; "" if there was none; None: the deadline passed."""
    attempt: int | None = None
    """The number of the attempt that failed."""
    job: int | None = None
    """The number of the job that failed."""
    stage: str | None = None
    """The stage, or the function, that failed."""
    item: int | None = None
    """The index of the map item that failed."""
    function: bool = False
    """Whether it is the function itself that failed."""
    retry_at: Micros | None = None
    """When the next generation tries the whole run again; None if none does."""


@frozen(kw_only=True)
class RunCancelled(OperatorEvent):
    """The run was cancelled, or its function raised `asyncio.CancelledError` itself."""

    type: ClassVar[str] = "run.cancelled"
    ends_run: ClassVar[bool] = True
    reason: str = ""
    """The reason that was given."""
    raised: bool = False
    """Whether the function raised the cancellation itself."""
    superseded_by: str | None = None
    """The run that took its place, if it was started while the concurrency key was full."""


@frozen(kw_only=True)
class RunTerminated(OperatorEvent):
    """The run was terminated, or run again as another generation."""

    type: ClassVar[str] = "run.terminated"
    ends_run: ClassVar[bool] = True
    reason: str = ""
    """The reason that was given."""
    rerun: int | None = None
    """The generation that replaces it."""
    superseded_by: str | None = None
    """The run that took its place, if it was started while the concurrency key was full."""
