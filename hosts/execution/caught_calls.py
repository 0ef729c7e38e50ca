"""Calls that never raise: their result or error is read later, for example in another thread."""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class CaughtCall(Generic[T]):
    """A call that keeps its result or error."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._results: list[T] = []
        self._error: BaseException | None = None

    def __call__(self) -> None:
        """Make the call. Never raises."""
        try:
            self._results.append(self._call())
        except BaseException as error:  # noqa: BLE001  # raised again by `result`
            self._error = error

    @property
    def is_over(self) -> bool:
        """Whether the call has returned or raised."""
        return bool(self._results) or self._error is not None

    def result(self) -> T:
        """Return the result of the call, or raise its error."""
        if self._error is not None:
            raise self._error
        return self._results[0]
