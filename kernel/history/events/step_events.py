"""Events of the steps of a durable function. `call` is the name of the call, such as `3.1`; replays keep it."""

from collections.abc import Mapping
from typing import ClassVar

from typing_extensions import override

from holdfast.kernel.history.events.event import CallKind, Facts, HistoryEvent, RecordedError
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen


@frozen(kw_only=True)
class StepQueued(HistoryEvent):
    """A durable function put a step into a queue."""

    type: ClassVar[str] = "step.queued"
    call_kind: ClassVar[CallKind | None] = "step"
    payload: ClassVar[str | None] = "the arguments"
    reaches_function: ClassVar[bool] = True
    requested_by_code: ClassVar[bool] = True
    call: str
    """The call of the function, such as `3.1`."""
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
    site: str = ""
    """File and line of the call."""
    undoes: str | None = None
    """The call that it compensates, if it is a compensation."""
    priority: int | None = None
    """The priority of the job; None: that of the run."""
    max_concurrency: int | None = None
    """How many calls of the step may run at a time."""
    rate: Mapping[str, object] | None = None
    """The rate limit: at most `limit` attempts start in any `per_us` microseconds; `name` and `by` if they are set."""


@frozen(kw_only=True)
class StepCompleted(HistoryEvent):
    """A step has a result."""

    type: ClassVar[str] = "step.completed"
    call_kind: ClassVar[CallKind | None] = "step"
    ends_step: ClassVar[bool] = True
    payload: ClassVar[str | None] = "the result"
    reaches_function: ClassVar[bool] = True
    hidden: ClassVar[frozenset[str]] = frozenset({"given"})
    call: str
    """The call of the function, such as `3.1`."""
    step: str
    """The name of the step."""
    attempt: int
    """The number of the attempt that completed, from 1."""
    job: int | None = None
    """The number of its job, if it was queued."""
    host: str | None = None
    """The worker's machine and process."""
    site: str = ""
    """File and line of the call."""
    started_at: Micros | None = None
    """When the attempt started."""
    undoes: str | None = None
    """The call that it compensates, if it is a compensation."""
    given: str | None = None
    """JSON text of the arguments, if a compensation receives them. Left out of what is shown and sent to sinks."""

    @classmethod
    @override
    def was_requested(cls, facts: Facts) -> bool:
        return "job" not in facts  # a queued step ends without its function


@frozen(kw_only=True)
class StepStarted(HistoryEvent):
    """A step that was lost with its worker starts again. Other starts are not recorded."""

    type: ClassVar[str] = "step.started"
    call: str
    """The call of the function, such as `3.1`."""
    step: str
    """The name of the step."""
    attempt: int
    """The number of the attempt, from 1."""
    host: str | None = None
    """The worker's machine and process."""
    site: str = ""
    """File and line of the call."""
    started_at: Micros | None = None
    """When the attempt started."""
    undoes: str | None = None
    """The call that it compensates, if it is a compensation."""

    @classmethod
    @override
    def was_requested(cls, facts: Facts) -> bool:
        return "job" not in facts


@frozen(kw_only=True)
class StepRetrying(HistoryEvent):
    """A step failed, or its worker was lost, and will be tried again."""

    type: ClassVar[str] = "step.retrying"
    call_kind: ClassVar[CallKind | None] = "step"
    call: str
    """The call of the function, such as `3.1`."""
    step: str
    """The name of the step."""
    attempt: int
    """The number of the attempt, from 1."""
    error: RecordedError
    """Why the attempt failed."""
    job: int | None = None
    """The number of its job, if it was queued."""
    retry_at: Micros | None = None
    """When the next attempt is due."""
    host: str | None = None
    """The worker's machine and process."""
    site: str = ""
    """File and line of the call."""
    started_at: Micros | None = None
    """When the attempt started."""
    undoes: str | None = None
    """The call that it compensates, if it is a compensation."""
    lost: bool = False
    """Whether its worker was lost."""
    lost_attempts: int = 0
    """How often the step was lost with its worker so far."""

    @classmethod
    @override
    def was_requested(cls, facts: Facts) -> bool:
        return "job" not in facts  # a queued step ends without its function


@frozen(kw_only=True)
class StepFailed(HistoryEvent):
    """A step failed and will not be tried again: its error is raised where the function awaits it."""

    type: ClassVar[str] = "step.failed"
    call_kind: ClassVar[CallKind | None] = "step"
    ends_step: ClassVar[bool] = True
    reaches_function: ClassVar[bool] = True
    hidden: ClassVar[frozenset[str]] = frozenset({"given"})
    call: str
    """The call of the function, such as `3.1`."""
    step: str
    """The name of the step."""
    attempt: int
    """The number of the attempt, from 1."""
    error: RecordedError
    """The error that the function gets."""
    job: int | None = None
    """The number of its job, if it was queued."""
    host: str | None = None
    """The worker's machine and process."""
    site: str = ""
    """File and line of the call."""
    started_at: Micros | None = None
    """When the attempt started."""
    undoes: str | None = None
    """The call that it compensates, if it is a compensation."""
    given: str | None = None
    """JSON text of the arguments, if a compensation receives them. Left out of what is shown and sent to sinks."""
    lost: bool = False
    """Whether its worker was lost."""
    lost_attempts: int = 0
    """How often the step was lost with its worker so far."""

    @classmethod
    @override
    def was_requested(cls, facts: Facts) -> bool:
        return "job" not in facts  # a queued step ends without its function


@frozen(kw_only=True)
class StepCancelled(HistoryEvent):
    """A step left its queue, because its function no longer waits for it."""

    type: ClassVar[str] = "step.cancelled"
    ends_step: ClassVar[bool] = True
    requested_by_code: ClassVar[bool] = True
    call: str
    """The call of the function, such as `3.1`."""
    step: str | None
    """The name of the step."""
    job: int
    """The number of the job that was deleted."""
