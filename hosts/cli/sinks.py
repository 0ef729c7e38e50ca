"""The commands `holdfast sink add`, `remove` and `list`."""

from datetime import datetime, timedelta

import click

from holdfast.hosts.cli.console import Screen, one_line, screen_options, table
from holdfast.hosts.cli.engine_options import Target, engine_options
from holdfast.hosts.cli.exit_codes import Exit, exits
from holdfast.hosts.cli.filter_options import instant_of, moment
from holdfast.hosts.events.sinks import SinkInfo
from holdfast.ports.clock import micros
from holdfast.ports.errors import SinkNotFoundError

_EXITS = exits(Exit.OK, Exit.USAGE, Exit.UNAVAILABLE, Exit.SCHEMA)


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
        screen.data(sink_document(sink))
    else:
        screen.write(f"{sink.name} receives the events since {screen.instant(micros(sink.since))}")


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
        screen.data([sink_document(sink) for sink in sinks])
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
                screen.instant(micros(sink.since)),
                " ".join(sink.types) or "all",
                str(sink.failures),
                str(sink.dead_letters),
                one_line(sink.error or ""),
            )
        screen.write(rows)


def sink_document(sink: SinkInfo) -> dict[str, object]:
    """Return a sink as JSON data."""
    return {
        "name": sink.name,
        "since": sink.since.isoformat(),
        "created_at": sink.created_at.isoformat(),
        "types": list(sink.types),
        "failures": sink.failures,
        "retry_at": None if sink.retry_at is None else sink.retry_at.isoformat(),
        "error": sink.error,
        "dead_lettered": sink.dead_letters,
    }
