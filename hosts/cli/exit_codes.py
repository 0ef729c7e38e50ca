"""Exit codes of commands, which scripts can rely on, and the mapping from errors to them."""

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

import attrs
import click

from holdfast.hosts.text import first_of
from holdfast.ports import errors as e


class Exit(IntEnum):
    """The exit codes, part of the public contract."""

    OK = 0
    RUN_FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    RUN_CANCELLED = 5
    UNAVAILABLE = 6
    TIMED_OUT = 7
    SCHEMA = 8
    UNHEALTHY = 9
    DIVERGED = 10
    DENIED = 11
    BUG = 70
    INTERRUPTED = 130
    BROKEN_PIPE = 141


MEANINGS: Final = (
    (Exit.OK, "success"),
    (Exit.RUN_FAILED, "the run failed; with `lint`: there are findings"),
    (Exit.USAGE, "wrong usage, or invalid input"),
    (
        Exit.NOT_FOUND,
        "the run, workflow, schedule, trigger, sink, key, namespace, artifact or result does not exist",
    ),
    (Exit.REFUSED, "refused: the state of the run or the store does not allow it"),
    (Exit.RUN_CANCELLED, "the run was cancelled"),
    (Exit.UNAVAILABLE, "the store or the server is unreachable; try again"),
    (Exit.TIMED_OUT, "timed out before the run ended, or before the reply to the update came"),
    (
        Exit.SCHEMA,
        "the database's tables are missing, or their version does not match this version of Holdfast",
    ),
    (Exit.UNHEALTHY, "the store is inconsistent, or needs an operator"),
    (Exit.DIVERGED, "a recorded run cannot continue with this code"),
    (Exit.DENIED, "the store denied access to this user, or the server to this key"),
    (Exit.BUG, "unexpected error"),
    (Exit.INTERRUPTED, "interrupted"),
)


class CliError(Exception):
    """An error of the command line with its exit code. `detail` is shown below the message."""

    def __init__(self, exit: Exit, code: str, message: str, *, detail: str = "") -> None:
        self.exit = exit
        self.code = code
        self.detail = detail
        super().__init__(message)


@attrs.frozen(kw_only=True)
class Problem:
    """An error in the form in which commands show it."""

    exit: Exit
    """The exit code."""
    code: str
    """The error's code in JSON output."""
    message: str
    """One line for people."""
    problems: tuple[str, ...] = ()
    """Details that are listed below the message, such as each invalid field."""
    detail: str = ""
    """Further text below the message, such as a traceback."""


# The first matching entry wins.
_EXITS: Final[Sequence[tuple[type[Exception], Exit]]] = (
    (e.RunNotFoundError, Exit.NOT_FOUND),
    (e.UnknownWorkflowError, Exit.NOT_FOUND),
    (e.ArtifactMissingError, Exit.NOT_FOUND),
    (e.ResultMissingError, Exit.NOT_FOUND),
    (e.SinkNotFoundError, Exit.NOT_FOUND),
    (e.ScheduleNotFoundError, Exit.NOT_FOUND),
    (e.TriggerNotFoundError, Exit.NOT_FOUND),
    (e.CredentialNotFoundError, Exit.NOT_FOUND),
    (e.InvalidCommandError, Exit.USAGE),
    (e.CommandError, Exit.REFUSED),
    (e.ConflictError, Exit.REFUSED),
    (e.RefusedError, Exit.REFUSED),
    (e.NondeterminismError, Exit.DIVERGED),
    (e.UnreadableValueError, Exit.DIVERGED),
    (e.InvalidHistoryError, Exit.USAGE),
    (e.RunFailedError, Exit.RUN_FAILED),
    (e.RunCancelledError, Exit.RUN_CANCELLED),
    (e.SchemaError, Exit.SCHEMA),
    (e.AccessDeniedError, Exit.DENIED),
    (e.UnavailableError, Exit.UNAVAILABLE),
    (e.ServerAnswerError, Exit.UNAVAILABLE),
    (e.BlobMissingError, Exit.UNAVAILABLE),
    (e.BlobCorruptError, Exit.UNAVAILABLE),
    (e.InvalidArgumentError, Exit.USAGE),
    (e.InvalidValueError, Exit.USAGE),
    (e.UnstorableValueError, Exit.USAGE),
    (e.InvalidUrlError, Exit.USAGE),
    (e.InvalidFilterError, Exit.USAGE),
    (e.InvalidKeyError, Exit.USAGE),
    (e.NoBlobStoreError, Exit.USAGE),
    (e.DefinitionError, Exit.USAGE),
)


def problem_of(error: BaseException) -> Problem | None:
    """Return how to show an error; None if the error is unexpected."""
    match first_of(error):
        case CliError() as error:
            return Problem(exit=error.exit, code=error.code, message=str(error), detail=error.detail)
        case click.ClickException() as error:
            return Problem(exit=Exit.USAGE, code="usage", message=error.format_message())
        case e.InvalidValueError() as error:
            message = f"invalid value for {error.what}"
            return Problem(exit=Exit.USAGE, code=error.code, message=message, problems=error.problems)
        case e.HoldfastError() as error:
            code = next((code for kind, code in _EXITS if isinstance(error, kind)), Exit.REFUSED)
            return Problem(exit=code, code=error.code, message=str(error))
        case ModuleNotFoundError() as error if "pip install" in str(error):
            return Problem(exit=Exit.USAGE, code="extra_missing", message=str(error))
        case KeyboardInterrupt() | click.Abort():
            return Problem(exit=Exit.INTERRUPTED, code="interrupted", message="interrupted")
        case _:
            return None


def exits(*codes: Exit) -> str:
    """Return the list of exit codes for the end of a command's help; all of them without arguments."""
    # A store that can lack its tables can also refuse its user.
    shown = [
        (code, meaning)
        for code, meaning in MEANINGS
        if not codes or code in codes or (code is Exit.DENIED and Exit.SCHEMA in codes)
    ]
    lines = "\n".join(f"{code:>5}  {meaning}" for code, meaning in shown)
    return f"\b\nExit codes:\n{lines}"
