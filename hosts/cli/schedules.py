"""The commands `holdfast schedule list`, `show` and `why`."""

import contextlib
import difflib
from collections.abc import Generator
from datetime import UTC, timedelta
from itertools import islice
from typing import Final

from rich.table import Table
from rich.text import Text

from holdfast.hosts.cli.backends import Backend
from holdfast.hosts.cli.console import (
    Screen,
    fact_table,
    format_length,
    heading,
    one_line,
    safe,
    status_text,
    table,
)
from holdfast.hosts.cli.engine_options import Target, engine_command, engine_options
from holdfast.hosts.cli.exit_codes import CliError, Exit
from holdfast.hosts.inspection.schedules import ScheduleInfo
from holdfast.hosts.text import counted
from holdfast.ports.errors import ScheduleNotFoundError

_INPUT_SHOWN: Final = 200
_NAMES_COMPARED: Final = 1_000
"""How many names are compared with one that does not exist."""


@contextlib.contextmanager
def similar_names(backend: Backend) -> Generator[None]:
    """Name schedules that are spelt similarly in the error about one that does not exist. Raises CliError."""
    try:
        yield
    except ScheduleNotFoundError as error:
        names = [one.name for one in islice(backend.api.schedules(), _NAMES_COMPARED)]
        close = difflib.get_close_matches(error.schedule, names, n=1)
        if not close:
            raise
        message = f"there is no schedule {error.schedule!r}; did you mean {close[0]!r}?"
        raise CliError(Exit.NOT_FOUND, error.code, message) from None


@engine_command("list", "[ENGINE]")
@engine_options
def list_command(*, screen: Screen, target: Target) -> None:
    """List schedules, with their state and their next time."""
    with target.backend() as (backend, _):
        found = list(backend.api.schedules())
    if screen.as_json:
        screen.data(found)
    elif not found:
        screen.note("No schedules.")
    else:
        counts = ("runs", "skipped", "missed")
        rows = table("name", "workflow", "state", "when", "next", *counts, right=counts, wraps=("when",))
        for one in found:
            rows.add_row(
                safe(one.name),
                safe(one.workflow),
                status_text(one.state),
                safe(", ".join(one.when)),
                "" if one.next_at is None else screen.instant(one.next_at),
                f"{one.runs_started:,}",
                f"{one.times_skipped:,}",
                f"{one.times_missed:,}",
            )
        screen.write(rows)


@engine_command("show", "[ENGINE] NAME", Exit.NOT_FOUND)
@engine_options
def show_command(*, screen: Screen, target: Target) -> None:
    """Show one schedule: its times and options, the outcomes of its last times, and who changed it."""
    with target.backend("NAME") as (backend, (name,)), similar_names(backend):
        info = backend.api.schedule(name).info()
        now = backend.now()
    if screen.as_json:
        screen.data(info)
        return
    screen.write(_facts(screen, info, now - info.created_at))
    if info.recent:
        screen.write("")
        screen.write(heading("Last times"))
        rows = table("time", "outcome", "kind", "run")
        for one in info.recent:
            rows.add_row(screen.instant(one.at), status_text(one.outcome), one.kind, safe(one.run_id or ""))
        screen.write(rows)
    if info.changes:
        screen.write("")
        screen.write(heading("Changes"))
        rows = table("at", "what", "by", "reason", wraps=("reason",))
        for change in info.changes:
            rows.add_row(
                screen.instant(change.at), change.change, safe(change.actor), one_line(change.reason)
            )
        screen.write(rows)


def _facts(screen: Screen, info: ScheduleInfo, age: timedelta) -> Table:
    rows = fact_table()
    rows.add_row("Schedule", Text(safe(info.name), style="bold"))
    rows.add_row("Workflow", safe(info.workflow))
    rows.add_row("Input", one_line(info.input, _INPUT_SHOWN))
    rows.add_row("When", Text("\n".join(map(safe, info.when))))
    rows.add_row("State", status_text(info.state))
    if info.problem is not None:
        rows.add_row("Problem", Text(one_line(info.problem, 1_000), style="red"))
    if info.paused_at is not None:
        by = f" by {info.paused_by}" if info.paused_by else ""
        why = f": {info.pause_reason}" if info.pause_reason else ""
        rows.add_row("Paused", safe(f"{screen.instant(info.paused_at)}{by}{why}"))
    if info.next_at is not None:
        rows.add_row("Next", screen.instant(info.next_at))
    rows.add_row("Overlap", info.overlap)
    within = "" if info.missed_within is None else f", late by {format_length(info.missed_within)} at most"
    rows.add_row("Missed times", f"{info.missed}{within}")
    if info.jitter:
        rows.add_row("Jitter", f"up to {format_length(info.jitter)}")
    if info.pause_after_failures is not None:
        failures = f", {info.failures:,} so far" if info.failures else ""
        limit = counted(info.pause_after_failures, "failure")
        rows.add_row("Pauses after", f"{limit} in a row{failures}")
    most = "" if info.max_runs is None else f" of {info.max_runs:,}"
    rows.add_row("Runs started", f"{info.runs_started:,}{most}")
    if info.times_skipped:
        rows.add_row("Times skipped", f"{info.times_skipped:,}")
    if info.times_missed:
        rows.add_row("Times missed", f"{info.times_missed:,}")
    rows.add_row("Made", "declared in code" if info.declared else "at run time")
    rows.add_row(
        "Created", f"{screen.instant(info.created_at)}  ({format_length(max(timedelta(), age))} ago)"
    )
    return rows


@engine_command("why", "[ENGINE] NAME", Exit.NOT_FOUND)
@engine_options
def why_command(*, screen: Screen, target: Target) -> None:
    """Explain what a schedule waits for: its next time, a pause, workers that are missing."""
    with target.backend("NAME") as (backend, (name,)), similar_names(backend):
        found = backend.schedule_reasons(name, UTC if screen.as_json else screen.zone)
    if screen.as_json:
        screen.data(found)
        return
    screen.write(Text.assemble("Schedule ", (safe(name), "bold"), " is ", status_text(found.state), "."))
    for reason in found.reasons:
        screen.write(Text(f"- {safe(reason.text)}"))
