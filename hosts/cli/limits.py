"""The commands `holdfast limit list`, `show`, `set` and `clear`."""

from datetime import timedelta

import click
from rich.text import Text

from holdfast.hosts.cli.console import Screen, fact_table, format_length, safe, table
from holdfast.hosts.cli.engine_options import Target, engine_command, engine_options
from holdfast.hosts.cli.filter_options import length
from holdfast.hosts.inspection.limits import LimitInfo
from holdfast.hosts.text import counted
from holdfast.kernel.authoring.options import Rate
from holdfast.ports.errors import DefinitionError


def rate(text: str) -> Rate:
    """Parse a rate, such as `300/1m`. Raises BadParameter."""
    number, slash, period = text.partition("/")
    if not slash or not (number.isascii() and number.isdigit()):
        raise click.BadParameter(f"{text!r} is not a rate: write 300/1m, 10/30s or 1000/1h")
    try:
        return Rate(int(number), per=length(period))
    except DefinitionError as error:
        raise click.BadParameter(str(error)) from None


@engine_command("list", "[ENGINE]")
@engine_options
def list_command(*, screen: Screen, target: Target) -> None:
    """List what is set for limits and queues, and the limits for which something waits."""
    with target.backend() as (backend, _):
        found = backend.api.limits.list()
    if screen.as_json:
        screen.data(list(found))
    elif not found:
        screen.note("No limits are set, and nothing waits for one.")
    else:
        numbers = ("under way", "waiting")
        rows = table("name", "limit", "plan", *numbers, "since", "set by", right=numbers, wraps=("set by",))
        for one in found:
            since = "" if one.waiting_since is None else screen.instant(one.waiting_since)
            rows.add_row(
                safe(one.name),
                limit_text(one),
                planned_text(one),
                f"{one.under_way:,}",
                f"{one.waiting:,}",
                since,
                safe(who_text(screen, one)) if one.is_set else "",
            )
        screen.write(rows)


@engine_command("show", "[ENGINE] NAME")
@engine_options
def show_command(*, screen: Screen, target: Target) -> None:
    """Show one limit or queue: what is in force, the limits of plans, what is under way and what waits.

    NAME is run:KEY, run-rate:NAME, stage:WORKFLOW/STAGE, step:STEP, slots:NAME, rate:NAME or queue:QUEUE.
    """
    with target.backend("NAME") as (backend, (name,)):
        _answer(screen, backend.api.limits.get(name))


@engine_command("set", "[ENGINE] NAME")
@click.option(
    "--slots", type=click.IntRange(0), metavar="N", help="How many may be under way; 0: nothing more."
)
@click.option("--rate", type=rate, metavar="N/PERIOD", help="How many may start in a period: 300/1m.")
@click.option("--paused/--unpaused", default=None, help="Whether nothing is claimed from the queue.")
@click.option("--reason", default="", metavar="TEXT", help="Your reason, for people.")
@engine_options
def set_command(
    *, screen: Screen, target: Target, slots: int | None, rate: Rate | None, paused: bool | None, reason: str
) -> None:
    """Set a limit in place of that of the code, or pause a queue. It holds at once, and interrupts nothing.

    NAME is run:KEY, run-rate:NAME, stage:WORKFLOW/STAGE, step:STEP, slots:NAME, rate:NAME or queue:QUEUE.
    """
    with target.backend("NAME") as (backend, (name,)):
        info = backend.api.limits.set(name, slots=slots, rate=rate, paused=paused, reason=reason)
    _answer(screen, info)


@engine_command("clear", "[ENGINE] NAME")
@click.option("--reason", default="", metavar="TEXT", help="Your reason, for people.")
@engine_options
def clear_command(*, screen: Screen, target: Target, reason: str) -> None:
    """Clear what was set for a limit, so that the code decides again. A paused queue is unpaused."""
    with target.backend("NAME") as (backend, (name,)):
        info = backend.api.limits.clear(name, reason=reason)
    _answer(screen, info)


def _answer(screen: Screen, info: LimitInfo) -> None:
    facts = fact_table()
    facts.add_row("name", safe(info.name))
    facts.add_row("limit", limit_text(info))
    facts.add_row("plan", planned_text(info) or "unknown: nothing is under way or waits")
    facts.add_row("under way", f"{info.under_way:,}")
    if info.rate_limit is not None:
        facts.add_row("started", f"{info.started:,} in the last period")
    since = "" if info.waiting_since is None else f", since {screen.instant(info.waiting_since)}"
    facts.add_row("waiting", f"{info.waiting:,}{since}")
    if info.next_turn is not None:
        facts.add_row("next turn", screen.instant(info.next_turn))
    if info.set_at is not None:
        facts.add_row("set" if info.is_set else "cleared", safe(who_text(screen, info)))
    screen.answer(info, facts)


def limit_text(info: LimitInfo) -> Text:
    """Return the limit in force: `4 slots, 300 in 1m`, `paused`; `as planned` if nothing shows it."""
    parts = _parts(info.slots, info.rate_limit, info.rate_period)
    if info.is_paused:
        return Text("paused", style="yellow")
    return Text(", ".join(parts) or ("open" if info.name.startswith("queue:") else "as planned"))


def planned_text(info: LimitInfo) -> str:
    """Return the limits of plans; "" if that is unknown."""
    if info.name.startswith("queue:"):
        return "open"
    return ", ".join(_parts(info.planned_slots, info.planned_rate_limit, info.planned_rate_period))


def _parts(slots: int | None, limit: int | None, period: timedelta | None) -> list[str]:
    parts = [] if slots is None else [counted(slots, "slot")]
    if limit is not None and period is not None:
        parts.append(f"{limit:,} in {format_length(period)}")
    return parts


def who_text(screen: Screen, info: LimitInfo) -> str:
    """Return who set a limit, when and why."""
    by = "" if info.actor is None else info.actor.text
    at = "" if info.set_at is None else screen.instant(info.set_at)
    return ", ".join(part for part in (by, at, info.reason) if part)
