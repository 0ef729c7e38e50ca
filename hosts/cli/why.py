"""The command `holdfast why`."""

from datetime import UTC

import click
from rich.text import Text

from holdfast.hosts.cli.console import Screen, safe, screen_options, status_text
from holdfast.hosts.cli.engine_options import Target, engine_options
from holdfast.hosts.cli.exit_codes import Exit, exits
from holdfast.hosts.inspection.run_info import find_run
from holdfast.hosts.inspection.why import RunReasons, why_of

_EXITS = exits(Exit.OK, Exit.USAGE, Exit.NOT_FOUND, Exit.UNAVAILABLE, Exit.SCHEMA)


@click.command("why", epilog=_EXITS)
@click.argument("words", nargs=-1, metavar="[ENGINE] ID")
@engine_options
@screen_options
def why_command(*, screen: Screen, target: Target, words: tuple[str, ...]) -> None:
    """Explain what a run waits for: which worker holds it, when it continues, what blocks it."""
    spec, (run_id,) = target.split(words, "ID")
    with target.opened(spec) as engine:
        run = find_run(engine.core, run_id)
        zone = UTC if screen.as_json else screen.zone
        found = RunReasons(id=run_id, status=run.status, reasons=why_of(engine.core, run, zone))
    if screen.as_json:
        screen.data(found)
        return
    screen.write(Text.assemble("Run ", (safe(run_id), "bold"), " is ", status_text(found.status), "."))
    for reason in found.reasons:
        screen.write(Text(f"- {safe(reason.text)}"))
