"""Requests of a durable function that its driver has not executed or recorded yet."""

import attrs

from holdfast.kernel.functions.protocol import (
    ChildRequest,
    CloseRequest,
    NotifyRequest,
    Published,
    SkippedMessage,
    StepRequest,
    UpdateOutcome,
)
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen


@frozen(kw_only=True)
class StepAttempt:
    """The next attempt of a step."""

    request: StepRequest
    number: int = 1
    """The number of the attempt, from 1, lost ones included."""
    at: Micros | None = None
    """When it may start; None for now."""
    run: str | None = None
    """The key of the generation that made the first attempt; None if there was none."""
    max_attempts: int | None = None
    """The maximum number of attempts; None for that of the step's retry policy."""
    lost_attempts: int = 0
    """How many attempts before were lost with their workers."""
    is_restarted: bool = False
    """Whether the start of an attempt that follows a lost one is recorded, so that it may start."""

    @property
    def counted(self) -> int:
        """The number of the attempt, without lost ones."""
        return self.number - self.lost_attempts


@attrs.define(eq=False)
class PendingWork:
    """The pending work of one function. A waiting function usually has none, and then drops this object to save memory.

    Attributes:
        new: Inline steps that the driver has not fetched yet.
        dropped: Calls that the function no longer waits for and that the driver has not fetched yet.
        tries: The next attempt of each step that was attempted.
        children: Child runs to start, messages and cancellations to send to them, and channels to close.
        patches: Patches that are active in this run and not recorded yet.
        answers: Results of updates that are not recorded yet.
        refused: Messages that could not be decoded, by row number, where the refusal is not recorded yet.
        published: Published values that are not recorded yet, by name.
        shown: Recorded clock readings: the time that the clock showed, by row number; 0 for the start of the function.
        read: Clock readings that are not recorded yet.
        read_in_time: The last clock reading that needs no row, unless the function is parked before anything else is
            recorded.
        began: The last row of the messages that the function started with, if that is not recorded yet.
    """

    new: list[StepRequest] = attrs.field(factory=list[StepRequest])
    dropped: list[str] = attrs.field(factory=list[str])
    tries: dict[str, StepAttempt] = attrs.field(factory=dict[str, StepAttempt])
    children: dict[str, ChildRequest | NotifyRequest | CloseRequest] = attrs.field(
        factory=dict[str, ChildRequest | NotifyRequest | CloseRequest]
    )
    patches: dict[str, None] = attrs.field(factory=dict[str, None])
    answers: dict[str, UpdateOutcome] = attrs.field(factory=dict[str, UpdateOutcome])
    refused: dict[int, SkippedMessage] = attrs.field(factory=dict[int, SkippedMessage])
    published: dict[str, Published] = attrs.field(factory=dict[str, Published])
    shown: dict[int, Micros] = attrs.field(factory=dict[int, Micros])
    read: dict[int, Micros] = attrs.field(factory=dict[int, Micros])
    read_in_time: dict[int, Micros] = attrs.field(factory=dict[int, Micros])
    began: int | None = None

    def __bool__(self) -> bool:
        steps = self.new or self.dropped or self.tries
        notes = self.patches or self.read or self.refused
        return bool(steps or self.children or self.answers or self.published or notes)
