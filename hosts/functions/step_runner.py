"""Execution of the body of a step, and the row that records its outcome."""

import inspect
from collections.abc import Awaitable, Callable
from contextvars import Context
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeAlias, cast

import anyio
import attrs
from anyio import CapacityLimiter, lowlevel

from holdfast.hosts.execution.attempt_log import log_completed_step
from holdfast.hosts.execution.bodies import Body
from holdfast.hosts.execution.caught_calls import CaughtCall
from holdfast.hosts.execution.failures import MESSAGE_MAX, cut_off, retry_after_of, traceback_text
from holdfast.hosts.execution.logging_bridge import current_attempt
from holdfast.hosts.execution.threads import make_in_thread, result_in_thread, run_in_thread
from holdfast.hosts.functions.pending_calls import StepAttempt
from holdfast.hosts.functions.step_heartbeats import Heartbeats, StepHeartbeat
from holdfast.hosts.functions.step_scope import StepScope, idempotency_key_of
from holdfast.hosts.functions.store_retries import until_available
from holdfast.hosts.functions.transactional_steps import Transaction
from holdfast.hosts.wiring.interceptors import BodyCall, within
from holdfast.kernel.authoring.step_context import enter_step
from holdfast.kernel.authoring.steps import Step, StepStage
from holdfast.kernel.commands import (
    EventAppend,
    JobRecord,
    JobRecorded,
    Outcome,
    QueuedStepCompleted,
    QueuedStepFailed,
    StepFail,
)
from holdfast.kernel.functions.protocol import StepRequest
from holdfast.kernel.history import events
from holdfast.kernel.history.exceptions import raised_from
from holdfast.kernel.values import encode
from holdfast.ports.clock import Clock, micros
from holdfast.ports.errors import (
    InvalidValueError,
    StepLostError,
    StepResultError,
    UnreadableInputError,
    UnstorableValueError,
)
from holdfast.ports.records.job import JobKind, limit_of_attempts
from holdfast.ports.records.values import Micros, Payload

Command: TypeAlias = Callable[[EventAppend], JobRecord]

_OF_LOOPS: Final = frozenset({"sniffio_cvar"})
"""Names of context variables that hold the kind of the running event loop."""
_MICROSECOND: Final = 1_000_000
_TRACEBACK_MAX: Final = 2_000
"""How many characters of a traceback are stored: every replay of the function reads the row."""


async def run_step(
    body: Body,
    one: StepAttempt,
    clock: Clock,
    threads: CapacityLimiter,
    command: Command,
    heartbeats: Heartbeats,
) -> EventAppend | StepFail | JobRecorded:
    """Run a step and return what to record. Raises only the cancellation of the caller.

    A transactional step is recorded in its transaction, by the command from `command`: then the answer is returned.
    """
    step = cast("Step[..., object]", one.request.definition)
    if one.request.context is not None:
        _enter(one.request.context)
    heartbeat = (
        None
        if step.heartbeat_timeout is None
        else await _step_heartbeat(one, step.heartbeat_timeout, heartbeats)
    )
    started_at = micros(clock.now())
    scope = StepScope(body, one, _until(step, body, started_at), heartbeat)
    enter_step(scope.context)
    current_attempt.set(scope)

    async def act() -> EventAppend | JobRecorded:
        if body.work.error is not None:
            raise body.work.error
        arguments = _arguments(step, one)
        done = body.parts.step(step)
        ends_at = _until(done, body, started_at)
        seconds = None if ends_at is None else max(0.0, (ends_at - started_at) / _MICROSECOND)
        if done.transaction is not None:
            shared = _transaction(body, scope, done, arguments, command, started_at)
            return await shared.run(threads, seconds)
        if done.is_async and seconds is None:  # a cancel scope costs more than a quick step
            value = await cast("Awaitable[object]", done.body(*arguments[0], **arguments[1]))
        else:
            value = await _called(done, arguments, threads, seconds)
        text = _encoded(value, step)
        put = partial(body.payloads.put, text, body.place)
        output = put() if body.payloads.stay_inline(text) else await result_in_thread(put)
        return _completed(body, scope, step, output, started_at)

    async def act_in_time() -> EventAppend | JobRecorded:
        return await act() if heartbeat is None else await heartbeat.listening(step.name, one.number, act)

    try:
        if body.interceptors or heartbeat is not None:
            done = await within(body.interceptors, lambda: _call(body, one, step), act_in_time)
        else:
            done = await act()
    except BaseException as error:  # noqa: BLE001  # a step may raise anything, CancelledError too
        scope.cancel()  # a sync body may go on in its thread
        if not isinstance(error, GeneratorExit):
            await lowlevel.checkpoint_if_cancelled()  # raises if this task is being cancelled
        now = micros(clock.now())
        if isinstance(error, TimeoutError) and body.ends_at is not None and now >= body.ends_at:
            error = TimeoutError(cut_off((now - started_at) / _MICROSECOND))
        return _failed(body, one, step, error, started_at)
    if body.attempt.kind is JobKind.WORKFLOW:
        log_completed_step(body.work.run, step.name, one.number, clock, started_at)
    return done


