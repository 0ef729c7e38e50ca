"""The commands that act on schedules: `holdfast schedule pause`, `resume`, `trigger`, `backfill`, `remove`, `apply`."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final, Literal

import click
from rich.text import Text

from holdfast.hosts.cli.backends import Backend, StoreBackend
from holdfast.hosts.cli.console import Screen, safe, status_text
from holdfast.hosts.cli.engine_options import Target, engine_command, engine_options, store_options
from holdfast.hosts.cli.exit_codes import CliError, Exit
from holdfast.hosts.cli.filter_options import instant_of, moment
from holdfast.hosts.cli.schedules import similar_names
from holdfast.hosts.client.schedules import AppliedSchedule
from holdfast.hosts.inspection.schedules import ScheduleInfo
from holdfast.hosts.text import counted
from holdfast.kernel.authoring.schedules import OverlapName
from holdfast.kernel.commands import Overlap, SchedulePause, ScheduleResume
from holdfast.ports.errors import ScheduleNotFoundError

OVERLAPS: Final = tuple(one.value for one in Overlap)


@engine_command("pause", "[ENGINE] NAME", Exit.NOT_FOUND)
@click.option("--reason", default="", metavar="TEXT", help="Your reason, for people.")
@engine_options
def pause_command(*, screen: Screen, target: Target, reason: str) -> None:
    """Pause a schedule: nothing starts until it is resumed. Runs that were started continue."""
    with target.backend("NAME") as (backend, (name,)), similar_names(backend):
        command = SchedulePause(namespace=backend.namespace, schedule=name, reason=reason)
        is_changed = backend.dispatch(command).changed
        info = backend.api.schedule(name).info()
    _print_state(screen, info, is_changed=is_changed)


@engine_command("resume", "[ENGINE] NAME", Exit.NOT_FOUND)
@click.option(
    "--make-up",
    is_flag=True,
    help="Treat the times that passed during the pause as missed. By default they are left out.",
)
@engine_options
def resume_command(*, screen: Screen, target: Target, make_up: bool) -> None:
    """Resume a paused schedule."""
    with target.backend("NAME") as (backend, (name,)), similar_names(backend):
        command = ScheduleResume(namespace=backend.namespace, schedule=name, make_up=make_up)
        is_changed = backend.dispatch(command).changed
        info = backend.api.schedule(name).info()
    _print_state(screen, info, is_changed=is_changed)


def _print_state(screen: Screen, info: ScheduleInfo, *, is_changed: bool) -> None:
    already = "" if is_changed else "already "
    text = Text.assemble(safe(info.name), f" is {already}", status_text(info.state))
    text.append(next_text(screen, info))
    screen.answer(info, text)


def next_text(screen: Screen, info: ScheduleInfo) -> str:
    """Return when a schedule fires next, as the end of a sentence; "" if it does not."""
    return "" if info.next_at is None else f"; its next time is {screen.instant(info.next_at)}"


@engine_command("trigger", "[ENGINE] NAME", Exit.NOT_FOUND, Exit.REFUSED)
@click.option(
    "--overlap",
    type=click.Choice(OVERLAPS),
    help="What happens if runs of the schedule have not ended.  [default: as the schedule says]",
)
@engine_options
def trigger_command(*, screen: Screen, target: Target, overlap: OverlapName | None) -> None:
    """Start a run of a schedule now, beside its plan, and print its id.

    A paused schedule can be triggered, too. Refused if a run has not ended and the overlap is skip. Needs the
    workflow's code.
    """
    spec, (name,) = target.split("NAME")
    with _with_code(target, spec, "schedule trigger") as backend, similar_names(backend):
        started = backend.api.schedule(name).trigger(overlap=overlap)
    if started.run_id is None:
        raise CliError(
            Exit.REFUSED,
            "schedule_skipped",
            f"nothing was started: run {started.skipped_for!r} has not ended, and overlap is skip; pass another one, "
            "such as --overlap allow",
        )
    screen.answer({"run_id": started.run_id, "skipped_for": None}, safe(started.run_id))


@engine_command("backfill", "[ENGINE] NAME", Exit.NOT_FOUND)
@click.option(
    "--from",
    "start",
    type=moment,
    required=True,
    metavar="TIME",
    help="The first time: 2026-11-21T08:00Z, 2026-11-21, or an age such as 90m or 7d.",
)
@click.option("--to", "end", type=moment, metavar="TIME", help="End before this time.  [default: now]")
@click.option(
    "--overlap",
    type=click.Choice(["queue", "allow"]),
    default="queue",
    help="Start the runs one after the other, or all at once.  [default: queue]",
)
@click.option("--dry-run", is_flag=True, help="Start nothing, and list what would be started.")
@engine_options
def backfill_command(
    *,
    screen: Screen,
    target: Target,
    start: datetime | timedelta,
    end: datetime | timedelta | None,
    overlap: Literal["queue", "allow"],
    dry_run: bool,
) -> None:
    """Start the runs of past times that have none, and print their ids.

    It may be repeated: what has run does not run again. The runs yield to other runs of their queue. Needs the
    workflow's code, except with --dry-run.
    """
    spec, (name,) = target.split("NAME")
    opened = target.backend_at(spec) if dry_run else _with_code(target, spec, "schedule backfill")
    with opened as backend, similar_names(backend):
        now = backend.trusted_now()
        begin = instant_of(start, now, utc=screen.zone is not None) or now
        until = instant_of(end, now, utc=screen.zone is not None) or now
        runs = backend.api.schedule(name).backfill(begin, until, overlap=overlap, dry_run=dry_run)
    if screen.as_json:
        screen.data({"name": name, "dry_run": dry_run, "runs": runs})
        return
    for run_id in runs:
        screen.write(safe(run_id))
    verb = "would be started" if dry_run else "started"
    screen.note(f"{counted(len(runs), 'run')} {verb}.")


@contextmanager
def _with_code(target: Target, spec: str | None, command: str) -> Generator[Backend]:
    """Open a server, which has the code, or an engine with it. UsageError for the URL of a store."""
    if target.server_at(spec) is not None:
        with target.backend_at(spec) as found:
            yield found
        return
    with target.engine_with_code(spec, command) as engine:
        yield StoreBackend(engine)


@engine_command("remove", "[ENGINE] NAME", Exit.NOT_FOUND)
@engine_options
def remove_command(*, screen: Screen, target: Target) -> None:
    """Remove a schedule. Its runs stay."""
    with target.backend("NAME") as (backend, (name,)), similar_names(backend):
        handle = backend.api.schedule(name)
        is_declared = handle.info().declared
        if not handle.remove():
            raise ScheduleNotFoundError(name)
    screen.answer({"name": name, "removed": True}, f"{safe(name)} was removed")
    if is_declared:
        note_declared(screen)


def note_declared(screen: Screen) -> None:
    """Remark that a schedule which was changed is declared in code."""
    screen.note("Code declares this schedule. Change it there too, or a deploy may put it back.")


@engine_command("apply", "[ENGINE]", Exit.NOT_FOUND)
@click.option(
    "--prune/--no-prune",
    default=True,
    help="Remove declared schedules of the engine's workflows that it does not declare any more, or keep them."
    "  [default: prune]",
)
@click.option("--dry-run", is_flag=True, help="Change nothing, and show what would change.")
@store_options
def apply_command(*, screen: Screen, target: Target, prune: bool, dry_run: bool) -> None:
    """Create and update the schedules that the code of an engine declares, and remove those that it has dropped.

    Workers whose engine has migrate=True, which is the default, do this when they start, and so does
    `holdfast db upgrade ENGINE`. Schedules that were created at run time stay.
    """
    spec, _ = target.split()
    with target.engine_with_code(spec, "schedule apply") as engine:
        if not engine.sync.declares_schedules:
            raise click.UsageError(
                "the engine declares no schedules: Engine.open(..., schedules=[...]); with schedules=[] those that it "
                "declared before are removed"
            )
        applied = engine.sync.apply_schedules(prune=prune, dry_run=dry_run)
    if screen.as_json:
        screen.data(applied)
    else:
        print_applied(screen, applied, dry_run=dry_run)


def print_applied(screen: Screen, applied: Sequence[AppliedSchedule], *, dry_run: bool = False) -> None:
    """Print the outcome for each declared schedule, for people."""
    for one in applied:
        be = "would be " if dry_run and one.change != "unchanged" else ""
        screen.write(f"{safe(one.name)}: {be}{one.change}")
    if not applied:
        screen.note("No schedules are declared.")
