"""Commands on schedules and their replies: store, fire, pause, resume, trigger, backfill, remove, plan again."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, ClassVar, Final, Literal

import attrs

from holdfast.kernel.commands.command import Command, OperatorCommand
from holdfast.kernel.commands.follow_ups import WithFollowUp
from holdfast.kernel.commands.runs import RunCreate
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen

FIRE_LIMIT: Final = 100
"""How many runs one command starts at most."""
_DAY: Final[Micros] = 86_400_000_000
WINDOW_MAX: Final[Micros] = 366 * _DAY
JITTER_MAX: Final[Micros] = 7 * _DAY
COUNT_MAX: Final = 1_000_000_000
FAILURES_MAX: Final = 100


class Overlap(StrEnum):
    """What a schedule does at a nominal time while runs that it started before have not ended."""

    SKIP = "skip"
    """It starts no run."""
    QUEUE = "queue"
    """The new run waits until the others have ended."""
    QUEUE_ONE = "queue_one"
    """The new run waits, and takes the place of another one that waits."""
    CANCEL = "cancel"
    """It cancels the others; the new run waits until they have cleaned up."""
    TERMINATE = "terminate"
    """It terminates the others; the new run starts at once."""
    ALLOW = "allow"
    """The new run starts beside them."""


class Missed(StrEnum):
    """What a schedule does with nominal times that passed while no host fired it."""

    LAST = "last"
    """It starts a run for the last of them."""
    ALL = "all"
    """It starts a run for each of them, oldest first."""
    NONE = "none"
    """It starts none, unless the last one is late by no more than the window."""


class StartKind(StrEnum):
    """Why a schedule started a run."""

    DUE = "due"
    """Its nominal time had come."""
    MADE_UP = "made_up"
    """Its nominal time had been missed, see `Missed`."""
    BACKFILL = "backfill"
    """A backfill covered its nominal time."""
    MANUAL = "manual"
    """It was triggered by hand."""


def _bound(least: int, most: int, unit: str = "") -> Callable[[object, Any, int | None], None]:
    def check(_: object, field: "attrs.Attribute[Any]", value: int | None) -> None:
        if value is not None and not least <= value <= most:
            raise InvalidCommandError(f"{field.name} is {value}; it must be from {least} to {most}{unit}")

    return check


@frozen(kw_only=True)
class SchedulePolicy:
    """What a schedule does about overlaps and missed times, and when it stops."""

    overlap: Overlap = Overlap.SKIP
    missed: Missed = Missed.LAST
    window: Micros | None = attrs.field(default=None, validator=_bound(0, WINDOW_MAX, " microseconds"))
    """How late a missed time may be to be made up for. None: any for `last`, a day for `all`, 5 minutes for `none`."""
    jitter: Micros = attrs.field(default=0, validator=_bound(0, JITTER_MAX, " microseconds"))
    """A run starts up to this long after its nominal time; by how much follows from the schedule and that time."""
    pause_after_failures: int | None = attrs.field(default=None, validator=_bound(1, FAILURES_MAX))
    """Pause once so many runs in a row have failed."""
    runs_max: int | None = attrs.field(default=None, validator=_bound(1, COUNT_MAX))
    """Stop after so many runs."""


@frozen(kw_only=True)
class ScheduleStored:
    """Reply to `SchedulePut`, `SchedulePause` and `ScheduleResume`."""

    schedule: str
    created: bool = False
    """Whether the command created the schedule."""
    changed: bool
    """Whether the command changed anything."""
    next_at: Micros | None = None
    """The next nominal time; None while the schedule is paused, can't fire, or is over."""


@frozen(kw_only=True)
class SchedulePut(OperatorCommand[ScheduleStored]):
    """Command to create or update a schedule.

    A change of `timing` counts from now: nothing that was planned before fires, and nothing fires twice. A paused
    schedule stays paused. Errors: ScheduleExistsError; UnknownWorkflowError; InvalidCommandError for a field that is
    out of range, and times that never come.
    """

    type: ClassVar[Literal["schedule.put"]] = "schedule.put"
    schedule: str
    """Name, of 1 to 200 characters."""
    start: RunCreate
    """The start of each run, without an id, a start time and an idempotency key. Its input is stored inline."""
    timing: str
    """JSON text of a list of cron expressions and intervals."""
    policy: SchedulePolicy = SchedulePolicy()
    if_exists: Literal["error", "update"] = "error"
    """What to do if the schedule exists: refuse, or update it."""
    declared: str | None = None
    """Fingerprint of the declaration in code. An update with the stored one changes nothing, unless the schedule can't
    fire; one without a fingerprint keeps it, so the declaration does not undo it."""


