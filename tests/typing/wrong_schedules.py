"""Schedules that must not type-check. A line that both checkers begin to accept is an error, for its comments say so.

This file is only read, never run.
"""

from datetime import timedelta

from holdfast import Cron, Every, Schedule
from holdfast.hosts.client.sync_schedule_handle import SyncScheduleHandle
from tests.typing.schedules import LOOKS, engine, plain, report

DAILY = Cron("@daily")

# the call
Schedule("x", report, when=DAILY)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Schedule("x", report(1), when=DAILY)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Schedule("x", LOOKS(1), when=DAILY)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Schedule("x", report("a"))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

# the times
Schedule("x", report("a"), when="@daily")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Schedule("x", report("a"), when=timedelta(days=1))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Cron("@daily", zone=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Cron("@daily", gap="later")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Every("1h")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

# the options
Schedule("x", report("a"), when=DAILY, overlap="sometimes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Schedule("x", report("a"), when=DAILY, missed=True)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Schedule("x", report("a"), when=DAILY, max_runs="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Schedule("x", report("a"), when=DAILY, id="y")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Schedule("x", report("a"), when=DAILY, start_at=None)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

# the engine and the handle
engine.sync.create_schedule("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def use(handle: SyncScheduleHandle) -> None:
    handle.trigger(overlap="never")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    handle.update("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    handle.backfill("2026-01-01", "2026-01-02")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    handle.name = plain  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
