"""Operations that complete or fail completions, by their tokens."""

from typing import Final

import attrs

from holdfast.hosts.http.operations import NAMESPACE, Hint, Invocation, Nothing, Operation, Table
from holdfast.hosts.http.principals import Scope
from holdfast.kernel.commands import RunSignalled
from holdfast.ports.errors import (
    AlreadyCompletedError,
    CompletionNotFoundError,
    InvalidArgumentError,
    SignalRefusedError,
)
from holdfast.ports.records.run import RunStatus

COMPLETION: Final = f"{NAMESPACE}/completions/{{completion}}"
_ERRORS: Final = (InvalidArgumentError, CompletionNotFoundError, AlreadyCompletedError, SignalRefusedError)


@attrs.frozen(kw_only=True)
class CompletionValue:
    """The value of a completion."""

    value: object
    """The value, of the type that its function waits for."""


@attrs.frozen(kw_only=True)
class CompletionFailure:
    """A failure in place of the value of a completion."""

    message: str
    """Why there is no value."""


@attrs.frozen(kw_only=True)
class Completed:
    """An outcome that is stored."""

    number: int
    """The number of its history row."""
    status: RunStatus
    """The status of the run."""


def complete(call: Invocation[Nothing, CompletionValue]) -> Completed:
    """Give a completion its value, which its function waits for. The same value may be sent again."""
    return _completed(call.engine.complete(call.path["completion"], call.body.value))


def fail(call: Invocation[Nothing, CompletionFailure]) -> Completed:
    """Fail a completion: its function gets an error in place of the value. The same message may be sent again."""
    return _completed(call.engine.fail_completion(call.path["completion"], call.body.message))


def _completed(signalled: RunSignalled) -> Completed:
    return Completed(number=signalled.number, status=signalled.status)


OPERATIONS: Final[Table] = (
    Operation(
        name="completion.complete",
        method="POST",
        path=COMPLETION,
        scope=Scope.START,
        body=CompletionValue,
        reply=Completed,
        handler=complete,
        hint=Hint.CHANGES,
        idempotent=True,  # by the token and the outcome
        errors=_ERRORS,
    ),
    Operation(
        name="completion.fail",
        method="POST",
        path=f"{COMPLETION}/failure",
        scope=Scope.START,
        body=CompletionFailure,
        reply=Completed,
        handler=fail,
        hint=Hint.CHANGES,
        idempotent=True,  # by the token and the outcome
        errors=_ERRORS,
    ),
)
