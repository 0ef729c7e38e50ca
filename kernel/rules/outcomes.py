"""What the outcome, and the loss, of an attempt does, for each kind of job.

A new kind of job is one entry in each table.
"""

from collections.abc import Mapping
from typing import Final

from holdfast.kernel.commands import (
    Blocked,
    Cancelled,
    ChildRunStarted,
    Completed,
    CompletedAfterStep,
    ConditionEvaluated,
    ContinuedAsNew,
    Failed,
    FunctionWaiting,
    JobSettle,
    MapExpanded,
    Outcome,
    PollNotReady,
    QueuedStepCompleted,
    QueuedStepFailed,
    StageSuspended,
)
from holdfast.kernel.commands.outcomes import ResultRefused, WaitingAfterStep
from holdfast.kernel.rules.blocked_functions import block_function, free_lost_function
from holdfast.kernel.rules.children import new_run_of, start_child
from holdfast.kernel.rules.continue_as_new import continue_run
from holdfast.kernel.rules.external_cancels import free_lost_cancel, record_cancelled, retry_cancel
from holdfast.kernel.rules.external_work import check_again, fail_check, suspend_stage
from holdfast.kernel.rules.function_settlement import (
    cancel_function,
    complete_after_step,
    complete_function,
    fail_function,
    retry_refused_result,
    suspend_after_step,
    suspend_function,
)
from holdfast.kernel.rules.leases import parse_job_id
from holdfast.kernel.rules.maps_and_conditions import expand_map, record_condition
from holdfast.kernel.rules.queued_steps import free_lost_step, settle_step
from holdfast.kernel.rules.sessions import LostJobRule, free_lost_job
from holdfast.kernel.rules.settlement import OutcomeReads, OutcomeRule, OutcomeRules, block, complete, fail
from holdfast.kernel.state import Reads
from holdfast.ports.records.job import JobKind
from holdfast.ports.records.run import RunName
from holdfast.ports.structs import evolve

_FAILED: Final[Mapping[type[Outcome], OutcomeRule]] = {Failed: fail, ResultRefused: fail, Blocked: block}

OUTCOMES: Final[OutcomeRules] = {
    JobKind.STAGE: {Completed: complete, StageSuspended: suspend_stage, **_FAILED},
    JobKind.EXPAND_MAP: {MapExpanded: expand_map, **_FAILED},
    JobKind.CONDITION: {ConditionEvaluated: record_condition, **_FAILED},
    JobKind.POLL: {
        Completed: complete,
        PollNotReady: check_again,
        Failed: fail_check,
        ResultRefused: fail_check,
        Blocked: block,
    },
    JobKind.CANCEL: {Cancelled: record_cancelled, Failed: retry_cancel, ResultRefused: retry_cancel},
    JobKind.CHILD: {ChildRunStarted: start_child, **_FAILED},
    JobKind.DELIVER: {},  # never claimed: `run.deliver` ends them
    JobKind.WORKFLOW: {
        Completed: complete_function,
        CompletedAfterStep: complete_after_step,
        Failed: fail_function,
        ResultRefused: retry_refused_result,
        Cancelled: cancel_function,
        FunctionWaiting: suspend_function,
        WaitingAfterStep: suspend_after_step,
        Blocked: block_function,
        ContinuedAsNew: continue_run,
    },
    JobKind.STEP: {QueuedStepCompleted: settle_step, QueuedStepFailed: settle_step},
}

LOST_JOBS: Final[Mapping[JobKind, LostJobRule]] = {
    **dict.fromkeys(OUTCOMES, free_lost_job),
    JobKind.CANCEL: free_lost_cancel,
    JobKind.WORKFLOW: free_lost_function,
    JobKind.STEP: free_lost_step,
}


def _ended(reads: Reads, command: JobSettle) -> Reads:
    """Read the unread messages: if one came with a start, the next generation may begin."""
    del command
    return evolve(reads, kept_starts=reads.runs)


def _failed(reads: Reads, command: JobSettle) -> Reads:
    outcome = command.outcome
    retried = reads.runs if isinstance(outcome, Failed) and outcome.failure.retryable else ()
    return evolve(reads, kept_starts=reads.runs, retried=retried)


def _blocked(reads: Reads, command: JobSettle) -> Reads:
    del command
    return evolve(reads, whole_runs=True)


def _continued(reads: Reads, command: JobSettle) -> Reads:
    assert isinstance(command.outcome, ContinuedAsNew)
    runs = reads.runs
    after = tuple((run, command.outcome.seen) for run in runs)
    return evolve(reads, whole_runs=True, annotations=runs, history_after=after, messages=runs)


def _step_ended(reads: Reads, command: JobSettle) -> Reads:
    """Lock the job that drives the function, which the end of a step wakes."""
    del command
    return evolve(reads, drivers=True)


def _child_started(reads: Reads, command: JobSettle) -> Reads:
    assert isinstance(command.outcome, ChildRunStarted)
    child = command.outcome
    new = new_run_of(child, command.namespace, parse_job_id(command.job).run)
    return evolve(reads, names=(RunName(command.namespace, child.run_id),), new_runs=(new,))


READS: Final[OutcomeReads] = {
    Completed: _ended,
    CompletedAfterStep: _ended,
    Cancelled: _ended,
    Failed: _failed,
    ResultRefused: _failed,
    Blocked: _blocked,
    ContinuedAsNew: _continued,
    QueuedStepCompleted: _step_ended,
    QueuedStepFailed: _step_ended,
    ChildRunStarted: _child_started,
}
