"""The runs that a schedule started and that may not have ended: its overlap policy depends on them."""

from typing import Final, cast

from holdfast.kernel.commands.schedules import Overlap, SchedulePolicy
from holdfast.kernel.schedules.row_data import OPEN_RUNS_MAX, policy_of, text_of
from holdfast.ports.errors import HoldfastError
from holdfast.ports.json import parse
from holdfast.ports.records.schedule import ScheduleRow
from holdfast.ports.unreadable import PARSE_ERRORS

ENDING: Final = frozenset({Overlap.QUEUE_ONE, Overlap.CANCEL, Overlap.TERMINATE})
"""Policies under which a later run takes the place of an earlier one: of several times, only the last is started."""
DEPENDING: Final = ENDING | {Overlap.SKIP}
"""Policies that depend on runs under way. Under `queue`, the slot that runs share decides."""


def has_open_runs(policy: SchedulePolicy) -> bool:
    """Whether a schedule with this policy keeps the runs that may not have ended."""
    return policy.overlap in DEPENDING or policy.pause_after_failures is not None


def ends_open_runs(row: ScheduleRow) -> bool:
    """Whether a schedule may end runs that it started before. If its policy can't be read, it starts and ends none."""
    try:
        return policy_of(row).overlap in ENDING
    except (HoldfastError, *PARSE_ERRORS):
        return False


def open_run_ids(row: ScheduleRow) -> tuple[str, ...]:
    """Return the ids of the runs that may not have ended, oldest first; none if the policy does not depend on them."""
    try:
        if not has_open_runs(policy_of(row)):
            return ()
        found: object = parse(row.open_runs)
    except (HoldfastError, *PARSE_ERRORS):
        return ()
    ids = cast("list[object]", found) if isinstance(found, list) else []
    return tuple(one for one in ids if isinstance(one, str))


def open_runs_text(runs: list[str]) -> str:
    """Return ids as `ScheduleRow.open_runs` has them. Beyond `OPEN_RUNS_MAX`, the oldest are left out."""
    return text_of(runs[-OPEN_RUNS_MAX:])
