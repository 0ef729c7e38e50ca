"""The JSON texts in the rows of schedules and triggers, and in the rows of the runs that a schedule starts."""

from collections.abc import Sequence
from functools import cache
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast

import cattrs

from holdfast.kernel.calendars.documents import spec_from_document, spec_to_document
from holdfast.kernel.calendars.specs import Spec
from holdfast.kernel.commands.runs import RunCreate
from holdfast.kernel.commands.schedules import SchedulePolicy, StartKind
from holdfast.kernel.converters import strict_converter
from holdfast.ports.actors import Actor
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.json import canonical, parse
from holdfast.ports.records.schedule import ScheduleRow
from holdfast.ports.records.trigger import TriggerRow
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import evolve, frozen
from holdfast.ports.unreadable import PARSE_ERRORS

T = TypeVar("T")
Changed = TypeVar("Changed", ScheduleRow, TriggerRow)

RECENT_MAX: Final = 20
"""How many outcomes, and how many changes, a row keeps."""
OPEN_RUNS_MAX: Final = 100
"""How many runs that have not ended a row keeps."""
SPECS_MAX: Final = 50

Outcome: TypeAlias = Literal["started", "skipped", "existing", "superseded"]


@frozen(kw_only=True)
class NominalOutcome:
    """The outcome of a nominal time."""

    at: Micros
    """The nominal time; of a triggered run, when it was triggered."""
    handled_at: Micros
    """When it was handled."""
    outcome: Outcome
    """A run was started; none because of the overlap policy; its run existed; a later time of the same firing came
    instead."""
    kind: StartKind
    run: str | None = None
    """The id of the run that was started or existed, or because of which none was started."""


@frozen(kw_only=True)
class OperatorChange:
    """A change of a schedule or a trigger by an operator, a deploy or a policy."""

    at: Micros
    change: str
    """`created`, `updated`, `paused`, `resumed` or `triggered`."""
    actor: Actor | None = None
    reason: str = ""


@frozen(kw_only=True)
class Pause:
    """Why a schedule or a trigger is paused."""

    since: Micros
    actor: Actor | None = None
    reason: str = ""
    by_failures: bool = False
    """Whether `pause_after_failures` paused it."""


@frozen(kw_only=True)
class ScheduledStart:
    """Which schedule started a run, and for which nominal time. Stored with the run."""

    schedule: str
    at: Micros
    """The nominal time; of a triggered run, when it was triggered."""
    zone: str
    """The time zone of the nominal time."""
    offset: int
    """The offset of the zone from UTC at that time, in seconds."""
    previous: Micros | None = None
    """The nominal time of the run that the schedule started before; None if this is the first."""
    kind: StartKind


@cache
def _converter() -> cattrs.Converter:
    return strict_converter(forbid_extra_keys=False, detailed_validation=False, omit_defaults=True)


def text_of(value: object) -> str:
    """Return a value, or a sequence of values, of the classes above as JSON text."""
    return canonical(_converter().unstructure(value))


def value_of(text: str, kind: type[T]) -> T:
    """Return the value of a JSON text. Raises one of PARSE_ERRORS."""
    data: Any = parse(text)
    if not isinstance(data, dict):
        raise TypeError(f"expected an object, got {text[:80]}")
    return _converter().structure(data, kind)


def values_of(text: str, kind: type[T]) -> tuple[T, ...]:
    """Return the values of a JSON text of a list; none if it can't be read: these lists only inform."""
    try:
        return tuple(_converter().structure(one, kind) for one in parse(text))
    except (*PARSE_ERRORS, cattrs.BaseValidationError):
        return ()


def specs_of(timing: str) -> tuple[Spec, ...]:
    """Return the cron expressions and intervals of a JSON text. Raises one of PARSE_ERRORS, or DefinitionError."""
    data: Any = parse(timing)
    listed = cast("list[object]", data) if isinstance(data, list) else []
    if not 1 <= len(listed) <= SPECS_MAX:
        raise ValueError(f"timing is not a list of 1 to {SPECS_MAX} cron expressions and intervals")
    return tuple(map(spec_from_document, listed))


def timing_of(specs: Sequence[Spec]) -> str:
    """Return cron expressions and intervals as JSON text."""
    return canonical([spec_to_document(spec) for spec in specs])


def start_text(start: RunCreate) -> str:
    """Return the command that starts each run as the row of a schedule or a trigger has it.

    Without the version of the workflow: a host that fires starts the version that it uses for new runs.
    """
    return text_of(evolve(start, actor=None, version=None))


def start_of(row: ScheduleRow | TriggerRow) -> RunCreate:
    """Return the command that starts each run, without its id. Raises one of PARSE_ERRORS, or InvalidCommandError."""
    return value_of(row.start, RunCreate)


def with_change(row: Changed, change: str, now: Micros, actor: Actor | None, reason: str = "") -> Changed:
    """Return a row with a change added to those that it keeps."""
    changes = (
        *values_of(row.changes, OperatorChange),
        OperatorChange(at=now, change=change, actor=actor, reason=reason),
    )
    return evolve(row, changes=text_of(changes[-RECENT_MAX:]))


def policy_of(row: ScheduleRow) -> SchedulePolicy:
    """Return the policy of a schedule. Raises one of PARSE_ERRORS, or InvalidCommandError."""
    return value_of(row.policy, SchedulePolicy)


def is_over(row: ScheduleRow) -> bool:
    """Whether a schedule has started as many runs as it may."""
    most = policy_of(row).runs_max
    return most is not None and row.started >= most


def pause_of(row: ScheduleRow | TriggerRow) -> Pause | None:
    """Return why a schedule or a trigger is paused; None if it is not."""
    if row.paused is None:
        return None
    try:
        return value_of(row.paused, Pause)
    except PARSE_ERRORS:
        return Pause(since=row.updated_at)


def scheduled_start(text: str | None) -> ScheduledStart | None:
    """Return which schedule started a run, of the text in its row; None if none did. Raises InvalidCommandError."""
    if text is None:
        return None
    try:
        return value_of(text, ScheduledStart)
    except PARSE_ERRORS as error:
        raise InvalidCommandError(
            f"scheduled is {text[:100]!r}, which is not the start of a schedule"
        ) from error
