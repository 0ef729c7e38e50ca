"""Replies to `job.execute`, the command that a queue message turns into."""

from typing import Final, Literal

from holdfast.kernel.commands import (
    Blocked,
    ChildRunStarted,
    Failed,
    FunctionWaiting,
    JobClaimed,
    JobExecuted,
    JobSettle,
    JobSettled,
    PollNotReady,
    QueuedStepFailed,
    StageSuspended,
)

BLOCKED_CLAIM: Final = JobClaimed(attempt=None, ignored="paused")
"""Stands for the claim of a job whose run was blocked because of an unreadable row."""


def ignored(claimed: JobClaimed) -> JobExecuted:
    """Return the reply to a message whose job could not be claimed."""
    return JobExecuted(
        status="ignored",
        reason=claimed.ignored,
        acknowledge=claimed.retry_after is None,
        retry_after=claimed.retry_after,
    )


def executed(settle: JobSettle, settled: JobSettled) -> JobExecuted:
    """Return the reply to a message whose body ran."""
    if settled.status == "fenced":
        return JobExecuted(status="fenced")
    return JobExecuted(status=_status(settle, settled), follow_up=settled.follow_up)


def _status(
    settle: JobSettle, settled: JobSettled
) -> Literal["completed", "suspended", "failed", "retrying"]:
    match settle.outcome:
        case Failed() | QueuedStepFailed():
            return "failed" if settled.retry_at is None else "retrying"
        case StageSuspended() | PollNotReady() | ChildRunStarted() | FunctionWaiting() | Blocked():
            return "suspended"
        case _:
            return "completed"
