"""The commands `holdfast sink add`, `remove` and `list`, and `holdfast dead-letter list` and `replay`."""

from datetime import datetime, timedelta
from itertools import islice
from typing import Final

import click

from holdfast.hosts.cli.console import Screen, one_line, safe, screen_options, table
from holdfast.hosts.cli.engine_options import Target, engine_options
from holdfast.hosts.cli.exit_codes import Exit, exits
from holdfast.hosts.cli.filter_options import instant_of, moment
from holdfast.ports.errors import SinkNotFoundError

_EXITS = exits(Exit.OK, Exit.USAGE, Exit.UNAVAILABLE, Exit.SCHEMA)
_LETTER_EXITS = exits(Exit.OK, Exit.USAGE, Exit.NOT_FOUND, Exit.UNAVAILABLE, Exit.SCHEMA)
_LETTERS_LISTED: Final = 100


@click.command("add", epilog=exits(Exit.OK, Exit.USAGE, Exit.REFUSED, Exit.UNAVAILABLE, Exit.SCHEMA))
@click.argument("words", nargs=-1, metavar="[ENGINE] NAME")
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
@screen_options
def add_command(
    *,
    screen: Screen,
    target: Target,
    words: tuple[str, ...],
    since: datetime | timedelta | None,
    types: tuple[str, ...],
) -> None:
    """Register a sink for events. A sink of this name that exists already is not changed.

    Refused if that sink is registered for other types of events.
    """
    spec, (name,) = target.split(words, "NAME")
    with target.opened(spec) as engine:
        engine.core.connect()
        begin = instant_of(since, engine.core.clock.now(), utc=screen.zone is not None)
        sink = engine.sync.register_sink(name, since=begin, types=types)
    if screen.as_json:
        screen.data(sink)
    else:
        screen.write(f"{sink.name} receives the events since {screen.instant(sink.since)}")


@click.command("remove", epilog=exits(Exit.OK, Exit.USAGE, Exit.NOT_FOUND, Exit.UNAVAILABLE, Exit.SCHEMA))
@click.argument("words", nargs=-1, metavar="[ENGINE] NAME")
@engine_options
@screen_options
def remove_command(*, screen: Screen, target: Target, words: tuple[str, ...]) -> None:
    """Delete a sink, its pending events and its dead letters."""
    spec, (name,) = target.split(words, "NAME")
    with target.opened(spec) as engine:
        removed = engine.sync.remove_sink(name)
    if not removed:
        raise SinkNotFoundError(name)
    if screen.as_json:
        screen.data({"name": name, "removed": removed})
    else:
        screen.write(f"{name} was removed")


@click.command("list", epilog=_EXITS)
@click.argument("words", nargs=-1, metavar="[ENGINE]")
@engine_options
@screen_options
def sinks_command(*, screen: Screen, target: Target, words: tuple[str, ...]) -> None:
    """List sinks, with their failures and dead-lettered streams."""
    spec, _ = target.split(words)
    with target.opened(spec) as engine:
        sinks = engine.sync.sinks()
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


@click.command("list", epilog=_LETTER_EXITS)
@click.argument("words", nargs=-1, metavar="[ENGINE]")
@click.option("--sink", default="", metavar="NAME", help="Only streams of this sink.")
@click.option("--run", "run_id", default="", metavar="ID", help="Only streams of this run.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=_LETTERS_LISTED,
    metavar="N",
    help=f"List at most this many.  [default: {_LETTERS_LISTED}]",
)
@engine_options
@screen_options
def letters_command(
    *, screen: Screen, target: Target, words: tuple[str, ...], sink: str, run_id: str, limit: int
) -> None:
    """List the dead-lettered streams: the runs whose events are stopped because a sink refuses one of them."""
    spec, _ = target.split(words)
    with target.opened(spec) as engine:
        letters = list(islice(engine.sync.dead_letters(sink=sink, run_id=run_id), limit))
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


@click.command("replay", epilog=_LETTER_EXITS)
@click.argument("words", nargs=-1, metavar="[ENGINE]")
@click.option("--sink", default="", metavar="NAME", help="Streams of this sink.")
@click.option("--run", "run_id", default="", metavar="ID", help="Streams of this run.")
@click.option("--all", "everything", is_flag=True, help="All streams.")
@click.option("--skip", is_flag=True, help="Skip the refused event.")
@click.option(
    "--reason", default="", metavar="TEXT", help="With --skip: the reason, for the sink and for people."
)
@engine_options
@screen_options
def replay_command(
    *,
    screen: Screen,
    target: Target,
    words: tuple[str, ...],
    sink: str,
    run_id: str,
    everything: bool,
    skip: bool,
    reason: str,
) -> None:
    """Resume dead-lettered streams, from the refused event."""
    if everything == bool(sink or run_id):
        raise click.UsageError("name the streams: --sink NAME, --run ID, or both; or --all")
    if reason and not skip:
        raise click.UsageError("--reason needs --skip")
    spec, _ = target.split(words)
    with target.opened(spec) as engine:
        replayed = engine.sync.replay_dead_letters(sink=sink, run_id=run_id, skip=skip, reason=reason)
    if screen.as_json:
        screen.data({"replayed": replayed})
    else:
        screen.write(
            f"{replayed} stream{'' if replayed == 1 else 's'} resumed"
            if replayed
            else "no dead-lettered streams matched"
        )
