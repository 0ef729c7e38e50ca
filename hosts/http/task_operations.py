"""Operations of tasks: what a remote worker gets and settles by the token of a task."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import attrs

from holdfast.hosts.http import remote_tasks
from holdfast.hosts.http.json_input import invalid, is_fit
from holdfast.hosts.http.operations import NAMESPACE, Hint, Invocation, Nothing, Operation, Table, Text
from holdfast.hosts.http.principals import Scope
from holdfast.hosts.http.problems import HttpError, Problem, problem_of
from holdfast.hosts.http.remote_tasks import AuthorisedTask
from holdfast.hosts.http.task_outcomes import Raised, completed, failed, owner_of
from holdfast.hosts.http.task_values import input_of, is_hash, new_upload, sent_output
from holdfast.hosts.remote.protocol import SETTLED_MAX
from holdfast.kernel.authoring.steps import StepStage
from holdfast.kernel.commands import JobSettled, Outcome
from holdfast.kernel.rules.retries import RETRY_AFTER_MAX
from holdfast.kernel.values import MAX_VALUE_BYTES, decode
from holdfast.ports.clock import instant
from holdfast.ports.errors import (
    BlobCorruptError,
    BlobMissingError,
    HoldfastError,
    IdempotencyConflictError,
    InvalidValueError,
    LeaseLostError,
)
from holdfast.ports.json import compact
from holdfast.ports.records.values import Micros

_TASK: Final = f"{NAMESPACE}/tasks/{{token}}"
_MICROSECOND: Final = timedelta(microseconds=1)
_TEXT_MAX: Final = 255
_DELAY_MAX: Final = timedelta(days=1)
COMPLETE_MAX: Final = MAX_VALUE_BYTES + 1_024
"""The largest body of `complete`: a value of the largest size, and what is around it."""


def _check_text(_: object, field: "attrs.Attribute[str]", text: str) -> None:
    if len(text) > _TEXT_MAX or not is_fit(text):
        raise ValueError(f"{field.name} has at most {_TEXT_MAX} characters, none of them a control character")


def _check_delay(_: object, field: "attrs.Attribute[timedelta]", delay: timedelta) -> None:
    if not timedelta() <= delay <= _DELAY_MAX:
        raise ValueError(f"{field.name} is from 0 seconds to a day")


def _check_retry_after(_: object, field: "attrs.Attribute[timedelta]", delay: timedelta | None) -> None:
    if delay is not None and not 0 <= delay // _MICROSECOND <= RETRY_AFTER_MAX:
        raise ValueError(f"{field.name} is from 0 seconds to seven days")


def _check_hash(_: object, field: "attrs.Attribute[str]", text: str) -> None:
    if not is_hash(text):
        raise ValueError(f"{field.name} is a SHA-256 as 64 lower-case hex digits")


@attrs.frozen(kw_only=True)
class TaskOutput:
    """The output of a step or stage."""

    output: object = None
    """The result, as JSON of the type that the step or stage declares."""
    reference: str | None = None
    """In place of `output`: the `reference` of an upload, once the bytes were sent."""


@attrs.frozen(kw_only=True)
class OutputToSend:
    """A large output that a worker has."""

    sha256: str = attrs.field(validator=_check_hash)
    """The SHA-256 of its JSON text in UTF-8, in lower-case hex."""
    size: int = attrs.field(validator=[attrs.validators.ge(1), attrs.validators.le(MAX_VALUE_BYTES)])
    """The number of bytes, at most 16 MiB."""


@attrs.frozen(kw_only=True)
class OutputUpload:
    """Where a worker sends a large output, with a PUT."""

    url: str | None
    """The URL, which takes no credentials; null if the blob store has none: `complete` takes the output then."""
    headers: Mapping[str, str]
    """The headers that the request must have."""
    reference: str | None
    """What `complete` takes in place of the output; null without a URL. Its form may change."""
    expires_at: datetime | None
    """Until when the URL and the reference can be used; null without a URL."""


@attrs.frozen(kw_only=True)
class TaskError:
    """Why an attempt failed."""

    code: str = attrs.field(validator=_check_text)
    """A stable code, of the worker's own choice."""
    message: str = attrs.field(validator=attrs.validators.max_len(10_000))
    """What happened, for people. At most 2,000 characters are kept."""
    type: str = attrs.field(default="", validator=_check_text)
    """The class of the error."""
    traceback: str = ""
    """Where it happened. At most the last 2,000 characters are kept."""


@attrs.frozen(kw_only=True)
class TaskFailure:
    """A failed attempt."""

    error: TaskError
    """The error. If a step has no attempt left, the durable function gets it as a `RemoteStepError`."""
    matched: str | None = attrs.field(default=None, validator=attrs.validators.optional(_check_text))
    """Which class of the task's `retry` the error is; by default the one whose name is the error's `type`, if any."""
    retry: bool = True
    """Whether another attempt may follow. The policy of the step or stage decides whether one does, and when."""
    retry_after: timedelta | None = attrs.field(default=None, validator=_check_retry_after)
    """After how long to try again, at most seven days, if the body has set it; by default the policy decides."""


