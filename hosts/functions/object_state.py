"""What an object of a user's holds: whether somebody who was only to look at it has changed it."""

from collections import deque
from functools import cached_property
from inspect import getattr_static
from typing import Final, cast

DEPTH: Final = 4
"""How deep in lists, dicts and sets it is noticed that a query changes them."""
_HELD_MAX: Final = 5_000
"""How much of an object is looked at at most."""
_NOT_THEIRS: Final = frozenset({"_asyncio", "anyio", "asyncio", "builtins", "functools", "holdfast", "types"})
"""The packages of what no class of a user's is: events, tasks, functions. They hold the loop, and that everything."""


def shape(value: object, depth: int = DEPTH) -> object:
    """Return what a value holds, as far as it is plain: attributes, lists, dicts and sets, and what is in these."""
    if depth == 0:
        return value
    if isinstance(value, list | tuple | deque):
        return [shape(one, depth - 1) for one in cast("list[object]", value)]
    if isinstance(value, dict):
        items = cast("dict[object, object]", value).items()
        return [(key, shape(one, depth - 1)) for key, one in items]
    if isinstance(value, set | frozenset):
        return list(cast("set[object]", value))
    if depth == DEPTH:
        slots = (name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()))
        names = dict.fromkeys((*getattr(value, "__dict__", ()), *slots))
        return [
            (name, shape(getattr(value, name, None), depth - 1))
            for name in names
            if not isinstance(getattr_static(type(value), name, None), cached_property)
        ]
    return value


def is_same(before: object, after: object) -> bool:
    """Whether two shapes are of the same, and not just of what is equal."""
    if isinstance(before, list | tuple) and isinstance(after, list | tuple):
        ours, theirs = cast("list[object]", before), cast("list[object]", after)
        return len(ours) == len(theirs) and all(map(is_same, ours, theirs))
    return before is after


def holdings(state: object) -> list[object] | None:
    """Return all that an object holds, however deep, by who it is or, of plain values, what; None if that is much."""
    found: list[object] = []
    seen: set[int] = set()
    left: list[object] = [state]
    while left:
        one = left.pop()
        if len(found) > _HELD_MAX:
            return None
        if one is None or isinstance(one, str | bytes | int | float | bool):
            found.append(one)
            continue
        found.append(id(one))
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, dict):
            items = cast("dict[object, object]", one).items()
            left += (part for item in items for part in item)
        elif isinstance(one, list | tuple | deque | set | frozenset):
            left += cast("list[object]", one)
        elif type(one).__module__.partition(".")[0] not in _NOT_THEIRS:
            left += (getattr(one, name, None) for name in _attributes(one))
    return found


def _attributes(value: object) -> list[str]:
    slots = (name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()))
    return list(dict.fromkeys((*getattr(value, "__dict__", ()), *slots)))
