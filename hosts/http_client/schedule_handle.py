"""The handle to one schedule of a server, for async code."""

from datetime import datetime
from typing import Literal

from holdfast.hosts.http.run_actions import Removed
from holdfast.hosts.http.schedule_operations import (
    Backfill,
    BackfilledRuns,
    NextQuery,
    NextTimes,
    ScheduleResumption,
    Trigger,
    TriggeredRun,
)
from holdfast.hosts.http_client.server import Server
from holdfast.hosts.http_client.starts import reason_of
from holdfast.hosts.inspection.schedules import ScheduleInfo, ScheduleReasons
from holdfast.hosts.inspection.why import WaitReason
from holdfast.kernel.authoring.schedules import OverlapName
from holdfast.kernel.commands.schedules import Overlap
from holdfast.ports.validation import AWARE, TRUTH, check, integer


class RemoteScheduleHandle:
    """A handle to one schedule of a server, for async code.

    `Client.schedule` returns it. Each method but `remove` raises ScheduleNotFoundError if the schedule does
    not exist.

    Attributes:
        name: The name of the schedule.
    """

    def __init__(self, server: Server, name: str) -> None:
        self._server = server
        self.name = name

    async def info(self) -> ScheduleInfo:
        """Return what the schedule is, when it fires next, and the outcomes of its last times."""
        return await self._server.call("schedule.get", ScheduleInfo, self._path())

    async def why(self) -> tuple[WaitReason, ...]:
        """Return why the schedule waits: its next time, a pause, workers that are missing, a skipped or missed time."""
        return (await self.reasons()).reasons

    async def reasons(self) -> ScheduleReasons:
        """Return what `why` returns, with the state of the schedule."""
        return await self._server.call("schedule.why", ScheduleReasons, self._path())

    async def next(self, count: int = 1, /) -> tuple[datetime, ...]:
        """Return the next nominal times from now on, aware, in UTC, as if the schedule were not paused.

        Args:
            count: How many, 1 to 1,000. There are fewer if the schedule ends.
        """
        check("next", integer(1, 1_000), count=count)
        query = NextQuery(count=count)
        return (await self._server.call("schedule.next", NextTimes, self._path(), query=query)).items

    async def pause(self, *, reason: str = "") -> None:
        """Pause the schedule: nothing starts until it is resumed. Runs that were started continue.

        Args:
            reason: Why, for people.
        """
        body = reason_of("pause", reason)
        await self._server.call("schedule.pause", ScheduleInfo, self._path(), body=body)

    async def resume(self, *, make_up: bool = False) -> None:
        """Resume the schedule.

        Args:
            make_up: Treat the times that passed during the pause as missed. By default they are left out.
        """
        check("resume", TRUTH, make_up=make_up)
        body = ScheduleResumption(make_up=make_up)
        await self._server.call("schedule.resume", ScheduleInfo, self._path(), body=body)

    async def trigger(self, *, overlap: OverlapName | None = None) -> TriggeredRun:
        """Start a run now, beside the plan. A paused schedule can be triggered, too.

        Args:
            overlap: What happens if runs of the schedule have not ended; as the schedule says if omitted.

        Returns:
            The `run_id`; None with overlap "skip" while another run, `skipped_for`, has not ended.

        Raises:
            UnknownWorkflowError: The server does not have the workflow.
        """
        body = Trigger(overlap=None if overlap is None else Overlap(overlap))
        return await self._server.call("schedule.trigger", TriggeredRun, self._path(), body=body)

    async def backfill(
        self,
        start: datetime,
        end: datetime,
        /,
        *,
        overlap: Literal["queue", "allow"] = "queue",
        dry_run: bool = False,
    ) -> tuple[str, ...]:
        """Start the runs of past nominal times that did not run yet. It may be repeated.

        Args:
            start: The first instant, aware.
            end: The range ends before this instant, aware. At most 10,000 nominal times are in the range.
            overlap: "queue": the runs start one after the other. "allow": all at once.
            dry_run: Start nothing, and return the ids of the runs that would be started.

        Returns:
            The ids of the runs that were started.

        Raises:
            InvalidArgumentError: The range is empty, in the future, or has too many nominal times.
            UnknownWorkflowError: The server does not have the workflow.
        """
        check("backfill", AWARE, start=start, end=end)
        check("backfill", TRUTH, dry_run=dry_run)
        body = Backfill(start=start, end=end, overlap=overlap, dry_run=dry_run)
        return (await self._server.call("schedule.backfill", BackfilledRuns, self._path(), body=body)).run_ids

    async def remove(self) -> bool:
        """Remove the schedule. Its runs stay. Return whether it existed."""
        return (await self._server.call("schedule.remove", Removed, self._path())).removed

    def _path(self) -> dict[str, str]:
        return {"name": self.name}
