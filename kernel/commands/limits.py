"""Commands that change limits and pause queues while the system runs, and their replies."""

from collections.abc import Callable
from typing import ClassVar, Final, Literal

import attrs

from holdfast.kernel.commands.command import OperatorCommand
from holdfast.kernel.commands.follow_ups import WithFollowUp
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen

SLOTS_MAX: Final = 1_000_000
RATE_MAX: Final = 1_000_000
_MILLISECOND: Final[Micros] = 1_000
_DAY: Final[Micros] = 86_400_000_000


def _from(least: int, most: int) -> Callable[[object, "attrs.Attribute[int | None]", int | None], None]:
    def check(_: object, field: "attrs.Attribute[int | None]", value: int | None) -> None:
        if value is not None and not least <= value <= most:
            raise InvalidCommandError(f"{field.name} is {value}; it must be from {least:,} to {most:,}")

    return check


@frozen(kw_only=True)
class LimitStored(WithFollowUp):
    """Reply to `LimitSet` and `LimitClear`."""

    name: str
    """Name of the limit as it is stored."""
    changed: bool
    """Whether the command changed anything."""
    next: str | None = None
    """The `after` of the same command, which releases more of what waits; None: nothing more."""


@frozen(kw_only=True)
class LimitSet(OperatorCommand[LimitStored]):
    """Command to set a limit in place of that of plans, or to pause or unpause a queue.

    It holds at once, also for what waits already, and interrupts nothing. What is not given stays as it was set. A
    limit that the plan of a stage or step does not have is not added. Errors: InvalidCommandError for a name of no
    known kind, for values that its kind does not have or that are out of range, and if no value is given.
    """

    type: ClassVar[Literal["limit.set"]] = "limit.set"
    name: str
    """`run:<concurrency key>`, `run-rate:<name>`, `stage:<workflow>/<stage>`, `step:<step>`, `slots:<name>`,
    `rate:<name>` or `queue:<queue>`.

    After a stage, a step or a rate, `/<text>` names the line of one text of the attribute that its rate goes by."""
    slots: int | None = attrs.field(default=None, validator=_from(0, SLOTS_MAX))
    """How many may be under way; 0 admits nothing more. Of runs, stages and steps."""
    rate_limit: int | None = attrs.field(default=None, validator=_from(1, RATE_MAX))
    """How many may start in any span of `rate_period`. Of stages, steps and rates; of starts of runs, in units."""
    rate_period: Micros | None = attrs.field(default=None, validator=_from(_MILLISECOND, _DAY))
    """Microseconds, from a millisecond to a day."""
    paused: bool | None = None
    """Whether nothing is claimed from the queue."""
    reason: str = ""
    """Why, for people."""
    after: str = ""
    """Position from which to release more: `next` of the previous reply."""
    limit: int = 500
    """Most jobs that are read."""


@frozen(kw_only=True)
class LimitClear(OperatorCommand[LimitStored]):
    """Command to clear what was set for a limit or a queue, so that plans decide again. Errors: InvalidCommandError.

    One that is not set stays as it is.
    """

    type: ClassVar[Literal["limit.clear"]] = "limit.clear"
    name: str
    """As in `LimitSet`."""
    reason: str = ""
    """Why, for people."""
    after: str = ""
    """As in `LimitSet`."""
    limit: int = 500
    """Most jobs that are read."""
