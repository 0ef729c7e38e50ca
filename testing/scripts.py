"""The sequence of actions of a stub."""

from collections.abc import Callable
from typing import Final

import attrs

from holdfast.ports.errors import InvalidArgumentError
from holdfast.ports.validation import FUNCTION, Wanted, check, integer

_ERROR: Final = Wanted(
    "an exception, as ValueError('boom'), or an exception class",
    lambda value: isinstance(value, Exception) or (isinstance(value, type) and issubclass(value, Exception)),
)


@attrs.frozen
class _Action:
    """An action of a stub."""

    call: Callable[..., object] | None
    """The replacement; None for the original body."""
    times: int | None
    """The number of calls; None for all further calls."""


class Script:
    """A sequence of actions with a number of calls each. After the last one, the original body is called."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._actions: list[_Action] = []

    def returns(self, values: tuple[object, ...]) -> None:
        """Return these values, one per call; repeat the last one for all further calls."""
        if not values:
            raise InvalidArgumentError(
                "values", "returns needs at least one value: one per call, the last for all further calls"
            )
        *first, last = values
        for value in first:
            self._then(_returning(value), 1)
        self._then(_returning(last), None)

    def fails(self, error: Exception | type[Exception], times: int | None) -> None:
        """Raise an error for this number of calls; without `times` for all further calls."""
        check("fails", _ERROR, error=error)

        def fail(*_: object, **__: object) -> object:
            raise error if isinstance(error, type) else error.with_traceback(None)

        self._then(fail, times)

    def does(self, fn: Callable[..., object], times: int | None) -> None:
        """Call a function for this number of calls; without `times` for all further calls."""
        check("does", FUNCTION, fn=fn)
        self._then(fn, times)

    def lets(self, times: int) -> None:
        """Call the original body for this number of calls."""
        self._then(None, times)

    def take(self) -> Callable[..., object] | None:
        """Return the action of the next call; None for the original body."""
        if not self._actions:
            return None
        action = self._actions[0]
        if action.times is not None:
            self._actions[0] = attrs.evolve(action, times=action.times - 1)
            if action.times == 1:
                del self._actions[0]
        return action.call

    def _then(self, call: Callable[..., object] | None, times: int | None) -> None:
        check(f"the stub of {self._name!r}", integer(1).or_none, times=times)
        if self._actions and self._actions[-1].times is None:
            raise InvalidArgumentError(
                "times",
                f"the stub of {self._name!r} has an action without `times`, so a later action would never"
                " be used",
            )
        self._actions.append(_Action(call, times))


def _returning(value: object) -> Callable[..., object]:
    return lambda *_, **__: value
