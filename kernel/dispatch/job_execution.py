"""Replies to `job.execute`, the command that a queue message turns into."""

from typing import Final, Literal

from holdfast.kernel.commands import (
    Blocked,
    ChildRunStarted,
    CompletedAfterStep,
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
from holdfast.ports.errors import HoldfastError, UnreadableRowError
from holdfast.ports.records.values import Micros

BLOCKED_CLAIM: Final = JobClaimed(attempt=None, ignored="paused")
"""Stands for the claim of a job whose run was blocked because of an unreadable row."""
UNKNOWN_CODE_DELAY: Final[Micros] = 5_000_000
"""Microseconds until a job that was released for lack of code can be claimed again."""
UNKNOWN_CODE: Final = JobExecuted(
    status="ignored", reason="unknown_code", acknowledge=False, retry_after=UNKNOWN_CODE_DELAY
)
"""The reply to a message whose job was claimed, and released for lack of code."""
FENCED: Final = JobExecuted(status="fenced")
"""The reply to a message whose body ran, and whose outcome was discarded."""


def ignored(claimed: JobClaimed) -> JobExecuted:
    """Return the reply to a message whose job could not be claimed."""
    return JobExecuted(
        status="ignored",
        reason=claimed.ignored,
        acknowledge=claimed.retry_after is None,
        retry_after=claimed.retry_after,
    )


def executed(settle: JobSettle, settled: JobSettled | HoldfastError) -> JobExecuted | HoldfastError:
    """Return the reply to a message whose body ran; the error if its outcome could not be stored."""
    if isinstance(settled, UnreadableRowError):
        return FENCED  # its run is blocked
    if isinstance(settled, HoldfastError):
        return settled
    if settled.status == "fenced":
        return FENCED
    return JobExecuted(status=_status(settle, settled), follow_up=settled.follow_up)


def _status(
    settle: JobSettle, settled: JobSettled
) -> Literal["completed", "suspended", "failed", "retrying"]:
    match settle.outcome:
        case Failed() | QueuedStepFailed():
            return "failed" if settled.retry_at is None else "retrying"
        case CompletedAfterStep() if settled.retry_at is not None:
            return "suspended"
        case StageSuspended() | PollNotReady() | ChildRunStarted() | FunctionWaiting() | Blocked():
            return "suspended"
        case _:
            return "completed"
