"""The base class of the parts of a pipeline."""

from typing import Generic, Never, TypeAlias

import attrs
from typing_extensions import TypeVar

R = TypeVar("R")
# Named without _co and _contra: users read these names in their type errors.
In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)


@attrs.frozen(kw_only=True, eq=False)
class PlanNode(Generic[In, Out]):
    """A part of a pipeline: a stage, or a stage mapped with `each`. It takes an `In` and returns an `Out`.

    Attributes:
        name: Its name in the plan, in the history and in dashboards.
        input_type: The type `In`, as an annotation.
        output_type: The type `Out`, as an annotation.
    """

    name: str
    input_type: object
    output_type: object


AnyNode: TypeAlias = PlanNode[Never, R]
"""A node that returns an `R`, with any input type."""
