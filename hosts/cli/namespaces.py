"""The commands `holdfast namespace create`, `list`, `show` and `delete`."""

import click
from rich.table import Table

from holdfast.hosts.cli.console import Screen, fact_table, one_line, safe, table
from holdfast.hosts.cli.engine_options import Target, engine_command, engine_options
from holdfast.hosts.cli.exit_codes import CliError, Exit
from holdfast.hosts.inspection.namespaces import NamespaceDetails, NamespaceInfo
from holdfast.hosts.text import counted
from holdfast.kernel.commands.namespaces import QUOTA_MAX

_QUOTA = click.IntRange(0, QUOTA_MAX)


@engine_command("create", "[ENGINE] NAME")
@click.option("--note", default="", metavar="TEXT", help="What it is for, for people.")
@click.option(
    "--max-active-runs",
    type=_QUOTA,
    metavar="N",
    help="How many of its runs may be active for a client to start another.  [default: any number]",
)
@click.option(
    "--max-starts-per-minute",
    type=_QUOTA,
    metavar="N",
    help="How many runs may start in it in a minute.  [default: any number]",
)
@engine_options
def create_command(
    *,
    screen: Screen,
    target: Target,
    note: str,
    max_active_runs: int | None,
    max_starts_per_minute: int | None,
) -> None:
    """Create a namespace, or replace the note and the quotas of one. Quotas hold everywhere within 15 seconds."""
    with target.backend("NAME") as (backend, (name,)):
        info = backend.api.namespaces.create(
            name,
            note=note,
            max_active_runs=max_active_runs,
            max_starts_per_minute=max_starts_per_minute,
        )
    screen.answer(info, _facts(screen, info))


@engine_command("list", "[ENGINE]")
@click.option("--after", metavar="NAME", help="Only the namespaces after this name.")
@click.option(
    "--limit", type=click.IntRange(1), default=100, show_default=True, help="At most so many namespaces."
)
@engine_options
def list_command(*, screen: Screen, target: Target, after: str | None, limit: int) -> None:
    """List the namespaces that were created or are in use.

    In use are those that have runs, schedules, triggers, sinks, topics or workers.
    """
    with target.backend() as (backend, _):
        found = list(backend.api.namespaces.list(after=after, limit=limit))
    if screen.as_json:
        screen.data(found)
        return
    if not found:
        screen.note("No namespace was created or is used.")
        return
    rows = table("name", "created", "quotas", "note", wraps=("note",))
    for one in found:
        created = "" if one.created_at is None else screen.instant(one.created_at)
        rows.add_row(safe(one.name), created, _quotas(one), one_line(one.note))
    screen.write(rows)
    if len(found) == limit:
        screen.note(f"There may be more: --after {found[-1].name}")


@engine_command("show", "[ENGINE] NAME")
@engine_options
def show_command(*, screen: Screen, target: Target) -> None:
    """Show a namespace, and count what it has, at most 10,000 of a kind. It need not have been created."""
    with target.backend("NAME") as (backend, (name,)):
        info = backend.api.namespaces.describe(name)
    facts = _facts(screen, info)
    facts.add_row("runs", _runs(info) or "none")
    since = "" if info.waiting_since is None else f", the first since {screen.instant(info.waiting_since)}"
    facts.add_row("jobs", f"{info.queued:,} queued{since}; {info.running:,} running")
    parts = (
        (info.workers, "worker"),
        (info.schedules, "schedule"),
        (info.triggers, "trigger"),
        (info.sinks, "sink"),
        (info.topics, "topic"),
        (info.messages, "message"),
        (info.groups, "group"),
        (info.subscriptions, "subscription"),
    )
    facts.add_row("has", ", ".join(counted(number, what) for number, what in parts))
    if info.is_partial:
        facts.add_row("", "there are more than were counted")
    screen.answer(info, facts)


@engine_command("delete", "[ENGINE] NAME", Exit.NOT_FOUND, Exit.REFUSED)
@click.option(
    "--purge",
    is_flag=True,
    help="First remove its schedules, triggers, sinks and topics, and end and remove all of its runs, without"
    " cleanup.",
)
@click.option(
    "--yes", is_flag=True, help="With --purge: act. Without it, what would be removed is only shown."
)
@engine_options
def delete_command(*, screen: Screen, target: Target, purge: bool, yes: bool) -> None:
    """Delete a namespace. Refused while it has runs, schedules, triggers, sinks or topics, unless it is purged."""
    if yes and not purge:
        raise click.UsageError("--yes needs --purge")
    with target.backend("NAME") as (backend, (name,)):
        if purge and not yes:
            info = backend.api.namespaces.describe(name)
            parts = (
                (info.schedules, "schedule"),
                (info.triggers, "trigger"),
                (info.sinks, "sink"),
                (info.topics, "topic"),
            )
            others = ", ".join(counted(number, what) for number, what in parts)
            text = (
                f"{name} has {_runs(info) or 'no runs'}; {others}. Repeat with --yes to remove them for good."
            )
            screen.answer({"name": name, "deleted": False}, safe(text))
            return
        deleted = backend.api.namespaces.delete(name, purge=purge)
    if not deleted:
        raise CliError(Exit.NOT_FOUND, "not_found", f"there is no namespace {name!r}")
    screen.answer({"name": name, "deleted": True}, f"{name} was deleted")


def _facts(screen: Screen, info: NamespaceInfo) -> Table:
    facts = fact_table()
    facts.add_row("name", safe(info.name))
    facts.add_row("created", "no, only used" if info.created_at is None else screen.instant(info.created_at))
    facts.add_row("quotas", _quotas(info) or "none")
    if info.note:
        facts.add_row("note", safe(info.note))
    return facts


def _quotas(info: NamespaceInfo) -> str:
    parts = (
        (info.max_active_runs, "active runs"),
        (info.max_starts_per_minute, "starts a minute"),
    )
    return ", ".join(f"{number:,} {what}" for number, what in parts if number is not None)


def _runs(info: NamespaceDetails) -> str:
    return ", ".join(f"{number:,} {status.value}" for status, number in sorted(info.runs.items()))
