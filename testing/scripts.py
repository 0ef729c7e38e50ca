"""What a stub does, one thing after another."""

from collections.abc import Callable
from typing import Final

import attrs

from holdfast.ports.errors import InvalidArgumentError
from holdfast.ports.validation import FUNCTION, Wanted, check, integer

_ERROR: Final = Wanted(
    "an exception, as ValueError('boom'), or the class of one",
    lambda value: isinstance(value, Exception) or (isinstance(value, type) and issubclass(value, Exception)),
)


@attrs.frozen
class _Action:
    """What is done, so many times; None: for ever."""

    call: Callable[..., object] | None
    times: int | None


class Script:
    """A list of actions, of which each is done so many times; after the last comes what is stubbed itself."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._actions: list[_Action] = []

    def returns(self, values: tuple[object, ...]) -> None:
        """Give these, one a call; the last from then on."""
        if not values:
            raise InvalidArgumentError(
                "values", "returns takes the values to give, one a call; the last is given from then on"
            )
        *first, last = values
        for value in first:
            self._then(_returning(value), 1)
        self._then(_returning(last), None)

    def fails(self, error: Exception | type[Exception], times: int | None) -> None:
        """Raise this error, so many times; without `times` from then on."""
        check("fails", _ERROR, error=error)

        def fail(*_: object, **__: object) -> object:
            raise error if isinstance(error, type) else error.with_traceback(None)

        self._then(fail, times)

    def does(self, fn: Callable[..., object], times: int | None) -> None:
        """Call this, so many times; without `times` from then on."""
        check("does", FUNCTION, fn=fn)
        self._then(fn, times)

    def lets(self, times: int) -> None:
        """Let what is stubbed be called itself, so many times."""
        self._then(None, times)

    def take(self) -> Callable[..., object] | None:
        """Return what the next call does; None if that is what is stubbed itself."""
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
                f"the stub of {self._name!r} does something for ever already; what is added would never be done",
            )
        self._actions.append(_Action(call, times))


def _returning(value: object) -> Callable[..., object]:
    return lambda *_, **__: value
