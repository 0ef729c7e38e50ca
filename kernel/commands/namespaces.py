"""Commands that create and delete namespaces, and their replies."""

from typing import Any, ClassVar, Final, Literal

import attrs

from holdfast.kernel.commands.command import OperatorCommand
from holdfast.kernel.commands.names import text_fault
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.structs import frozen

NOTE_MAX: Final = 2_000
"""Maximum length of the note of a namespace."""
QUOTA_MAX: Final = 100_000
"""Highest quota. Starts in a namespace with a quota count up to it."""


def _quota(_: object, field: "attrs.Attribute[Any]", value: int | None) -> None:
    if value is not None and not 0 <= value <= QUOTA_MAX:
        raise InvalidCommandError(
            f"{field.name} is {value}; it must be from 0 to {QUOTA_MAX:,}, or left out for no quota"
        )


def _note(_: object, __: object, value: str) -> None:
    if fault := text_fault(value, NOTE_MAX):
        raise InvalidCommandError(f"the note can't be stored: {fault}")


@frozen(kw_only=True)
class NamespaceCreated:
    """Reply to `NamespaceCreate`."""

    created: bool
    """Whether the command created it; False: it had been created before, and has the new note and quotas."""


@frozen(kw_only=True)
class NamespaceCreate(OperatorCommand[NamespaceCreated]):
    """Command to create the namespace that it names, or to replace the note and the quotas of one.

    A quota holds in all processes within 15 seconds. It refuses starts of clients (QuotaExceededError); schedules and
    the runs of the namespace itself start runs regardless, which count. Errors: InvalidCommandError for a name that no
    engine can use.
    """

    type: ClassVar[Literal["namespace.create"]] = "namespace.create"
    is_kept: ClassVar[bool] = False
    note: str = attrs.field(default="", validator=_note)
    """What it is for, for people."""
    max_active_runs: int | None = attrs.field(default=None, validator=_quota)
    """How many runs may be active for another to be started; None: any number."""
    max_starts_per_minute: int | None = attrs.field(default=None, validator=_quota)
    """How many runs may have been created in the last minute for another to be started; None: any number."""


@frozen(kw_only=True)
class NamespaceDeleted:
    """Reply to `NamespaceDelete`."""

    deleted: bool
    """Whether the command deleted it; False: there was none."""


@frozen(kw_only=True)
class NamespaceDelete(OperatorCommand[NamespaceDeleted]):
    """Command to delete the namespace that it names.

    Errors: NamespaceInUseError if it has runs, schedules, triggers, sinks or topics.

    Whoever uses its name afterwards brings it back, without its note and quotas.
    """

    type: ClassVar[Literal["namespace.delete"]] = "namespace.delete"
    is_kept: ClassVar[bool] = False
