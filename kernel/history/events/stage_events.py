"""Events of the stages of a pipeline, and of the items of a mapped stage. The row names the stage and the item."""

from collections.abc import Mapping
from typing import ClassVar

from holdfast.kernel.history.events.event import HistoryEvent
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen


@frozen(kw_only=True)
class StageAttempt(HistoryEvent):
    """The end of an attempt of a stage, or of another call of its code."""

    attempt: int
    """The number of the attempt, from 1."""
    job: int
    """The number of the job in the run."""
    started_at: Micros | None = None
    """When the body started."""
    host: str | None = None
    """The worker's machine and process."""


@frozen(kw_only=True)
class FailedStageAttempt(StageAttempt):
    """An attempt that ended with an error."""

    json_names: ClassVar[Mapping[str, str]] = {"error_type": "type"}
    code: str
    """The code of the error, such as `body_error`."""
    message: str
    """The text of the error."""
    error_type: str
    """The class of the exception; "" if there was none."""
    traceback: str | None = None
    """The traceback, if the code raised an exception."""


@frozen(kw_only=True)
class StageStarted(HistoryEvent):
    """The run of a stage that is another pipeline was created."""

    type: ClassVar[str] = "stage.started"
    run: str
    """The id of the child run."""


@frozen(kw_only=True)
class StageTested(StageAttempt):
    """The condition of a `when` decided. The row's stage is the first of the two stages."""

    type: ClassVar[str] = "stage.tested"
    ends_attempt: ClassVar[bool] = True
    test: str | None
    """The name of the condition."""
    passed: bool
    """Whether the first of the two stages runs."""


@frozen(kw_only=True)
class StageSkipped(HistoryEvent):
    """The condition of a `when` decided against this stage."""

    type: ClassVar[str] = "stage.skipped"


@frozen(kw_only=True)
class StageExpanded(HistoryEvent):
    """The list of a mapped stage is known."""

    type: ClassVar[str] = "stage.expanded"
    ends_attempt: ClassVar[bool] = True
    items: int
    """How many items the list has."""


@frozen(kw_only=True)
class StageSuspended(StageAttempt):
    """The stage's external work was submitted. Checks that find it unfinished are not events."""

    type: ClassVar[str] = "stage.suspended"
    ends_attempt: ClassVar[bool] = True
    payload: ClassVar[str | None] = "the state of the external work"
    check_after: Micros
    """The time between two checks."""
    give_up_at: Micros | None
    """When the stage stops waiting and fails; None: never."""
    key: str
    """The key that wakes it early."""


@frozen(kw_only=True)
class StageCompleted(StageAttempt):
    """A stage, or an item of a mapped stage, has an output."""

    type: ClassVar[str] = "stage.completed"
    ends_attempt: ClassVar[bool] = True
    payload: ClassVar[str | None] = "the output"
    run: str | None = None
    """The id of the child run, if the stage is another pipeline."""


@frozen(kw_only=True)
class StageRetrying(FailedStageAttempt):
    """A body failed and will be tried again."""

    type: ClassVar[str] = "stage.retrying"
    ends_attempt: ClassVar[bool] = True
    retry_at: Micros
    """When the next attempt is due."""


@frozen(kw_only=True)
class StageFailed(FailedStageAttempt):
    """A body failed and will not be tried again. In a map that tolerates failures, the run continues."""

    type: ClassVar[str] = "stage.failed"
    ends_attempt: ClassVar[bool] = True
    payload: ClassVar[str | None] = "the `ItemFailure`, in a map that tolerates failures"
    run: str | None = None
    """The id of the child run, if the stage is another pipeline."""


@frozen(kw_only=True)
class StageLost(HistoryEvent):
    """The worker was lost, and another may claim the job."""

    type: ClassVar[str] = "stage.lost"
    ends_attempt: ClassVar[bool] = True
    attempt: int
    """The number of the attempt that was lost."""
    lost_attempts: int
    """How many attempts of the job were lost so far."""


@frozen(kw_only=True)
class StageCancelled(StageAttempt):
    """Abandoned external work was cancelled. May follow the end of the run."""

    type: ClassVar[str] = "stage.cancelled"
    cancels_work: ClassVar[bool] = True
    key: str | None
    """The key of the external work."""


@frozen(kw_only=True)
class StageCancelFailed(FailedStageAttempt):
    """Abandoned external work could not be cancelled and may still run; this is not retried.

    May follow the end of the run.
    """

    type: ClassVar[str] = "stage.cancel_failed"
    cancels_work: ClassVar[bool] = True
    key: str | None
    """The key of the external work."""
    lost_attempts: int = 0
    """How many attempts were lost with their worker so far."""
