"""The commands `holdfast dead-letter list` and `replay`."""

from itertools import islice
from typing import Final

import click

from holdfast.hosts.cli.console import Screen, one_line, safe, screen_options, table
from holdfast.hosts.cli.engine_options import Target, engine_options
from holdfast.hosts.cli.exit_codes import Exit, exits
from holdfast.ports.clock import micros

LIMIT: Final = 100
_EXITS = exits(Exit.OK, Exit.USAGE, Exit.NOT_FOUND, Exit.UNAVAILABLE, Exit.SCHEMA)


@click.command("list", epilog=_EXITS)
@click.argument("words", nargs=-1, metavar="[ENGINE]")
@click.option("--sink", default="", metavar="NAME", help="Only streams of this sink.")
@click.option("--run", "run_id", default="", metavar="ID", help="Only streams of this run.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=LIMIT,
    metavar="N",
    help=f"List at most this many.  [default: {LIMIT}]",
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
        screen.data(
            [
                {
                    "sink": letter.sink,
                    "run_id": letter.run_id,
                    "number": letter.number,
                    "waiting": letter.waiting,
                    "attempts": letter.attempts,
                    "dead_lettered_at": letter.dead_lettered_at.isoformat(),
                    "error": letter.error,
                }
                for letter in letters
            ]
        )
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
                screen.instant(micros(letter.dead_lettered_at)),
                one_line(letter.error),
            )
        screen.write(rows)


@click.command("replay", epilog=_EXITS)
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