@attrs.frozen(kw_only=True)
class TaskOutcome:
    """The outcome of a task, among those of others: either `complete` or `fail`."""

    token: str
    """The token of the task."""
    complete: TaskOutput | None = None
    """Its output, if the body has returned."""
    fail: TaskFailure | None = None
    """Why the attempt failed, if it has."""


def _check_outcomes(_: object, __: object, outcomes: tuple[TaskOutcome, ...]) -> None:
    if not 1 <= len(outcomes) <= SETTLED_MAX:
        raise ValueError(f"outcomes has 1 to {SETTLED_MAX} entries")
    if len({one.token for one in outcomes}) < len(outcomes):
        raise ValueError("outcomes has two entries with one token: a task has one outcome")
    if any((one.complete is None) == (one.fail is None) for one in outcomes):
        raise ValueError(
            "outcomes has an entry without an outcome, or with two: it has either `complete` or `fail`"
        )


@attrs.frozen(kw_only=True)
class TaskOutcomes:
    """The outcomes of several tasks."""

    outcomes: tuple[TaskOutcome, ...] = attrs.field(validator=_check_outcomes)
    """The outcomes, 1 to 100, each of another task."""


@attrs.frozen(kw_only=True)
class TaskRelease:
    """A task that is given back."""

    delay: timedelta = attrs.field(default=timedelta(), validator=_check_delay)
    """For how long no worker gets it."""


@attrs.frozen(kw_only=True)
class TaskSettled:
    """The state of a task after the request."""

    status: Literal["settled", "released"]
    """`settled`: the outcome is stored. `released`: the task is given back, and the attempt does not count."""
    retry_at: datetime | None = None
    """When the step is tried again; null if it has ended."""


@attrs.frozen(kw_only=True)
class TaskAnswer:
    """The answer to one outcome: either `settled` or `problem`."""

    settled: TaskSettled | None
    """The state of the task; null if the outcome was refused."""
    problem: Problem | None
    """Why the outcome was refused, as the answer to a single one; null if it is stored."""


@attrs.frozen(kw_only=True)
class TaskAnswers:
    """The answers to outcomes."""

    answers: tuple[TaskAnswer, ...]
    """An answer for each outcome, in their order."""


def settle_tasks(call: Invocation[Nothing, TaskOutcomes]) -> TaskAnswers:
    """Store the outcomes of several tasks, in one transaction. A refused one does not affect the others.

    A worker that runs many short tasks sends fewer requests so. Repeat the request if it got no answer: the tokens
    identify the tasks.
    """
    core, outcomes = call.engine.core, call.body.outcomes
    tasks = remote_tasks.authorised_tasks(core, call.principal, [one.token for one in outcomes])
    found = [_outcome_or_error(call, task, one) for task, one in zip(tasks, outcomes, strict=True)]
    ready = [one for one in found if not isinstance(one, Exception)]
    replies = iter(remote_tasks.settle_together(core, ready))
    answers = (one if isinstance(one, Exception) else next(replies) for one in found)
    return TaskAnswers(answers=tuple(_answer(call, one) for one in answers))


def _outcome_or_error(
    call: Invocation[Nothing, Any], task: AuthorisedTask | LeaseLostError, sent: TaskOutcome
) -> tuple[AuthorisedTask, Outcome] | HoldfastError | HttpError:
    if isinstance(task, LeaseLostError):
        return task
    try:
        if sent.complete is not None:
            return task, _completed(call, task, sent.complete)
        assert sent.fail is not None  # refused before
        return task, _failed(call, task, sent.fail)
    except (HoldfastError, HttpError) as error:
        return error


def _answer(call: Invocation[Nothing, Any], answer: JobSettled | HoldfastError | HttpError) -> TaskAnswer:
    if isinstance(answer, JobSettled):
        return TaskAnswer(settled=_settled(answer), problem=None)
    problem = problem_of(answer, call.root, sees_values=call.sees_values())
    if problem is None or problem.status >= 500:  # of the server: then the whole request is repeated
        raise answer
    return TaskAnswer(settled=None, problem=problem)


def complete_task(call: Invocation[Nothing, TaskOutput]) -> TaskSettled:
    """Store the output of a task.

    Repeat the request if it got no answer: the token identifies it. A body may have 16 MiB here, and is checked against
    its `Content-Digest` if it has one. A server that has the code of the step or stage refuses an output that does not
    have its type; the worker still holds the task then.
    """
    task = _task(call)
    return _settle(call, task, _completed(call, task, call.body))


def _completed(call: Invocation[Nothing, Any], task: AuthorisedTask, body: TaskOutput) -> Outcome:
    core = call.engine.core
    text: str | None
    if body.reference is None:
        text = compact(body.output)
        payload = core.payloads.put(text, owner_of(core, task.token))
    elif body.output is not None:
        raise invalid("$", "it has either an output or a reference")
    else:
        sent = sent_output(core, task, body.reference)
        text, payload = sent.text, sent.payload
    if task.job is not None and text is not None:
        _check_type(call, task, text)
    return completed(task.token, payload)