def _enter(context: Context) -> None:
    """Set the context variables of the function in the current task, which belongs to the step alone.

    Those of event loop libraries stay as they are: the step runs in another loop than the function.
    """
    for variable, value in context.items():
        if variable.name not in _OF_LOOPS:
            variable.set(value)


def _arguments(step: Step[..., object], one: StepAttempt) -> tuple[tuple[object, ...], dict[str, object]]:
    """Return the arguments of a step. UnreadableInputError."""
    try:
        return step.form.arguments_from(one.request.arguments)
    except InvalidValueError as error:
        raise UnreadableInputError(f"the arguments of step {step.name!r}", None, error.problems) from error


def _call(body: Body, one: StepAttempt, step: Step[..., object]) -> BodyCall:
    """Return the description of an attempt that interceptors receive."""
    usual = body.step_policies.usual(step).attempts
    attempts = usual if one.max_attempts is None else one.max_attempts
    return attrs.evolve(
        body.call,
        step=step.name,
        attempt=one.number,
        max_attempts=limit_of_attempts(attempts + one.lost_attempts),
        idempotency_key=idempotency_key_of(body, one),
    )


async def _step_heartbeat(one: StepAttempt, timeout: timedelta, heartbeats: Heartbeats) -> StepHeartbeat:
    """Return the receiver of a step's heartbeats."""
    await until_available(heartbeats.load, "the heartbeat details of a step can't be loaded yet")
    return StepHeartbeat(heartbeats, one.request.call, timeout)


def _encoded(value: object, step: Step[..., object]) -> str:
    """Return the JSON text of a result. StepResultError if it has none, though the step has had its effects."""
    try:
        return encode(value, step.form.output)
    except (InvalidValueError, UnstorableValueError) as error:
        raise StepResultError(str(error)) from error


def _completed(
    body: Body, scope: StepScope, step: Step[..., object], output: Payload, started_at: Micros
) -> EventAppend:
    one = scope.one
    completed = events.StepCompleted(
        call=one.request.call,
        step=step.name,
        site=one.request.site,
        attempt=one.number,
        host=body.host or None,
        started_at=started_at,
        undoes=one.request.undoes or None,
        given=_kept_arguments(one, step),
    )
    published, artifacts = scope.stored_with_result
    return EventAppend(event=completed, payload=output, published=published, artifacts=artifacts)


def _kept_arguments(one: StepAttempt, step: Step[..., object]) -> str | None:
    # The arguments of a queued step are in the row that queued it.
    return one.request.arguments if step.records_arguments and one.max_attempts is None else None


def _transaction(
    body: Body,
    scope: StepScope,
    step: Step[..., object],
    arguments: tuple[tuple[object, ...], dict[str, object]],
    command: Command,
    started_at: Micros,
) -> Transaction:
    parts = body.parts
    args, kwargs = arguments

    def record(value: object) -> EventAppend:
        output = body.payloads.put(encode(value, step.form.output), body.place)
        return _completed(body, scope, step, output, started_at)

    return Transaction(
        step=step,
        body=lambda connection: step.body(connection, *args, **kwargs),
        record=record,
        command=command,
        kernel=parts.kernel,
        persistence=parts.persistence,
        clock=parts.clock,
    )


def _until(step: Step[..., object], body: Body, started_at: Micros) -> Micros | None:
    """Return when an attempt times out: its own timeout, or the end of the process that runs it."""
    if step.timeout is None:
        return body.ends_at
    own = started_at + round(step.timeout.total_seconds() * _MICROSECOND)
    return own if body.ends_at is None else min(own, body.ends_at)


