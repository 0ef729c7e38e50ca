"""What every command is."""

from typing import ClassVar, Generic

from typing_extensions import TypeVar

from holdfast.ports.structs import frozen

Result = TypeVar("Result", covariant=True)


@frozen(kw_only=True)
class Command(Generic[Result]):
    """A request to the kernel, answered with a `Result`.

    With an `idempotency_key` the first accepted dispatch is carried out and every later one gets the same reply;
    the same key with another command is an IdempotencyConflictError. Keys are kept for each namespace.
    """

    type: ClassVar[str]
    namespace: str = "default"
    idempotency_key: str | None = None
