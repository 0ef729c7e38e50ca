"""Checks of queued steps and their jobs (S1, S7, S8)."""

from collections.abc import Iterator, Sequence
from typing import cast

from holdfast.kernel.invariants.history_facts import RunView
from holdfast.kernel.invariants.queued_steps import number_in, text_in
from holdfast.ports.json import canonical, parse
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import Job, JobState, step_definition
from holdfast.ports.records.run import TERMINAL


def steps_have_jobs(seen: RunView) -> Iterator[str]:
    """S7: each queued step that has not ended has exactly the job of its row, and there are no other step jobs."""
    steps, wrong = seen.queued
    yield from wrong
    open_ = {one.job: one for one in steps if not one.is_over and seen.run.status not in TERMINAL}
    for number in sorted(open_.keys() - {job.number for job in seen.steps}):
        yield f"call {text_in(open_[number].queued, 'call')} is queued, but its job {number} does not exist"
    for job in seen.steps:
        step = open_.get(job.number)
        if step is None:
            yield f"job {job.number} is for a step, but no queued step of the history has that job"
        elif wanted := _unlike(job, step.queued):
            yield f"job {job.number} differs from its step.queued row: expected {wanted}, got {job}"


def _unlike(job: Job, row: HistoryRow) -> tuple[object, ...] | None:
    """Return the fields that a job must have by its row, if it differs from them."""
    step = step_definition(text_in(row, "step"))
    expected = (
        text_in(row, "call"),
        step,
        text_in(row, "queue"),
        number_in(row, "max_attempts"),
        canonical(row.number),
        *_limits(row),
    )
    rate = None if job.rate_limit is None else (job.rate_limit, job.rate_period)
    done = (job.node, job.definition, job.queue, job.max_attempts, job.input, job.concurrency_limit, rate)
    return None if expected == done else expected


def _limits(row: HistoryRow) -> tuple[object, object]:
    facts = cast("dict[str, dict[str, object]]", parse(row.data or "{}"))
    rate = facts.get("rate")
    return facts.get("max_concurrency"), None if rate is None else (rate["limit"], rate["per_us"])


def steps_are_counted(seen: RunView) -> Iterator[str]:
    """S8: attempts of a queued step are counted one by one and never exceed the maximum."""
    if seen.is_repaired:
        return
    jobs = {job.number: job for job in seen.steps}
    for step in seen.queued[0]:
        numbers = [number_in(row, "attempt") for row in step.tries]
        most = number_in(step.queued, "max_attempts")
        counted = sum(not number_in(row, "lost") for row in step.tries)
        if numbers != list(range(1, len(numbers) + 1)) or counted > most:
            yield (
                f"the ended attempts of job {step.job} are {numbers}; they must count from 1, up to at"
                f" most {most}"
            )
        if (job := jobs.get(step.job)) is not None:
            yield from _counted(job, step.tries)


def _counted(job: Job, tries: Sequence[HistoryRow]) -> Iterator[str]:
    is_held = job.state is JobState.LEASED
    if not is_held <= job.tries <= job.max_attempts - (not is_held) or job.attempts > job.epoch:
        yield (
            f"job {job.number} is {job.state} with {job.tries} of at most {job.max_attempts} attempts in"
            f" {job.epoch} claims; attempts must not exceed the maximum or the claims"
        )
    if len(tries) != job.attempts - is_held:
        yield f"job {job.number} counts {job.attempts} attempts, but the history has {len(tries)} that ended"
    lost = sum(number_in(row, "lost") for row in tries)
    if lost != job.lost_attempts:
        yield f"job {job.number} counts {job.lost_attempts} lost attempts, but the history has {lost}"


def step_epochs(seen: RunView) -> Iterator[str]:
    """S1: each epoch of a step's job has at most one attempt, in order."""
    if seen.is_repaired:
        return
    jobs = {job.number: job for job in seen.steps}
    for step in seen.queued[0]:
        epochs = [row.epoch or 0 for row in step.tries]
        if epochs != sorted(set(epochs)):
            yield f"the attempts of job {step.job} ended in epochs {epochs}; epochs must rise"
        job = jobs.get(step.job)
        if job is not None and epochs and job.epoch - (job.state is JobState.LEASED) < epochs[-1]:
            yield (
                f"job {job.number} is in epoch {job.epoch}, but an attempt of it ended in epoch {epochs[-1]}"
            )
