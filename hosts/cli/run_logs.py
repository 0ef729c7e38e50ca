"""The command `holdfast run logs`."""

import time
from collections.abc import Iterable

import click
from rich.text import Text

from holdfast.hosts.cli.console import Screen, iso, safe, safe_lines, screen_options
from holdfast.hosts.cli.engine_options import Target, engine_options
from holdfast.hosts.cli.exit_codes import Exit, exits
from holdfast.hosts.cli.run_facts import find_run
from holdfast.hosts.cli.text_output import place_name
from holdfast.hosts.inspection.logs import FOLLOW_INTERVAL, LogLine, LogOptions, LogReader
from holdfast.kernel.authoring.attempt_context import LEVELS, Level
from holdfast.ports.clock import micros

_STYLES = {"warning": "yellow", "error": "red", "critical": "bold red", "debug": "dim"}


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
            screen.line(_document(line))
        else:
            screen.write(_text(screen, line))


def _document(line: LogLine) -> dict[str, object]:
    return {
        "at": iso(micros(line.at)),
        "level": line.level,
        "message": line.message,
        "fields": dict(line.fields),
        "stage": line.stage,
        "item": line.item,
        "attempt": line.attempt,
        "epoch": line.epoch,
        "cursor": line.cursor,
    }


def _text(screen: Screen, line: LogLine) -> Text:
    place = place_name(line.stage, line.item) if line.stage else f"epoch {line.epoch}"
    text = Text.assemble(
        (screen.instant(micros(line.at), fine=True), "dim"),
        "  ",
        (f"{line.level:8}", _STYLES.get(line.level, "")),
        "  ",
        (place, "cyan"),
        "  ",
        safe_lines(line.message),
    )
    for name, value in line.fields.items():
        text.append(f" {safe(name)}=", style="dim")
        text.append(safe(str(value)))
    return text