async def _called(
    step: Step[..., object],
    arguments: tuple[tuple[object, ...], dict[str, object]],
    threads: CapacityLimiter,
    seconds: float | None,
) -> object:
    args, kwargs = arguments
    if step.is_async:
        with anyio.fail_after(seconds):
            return await cast("Awaitable[object]", step.body(*args, **kwargs))
    call = CaughtCall(lambda: step.body(*args, **kwargs))
    if seconds is None:  # a cancel scope costs more than a quick step
        await run_in_thread(call, threads)
        value = call.result()
        return await cast("Awaitable[object]", value) if inspect.isawaitable(value) else value
    async with threads:
        with anyio.fail_after(seconds) as scope:  # waiting for a thread does not count
            await make_in_thread(call)
    value = call.result()
    if not inspect.isawaitable(value):
        return value
    with anyio.fail_after(max(0.0, scope.deadline - anyio.current_time())):
        return await cast("Awaitable[object]", value)


def _failed(
    body: Body, one: StepAttempt, step: Step[..., object], error: BaseException, started_at: Micros
) -> StepFail:
    """Return the record of a failed attempt: what was raised, and the policy that it falls under."""
    raised = raised_from(error)
    recorded = events.RecordedError(
        type=raised.type,
        message=raised.message[:MESSAGE_MAX],
        code=raised.code,
        arguments=raised.arguments,
        # That of a missed heartbeat shows none of the user's code.
        traceback=None if isinstance(error, StepLostError) else traceback_text(error, _TRACEBACK_MAX),
    )
    # Arguments that can't be read block the run, and the step is tried again once it is resumed.
    is_final = isinstance(error, UnreadableInputError)
    return StepFail(
        event=attrs.evolve(_failed_event(one, step, recorded, body.host), started_at=started_at),
        retry=None if is_final else body.step_policies.policy_for(step, error),
        retry_after=retry_after_of(error),
        first_started_at=started_at if one.first_started_at is None else one.first_started_at,
        lost_attempts=one.lost_attempts,
    )


def lost_step(one: StepAttempt, body: Body, *, is_alone: bool) -> StepFail:
    """Return the record of an attempt that may have been running when its worker was lost.

    `is_alone` means that no other step that was ever lost ran beside it.
    """
    step, losses = cast("Step[..., object]", one.request.definition), one.lost_attempts + 1
    raised = raised_from(StepLostError(step.name, one.number))
    error = events.RecordedError(
        type=raised.type, message=raised.message, code=raised.code, arguments=raised.arguments
    )
    failed = attrs.evolve(_failed_event(one, step, error, body.host), lost=True, lost_attempts=losses)
    policy = body.step_policies.usual(step)
    return StepFail(event=failed, retry=policy, lost_attempts=losses, is_alone=is_alone)


def _failed_event(
    one: StepAttempt, step: Step[..., object], error: events.RecordedError, host: str
) -> events.StepFailed:
    return events.StepFailed(
        call=one.request.call,
        step=step.name,
        site=one.request.site,
        error=error,
        attempt=one.number,
        host=host or None,
        undoes=one.request.undoes or None,
        given=_kept_arguments(one, step),
    )


async def run_queued(body: Body, threads: CapacityLimiter) -> Outcome:
    """Run the queued step of an attempt and return its outcome. Raises only the cancellation of the caller."""
    attempt, step = body.attempt, cast("StepStage[Any, object]", body.stage).step
    request = StepRequest(call=attempt.node, step=step.name, arguments=body.work.input, definition=step)
    one = StepAttempt(
        request=request,
        number=attempt.attempt,
        max_attempts=attempt.max_attempts,
        lost_attempts=attempt.lost_attempts,
    )
    heartbeats = Heartbeats(body.runtime, body.parts.clock, is_first=attempt.epoch == 1)
    try:
        recorded = await run_step(body, one, body.parts.clock, threads, _never, heartbeats)
    finally:
        heartbeats.flush()
    match recorded:
        case EventAppend(event=events.StepCompleted(), payload=Payload() as output):
            body.runtime.finish_step(recorded)
            return QueuedStepCompleted(output=output)
        case StepFail(event=failed, retry=retry, retry_after=retry_after):
            return QueuedStepFailed(error=failed.error.text, retry=retry, retry_after=retry_after)
        case _:
            raise AssertionError(f"a queued step ends with {recorded}")


def _never(_: EventAppend) -> JobRecord:
    raise AssertionError("a queued step has no store transaction")
