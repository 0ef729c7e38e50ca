"""Requests of a durable function that are not carried out or recorded yet.

Among them are its queued steps: steps that are jobs of their own.
"""

from collections.abc import Callable
from typing import cast

import attrs

from holdfast.hosts.execution.failures import MESSAGE_MAX
from holdfast.hosts.execution.step_policies import StepPolicies
from holdfast.hosts.functions.function_events import is_unreadable
from holdfast.kernel.authoring.pipeline_builder import rate_from, slots_from, slots_limit
from holdfast.kernel.authoring.steps import Step
from holdfast.kernel.commands import EventPublish, Failure, QueuedStepJob, StepCancel, StepQueue
from holdfast.kernel.functions.protocol import (
    Published,
    RecordedRequest,
    Request,
    SkippedMessage,
    StepRequest,
    UpdateOutcome,
)
from holdfast.kernel.history import events
from holdfast.kernel.rules.retries import compensation_failure
from holdfast.ports.records.values import Micros, Payload
from holdfast.ports.structs import frozen


@frozen(kw_only=True)
class StepAttempt:
    """The next attempt of a step."""

    request: StepRequest
    number: int = 1
    """The number of the attempt, from 1, lost ones included."""
    at: Micros | None = None
    """When it may start; None for now."""
    run: str | None = None
    """The key of the generation that made the first attempt; None if there was none."""
    max_attempts: int | None = None
    """The maximum number of attempts; None for that of the step's retry policy."""
    lost_attempts: int = 0
    """How many attempts before were lost with their workers."""
    first_started_at: Micros | None = None
    """When the first attempt began, as far as it is recorded."""
    is_restarted: bool = False
    """Whether the start of an attempt that follows a lost one is recorded, so that it may start."""


@attrs.define(eq=False)
class PendingWork:
    """The pending work of one function. A waiting function usually has none, and then drops this object to save memory.

    Attributes:
        new: Inline steps that the driver has not fetched yet.
        dropped: Calls that the function no longer waits for and that the driver has not fetched yet.
        tries: The next attempt of each step that was attempted.
        children: Child runs to start, messages and cancellations to send, channels to close, messages to publish, and
            subscriptions to begin and end.
        patches: Patches that are active in this run and not recorded yet.
        answers: Results of updates that are not recorded yet.
        refused: Messages that could not be decoded, by row number, where the refusal is not recorded yet.
        published: Published values that are not recorded yet, by name.
        events: Events that the function has published and that are not recorded yet, by `UserEvent.call`.
        shown: Recorded clock readings: the time that the clock showed, by row number; 0 for the start of the function.
        read: Clock readings that are not recorded yet.
        read_in_time: The last clock reading that needs no row, unless the function is parked before anything else is
            recorded.
        began: The last row of the messages that the function started with, if that is not recorded yet.
    """

    new: list[StepRequest] = attrs.field(factory=list[StepRequest])
    dropped: list[str] = attrs.field(factory=list[str])
    tries: dict[str, StepAttempt] = attrs.field(factory=dict[str, StepAttempt])
    children: dict[str, RecordedRequest] = attrs.field(factory=dict[str, RecordedRequest])
    patches: dict[str, None] = attrs.field(factory=dict[str, None])
    answers: dict[str, UpdateOutcome] = attrs.field(factory=dict[str, UpdateOutcome])
    refused: dict[int, SkippedMessage] = attrs.field(factory=dict[int, SkippedMessage])
    published: dict[str, Published] = attrs.field(factory=dict[str, Published])
    events: dict[str, EventPublish] = attrs.field(factory=dict[str, EventPublish])
    shown: dict[int, Micros | None] = attrs.field(factory=dict[int, Micros | None])
    read: dict[int, Micros] = attrs.field(factory=dict[int, Micros])
    read_in_time: dict[int, Micros] = attrs.field(factory=dict[int, Micros])
    began: int | None = None

    def __bool__(self) -> bool:
        steps = self.new or self.dropped or self.tries
        notes = self.patches or self.read or self.refused
        return bool(steps or self.children or self.answers or self.published or self.events or notes)


