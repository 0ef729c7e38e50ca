"""The command `holdfast worker list`."""

import click

from holdfast.hosts.cli.console import Screen, safe, status_text, table
from holdfast.hosts.cli.engine_options import Target, engine_command, engine_options
from holdfast.hosts.inspection.workers import HELD_SHOWN, HeldWork, WorkerInfo
from holdfast.hosts.text import counted
from holdfast.ports.records.job import step_of

_NAMED = 3


@engine_command("list", "[ENGINE]")
@click.option("--after", metavar="SESSION", help="Only the workers after this one, by session.")
@click.option(
    "--limit", type=click.IntRange(1), default=100, show_default=True, help="At most so many workers."
)
@engine_options
def list_command(*, screen: Screen, target: Target, after: str | None, limit: int) -> None:
    """List the workers of the namespace, what code and queues they have, and what they hold.

    One that has died is listed until it is reaped, soon after its lease has expired.
    """
    with target.backend() as (backend, _):
        found = list(backend.api.workers(after=after, limit=limit))
    if screen.as_json:
        screen.data(found)
        return
    if not found:
        screen.note("No worker is live.")
        return
    wrapping = ("queues", "code", "holds")
    rows = table("name", "host", "state", "last seen", "queues", "code", "holds", wraps=wrapping)
    for one in found:
        rows.add_row(
            safe(one.name),
            safe(one.host),
            status_text("live" if one.is_live else "expired"),
            screen.instant(one.renewed_at),
            safe(", ".join(one.queues)),
            safe(_code_text(one)),
            safe(_held_text(one)),
        )
    screen.write(rows)
    if len(found) == limit:
        screen.note(f"There may be more: --after {found[-1].session}")


def _code_text(one: WorkerInfo) -> str:
    more = ("and more",) if one.has_more else ()
    return ", ".join((*one.definitions, *more))


def _held_text(one: WorkerInfo) -> str:
    held = [_work_text(work) for work in one.holds[:_NAMED]]
    if (left := len(one.holds) - len(held)) > 0:
        held.append(f"and {left} more")
    how_many = (
        f"{len(one.holds)}{'+' if len(one.holds) == HELD_SHOWN else ''} of {counted(one.slots, 'slot')}"
    )
    return f"{how_many}: {', '.join(held)}" if held else how_many


def _work_text(work: HeldWork) -> str:
    item = "" if work.item is None else f"[{work.item}]"
    return f"{work.run_id} {step_of(work.definition) or work.node}{item}"
