"""The commands `holdfast queue list`, `pause` and `resume`."""

import click
from rich.text import Text

from holdfast.hosts.cli.console import Screen, fact_table, safe, table
from holdfast.hosts.cli.engine_options import Target, engine_command, engine_options
from holdfast.hosts.cli.limits import who_text
from holdfast.hosts.inspection.limits import LimitInfo
from holdfast.hosts.inspection.workers import QueueInfo
from holdfast.hosts.text import counted
from holdfast.ports.queries.limits import COUNTED_MAX


@engine_command("list", "[ENGINE]")
@engine_options
def list_command(*, screen: Screen, target: Target) -> None:
    """List the queues that have jobs, are served by a live worker, or are paused, and the code that no worker serves.

    At most 10,000 jobs of a queue, code and state are counted.
    """
    with target.backend() as (backend, _):
        found = backend.api.queues()
    if screen.as_json:
        screen.data(list(found))
        return
    if not found:
        screen.note("No queue has jobs, is served by a live worker, or is paused.")
        return
    numbers = ("queued", "running", "sleeping", "workers", "slots")
    rows = table(
        "name",
        "state",
        *numbers,
        "waiting since",
        "no live worker has",
        right=numbers,
        wraps=("no live worker has",),
    )
    for one in found:
        rows.add_row(
            safe(one.name),
            Text("paused", style="yellow") if one.is_paused else Text("open"),
            _count(one.queued, one),
            _count(one.running, one),
            _count(one.sleeping, one),
            f"{one.workers:,}",
            f"{one.slots:,}",
            "" if one.waiting_since is None else screen.instant(one.waiting_since),
            safe(", ".join(f"{code.definition} ({counted(code.queued, 'job')})" for code in one.unserved)),
        )
    screen.write(rows)


def _count(number: int, queue: QueueInfo) -> str:
    return f"{number:,}{'+' if queue.is_partial and number >= COUNTED_MAX else ''}"


@engine_command("pause", "[ENGINE] NAME")
@click.option("--reason", default="", metavar="TEXT", help="Your reason, for people.")
@engine_options
def pause_command(*, screen: Screen, target: Target, reason: str) -> None:
    """Pause a queue: nothing is claimed from it until it is resumed. What runs continues."""
    with target.backend("NAME") as (backend, (name,)):
        info = backend.api.limits.set(f"queue:{name}", paused=True, reason=reason)
    _answer(screen, info)


@engine_command("resume", "[ENGINE] NAME")
@click.option("--reason", default="", metavar="TEXT", help="Your reason, for people.")
@engine_options
def resume_command(*, screen: Screen, target: Target, reason: str) -> None:
    """Resume a paused queue. Does nothing if it is not paused."""
    with target.backend("NAME") as (backend, (name,)):
        info = backend.api.limits.clear(f"queue:{name}", reason=reason)
    _answer(screen, info)


def _answer(screen: Screen, info: LimitInfo) -> None:
    facts = fact_table()
    facts.add_row("name", safe(info.name.removeprefix("queue:")))
    facts.add_row("state", "paused" if info.is_paused else "open")
    facts.add_row("running", f"{info.under_way:,}")
    facts.add_row("queued", f"{info.waiting:,}")
    if info.set_at is not None:
        facts.add_row("paused" if info.is_paused else "resumed", safe(who_text(screen, info)))
    screen.answer(info, facts)
