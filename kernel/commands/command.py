"""The base classes of commands."""

from typing import Any, ClassVar, Generic

import attrs
from typing_extensions import TypeVar

from holdfast.kernel.commands.names import NAME_MAX, text_fault
from holdfast.ports.actors import Actor
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.structs import frozen

Result = TypeVar("Result", covariant=True)


@frozen(kw_only=True)
class Command(Generic[Result]):
    """A request to the kernel, answered with a `Result`.

    Errors: IdempotencyConflictError if the namespace has seen the idempotency key with a different command.
    """

    type: ClassVar[str]
    """Name of the command in its JSON form."""
    namespace: str = "default"
    """Namespace of the runs, queues and limits that the command is about."""
    idempotency_key: str | None = None
    """Key of 1 to 255 characters that makes repeating the command harmless: later dispatches get the first reply."""


def check_actor(_: object, field: "attrs.Attribute[Any]", value: Actor | None) -> None:
    """A validator of attrs: raises InvalidCommandError for an actor with a text that is too long or can't be stored."""
    if value is None:
        return
    for part, text in (("kind", value.kind), ("id", value.id), ("version", value.version)):
        if fault := text_fault(text, NAME_MAX):
            raise InvalidCommandError(f"{field.name}.{part} is {text!r:.50}: {fault}")


@frozen(kw_only=True)
class OperatorCommand(Command[Result]):
    """A command of a person or a program outside, as opposed to one of a worker or of maintenance.

    Its actor is stored in those of its events that are `OperatorEvent`s (docs/decisions/0077). The actor does not count
    when commands under one idempotency key are compared.
    """

    is_kept: ClassVar[bool] = True
    """Whether a row keeps the actor; False: what the command does leaves no such row, and hosts log it."""
    actor: Actor | None = attrs.field(default=None, validator=check_actor)
    """Who issues the command; None: unknown."""
    request_id: str | None = None
    """Id of the request that carries the command, for its audit entry. It is not compared either."""
