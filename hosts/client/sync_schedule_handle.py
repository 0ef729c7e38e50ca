"""The handle to one schedule, for synchronous code."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal

from holdfast.hosts.client.client import Client
from holdfast.hosts.client.schedules import SCHEDULE, put_command
from holdfast.hosts.inspection.run_info import newest_runs
from holdfast.hosts.inspection.schedules import (
    ScheduleInfo,
    next_times,
    read_schedule,
    schedule_info,
    schedule_reasons,
)
from holdfast.hosts.inspection.why import WaitReason
from holdfast.kernel.authoring.schedules import OverlapName, Schedule
from holdfast.kernel.calendars.occurrences import occurrences
from holdfast.kernel.commands import (
    Overlap,
    ScheduleBackfill,
    SchedulePause,
    ScheduleRemove,
    ScheduleResume,
    ScheduleStarted,
    ScheduleTrigger,
)
from holdfast.kernel.commands.schedules import FIRE_LIMIT
from holdfast.kernel.schedules.timetable import run_id_of, timetable_of
from holdfast.ports.actors import Actor
from holdfast.ports.clock import micros
from holdfast.ports.errors import InvalidArgumentError
from holdfast.ports.structs import evolve
from holdfast.ports.validation import AWARE, TEXT, TRUTH, Wanted, check, integer

BACKFILL_MAX: Final = 10_000
"""How many nominal times a backfill covers at most."""
NEXT_MAX: Final = 1_000
_OVERLAP: Final = Wanted(
    "one of 'skip', 'queue', 'queue_one', 'cancel', 'terminate', 'allow', or None",
    lambda value: value is None or value in {one.value for one in Overlap},
)
_BACKFILL: Final = Wanted("'queue' or 'allow'", lambda value: value in {"queue", "allow"})


class SyncScheduleHandle:
    """A handle to one schedule, for synchronous code.

    `Engine.schedule` and `Engine.create_schedule` return handles. Each method but `remove` raises
    ScheduleNotFoundError if the schedule does not exist. All raise UnavailableError if the store can't be reached.

    Attributes:
        name: The name of the schedule.
    """

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._core = client.core
        self.name = name

    def info(self) -> ScheduleInfo:
        """Return what the schedule is, when it fires next, and the outcomes of its last times."""
        return schedule_info(read_schedule(self._core, self.name))

    def why(self) -> tuple[WaitReason, ...]:
        """Return why the schedule waits: its next time, a pause, workers that are missing, a skipped or missed time."""
        return schedule_reasons(self._core, read_schedule(self._core, self.name)).reasons

    def next(self, count: int = 1, /) -> tuple[datetime, ...]:
        """Return the next nominal times from now on, aware, in UTC, as if the schedule were not paused.

        Args:
            count: How many, 1 to 1,000. There are fewer if the schedule ends.
        """
        check("next", integer(1, NEXT_MAX), count=count)
        return next_times(self._core, read_schedule(self._core, self.name), count)

    def pause(self, *, reason: str = "", actor: Actor | None = None) -> None:
        """Pause the schedule: nothing starts until it is resumed. Runs that were started continue.

        Args:
            reason: Why, for people.
            actor: Who issues the command; the engine's actor if omitted (see `Engine.acting_as`).
        """
        check("pause", TEXT, reason=reason)
        self._client.acting_as(actor).dispatch(
            SchedulePause(namespace=self._core.namespace, schedule=self.name, reason=reason)
        )

    def resume(self, *, make_up: bool = False, actor: Actor | None = None) -> None:
        """Resume the schedule.

        Args:
            make_up: Treat the times that passed during the pause as missed, so that `missed` decides about them. By
                default they are left out.
            actor: Who issues the command; the engine's actor if omitted (see `Engine.acting_as`).
        """
        check("resume", TRUTH, make_up=make_up)
        self._client.acting_as(actor).dispatch(
            ScheduleResume(namespace=self._core.namespace, schedule=self.name, make_up=make_up)
        )

    def trigger(self, *, overlap: OverlapName | None = None, actor: Actor | None = None) -> ScheduleStarted:
        """Start a run now, beside the plan. A paused schedule can be triggered, too.

        Args:
            overlap: What happens if runs of the schedule have not ended; as the schedule says if omitted.
            actor: Who issues the command; the engine's actor if omitted (see `Engine.acting_as`).

        Returns:
            The `run_id`; None with overlap "skip" while another run, `skipped_for`, has not ended.

        Raises:
            UnknownWorkflowError: The engine does not have the workflow.
        """
        check("trigger", _OVERLAP, overlap=overlap)
        command = ScheduleTrigger(
            namespace=self._core.namespace,
            schedule=self.name,
            overlap=None if overlap is None else Overlap(overlap),
        )
        return self._client.acting_as(actor).dispatch(command)

    def backfill(
        self,
        start: datetime,
        end: datetime,
        /,
        *,
        overlap: Literal["queue", "allow"] = "queue",
        dry_run: bool = False,
        actor: Actor | None = None,
    ) -> tuple[str, ...]:
        """Start the runs of past nominal times that have none. They yield to other runs of their queue.

        It may be repeated: what has run does not run again.

        Args:
            start: The first instant, aware.
            end: The range ends before this instant, aware. At most 10,000 nominal times are in the range.
            overlap: "queue": the runs start one after the other. "allow": all at once.
            dry_run: Start nothing, and return the ids of the runs that would be started.
            actor: Who issues the command; the engine's actor if omitted (see `Engine.acting_as`).

        Returns:
            The ids of the runs that were started.

        Raises:
            InvalidArgumentError: The range is empty, in the future, or has too many nominal times.
            UnknownWorkflowError: The engine does not have the workflow.
        """
        check("backfill", AWARE, start=start, end=end)
        check("backfill", _BACKFILL, overlap=overlap)
        check("backfill", TRUTH, dry_run=dry_run)
        times = self._times(start, end)
        if dry_run:
            return self._without_run(times)
        runs: list[str] = []
        client = self._client.acting_as(actor)
        for first in range(0, len(times), FIRE_LIMIT):
            command = ScheduleBackfill(
                namespace=self._core.namespace,
                schedule=self.name,
                times=tuple(times[first : first + FIRE_LIMIT]),
                overlap=overlap,
            )
            runs += client.dispatch(command).runs
        return tuple(runs)

    def _without_run(self, times: Sequence[int]) -> tuple[str, ...]:
        """Return the ids of the runs for these times that do not exist."""
        ids = [run_id_of(self.name, at) for at in times]
        pages = (ids[first : first + FIRE_LIMIT] for first in range(0, len(ids), FIRE_LIMIT))
        known = {run_id for page in pages for run_id in newest_runs(self._core, page)}
        return tuple(run_id for run_id in ids if run_id not in known)

    def _times(self, start: datetime, end: datetime) -> list[int]:
        row = read_schedule(self._core, self.name)
        now = self._core.trusted_now()
        if start >= end:
            raise InvalidArgumentError("end", f"backfill: end is {end}; it must be after start, {start}")
        if micros(end) > now + 1:
            raise InvalidArgumentError("end", f"backfill: end is {end}; it must not be in the future")
        table = timetable_of(row.timing, self._core.stores.zones)
        found = occurrences(
            table.specs,
            table.zones,
            after=micros(start) - 1,
            until=micros(end) - 1,
            limit=BACKFILL_MAX + 1,
        )
        if len(found) > BACKFILL_MAX:
            raise InvalidArgumentError(
                "end",
                f"backfill: the range has more than {BACKFILL_MAX:,} nominal times; backfill a shorter one first",
            )
        return [one.at for one in found]

    def update(self, schedule: Schedule[object], /, *, actor: Actor | None = None) -> None:
        """Replace the schedule. What was counted, and a pause, stay.

        A change of its times counts from now: nothing that was planned before starts, and nothing starts twice.

        Args:
            schedule: The new schedule, of the same name.
            actor: Who issues the command; the engine's actor if omitted (see `Engine.acting_as`).

        Raises:
            InvalidArgumentError: `schedule` has another name, or is not a schedule.
            UnknownWorkflowError: The engine does not have the workflow.
            InvalidCommandError: The schedule never fires after now, or its input is too long.
        """
        check("update", SCHEDULE, schedule=schedule)
        if schedule.name != self.name:
            raise InvalidArgumentError(
                "schedule",
                f"update: the schedule is named {schedule.name!r}, and this is the handle of {self.name!r}",
            )
        read_schedule(self._core, self.name)
        put = put_command(self._core, schedule)
        self._client.acting_as(actor).dispatch(evolve(put, if_exists="update"))

    def remove(self, *, actor: Actor | None = None) -> bool:
        """Remove the schedule. Its runs stay. Return whether it existed.

        Args:
            actor: Who issues the command, for the log; the engine's actor if omitted (see `Engine.acting_as`).
        """
        command = ScheduleRemove(namespace=self._core.namespace, schedule=self.name)
        return self._client.acting_as(actor).dispatch(command).removed
