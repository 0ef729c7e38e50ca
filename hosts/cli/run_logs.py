"""The command `holdfast run logs`."""

import time
from collections.abc import Iterable

import click

from holdfast.hosts.cli.console import Screen, screen_options
from holdfast.hosts.cli.engine_options import Target, engine_options
from holdfast.hosts.cli.exit_codes import Exit, exits
from holdfast.hosts.cli.text_output import log_text
from holdfast.hosts.inspection.logs import FOLLOW_INTERVAL, LogLine, LogOptions, LogReader
from holdfast.hosts.inspection.run_info import find_run
from holdfast.kernel.authoring.attempt_context import LEVELS, Level


@click.command("logs", epilog=exits(Exit.OK, Exit.USAGE, Exit.NOT_FOUND, Exit.UNAVAILABLE, Exit.SCHEMA))
@click.argument("words", nargs=-1, metavar="[ENGINE] ID")
@click.option("--follow", "-f", is_flag=True, help="Wait for more lines until the run ends.")
@click.option(
    "--level",
    type=click.Choice(LEVELS),
    default=LEVELS[0],
    help="Only lines of this level or a higher one.",
)
@click.option("--stage", metavar="NAME", help="Only lines of this stage.")
@click.option("--item", type=click.IntRange(min=0), metavar="N", help="Only lines of this item of the stage.")
@click.option("--after", metavar="CURSOR", help="Only lines after the one with this cursor.")
@engine_options
@screen_options
def logs_command(
    *,
    screen: Screen,
    target: Target,
    words: tuple[str, ...],
    follow: bool,
    level: Level,
    stage: str | None,
    item: int | None,
    after: str | None,
) -> None:
    """Show the log lines of a run's stages. With --json each line is a separate object."""
    spec, (run_id,) = target.split(words, "ID")
    options: LogOptions = {"level": level, "stage": stage, "item": item, "after": after}
    with target.opened(spec) as engine:
        reader = LogReader(engine.core, find_run(engine.core, run_id).key, options)
        if not follow:
            _show(screen, reader.all())
            return
        while True:
            _show(screen, reader.read_new())
            if reader.ended:
                return
            time.sleep(FOLLOW_INTERVAL)


def _show(screen: Screen, lines: Iterable[LogLine]) -> None:
    for line in lines:
        if screen.as_json:
            screen.line(line)
        else:
            screen.write(log_text(screen, line, level=True))
