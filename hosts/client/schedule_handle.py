# Generated from hosts/client/sync_schedule_handle.py by `python -m tools.async_facade`. Do not edit.
"""The handle to one schedule, for async code. Each method calls `SyncScheduleHandle` in a thread."""

from datetime import datetime
from typing import Literal

from holdfast.hosts.client.sync_schedule_handle import SyncScheduleHandle
from holdfast.hosts.execution.threads import in_thread
from holdfast.hosts.inspection.schedules import ScheduleInfo
from holdfast.hosts.inspection.why import WaitReason
from holdfast.kernel.authoring.schedules import OverlapName, Schedule
from holdfast.kernel.commands import ScheduleStarted
from holdfast.ports.actors import Actor


class ScheduleHandle:
    """A handle to one schedule, for async code.

    `Engine.schedule` and `Engine.create_schedule` return handles. Each method but `remove` raises
    ScheduleNotFoundError if the schedule does not exist. All raise UnavailableError if the store can't be reached.

    Attributes:
        name: The name of the schedule.
    """

    def __init__(self, sync: SyncScheduleHandle) -> None:
        self._sync = sync
        self.name = sync.name

    async def info(self) -> ScheduleInfo:
        """Return what the schedule is, when it fires next, and the outcomes of its last times."""
        return await in_thread(self._sync.info)

    async def why(self) -> tuple[WaitReason, ...]:
        """Return why the schedule waits: its next time, a pause, workers that are missing, a skipped or missed time."""
        return await in_thread(self._sync.why)

    async def next(self, count: int = 1, /) -> tuple[datetime, ...]:
        """Return the next nominal times from now on, aware, in UTC, as if the schedule were not paused.

        Args:
            count: How many, 1 to 1,000. There are fewer if the schedule ends.
        """
        return await in_thread(lambda: self._sync.next(count))

    async def pause(self, *, reason: str = "", actor: Actor | None = None) -> None:
        """Pause the schedule: nothing starts until it is resumed. Runs that were started continue.

        Args:
            reason: Why, for people.
            actor: Who issues the command; the engine's actor if omitted (see `Engine.acting_as`).
        """
        return await in_thread(lambda: self._sync.pause(reason=reason, actor=actor))

    async def resume(self, *, make_up: bool = False, actor: Actor | None = None) -> None:
        """Resume the schedule.

        Args:
            make_up: Treat the times that passed during the pause as missed, so that `missed` decides about them. By
                default they are left out.
            actor: Who issues the command; the engine's actor if omitted (see `Engine.acting_as`).
        """
        return await in_thread(lambda: self._sync.resume(make_up=make_up, actor=actor))

    async def trigger(
        self, *, overlap: OverlapName | None = None, actor: Actor | None = None
    ) -> ScheduleStarted:
        """Start a run now, beside the plan. A paused schedule can be triggered, too.

        Args:
            overlap: What happens if runs of the schedule have not ended; as the schedule says if omitted.
            actor: Who issues the command; the engine's actor if omitted (see `Engine.acting_as`).

        Returns:
            The `run_id`; None with overlap "skip" while another run, `skipped_for`, has not ended.

        Raises:
            UnknownWorkflowError: The engine does not have the workflow.
        """
        return await in_thread(lambda: self._sync.trigger(overlap=overlap, actor=actor))

    async def backfill(
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
        return await in_thread(
            lambda: self._sync.backfill(start, end, overlap=overlap, dry_run=dry_run, actor=actor)
        )

    async def update(self, schedule: Schedule[object], /, *, actor: Actor | None = None) -> None:
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
        return await in_thread(lambda: self._sync.update(schedule, actor=actor))

    async def remove(self, *, actor: Actor | None = None) -> bool:
        """Remove the schedule. Its runs stay. Return whether it existed.

        Args:
            actor: Who issues the command, for the log; the engine's actor if omitted (see `Engine.acting_as`).
        """
        return await in_thread(lambda: self._sync.remove(actor=actor))