@frozen(kw_only=True)
class SchedulesFired(WithFollowUp):
    """Reply to `ScheduleFire`."""

    runs: tuple[str, ...] = ()
    """Ids of the runs that were started."""
    skipped: int = 0
    """How many nominal times were skipped because of the overlap policy."""
    missed: int = 0
    """How many nominal times were missed and not made up for."""
    next_at: Micros | None = None
    """The next nominal time of all schedules of these workflows; None if no schedule has one."""
    more: bool = False
    """Whether the same command may start more runs now."""


@frozen(kw_only=True)
class ScheduleFire(Command[SchedulesFired]):
    """Command to start the runs that are due by schedules of the namespace.

    Each run and the progress of its schedule are stored in one transaction. Any host may send it as often as it likes.
    """

    type: ClassVar[Literal["schedule.fire"]] = "schedule.fire"
    workflows: tuple[str, ...]
    """The workflows whose code the host has: only their schedules fire."""
    limit: int = attrs.field(default=FIRE_LIMIT, validator=_bound(0, 1_000))
    """Most schedules, and most runs."""


@frozen(kw_only=True)
class SchedulePause(OperatorCommand[ScheduleStored]):
    """Command to pause a schedule: nothing fires until it is resumed. Errors: ScheduleNotFoundError."""

    type: ClassVar[Literal["schedule.pause"]] = "schedule.pause"
    schedule: str
    reason: str = ""
    """Why, for people."""


@frozen(kw_only=True)
class ScheduleResume(OperatorCommand[ScheduleStored]):
    """Command to resume a schedule that is paused, or that could not fire. Errors: ScheduleNotFoundError."""

    type: ClassVar[Literal["schedule.resume"]] = "schedule.resume"
    schedule: str
    make_up: bool = False
    """Whether the times that passed during the pause count as missed; else they are left out."""


@frozen(kw_only=True)
class ScheduleStarted(WithFollowUp):
    """Reply to `ScheduleTrigger`."""

    run_id: str | None
    """Id of the run; None if the overlap policy started none."""
    skipped_for: str | None = None
    """Id of the run because of which none was started."""


@frozen(kw_only=True)
class ScheduleTrigger(OperatorCommand[ScheduleStarted]):
    """Command to start a run of a schedule now, beside its plan. A paused schedule can be triggered, too.

    Errors: ScheduleNotFoundError; UnknownWorkflowError.
    """

    type: ClassVar[Literal["schedule.trigger"]] = "schedule.trigger"
    schedule: str
    overlap: Overlap | None = None
    """None: that of the schedule."""


@frozen(kw_only=True)
class ScheduleBackfilled(WithFollowUp):
    """Reply to `ScheduleBackfill`."""

    runs: tuple[str, ...] = ()
    """Ids of the runs that were started."""
    existing: int = 0
    """How many of the times had their run already."""


@frozen(kw_only=True)
class ScheduleBackfill(OperatorCommand[ScheduleBackfilled]):
    """Command to start the runs of past nominal times that have none.

    Errors: ScheduleNotFoundError; UnknownWorkflowError; InvalidCommandError for a time that is no nominal time of the
    schedule or is in the future, and for more than 100 times.
    """

    type: ClassVar[Literal["schedule.backfill"]] = "schedule.backfill"
    schedule: str
    times: tuple[Micros, ...]
    """The nominal times, ascending."""
    overlap: Literal["queue", "allow"] = "queue"
    """Whether the runs start one after the other, or all at once."""


@frozen(kw_only=True)
class ScheduleRemoved:
    """Reply to `ScheduleRemove`."""

    removed: bool
    """Whether the schedule existed."""


@frozen(kw_only=True)
class ScheduleRemove(OperatorCommand[ScheduleRemoved]):
    """Command to remove a schedule. Its runs stay."""

    type: ClassVar[Literal["schedule.remove"]] = "schedule.remove"
    is_kept: ClassVar[bool] = False
    schedule: str
    declared: str | None = None
    """Do nothing unless this is the stored fingerprint of its declaration."""


@frozen(kw_only=True)
class SchedulesReplanned:
    """Reply to `ScheduleReplan`."""

    replanned: int
    """How many schedules were planned with this host's time zone data."""
    moved: tuple[str, ...] = ()
    """Names of the schedules whose next nominal time has changed."""
    next: str | None = None
    """The `after` of the next command; None at the end."""


@frozen(kw_only=True)
class ScheduleReplan(Command[SchedulesReplanned]):
    """Command to plan schedules again that were planned with older time zone data than this host's."""

    type: ClassVar[Literal["schedule.replan"]] = "schedule.replan"
    workflows: tuple[str, ...]
    """The workflows whose code the host has."""
    version: str
    """The version of the host's time zone data."""
    after: str = ""
    """Key to continue from: `next` of the previous reply."""
    limit: int = attrs.field(default=FIRE_LIMIT, validator=_bound(1, 1_000))
