"""What a function has asked for, and is yet to be done or recorded by whoever drives it."""

import attrs

from holdfast.kernel.functions.protocol import (
    Answered,
    ChildRequest,
    CloseRequest,
    NotifyRequest,
    Published,
    Refused,
    StepRequest,
)
from holdfast.ports.records import Micros
from holdfast.ports.structs import frozen


@frozen(kw_only=True)
class Try:
    """A step that is to be done: for the how-manieth time, of at `most` so many if that is said, not before `at`.

    `run` is the key of the generation in which it was tried first, if it was. `lost_attempts` of the tries before were
    lost with their workers. One that was lost begins again once that is recorded: then it `is_begun`.
    """

    request: StepRequest
    number: int = 1
    at: Micros | None = None
    run: str | None = None
    most: int | None = None
    lost_attempts: int = 0
    is_begun: bool = False

    @property
    def counted(self) -> int:
        """Which try it is of those that were not lost."""
        return self.number - self.lost_attempts


@attrs.define(eq=False)
class Todo:
    """What is to be done. While a function rests there mostly is nothing, and then this takes no room either.

    Attributes:
        new: Steps that are to be done here, and that nobody has been told of yet.
        dropped: Calls in which nobody is interested any more, as far as nobody has been told.
        tries: The next try of each step that has been tried.
        children: The runs that the function has asked for, and that are not there yet; what others are to be told; and
            the channels that are to be closed.
        patches: What the function was told that its run has, which is not recorded yet.
        answers: What has come of updates, and is not recorded yet.
        refused: The messages that it was not given, of which that is not recorded yet: by the numbers of their rows.
        published: What the function shows by now, of which not even this is recorded: by name.
        shown: What its clock showed, and was read, when it was told rows: by their numbers, 0 as it began.
        read: What of that is not recorded yet.
        read_in_time: Where it was read last, and nothing was late: it is recorded if nothing else is before a rest.
        began: The last row of the messages that were there when the function began, if that is not recorded yet.
    """

    new: list[StepRequest] = attrs.field(factory=list[StepRequest])
    dropped: list[str] = attrs.field(factory=list[str])
    tries: dict[str, Try] = attrs.field(factory=dict[str, Try])
    children: dict[str, ChildRequest | NotifyRequest | CloseRequest] = attrs.field(
        factory=dict[str, ChildRequest | NotifyRequest | CloseRequest]
    )
    patches: dict[str, None] = attrs.field(factory=dict[str, None])
    answers: dict[str, Answered] = attrs.field(factory=dict[str, Answered])
    refused: dict[int, Refused] = attrs.field(factory=dict[int, Refused])
    published: dict[str, Published] = attrs.field(factory=dict[str, Published])
    shown: dict[int, Micros] = attrs.field(factory=dict[int, Micros])
    read: dict[int, Micros] = attrs.field(factory=dict[int, Micros])
    read_in_time: dict[int, Micros] = attrs.field(factory=dict[int, Micros])
    began: int | None = None

    def __bool__(self) -> bool:
        steps = self.new or self.dropped or self.tries
        notes = self.patches or self.read or self.refused
        return bool(steps or self.children or self.answers or self.published or notes)
