"""Parts of a loop that are made when they are first asked for: functions that rest in memory use few of them."""

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, cast, overload

P = TypeVar("P")


class Part(Generic[P]):
    """A part of an object, which has a slot for it: `_made_<name>`. `make` makes it of the object."""

    def __init__(self, make: Callable[[Any], P]) -> None:
        self._make = make

    def __set_name__(self, owner: type[object], name: str) -> None:
        self._slot = f"_made_{name.lstrip('_')}"

    @overload
    def __get__(self, instance: None, owner: type[object], /) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type[object], /) -> P: ...
    def __get__(self, instance: object, owner: type[object], /) -> object:
        if instance is None:
            return self
        part = getattr(instance, self._slot, None)
        if part is None:
            part = self._make(instance)
            setattr(instance, self._slot, part)
        return part

    def of(self, instance: object) -> P | None:
        """Return the part of an object, if that has been made."""
        return cast("P | None", getattr(instance, self._slot, None))

    def drop(self, instance: object) -> None:
        """Forget the part of an object: another is made when it is asked for again."""
        setattr(instance, self._slot, None)
