"""Outcomes of tasks, as commands of the kernel: of queued steps and of remote stages."""

from typing import Any, Final

import attrs

from holdfast.hosts.execution.bodies import idempotency_key as key_of_stage
from holdfast.hosts.execution.bodies import node_of
from holdfast.hosts.execution.failures import MESSAGE_MAX, TRACEBACK_MAX, timed_out_failure, total_failure
from holdfast.hosts.http.task_policies import UNKNOWN, NamedPolicy, policy_of_stage, policy_of_step
from holdfast.hosts.http.task_tokens import TaskToken
from holdfast.hosts.text import printable
from holdfast.hosts.wiring.input_loader import LoadedAttempt
from holdfast.hosts.wiring.payloads import BlobOwner
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.commands import (
    Attempt,
    Completed,
    Failed,
    Failure,
    Outcome,
    QueuedStepCompleted,
    QueuedStepFailed,
)
from holdfast.kernel.history import events
from holdfast.kernel.history.exceptions import raised_from
from holdfast.kernel.pipelines.plan import Plan, StagePlan, stage_of
from holdfast.ports.clock import micros
from holdfast.ports.errors import HoldfastError, LeaseLostError, RemoteStepError
from holdfast.ports.queries.runs import RunsByKey
from holdfast.ports.records.job import Job
from holdfast.ports.records.values import Micros, Payload

_STEP_TRACEBACK_MAX: Final = 2_000
_TIMEOUT: Final = "TimeoutError"


def token_of(attempt: Attempt, session: str) -> TaskToken:
    """Return the token of an attempt."""
    return TaskToken(attempt.job, attempt.epoch, session, attempt.definition)


def token_of_job(job: Job, session: str) -> TaskToken:
    """Return the token of a leased job."""
    return TaskToken(job.key.text, job.epoch, session, job.definition)


def idempotency_key(work: LoadedAttempt) -> str:
    """Return the idempotency key of a task: the same for all of its attempts, and in whatever worker."""
    attempt = work.attempt
    is_stage = token_of(attempt, "").stage is not None
    return key_of_stage(attempt) if is_stage else f"{attempt.run}/{node_of(work)}/{attempt.node}"


def owner_of(core: Core, token: TaskToken) -> BlobOwner:
    """Return the owner of the blob of an output.

    The key of the blob follows from the token and the output alone: a repeated settle is the same command.
    """
    key = token.key
    return BlobOwner(namespace=core.namespace, run=key.run, stage=f"task-{key.number}", epoch=token.epoch)


def completed(token: TaskToken, output: Payload) -> Outcome:
    """Return the outcome of a task with this output."""
    return QueuedStepCompleted(output=output) if token.stage is None else Completed(output=output)


def policy_of(core: Core, token: TaskToken, plan: Plan) -> NamedPolicy | None:
    """Return the retry policy of a task; None if it is that of a step whose code the server lacks."""
    if token.stage is None:
        return policy_of_step(core, token.definition, plan)
    return policy_of_stage(planned_stage(plan, token.stage))


def planned_stage(plan: Plan, stage: str) -> StagePlan:
    """Return a stage of a plan."""
    return stage_of(plan.node(stage))


@attrs.frozen(kw_only=True)
class Raised:
    """What a worker reports of a failed attempt."""

    code: str
    type: str
    message: str
    traceback: str
    matched: str | None
    """The class of the policy that the error is; None: the one that has the name of `type`, if any."""
    is_retried: bool
    """Whether the worker allows another attempt."""
    retry_after: Micros | None
    """After how long, if the body has set it."""


def failed(core: Core, token: TaskToken, raised: Raised) -> Outcome:
    """Return the outcome of a task that failed. The kernel decides whether and when it is tried again."""
    policy = policy_of(core, token, _plan_of(core, token)) or UNKNOWN
    matched = raised.type if raised.matched is None else raised.matched
    message = printable(raised.message)[:MESSAGE_MAX]
    traceback = printable(raised.traceback)
    if token.stage is None:
        return QueuedStepFailed(
            error=_recorded(RemoteStepError(raised.code, raised.type, message), traceback).text,
            retry=policy.policy(matched) if raised.is_retried else None,
            retry_after=raised.retry_after,
        )
    failure = Failure(
        code=raised.code,
        message=message,
        type=raised.type,
        traceback=traceback[-TRACEBACK_MAX:],
        retryable=raised.is_retried and matched not in policy.give_up_on,
        rule=policy.rule(matched),
        retry_after=raised.retry_after,
    )
    return Failed(failure=failure)


def _plan_of(core: Core, token: TaskToken) -> Plan:
    """Return the plan of a task's run. LeaseLostError if the run was removed."""
    for run in core.stores.persistence.read(RunsByKey((token.key.run,))):
        return core.inputs.plan(run.plan)
    raise LeaseLostError


def not_to_start(core: Core, token: TaskToken, work: LoadedAttempt) -> Outcome | None:
    """Return the outcome of a claimed task that can't be started: its input is lost, or its time is over."""
    attempt = work.attempt
    if work.error is not None:
        if token.stage is None:
            policy = policy_of_step(core, token.definition, work.plan) or UNKNOWN
            return QueuedStepFailed(error=_recorded(work.error).text, retry=policy.usual)
        raised = raised_from(work.error)
        return Failed(failure=Failure(code=raised.code, message=raised.message, type=raised.type))
    if attempt.total_until is not None and micros(core.clock.now()) >= attempt.total_until:
        total = planned_stage(work.plan, attempt.node).timeout_total_us or 0
        return Failed(failure=total_failure(attempt.attempt - 1, total, started=False))
    return None


def timed_out(job: Job, plan: Plan, now: Micros) -> Outcome | None:
    """Return the outcome of an attempt of a remote stage that has exceeded its time; None if it has not."""
    stage = planned_stage(plan, job.node)
    if job.total_until is not None and now >= job.total_until:
        return Failed(failure=total_failure(job.attempts, stage.timeout_total_us or 0, started=True))
    if stage.timeout_us is None or job.leased_at is None or now < job.leased_at + stage.timeout_us:
        return None
    policy = policy_of_stage(stage)
    return Failed(
        failure=timed_out_failure(
            stage.timeout_us / 1_000_000,
            rule=policy.rule(_TIMEOUT),
            retryable=_TIMEOUT not in policy.give_up_on,
        )
    )


def time_left(work: LoadedAttempt, now: Micros) -> Micros | None:
    """Return how long the attempt of a task may take from now on; None without a limit."""
    stage = token_of(work.attempt, "").stage
    limit = None if stage is None else planned_stage(work.plan, stage).timeout_us
    total = None if work.attempt.total_until is None else max(0, work.attempt.total_until - now)
    return min((one for one in (limit, total) if one is not None), default=None)


def _recorded(error: HoldfastError | Exception, traceback: str = "") -> events.RecordedError:
    raised: Any = raised_from(error)
    return events.RecordedError(
        type=raised.type,
        message=raised.message,
        code=raised.code,
        arguments=raised.arguments,
        traceback=traceback[-_STEP_TRACEBACK_MAX:] or None,
    )
