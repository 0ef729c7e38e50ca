"""Runs one attempt of any kind to its outcome: of a durable function, of a queued step, or of a stage."""

from anyio import CapacityLimiter

from holdfast.hosts.execution.bodies import Body
from holdfast.hosts.execution.logging_bridge import current_attempt
from holdfast.hosts.execution.stage_runner import run_stage
from holdfast.hosts.functions.driver import drive
from holdfast.hosts.functions.step_runner import run_queued
from holdfast.kernel.commands import Outcome
from holdfast.ports.records.job import JobKind


async def run_attempt(body: Body, threads: CapacityLimiter) -> Outcome:
    """Run an attempt and return its outcome. Raises only the cancellation of the caller."""
    if body.is_out_of_time:
        return body.out_of_time()
    current_attempt.set(body.runtime)  # each body has its own task, and so its own context
    if body.attempt.kind is JobKind.WORKFLOW:
        return await drive(body, threads)
    if body.attempt.kind is JobKind.STEP:
        return await run_queued(body, threads)
    return await run_stage(body, threads)
