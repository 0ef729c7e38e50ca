"""What can stand in a plan."""

from typing import Generic, Never, TypeAlias

import attrs
from typing_extensions import TypeVar

R = TypeVar("R")
# Named without _co and _contra: users read these names in their type errors.
In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)


@attrs.frozen(kw_only=True, eq=False)
class Node(Generic[In, Out]):
    """What can stand in a plan: it takes an `In` and gives an `Out`.

    Attributes:
        name: What it is called in the plan, in the history and in dashboards.
        input_type: The `In`, as an annotation.
        output_type: The `Out`, as an annotation.
    """

    name: str
    input_type: object
    output_type: object


AnyNode: TypeAlias = Node[Never, R]
"""A node that gives an `R`, whatever it takes."""
