"""The command `holdfast why`."""

from datetime import UTC

from rich.text import Text

from holdfast.hosts.cli.console import Screen, safe, status_text
from holdfast.hosts.cli.engine_options import Target, engine_command, engine_options
from holdfast.hosts.cli.exit_codes import Exit
from holdfast.hosts.cli.text_output import schedule_text


@engine_command("why", "[ENGINE] ID", Exit.NOT_FOUND)
@engine_options
def why_command(*, screen: Screen, target: Target) -> None:
    """Explain what a run waits for: which worker holds it, when it continues, what blocks it."""
    with target.backend("ID") as (backend, (run_id,)):
        found = backend.reasons(run_id, UTC if screen.as_json else screen.zone)
    if screen.as_json:
        screen.data(found)
        return
    if found.scheduled is not None:
        screen.write(Text(safe(f"Started by {schedule_text(screen, found.scheduled)}.")))
    screen.write(Text.assemble("Run ", (safe(run_id), "bold"), " is ", status_text(found.status), "."))
    for reason in found.reasons:
        screen.write(Text(f"- {safe(reason.text)}"))
