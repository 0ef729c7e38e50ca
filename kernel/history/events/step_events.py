"""Events of the steps of a durable function. `call` is the name of the call, such as `3.1`; replays keep it."""

from collections.abc import Mapping
from typing import ClassVar

from typing_extensions import override

from holdfast.kernel.history.events.event import (
    CallEvent,
    CallKind,
    Facts,
    Identity,
    LocatedCallEvent,
    RecordedError,
)
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen


@frozen(kw_only=True)
class StepQueued(LocatedCallEvent):
    """A durable function put a step into a queue."""

    type: ClassVar[str] = "step.queued"
    call_kind: ClassVar[CallKind | None] = "step"
    payload: ClassVar[str | None] = "the arguments"
    reaches_function: ClassVar[bool] = True
    requested_by_code: ClassVar[bool] = True
    step: str
    """The name of the step."""
    queue: str
    """The name of the queue."""
    job: int
    """The number of its job in the run."""
    attempt: int
    """How many times the step has been queued."""
    max_attempts: int
    """The maximum number of attempts."""
    undoes: str | None = None
    """The call that it compensates, if it is a compensation."""
    priority: int | None = None
    """The priority of the job; None: that of the run."""
    max_concurrency: int | None = None
    """How many calls of the step may run at a time."""
    rate: Mapping[str, object] | None = None
    """The rate limit: at most `limit` attempts start in any `per_us` microseconds; `name` and `by` if they are set."""
    slots: Mapping[str, object] | None = None
    """Who shares `max_concurrency`, if not only the calls of the step: `name` and `by` if they are set."""

    @property
    @override
    def identity(self) -> Identity:
        return self.type, self.call, self.attempt


@frozen(kw_only=True)
class StepAttemptEvent(LocatedCallEvent):
    """The start or the end of an attempt of a step."""

    step: str
    """The name of the step."""
    attempt: int
    """The number of the attempt, from 1."""
    job: int | None = None
    """The number of its job, if it was queued."""
    host: str | None = None
    """The worker's machine and process."""
    started_at: Micros | None = None
    """When the attempt started."""
    undoes: str | None = None
    """The call that it compensates, if it is a compensation."""

    @property
    @override
    def identity(self) -> Identity:
        return self.type, self.call, self.attempt

    @classmethod
    @override
    def was_requested(cls, facts: Facts) -> bool:
        return "job" not in facts  # a queued step ends without its function


@frozen(kw_only=True)
class FailedStepAttempt(StepAttemptEvent):
    """An attempt of a step that ended with an error."""

    error: RecordedError
    """Why the attempt failed."""
    lost: bool = False
    """Whether its worker was lost."""
    lost_attempts: int = 0
    """How often the step was lost with its worker so far."""


@frozen(kw_only=True)
class StepStarted(StepAttemptEvent):
    """A step that was lost with its worker starts again. Other starts are not recorded."""

    type: ClassVar[str] = "step.started"


@frozen(kw_only=True)
class StepRetrying(FailedStepAttempt):
    """A step failed, or its worker was lost, and will be tried again."""

    type: ClassVar[str] = "step.retrying"
    call_kind: ClassVar[CallKind | None] = "step"
    retry_at: Micros | None = None
    """When the next attempt is due."""


@frozen(kw_only=True)
class StepCompleted(StepAttemptEvent):
    """A step has a result."""

    type: ClassVar[str] = "step.completed"
    call_kind: ClassVar[CallKind | None] = "step"
    ends_step: ClassVar[bool] = True
    payload: ClassVar[str | None] = "the result"
    reaches_function: ClassVar[bool] = True
    hidden: ClassVar[frozenset[str]] = frozenset({"given"})
    given: str | None = None
    """JSON text of the arguments, if a compensation receives them. Left out of what is shown and sent to sinks."""


@frozen(kw_only=True)
class StepFailed(FailedStepAttempt):
    """A step failed and will not be tried again: its error is raised where the function awaits it."""

    type: ClassVar[str] = "step.failed"
    call_kind: ClassVar[CallKind | None] = "step"
    ends_step: ClassVar[bool] = True
    reaches_function: ClassVar[bool] = True
    hidden: ClassVar[frozenset[str]] = frozenset({"given"})
    given: str | None = None
    """JSON text of the arguments, if a compensation receives them. Left out of what is shown and sent to sinks."""


@frozen(kw_only=True)
class StepCancelled(CallEvent):
    """A step left its queue, because its function no longer waits for it."""

    type: ClassVar[str] = "step.cancelled"
    ends_step: ClassVar[bool] = True
    requested_by_code: ClassVar[bool] = True
    step: str | None
    """The name of the step."""
    job: int
    """The number of the job that was deleted."""
