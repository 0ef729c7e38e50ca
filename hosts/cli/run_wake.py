"""The command `holdfast run wake`."""

import click
from rich.text import Text

from holdfast.hosts.cli.console import Screen, safe, screen_options
from holdfast.hosts.cli.engine_options import Target, engine_options
from holdfast.hosts.cli.exit_codes import Exit, exits
from holdfast.hosts.client.sync_run_handle import SyncRunHandle

_EXITS = exits(Exit.OK, Exit.USAGE, Exit.NOT_FOUND, Exit.REFUSED, Exit.UNAVAILABLE, Exit.SCHEMA)


@click.command("wake", epilog=_EXITS)
@click.argument("words", nargs=-1, metavar="[ENGINE] ID|KEY")
@click.option("--stage", metavar="NAME", help="ID is a run: check the external work of this stage.")
@click.option("--item", type=click.IntRange(min=0), metavar="N", help="With --stage: only this item.")
@engine_options
@screen_options
def wake_command(
    *, screen: Screen, target: Target, words: tuple[str, ...], stage: str | None, item: int | None
) -> None:
    """Check external work now. ID|KEY is the key of the work or, with --stage, a run."""
    if item is not None and stage is None:
        raise click.UsageError("--item needs --stage")
    spec, (named,) = target.split(words, "ID|KEY")
    with target.opened(spec) as engine:
        if stage is None:
            woken = engine.sync.wake(named)
        else:
            handle: SyncRunHandle[object] = SyncRunHandle(engine.client, named, object)
            woken = handle.wake(stage, item=item)
    if screen.as_json:
        screen.data({"woken": woken.woken, "early": woken.early})
        return
    early = f", {woken.early} as soon as it is suspended" if woken.early else ""
    screen.write(Text.assemble((safe(named), "bold"), f": {woken.woken} checked now{early}"))
