"""`holdfast run cancel` and `holdfast run terminate`."""

import click
from rich.text import Text

from holdfast.hosts.bulk import CANCEL, TERMINATE
from holdfast.hosts.cli.exits import CliError, Exit
from holdfast.hosts.cli.help import exits
from holdfast.hosts.cli.many import Many, act_on_many, many_options
from holdfast.hosts.cli.screen import Screen, safe, screen_options, status_text
from holdfast.hosts.cli.target import Target, engine_options
from holdfast.kernel.commands import RunCancel, RunEnded, RunTerminate
from holdfast.ports.records import RunStatus

_EXITS = exits(Exit.OK, Exit.USAGE, Exit.NOT_FOUND, Exit.REFUSED, Exit.UNAVAILABLE, Exit.SCHEMA)


@click.command("cancel", epilog=_EXITS)
@click.argument("words", nargs=-1, metavar="[ENGINE] ID")
@click.option("--reason", default="", metavar="TEXT", help="For people; kept in the history.")
@many_options
@engine_options
@screen_options
def cancel_command(
    *, screen: Screen, target: Target, words: tuple[str, ...], reason: str, many: Many | None
) -> None:
    """End a run as cancelled. It is fine if it was already; refused if it has completed or failed."""
    if many is not None:
        act_on_many(screen, target, words, many, CANCEL, reason=reason)
        return
    spec, (run_id,) = target.split(words, "ID")
    with target.opened(spec) as engine:
        command = RunCancel(namespace=engine.core.namespace, run_id=run_id, reason=reason)
        _tell(screen, run_id, engine.core.dispatch(command))


@click.command("terminate", epilog=_EXITS)
@click.argument("words", nargs=-1, metavar="[ENGINE] ID")
@click.option("--reason", default="", metavar="TEXT", help="For people; kept in the history.")
@many_options
@engine_options
@screen_options
def terminate_command(
    *, screen: Screen, target: Target, words: tuple[str, ...], reason: str, many: Many | None
) -> None:
    """End a run as cancelled at once, whatever it has left to clean up. Otherwise as `cancel`."""
    if many is not None:
        act_on_many(screen, target, words, many, TERMINATE, reason=reason)
        return
    spec, (run_id,) = target.split(words, "ID")
    with target.opened(spec) as engine:
        command = RunTerminate(namespace=engine.core.namespace, run_id=run_id, reason=reason)
        _tell(screen, run_id, engine.core.dispatch(command))


def _tell(screen: Screen, run_id: str, ended: RunEnded) -> None:
    refused = not ended.changed and ended.status is not RunStatus.CANCELLED
    tell_status(screen, run_id, ended.status, changed=ended.changed, refused=refused)


def tell_status(screen: Screen, run_id: str, status: RunStatus, *, changed: bool, refused: bool) -> None:
    """Say what the status of a run is after a command that was to change it. CliError if the run had ended before."""
    if refused:
        raise CliError(Exit.REFUSED, "run_ended", f"run {run_id!r} has ended before, as {status}")
    if screen.as_json:
        screen.data({"id": run_id, "status": status.value, "changed": changed})
        return
    before = "" if changed else " already"
    screen.say(Text.assemble(safe(run_id), " is ", status_text(status), before))
