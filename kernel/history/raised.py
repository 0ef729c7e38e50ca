"""An exception in the form in which histories store it."""

from holdfast.ports.structs import frozen


@frozen(kw_only=True)
class Raised:
    """The stored form of an exception."""

    type: str
    """The class, by module and qualified name."""
    message: str
    arguments: str | None = None
    """The values of the exception as JSON text; None if they can't be stored."""
    code: str = "body_error"
    """The error code: that of a HoldfastError, else `body_error`."""