class QueuedSteps:
    """The queued steps of one function, as its requests and its history show them."""

    __slots__ = ("_jobs", "_left", "_new", "_times", "failure")

    def __init__(self) -> None:
        self._new: dict[str, StepRequest] = {}
        """Steps to be queued, by call."""
        self._jobs: dict[str, int] = {}
        """Job numbers of queued steps that the function waits for, by call."""
        self._left: dict[str, int] = {}
        """Job numbers of queued steps that the function no longer waits for, by call."""
        self._times: dict[str, int] = {}
        """How often each call was queued."""
        self.failure: Failure | None = None
        """Why the run must be blocked, if it is not blocked yet.

        A compensation failed for good, or a queued step cannot read its arguments.
        """

    def __bool__(self) -> bool:
        """Return whether there is any state to keep."""
        return any((self._new, self._jobs, self._left, self._times, self.failure))

    @property
    def are_awaited(self) -> bool:
        """Whether the function waits for a queued step."""
        return bool(self._jobs)

    def has(self, call: str) -> bool:
        """Return whether a call is a queued step that the function waits for."""
        return call in self._jobs

    def enqueue(self, request: StepRequest) -> None:
        """Note that a step is to be queued."""
        self._new[request.call] = request

    def drop(self, call: str) -> None:
        """Note that the function no longer waits for a call."""
        self._new.pop(call, None)
        if call in self._jobs:
            self._left[call] = self._jobs.pop(call)

    def note_queued(self, queued: events.StepQueued, *, is_open: bool) -> None:
        """Note that a step is queued. `is_open`: the function waits for the call."""
        self._new.pop(queued.call, None)
        self._times[queued.call] = queued.attempt
        where = self._jobs if is_open else self._left
        where[queued.call] = queued.job

    def note_end(self, call: str) -> None:
        """Note that a step completed, failed, or left its queue."""
        self._new.pop(call, None)
        self._jobs.pop(call, None)
        self._left.pop(call, None)

    def start_generation(self, open_calls: Callable[[str], Request | None]) -> None:
        """Note that later rows belong to another generation, which queues the open steps again."""
        for call in self._jobs:
            request = open_calls(call)
            if isinstance(request, StepRequest) and request.queue is not None:
                self.enqueue(request)
        self._jobs.clear()
        self._left.clear()

    def try_again(self, request: StepRequest, failed: events.StepFailed) -> None:
        """Note that a step failed that must not fail: block the run, and queue the step again once it is resumed."""
        error = failed.error
        if is_unreadable(error.type):
            self.failure = Failure(code=error.code, message=error.message[:MESSAGE_MAX])
        else:
            self.failure = compensation_failure(failed)
        self.enqueue(request)

    def new(self) -> list[StepRequest]:
        """Return the steps to queue, in the order of their calls."""
        return list(self._new.values())

    def queued(self, request: StepRequest, arguments: Payload, policies: StepPolicies) -> StepQueue:
        """Return the row that queues a step."""
        step = cast("Step[..., object]", request.definition)
        assert request.queue is not None
        return StepQueue(
            call=request.call,
            step=request.step,
            site=request.site,
            attempt=self._times.get(request.call, 0) + 1,
            undoes=request.undoes or None,
            queued=QueuedStepJob(
                queue=request.queue,
                input=arguments,
                attempts=policies.attempts_max(step),
                priority=step.priority,
                max_concurrency=slots_limit(step.max_concurrency),
                slots=slots_from(step.max_concurrency),
                rate=rate_from(step.rate_limit),
            ),
        )

    def cancellation_rows(self) -> list[StepCancel]:
        """Return the rows that cancel queued steps which the function no longer waits for."""
        return [StepCancel(call=call, job=job) for call, job in self._left.items()]
