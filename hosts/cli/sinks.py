"""The commands `holdfast sink add`, `remove` and `list`, and `holdfast dead-letter list` and `replay`."""

from datetime import datetime, timedelta
from typing import Final

import click

from holdfast.hosts.cli.console import Screen, one_line, safe, table
from holdfast.hosts.cli.engine_options import Target, engine_command, engine_options
from holdfast.hosts.cli.exit_codes import Exit
from holdfast.hosts.cli.filter_options import instant_of, moment
from holdfast.ports.errors import SinkNotFoundError

_LETTERS_LISTED: Final = 100


@engine_command("add", "[ENGINE] NAME", Exit.REFUSED)
@click.option(
    "--since",
    type=moment,
    metavar="TIME",
    help="Send events from this time on: 2026-11-21T08:00Z, or an age such as 7d.  [default: now]",
)
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="TYPE",
    help="Only events of this type, such as run.*; may be repeated.",
)
@engine_options
def add_command(
    *, screen: Screen, target: Target, since: datetime | timedelta | None, types: tuple[str, ...]
) -> None:
    """Register a sink for events. A sink of this name that exists already is not changed.

    Refused if that sink is registered for other types of events.
    """
    with target.backend("NAME") as (backend, (name,)):
        begin = instant_of(since, backend.now(), utc=screen.zone is not None)
        sink = backend.api.register_sink(name, since=begin, types=types)
    screen.answer(sink, f"{sink.name} receives the events since {screen.instant(sink.since)}")


@engine_command("remove", "[ENGINE] NAME", Exit.NOT_FOUND)
@engine_options
def remove_command(*, screen: Screen, target: Target) -> None:
    """Delete a sink, its pending events and its dead letters."""
    with target.backend("NAME") as (backend, (name,)):
        removed = backend.api.remove_sink(name)
    if not removed:
        raise SinkNotFoundError(name)
    screen.answer({"name": name, "removed": removed}, f"{name} was removed")


@engine_command("list", "[ENGINE]")
@engine_options
def sinks_command(*, screen: Screen, target: Target) -> None:
    """List sinks, with their failures and dead-lettered streams."""
    with target.backend() as (backend, _):
        sinks = backend.api.sinks()
    if screen.as_json:
        screen.data(sinks)
    elif not sinks:
        screen.note("No sinks.")
    else:
        rows = table(
            "name",
            "since",
            "types",
            "failures",
            "dead-lettered",
            "error",
            right=("failures", "dead-lettered"),
        )
        for sink in sinks:
            rows.add_row(
                sink.name,
                screen.instant(sink.since),
                " ".join(sink.types) or "all",
                str(sink.failures),
                str(sink.dead_letters),
                one_line(sink.error or ""),
            )
        screen.write(rows)


@engine_command("list", "[ENGINE]", Exit.NOT_FOUND)
@click.option("--sink", default="", metavar="NAME", help="Only streams of this sink.")
@click.option("--run", "run_id", default="", metavar="ID", help="Only streams of this run.")
@click.option("--after", metavar="CURSOR", help="The next page: the cursor that the last page printed.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=_LETTERS_LISTED,
    metavar="N",
    help=f"List at most this many.  [default: {_LETTERS_LISTED}]",
)
@engine_options
def letters_command(
    *, screen: Screen, target: Target, sink: str, run_id: str, after: str | None, limit: int
) -> None:
    """List the dead-lettered streams: the runs whose events are stopped because a sink refuses one of them."""
    with target.backend() as (backend, _):
        found = list(backend.api.dead_letters(sink=sink, run_id=run_id, after=after, limit=limit + 1))
    letters = found[:limit]
    if screen.as_json:
        screen.data(letters)
    elif not letters:
        screen.note("No dead letters.")
    else:
        rows = table("sink", "run", "event", "waiting", "parked", "error", right=("event", "waiting"))
        for letter in letters:
            rows.add_row(
                letter.sink,
                safe(letter.run_id),
                str(letter.number),
                str(letter.waiting),
                screen.instant(letter.dead_lettered_at),
                one_line(letter.error),
            )
        screen.write(rows)
        if len(found) > limit:
            screen.note(f"More dead letters: --after {letters[-1].cursor}")


@engine_command("replay", "[ENGINE]", Exit.NOT_FOUND)
@click.option("--sink", default="", metavar="NAME", help="Streams of this sink.")
@click.option("--run", "run_id", default="", metavar="ID", help="Streams of this run.")
@click.option("--all", "everything", is_flag=True, help="All streams.")
@click.option("--skip", is_flag=True, help="Skip the refused event.")
@click.option(
    "--reason", default="", metavar="TEXT", help="With --skip: the reason, for the sink and for people."
)
@engine_options
def replay_command(
    *, screen: Screen, target: Target, sink: str, run_id: str, everything: bool, skip: bool, reason: str
) -> None:
    """Resume dead-lettered streams, from the refused event."""
    if everything == bool(sink or run_id):
        raise click.UsageError("name the streams: --sink NAME, --run ID, or both; or --all")
    if reason and not skip:
        raise click.UsageError("--reason needs --skip")
    with target.backend() as (backend, _):
        replayed = backend.api.replay_dead_letters(sink=sink, run_id=run_id, skip=skip, reason=reason)
    resumed = f"{replayed} stream{'' if replayed == 1 else 's'} resumed"
    screen.answer({"replayed": replayed}, resumed if replayed else "no dead-lettered streams matched")
