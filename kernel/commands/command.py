"""The base class of commands."""

from typing import ClassVar, Generic

from typing_extensions import TypeVar

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
