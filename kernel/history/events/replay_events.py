"""Events that a replay of a durable function needs: what its timers, its clock and its code did."""

from typing import ClassVar

from typing_extensions import override

from holdfast.kernel.history.events.event import CallKind, HistoryEvent, Identity, LocatedCallEvent
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen


@frozen(kw_only=True)
class FunctionBegan(HistoryEvent):
    """A durable function started after messages or updates had arrived that were not stored with the run."""

    type: ClassVar[str] = "function.began"
    read_first: ClassVar[bool] = True
    recorded_first: ClassVar[bool] = True
    row: int
    """The number of the last of these messages and updates."""
    again: int | None = None
    """The number of the row that this one repeats, in a rerun."""

    @property
    @override
    def identity(self) -> Identity:
        return self.type, str(self.row), 1


@frozen(kw_only=True)
class ClockRead(HistoryEvent):
    """A durable function read its clock.

    Recorded if it had received a row more than a second late, or is suspended with nothing else recorded.
    """

    type: ClassVar[str] = "clock.read"
    read_first: ClassVar[bool] = True
    recorded_first: ClassVar[bool] = True
    row: int
    """The number of the last row that the function had received; 0: the start of the run."""
    shown: Micros | None
    """What its clock showed."""
    again: int | None = None
    """The number of the row that this one repeats, in a rerun."""

    @property
    @override
    def identity(self) -> Identity:
        return self.type, str(self.row), 1


@frozen(kw_only=True)
class PatchMarked(HistoryEvent):
    """A durable function reached a change of its code, through `holdfast.patched`, and uses it from here on."""

    type: ClassVar[str] = "patch.marked"
    read_first: ClassVar[bool] = True
    recorded_first: ClassVar[bool] = True
    call: str
    """The name of the patch."""
    again: int | None = None
    """The number of the row that this one repeats, in a rerun."""

    @property
    @override
    def identity(self) -> Identity:
        return self.type, self.call, 1


@frozen(kw_only=True)
class TimerFired(LocatedCallEvent):
    """A sleep or timeout of a durable function is over."""

    type: ClassVar[str] = "timer.fired"
    call_kind: ClassVar[CallKind | None] = "timer"
    reaches_function: ClassVar[bool] = True
    requested_by_code: ClassVar[bool] = True


@frozen(kw_only=True)
class ResultRefused(HistoryEvent):
    """A durable function ended, and the store will never accept its result.

    The function is driven again and fails, so that it compensates.
    """

    type: ClassVar[str] = "result.refused"
    requested_by_code: ClassVar[bool] = True
    read_first: ClassVar[bool] = True
    message: str
    """Why the store refuses it."""


@frozen(kw_only=True)
class HistoryLong(HistoryEvent):
    """The history of a durable function has reached 10,000 rows: it should end or continue as new."""

    type: ClassVar[str] = "run.history_long"
    most: int
    """The maximum number of rows."""
