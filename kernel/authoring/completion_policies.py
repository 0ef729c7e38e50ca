"""Completion policies of maps: how many items may fail, and the `PartialResults` output of the others."""

from typing import Generic

import attrs

from holdfast.kernel.authoring.nodes import Out
from holdfast.kernel.authoring.options import SHARE, validator_of
from holdfast.kernel.pipelines.plan import Enough
from holdfast.ports.errors import DefinitionError
from holdfast.ports.validation import integer


@attrs.frozen
class AtLeast:
    """A map completes when `count` items have completed: `map(resize, enough=AtLeast(20))`.

    The other items are abandoned. It fails once that many items can't complete any more.

    Raises:
        DefinitionError: `count` is not an integer of at least 1.
    """

    count: int = attrs.field(validator=validator_of("AtLeast", integer(1)))


@attrs.frozen(kw_only=True)
class TolerateFailures:
    """A map tries every item, and tolerates failures: `map(resize, enough=TolerateFailures(share=0.1))`.

    `count` items may fail, or that `share` of all items, whichever is more.

    Raises:
        DefinitionError: `count` is negative, or `share` is not between 0 and 1.
    """

    count: int = attrs.field(default=0, validator=validator_of("TolerateFailures", integer(0)))
    share: float = attrs.field(default=0.0, validator=validator_of("TolerateFailures", SHARE))


@attrs.frozen
class ItemFailure:
    """A failed map item."""

    index: int
    """Index of the item, from 0."""
    error: str
    """Why it failed, in one line."""


@attrs.frozen
class PartialResults(Generic[Out]):
    """The output of a map with a completion policy.

    Attributes:
        results: Outputs of the completed items, in the order of the items.
        failures: The failed items, in the same order. Abandoned items are in neither.
    """

    results: tuple[Out, ...]
    failures: tuple[ItemFailure, ...]


def enough_of(policy: object, where: str) -> Enough | None:
    """Return a policy as data of the plan; None for None. DefinitionError if it is something else."""
    match policy:
        case None:
            return None
        case AtLeast():
            return Enough(at_least=policy.count)
        case TolerateFailures():
            return Enough(tolerated=policy.count, share=float(policy.share))
        case _:
            raise DefinitionError(
                f"{where}: enough is {policy!r}; it must be AtLeast(...) or TolerateFailures(...)"
            )
