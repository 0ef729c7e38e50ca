"""When a map is done although not all of its items are, and what it gives then."""

from typing import Generic

import attrs

from holdfast.kernel.authoring.nodes import Out
from holdfast.kernel.pipelines.plan import Enough
from holdfast.ports.errors import DefinitionError


def _is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _some(_: object, __: object, value: int) -> None:
    if not _is_count(value, 1):
        raise DefinitionError(f"AtLeast: count is {value!r}; it must be an integer of at least 1")


def _not_negative(_: object, __: object, value: object) -> None:
    if not _is_count(value, 0):
        raise DefinitionError(f"Tolerate: count is {value!r}; it must be an integer of at least 0")


def _share(_: object, __: object, value: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        raise DefinitionError(f"Tolerate: share is {value!r}; it must be a number from 0 to 1")


@attrs.frozen
class AtLeast:
    """Enough items have been done when `count` have: the others are given up. The map fails if that can't be.

    Raises:
        DefinitionError: `count` is not an integer of at least 1.
    """

    count: int = attrs.field(validator=_some)


@attrs.frozen(kw_only=True)
class Tolerate:
    """Every item is tried, and so many may fail: `count` of them, or that `share` of all, whichever is more.

    Raises:
        DefinitionError: `count` is negative, or `share` is not between 0 and 1.
    """

    count: int = attrs.field(default=0, validator=_not_negative)
    share: float = attrs.field(default=0.0, validator=_share)


@attrs.frozen
class ItemFailure:
    """An item of a map that failed: its `index` among the items, and why, in a line."""

    index: int
    error: str


@attrs.frozen
class Partial(Generic[Out]):
    """What a map gives that may lose items.

    Attributes:
        results: What was given for the items that were done, in their order.
        failures: The items that failed, in their order. Those that were given up are in neither.
    """

    results: tuple[Out, ...]
    failures: tuple[ItemFailure, ...]


def enough_of(policy: object, where: str) -> Enough | None:
    """Return what a plan says of a policy; None if there is none. DefinitionError if it is something else."""
    match policy:
        case None:
            return None
        case AtLeast():
            return Enough(at_least=policy.count)
        case Tolerate():
            return Enough(tolerated=policy.count, share=float(policy.share))
        case _:
            raise DefinitionError(f"{where}: enough is {policy!r}; it must be AtLeast(...) or Tolerate(...)")
