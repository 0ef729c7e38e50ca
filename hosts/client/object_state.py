"""Snapshots of user objects, to detect a query that changes the object it reads."""

from collections import deque
from functools import cached_property
from inspect import getattr_static
from typing import Final, cast

DEPTH: Final = 4
"""How deep changes of nested lists, dicts and sets are detected."""
_HELD_MAX: Final = 5_000
"""How many parts of an object are compared at most."""
_NOT_THEIRS: Final = frozenset({"_asyncio", "anyio", "asyncio", "builtins", "functools", "holdfast", "types"})
"""Packages whose objects are not followed: events, tasks, functions.

These refer to the event loop, and through it to everything.
"""


def shape(value: object, depth: int = DEPTH) -> object:
    """Return the attributes of an object, with nested lists, dicts and sets copied down to `depth`."""
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
        return [
            (name, shape(getattr(value, name, None), depth - 1))
            for name in _attributes(value)
            if not isinstance(getattr_static(type(value), name, None), cached_property)
        ]
    return value


def is_same(before: object, after: object) -> bool:
    """Return whether two shapes have the same objects in the same places; equal objects are not enough."""
    if isinstance(before, list | tuple) and isinstance(after, list | tuple):
        ours, theirs = cast("list[object]", before), cast("list[object]", after)
        return len(ours) == len(theirs) and all(map(is_same, ours, theirs))
    return before is after


def holdings(state: object) -> list[object] | None:
    """Return the ids, and for plain values the values, of all parts of an object; None if there are too many."""
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
