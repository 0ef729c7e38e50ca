"""The command `holdfast run remove`."""

import click

from holdfast.hosts.cli.bulk_options import BulkOptions, act_on_many, many_options
from holdfast.hosts.cli.console import Screen, safe, screen_options
from holdfast.hosts.cli.engine_options import Target, engine_options
from holdfast.hosts.cli.exit_codes import Exit, exits
from holdfast.hosts.client.bulk_actions import REMOVE
from holdfast.kernel.commands import RunRemove


@click.command(
    "remove", epilog=exits(Exit.OK, Exit.USAGE, Exit.NOT_FOUND, Exit.REFUSED, Exit.UNAVAILABLE, Exit.SCHEMA)
)
@click.argument("words", nargs=-1, metavar="[ENGINE] ID")
@many_options
@engine_options
@screen_options
def remove_run_command(
    *, screen: Screen, target: Target, words: tuple[str, ...], many: BulkOptions | None
) -> None:
    """Delete an ended run, with its generations, history and blobs.

    Refused until its result is delivered to its parent run and its events to all sinks.
    """
    if many is not None:
        act_on_many(screen, target, words, many, REMOVE, reason="")
        return
    spec, (run_id,) = target.split(words, "ID")
    with target.opened(spec) as engine:
        removed = engine.client.dispatch(RunRemove(namespace=engine.core.namespace, run_id=run_id)).removed
    if screen.as_json:
        screen.data({"id": run_id, "removed": removed})
    else:
        screen.write(f"{safe(run_id)} was removed")
