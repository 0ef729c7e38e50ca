"""A step that is under way."""

from anyio import CancelScope


class Trying:
    """A step that is tried, and can be stopped, also before its task has begun."""

    __slots__ = ("_is_cancelled", "_scope", "task")

    def __init__(self) -> None:
        self.task: object = None
        """Its task, which nobody else keeps."""
        self._scope: CancelScope | None = None
        self._is_cancelled = False

    def scope(self) -> CancelScope:
        """Return the scope of its task. To be called in that."""
        self._scope = CancelScope()
        if self._is_cancelled:
            self._scope.cancel()
        return self._scope

    def cancel(self) -> None:
        """Stop it."""
        self._is_cancelled = True
        if self._scope is not None:
            self._scope.cancel()