def _check_type(call: Invocation[Nothing, Any], task: AuthorisedTask, text: str) -> None:
    registry = call.engine.core.registry
    step: Any = registry.step(task.token.definition)
    stage = registry.remote_stages.get(task.token.definition)
    if isinstance(step, StepStage):
        decode(text, step.step.form.output)
    elif stage is not None:
        decode(text, stage.output_type)


def fail_task(call: Invocation[Nothing, TaskFailure]) -> TaskSettled:
    """Store that a task failed. Its retry policy decides whether and when it is tried again.

    Repeat the request if it got no answer.
    """
    task = _task(call)
    return _settle(call, task, _failed(call, task, call.body))


def _failed(call: Invocation[Nothing, Any], task: AuthorisedTask, body: TaskFailure) -> Outcome:
    raised = Raised(
        code=body.error.code,
        type=body.error.type,
        message=body.error.message,
        traceback=body.error.traceback,
        matched=body.matched,
        is_retried=body.retry,
        retry_after=None if body.retry_after is None else _micros(body.retry_after),
    )
    return failed(call.engine.core, task.token, raised)


def release_task(call: Invocation[Nothing, TaskRelease]) -> TaskSettled:
    """Give a task back that was not started. The attempt does not count."""
    core, task = call.engine.core, _task(call)
    if not remote_tasks.release(core, task.token, _micros(call.body.delay)):
        raise LeaseLostError
    return TaskSettled(status="released")


def get_input(call: Invocation[Nothing, Nothing]) -> Text:
    """Return the input of a task that the worker holds, as JSON, with its `Content-Digest`."""
    return input_of(call.engine.core, _task(call))


def upload_output(call: Invocation[Nothing, OutputToSend]) -> OutputUpload:
    """Return where to send a large output, so that it does not pass through the server."""
    found = new_upload(call.engine.core, _task(call), call.body.sha256, call.body.size)
    if found is None:
        return OutputUpload(url=None, headers={}, reference=None, expires_at=None)
    reference = found.reference
    return OutputUpload(
        url=found.url,
        headers=dict(found.headers),
        reference=reference.text,
        expires_at=instant(reference.expires_at),
    )


def _task(call: Invocation[Nothing, Any]) -> AuthorisedTask:
    return remote_tasks.authorised_task(call.engine.core, call.principal, call.path["token"])


def _settle(call: Invocation[Nothing, Any], task: AuthorisedTask, outcome: Outcome) -> TaskSettled:
    dispatch = call.server.settles.dispatch
    return _settled(remote_tasks.settle(call.engine.core, task.token, outcome, task.host, dispatch=dispatch))


def _settled(reply: JobSettled) -> TaskSettled:
    return TaskSettled(status="settled", retry_at=None if reply.retry_at is None else instant(reply.retry_at))


def _micros(length: timedelta) -> Micros:
    return length // _MICROSECOND


OPERATIONS: Final[Table] = (
    Operation(
        name="task.complete",
        method="POST",
        path=f"{_TASK}/complete",
        scope=Scope.WORK,
        body=TaskOutput,
        reply=TaskSettled,
        handler=complete_task,
        hint=Hint.CHANGES,
        errors=(LeaseLostError, IdempotencyConflictError, InvalidValueError),
        body_max=COMPLETE_MAX,
    ),
    Operation(
        name="task.settle",
        method="POST",
        path=f"{NAMESPACE}/tasks:settle",
        scope=Scope.WORK,
        body=TaskOutcomes,
        reply=TaskAnswers,
        handler=settle_tasks,
        hint=Hint.CHANGES,
        body_max=COMPLETE_MAX,
    ),
    Operation(
        name="task.fail",
        method="POST",
        path=f"{_TASK}/fail",
        scope=Scope.WORK,
        body=TaskFailure,
        reply=TaskSettled,
        handler=fail_task,
        hint=Hint.CHANGES,
        errors=(LeaseLostError, IdempotencyConflictError),
    ),
    Operation(
        name="task.release",
        method="POST",
        path=f"{_TASK}/release",
        scope=Scope.WORK,
        body=TaskRelease,
        reply=TaskSettled,
        handler=release_task,
        hint=Hint.CHANGES,
        errors=(LeaseLostError,),
    ),
    Operation(
        name="task.get_input",
        method="GET",
        path=f"{_TASK}/input",
        scope=Scope.WORK,
        reply=Text,
        handler=get_input,
        errors=(LeaseLostError, BlobMissingError, BlobCorruptError),
    ),
    Operation(
        name="task.upload",
        method="POST",
        path=f"{_TASK}/upload",
        scope=Scope.WORK,
        body=OutputToSend,
        reply=OutputUpload,
        handler=upload_output,
        hint=Hint.CHANGES,
        errors=(LeaseLostError,),
    ),
)
