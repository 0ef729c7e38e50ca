"""Checks of queued steps and their jobs (S1, S7, S8)."""

from collections.abc import Iterator, Sequence

from holdfast.kernel.invariants.history_facts import RunView
from holdfast.kernel.invariants.queued_steps import QueuedStep, StepTry
from holdfast.ports.json import canonical
from holdfast.ports.records.job import Job, JobState, step_definition
from holdfast.ports.records.run import TERMINAL


def steps_have_jobs(seen: RunView) -> Iterator[str]:
    """S7: each queued step that has not ended has exactly the job of its row, and there are no other step jobs."""
    steps, wrong = seen.queued
    yield from wrong
    open_ = {one.job: one for one in steps if not one.is_over and seen.run.status not in TERMINAL}
    for number in sorted(open_.keys() - {job.number for job in seen.steps}):
        yield f"call {open_[number].queued.call} is queued, but its job {number} does not exist"
    for job in seen.steps:
        step = open_.get(job.number)
        if step is None:
            yield f"job {job.number} is for a step, but no queued step of the history has that job"
        elif wanted := _unlike(job, step):
            yield f"job {job.number} differs from its step.queued row: expected {wanted}, got {job}"


def _unlike(job: Job, step: QueuedStep) -> tuple[object, ...] | None:
    """Return the fields that a job must have by its row, if it differs from them."""
    queued = step.queued
    planned = queued.rate
    expected = (
        queued.call,
        step_definition(queued.step),
        queued.queue,
        queued.max_attempts,
        canonical(step.row),
        queued.max_concurrency,
        None if planned is None else (planned["limit"], planned["per_us"]),
    )
    rate = None if job.rate_limit is None else (job.rate_limit, job.rate_period)
    done = (job.node, job.definition, job.queue, job.max_attempts, job.input, job.concurrency_limit, rate)
    return None if expected == done else expected


def steps_are_counted(seen: RunView) -> Iterator[str]:
    """S8: attempts of a queued step are counted one by one and never exceed the maximum."""
    if seen.is_repaired:
        return
    jobs = {job.number: job for job in seen.steps}
    for step in seen.queued[0]:
        numbers = [one.event.attempt for one in step.tries]
        most = step.queued.max_attempts
        counted = sum(not one.is_lost for one in step.tries)
        if numbers != list(range(1, len(numbers) + 1)) or counted > most:
            yield (
                f"the ended attempts of job {step.job} are {numbers}; they must count from 1, up to at"
                f" most {most}"
            )
        if (job := jobs.get(step.job)) is not None:
            yield from _counted(job, step.tries)


def _counted(job: Job, tries: Sequence[StepTry]) -> Iterator[str]:
    is_held = job.state is JobState.LEASED
    if not is_held <= job.tries <= job.max_attempts - (not is_held) or job.attempts > job.epoch:
        yield (
            f"job {job.number} is {job.state} with {job.tries} of at most {job.max_attempts} attempts in"
            f" {job.epoch} claims; attempts must not exceed the maximum or the claims"
        )
    if len(tries) != job.attempts - is_held:
        yield f"job {job.number} counts {job.attempts} attempts, but the history has {len(tries)} that ended"
    lost = sum(one.is_lost for one in tries)
    if lost != job.lost_attempts:
        yield f"job {job.number} counts {job.lost_attempts} lost attempts, but the history has {lost}"


def step_epochs(seen: RunView) -> Iterator[str]:
    """S1: each epoch of a step's job has at most one attempt, in order."""
    if seen.is_repaired:
        return
    jobs = {job.number: job for job in seen.steps}
    for step in seen.queued[0]:
        epochs = [one.row.epoch or 0 for one in step.tries]
        if epochs != sorted(set(epochs)):
            yield f"the attempts of job {step.job} ended in epochs {epochs}; epochs must rise"
        job = jobs.get(step.job)
        if job is not None and epochs and job.epoch - (job.state is JobState.LEASED) < epochs[-1]:
            yield (
                f"job {job.number} is in epoch {job.epoch}, but an attempt of it ended in epoch {epochs[-1]}"
            )
