"""Lazily created attributes: most functions use few parts of their loop, and many functions stay in memory."""

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, cast, overload

P = TypeVar("P")


class Part(Generic[P]):
    """A descriptor for a part of an object, which `make` creates on first use in the object's slot `_made_<name>`."""

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
        """Return the part of an object, or None if it was not created."""
        return cast("P | None", getattr(instance, self._slot, None))

    def drop(self, instance: object) -> None:
        """Discard the part of an object. The next access creates a new one."""
        setattr(instance, self._slot, None)
