"""How starts of a workflow are gathered into one run, as part of its plan."""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, cast

import attrs

from holdfast.ports.structs import frozen

Keep: TypeAlias = Literal["first", "last", "all"]
"""Whose input the function gets."""

GATHERED_MAX: Final = 10_000
"""How many starts one run gathers at most: then it begins."""
GATHERED_BYTES_MAX: Final = 4 * 1024 * 1024
"""Up to which length of their inputs together, in bytes, one run gathers starts: with that many it begins."""


@frozen(kw_only=True)
class GatherPlan:
    """How starts are gathered. Times are in microseconds."""

    within_us: int
    """How long after its first start the run begins at the latest."""
    quiet_us: int | None = None
    """It begins when there was no start for so long; None: `within_us` after its first start."""
    by: str | None = None
    """An attribute: starts with each of its texts are gathered separately; None: all starts together."""
    most: int | None = None
    """With so many starts, it begins at once; None: with `GATHERED_MAX`."""
    keep: Keep = "last"
    split: bool = False
    """Whether the result is a list with one element for each item of the joined list, and starts get their parts."""

    @property
    def starts_max(self) -> int:
        """With how many starts a run begins at once."""
        return GATHERED_MAX if self.most is None else min(self.most, GATHERED_MAX)

    def to_data(self) -> dict[str, object]:
        """Return the plan as JSON data, without fields that have their default."""
        return cast(
            "dict[str, object]", attrs.asdict(self, filter=lambda field, value: value != field.default)
        )


def gather_from(data: object) -> GatherPlan | None:
    """Return the plan with this JSON data; None for None."""
    return None if data is None else GatherPlan(**cast("Mapping[str, Any]", data))
