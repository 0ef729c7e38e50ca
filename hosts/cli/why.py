"""The command `holdfast why`."""

from datetime import UTC

import click
from rich.text import Text

from holdfast.hosts.cli.console import STATUS_STYLES, Screen, safe, screen_options
from holdfast.hosts.cli.engine_options import Target, engine_options
from holdfast.hosts.cli.exit_codes import Exit, exits
from holdfast.hosts.cli.run_facts import find_run
from holdfast.hosts.inspection.why import WaitReason, why_of

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
        status, reasons = run.status.value, why_of(engine.core, run, zone)
    if screen.as_json:
        screen.data({"id": run_id, "status": status, "reasons": [_document(reason) for reason in reasons]})
        return
    screen.write(
        Text.assemble("Run ", (safe(run_id), "bold"), " is ", (status, STATUS_STYLES.get(status, "")), ".")
    )
    for reason in reasons:
        screen.write(Text(f"- {safe(reason.text)}"))


def _document(reason: WaitReason) -> dict[str, object]:
    until = None if reason.until is None else reason.until.isoformat().replace("+00:00", "Z")
    return {"code": reason.code, "text": reason.text, "stage": reason.stage, "until": until}
