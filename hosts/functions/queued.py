"""Does a step that is a job of its own, whoever drives its function and wherever."""

from typing import Any, cast

from anyio import CapacityLimiter

from holdfast.hosts.bodies import Body
from holdfast.hosts.functions.pulses import Heartbeats
from holdfast.hosts.functions.steps import run_step
from holdfast.hosts.functions.todo import Try
from holdfast.kernel.authoring.steps import StepStage
from holdfast.kernel.commands import JobRecord, Outcome, QueuedStepCompleted, QueuedStepFailed, Recorded
from holdfast.kernel.functions.asked import StepRequest


async def run_queued(body: Body, threads: CapacityLimiter) -> Outcome:
    """Do the step of an attempt, and return how that ended. Raises only the cancellation of whoever runs it."""
    attempt, step = body.attempt, cast("StepStage[Any, object]", body.stage).step
    request = StepRequest(call=attempt.node, step=step.name, arguments=body.work.input, definition=step)
    one = Try(
        request=request,
        number=attempt.attempt,
        most=attempt.max_attempts,
        lost_attempts=attempt.lost_attempts,
    )
    heartbeats = Heartbeats(body.runtime, body.parts.clock, is_first=attempt.epoch == 1)
    try:
        recorded = await run_step(body, one, body.parts.clock, threads, _never, heartbeats)
    finally:
        heartbeats.flush()
    assert isinstance(recorded, Recorded)
    if recorded.output is not None:
        return QueuedStepCompleted(output=recorded.output)
    return QueuedStepFailed(error=recorded.error or "{}", retry_at=recorded.retry_at)


def _never(_: Recorded) -> JobRecord:
    raise AssertionError("a step that is in a queue is done in no transaction of the store")
