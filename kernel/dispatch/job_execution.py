"""What became of a message that has a job carried out."""

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
    NotReady,
    QueuedStepFailed,
    Suspended,
)

BLOCKED_CLAIM: Final = JobClaimed(attempt=None, ignored="paused")
"""What stands for the claim of a job whose run is blocked, because a row of it can't be read."""


def ignored(claimed: JobClaimed) -> JobExecuted:
    """Return what became of a message whose job was not to be had."""
    return JobExecuted(
        status="ignored",
        reason=claimed.ignored,
        acknowledge=claimed.retry_after is None,
        retry_after=claimed.retry_after,
    )


def executed(settle: JobSettle, settled: JobSettled) -> JobExecuted:
    """Return what became of a message whose body ran."""
    if settled.status == "fenced":
        return JobExecuted(status="fenced")
    return JobExecuted(status=_status(settle, settled), has_deliveries=settled.has_deliveries)


def _status(
    settle: JobSettle, settled: JobSettled
) -> Literal["completed", "suspended", "failed", "retrying"]:
    match settle.outcome:
        case Failed() | QueuedStepFailed():
            return "failed" if settled.retry_at is None else "retrying"
        case Suspended() | NotReady() | ChildRunStarted() | FunctionWaiting() | Blocked():
            return "suspended"
        case _:
            return "completed"
