"""`holdfast run pause` and `holdfast run resume`."""

import click

from holdfast.hosts.bulk import PAUSE, RESUME
from holdfast.hosts.cli.ending import tell_status
from holdfast.hosts.cli.exits import Exit
from holdfast.hosts.cli.help import exits
from holdfast.hosts.cli.many import Many, act_on_many, many_options
from holdfast.hosts.cli.screen import Screen, screen_options
from holdfast.hosts.cli.target import Target, engine_options
from holdfast.kernel.commands import RunPause, RunPaused, RunResume
from holdfast.ports.records import TERMINAL

_EXITS = exits(Exit.OK, Exit.USAGE, Exit.NOT_FOUND, Exit.REFUSED, Exit.UNAVAILABLE, Exit.SCHEMA)


@click.command("pause", epilog=_EXITS)
@click.argument("words", nargs=-1, metavar="[ENGINE] ID")
@click.option("--reason", default="", metavar="TEXT", help="For people; kept in the history.")
@many_options
@engine_options
@screen_options
def pause_command(
    *, screen: Screen, target: Target, words: tuple[str, ...], reason: str, many: Many | None
) -> None:
    """Start nothing more of a run until it is resumed. What is under way ends as ever. Refused if the run has ended."""
    if many is not None:
        act_on_many(screen, target, words, many, PAUSE, reason=reason)
        return
    spec, (run_id,) = target.split(words, "ID")
    with target.opened(spec) as engine:
        command = RunPause(namespace=engine.core.namespace, run_id=run_id, reason=reason)
        _tell(screen, run_id, engine.core.dispatch(command))


@click.command("resume", epilog=_EXITS)
@click.argument("words", nargs=-1, metavar="[ENGINE] ID")
@click.option("--reason", default="", metavar="TEXT", help="For people; kept in the history.")
@many_options
@engine_options
@screen_options
def resume_command(
    *, screen: Screen, target: Target, words: tuple[str, ...], reason: str, many: Many | None
) -> None:
    """Let a paused run go on where it is. Refused if the run has ended."""
    if many is not None:
        act_on_many(screen, target, words, many, RESUME, reason=reason)
        return
    spec, (run_id,) = target.split(words, "ID")
    with target.opened(spec) as engine:
        command = RunResume(namespace=engine.core.namespace, run_id=run_id, reason=reason)
        _tell(screen, run_id, engine.core.dispatch(command))


def _tell(screen: Screen, run_id: str, now: RunPaused) -> None:
    tell_status(screen, run_id, now.status, changed=now.changed, refused=now.status in TERMINAL)
