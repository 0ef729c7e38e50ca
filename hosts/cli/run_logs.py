"""The command `holdfast run logs`."""

from collections.abc import Iterable

import click

from holdfast.hosts.cli.console import Screen
from holdfast.hosts.cli.engine_options import Target, engine_command, engine_options
from holdfast.hosts.cli.exit_codes import Exit
from holdfast.hosts.cli.text_output import log_text
from holdfast.hosts.inspection.logs import LogLine, LogOptions
from holdfast.kernel.authoring.attempt_context import LEVELS, Level


@engine_command("logs", "[ENGINE] ID", Exit.NOT_FOUND)
@click.option("--follow", "-f", is_flag=True, help="Wait for more lines until the run ends.")
@click.option(
    "--level", type=click.Choice(LEVELS), default=LEVELS[0], help="Only lines of this level or a higher one."
)
@click.option("--stage", metavar="NAME", help="Only lines of this stage.")
@click.option("--item", type=click.IntRange(min=0), metavar="N", help="Only lines of this item of the stage.")
@click.option("--after", metavar="CURSOR", help="Only lines after the one with this cursor.")
@engine_options
def logs_command(
    *,
    screen: Screen,
    target: Target,
    follow: bool,
    level: Level,
    stage: str | None,
    item: int | None,
    after: str | None,
) -> None:
    """Show the log lines of a run. With --json each line is a separate object."""
    options: LogOptions = {"level": level, "stage": stage, "item": item, "after": after}
    with target.backend("ID") as (backend, (run_id,)):
        _show(screen, backend.run(run_id).logs(follow=follow, **options))


def _show(screen: Screen, lines: Iterable[LogLine]) -> None:
    for line in lines:
        if screen.as_json:
            screen.line(line)
        else:
            screen.write(log_text(screen, line, level=True))
