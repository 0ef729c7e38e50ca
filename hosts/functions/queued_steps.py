"""The steps of a function that are jobs of their own: which are to get into their queues, which are in them."""

from collections.abc import Callable, Mapping
from typing import Final, cast

from holdfast.hosts.execution.failures import MESSAGE_MAX
from holdfast.hosts.functions.function_events import is_unreadable
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipeline_builder import policy_from, rate_from
from holdfast.kernel.authoring.steps import Step
from holdfast.kernel.commands import Failure, Queued, Recorded
from holdfast.kernel.functions.protocol import Request, StepRequest
from holdfast.ports.errors import CompensationError
from holdfast.ports.records import STEP_CANCELLED, STEP_COMPLETED, STEP_FAILED, STEP_QUEUED, Payload

ENDED: Final = (STEP_COMPLETED, STEP_FAILED)


class Queues:
    """Knows them from what a function asks for, and from what its history tells."""

    __slots__ = ("_jobs", "_left", "_new", "_times", "failure")

    def __init__(self) -> None:
        self._new: dict[str, StepRequest] = {}
        self._jobs: dict[str, int] = {}
        self._left: dict[str, int] = {}
        """Those in queues in which nobody is interested any more, with the numbers of their jobs."""
        self._times: dict[str, int] = {}
        self.failure: Failure | None = None
        """Why the run is to be blocked, and is not yet.

        A step has taken nothing back in the end, or whoever does it can't read its arguments.
        """

    def __bool__(self) -> bool:
        """Whether anything is known of any step."""
        return any((self._new, self._jobs, self._left, self._times, self.failure))

    @property
    def are_waited_for(self) -> bool:
        """Whether any step is in a queue."""
        return bool(self._jobs)

    def has(self, call: str) -> bool:
        """Whether a call is in a queue."""
        return call in self._jobs

    def enqueue(self, request: StepRequest) -> None:
        """Note that a step is to get into its queue."""
        self._new[request.call] = request

    def drop(self, call: str) -> None:
        """Note that nobody is interested in a call any more."""
        self._new.pop(call, None)
        if call in self._jobs:
            self._left[call] = self._jobs.pop(call)

    def note(self, kind: str, call: str, facts: Mapping[str, object], *, is_open: bool) -> None:
        """Take a row that tells of a step. `is_open`: the function waits for the call."""
        if kind == STEP_QUEUED:
            self._new.pop(call, None)
            self._times[call] = cast("int", facts["attempt"])
            where = self._jobs if is_open else self._left
            where[call] = cast("int", facts["job"])
        elif kind == STEP_CANCELLED or kind in ENDED:
            self._new.pop(call, None)
            self._jobs.pop(call, None)
            self._left.pop(call, None)

    def begin_generation(self, open_calls: Callable[[str], Request | None]) -> None:
        """Note that from here on the rows are of another generation: what was in a queue gets into it again."""
        for call in self._jobs:
            request = open_calls(call)
            if isinstance(request, StepRequest) and request.queue is not None:
                self.enqueue(request)
        self._jobs.clear()
        self._left.clear()

    def try_again(self, request: StepRequest, facts: Mapping[str, object]) -> None:
        """Note that a step has failed that must not: somebody has to look, and then it is tried again."""
        error = cast("Mapping[str, str]", facts.get("error") or {})
        if is_unreadable(error):
            self.failure = Failure(code=error["code"], message=error["message"][:MESSAGE_MAX])
        else:
            what = f"what takes back a step, {request.step!r}, has failed {facts.get('attempt')} times"
            message = f"{what}: {error.get('type')}: {error.get('message')}; `run resume` has it tried again"
            self.failure = Failure(code=CompensationError.code, message=message[:MESSAGE_MAX])
        self.enqueue(request)

    def new(self) -> list[StepRequest]:
        """Return the steps that are to get into their queues, in the order in which they were asked for."""
        return list(self._new.values())

    def queued(self, request: StepRequest, arguments: Payload) -> Recorded:
        """Return what puts a step into its queue."""
        step = cast("Step[..., object]", request.definition)
        assert request.queue is not None
        return Recorded(
            type="step.queued",
            call=request.call,
            step=request.step,
            site=request.site,
            attempt=self._times.get(request.call, 0) + 1,
            undoes=request.undoes or None,
            queued=Queued(
                queue=request.queue,
                input=arguments,
                attempts=_attempts(step.retry or Retry()),
                priority=step.priority,
                max_concurrency=step.max_concurrency,
                rate=rate_from(step.rate_limit),
            ),
        )

    def taken_back(self) -> list[Recorded]:
        """Return what takes those out of their queues in which nobody is interested any more."""
        return [Recorded(type="step.cancelled", call=call, job=job) for call, job in self._left.items()]


def _attempts(retry: Retry) -> int:
    """Return how often a step may be tried, whatever it fails by."""
    policies = (retry, *dict(retry.by_error).values())
    return max(policy_from(one).attempts for one in policies)
