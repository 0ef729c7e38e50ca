"""The commands `holdfast run cancel`, `terminate`, `pause` and `resume`, for one run or many."""

from typing import Final

import click
from rich.text import Text

from holdfast.hosts.cli.bulk_options import BulkOptions, act_on_many, many_options
from holdfast.hosts.cli.console import Screen, safe, screen_options, status_text
from holdfast.hosts.cli.engine_options import Target, engine_options
from holdfast.hosts.cli.exit_codes import CliError, Exit, exits
from holdfast.hosts.client.bulk_actions import CANCEL, PAUSE, RESUME, TERMINATE, Action, build_command
from holdfast.hosts.client.client import Client
from holdfast.kernel.commands import Command, RunEnded, RunPaused
from holdfast.ports.records.run import TERMINAL, RunStatus, end_of

_EXITS: Final = exits(Exit.OK, Exit.USAGE, Exit.NOT_FOUND, Exit.REFUSED, Exit.UNAVAILABLE, Exit.SCHEMA)


def _command(action: Action, help: str) -> click.Command:
    @click.command(action.name, help=help, epilog=_EXITS)
    @click.argument("words", nargs=-1, metavar="[ENGINE] ID")
    @click.option(
        "--reason", default="", metavar="TEXT", help="Your reason; it is stored in the run's history."
    )
    @many_options
    @engine_options
    @screen_options
    def change(
        *, screen: Screen, target: Target, words: tuple[str, ...], reason: str, many: BulkOptions | None
    ) -> None:
        if many is not None:
            act_on_many(screen, target, words, many, action, reason=reason)
            return
        spec, (run_id,) = target.split(words, "ID")
        with target.opened(spec) as engine:
            command = build_command(action, namespace=engine.core.namespace, run_id=run_id, reason=reason)
            _carry_out(screen, engine.client, run_id, command)

    return change


cancel_command: Final = _command(
    CANCEL, "End a run as cancelled, after its cleanup. Refused if it has completed or failed."
)
terminate_command: Final = _command(
    TERMINATE, "End a run as cancelled at once, without its cleanup. Refused if it has completed or failed."
)
pause_command: Final = _command(
    PAUSE,
    "Pause a run: nothing new starts until it is resumed, and running bodies end as usual. Refused if it has ended.",
)
resume_command: Final = _command(
    RESUME, "Resume a paused or blocked run where it is. Refused if it has ended."
)


def _carry_out(screen: Screen, client: Client, run_id: str, command: Command[RunEnded | RunPaused]) -> None:
    now = client.dispatch(command)
    wanted = {RunStatus.CANCELLED} if isinstance(now, RunEnded) else frozenset[RunStatus]()
    if not now.changed and now.status in TERMINAL - wanted:
        raise CliError(Exit.REFUSED, "run_ended", f"run {run_id!r} {end_of(now.status)}: nothing was changed")
    if screen.as_json:
        screen.data({"id": run_id, "status": now.status.value, "changed": now.changed})
        return
    before = "" if now.changed else "already "
    screen.write(Text.assemble(safe(run_id), f" is {before}", status_text(now.status)))
