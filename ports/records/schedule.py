"""Schedules: when runs of a workflow start, with which input, and the outcomes of the last nominal times."""

from typing import NamedTuple

from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen


class ScheduleName(NamedTuple):
    """The public name of a schedule. Sorts in the order in which schedules are listed."""

    namespace: str
    name: str


@frozen(kw_only=True)
class ScheduleRow:
    """A stored schedule.

    A nominal time is one at which the schedule is to start a run. The id of that run is made of the name and the
    nominal time, so the unique name of runs keeps any two hosts from starting it twice (docs/decisions/0081).
    """

    key: str
    namespace: str
    name: str
    workflow: str
    """The name of the workflow. Only hosts that have its code fire the schedule."""
    start: str
    """JSON text of the `run.create` command of each run, without its id."""
    timing: str
    """JSON text of the list of cron expressions and intervals, whose times together are the nominal times."""
    policy: str
    """JSON text of an object: what happens to overlapping and missed runs, and other options."""
    zones: str = ""
    """The version of the time zone data that `next_at` was computed with; empty if it depends on none."""
    next_at: Micros | None = None
    """The first nominal time after `handled_until`; None while the schedule is paused, can't fire, or is over."""
    handled_until: Micros
    """Nominal times up to this instant are handled: a run was started, or none had to be."""
    last_local: str | None = None
    """The local time of the last nominal time with its UTC offset, and its zone: `2026-10-25T02:30:00+02:00
    Europe/Paris`. A change of the zone's data does not repeat it."""
    started: int = 0
    """How many runs it has started."""
    skipped: int = 0
    """How many nominal times were skipped because of the overlap policy."""
    missed: int = 0
    """How many nominal times passed while no host fired the schedule, and were not made up for."""
    failures: int = 0
    """How many runs failed in a row, as far as the schedule looks at them."""
    recent: str = "[]"
    """JSON text of a list: the outcomes of the last nominal times, oldest first."""
    changes: str = "[]"
    """JSON text of a list: the last changes by operators, deploys and the policy, with who made them."""
    open_runs: str = "[]"
    """JSON text of a list: ids of runs that the schedule started, and that may not have ended."""
    paused: str | None = None
    """JSON text of an object: the time, the actor and the reason of its pause; None if it is not paused."""
    problem: str | None = None
    """Why it can't fire, such as an unknown time zone; None if it can."""
    declared: str | None = None
    """The fingerprint of its declaration in code; None if it was made at run time."""
    created_at: Micros
    updated_at: Micros

    @property
    def schedule_name(self) -> ScheduleName:
        """The name that users see."""
        return ScheduleName(self.namespace, self.name)
