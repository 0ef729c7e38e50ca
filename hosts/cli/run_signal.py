"""The command `holdfast run signal`."""

import click
from rich.text import Text

from holdfast.hosts.cli.console import Screen, safe, screen_options
from holdfast.hosts.cli.engine_options import Target, engine_options
from holdfast.hosts.cli.exit_codes import CliError, Exit, exits
from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.kernel.authoring.signals import Signal
from holdfast.ports.json import compact, parse

_EXITS = exits(Exit.OK, Exit.USAGE, Exit.NOT_FOUND, Exit.REFUSED, Exit.UNAVAILABLE, Exit.SCHEMA)


@click.command("signal", epilog=_EXITS)
@click.argument("words", nargs=-1, metavar="[ENGINE] ID CHANNEL MESSAGE")
@click.option(
    "--idempotency-key",
    metavar="KEY",
    help="Repeating the command with this key sends nothing more.",
)
@engine_options
@screen_options
def signal_command(
    *, screen: Screen, target: Target, words: tuple[str, ...], idempotency_key: str | None
) -> None:
    """Send a message to a durable function.

    MESSAGE is JSON of the channel's type. If ENGINE has the code of the run's workflow, the message is validated before
    it is sent. Otherwise it is validated when the function receives it: the function skips an invalid message, and the
    run's history records that.
    """
    spec, (run_id, channel, text) = target.split(words, "ID", "CHANNEL", "MESSAGE")
    signal = Signal(channel, _message(text))
    with target.opened(spec) as engine:
        handle: SyncRunHandle[object] = SyncRunHandle(engine.client, run_id, object)
        sent = handle.signal(signal, idempotency_key=idempotency_key)
    if screen.as_json:
        screen.data({"id": run_id, "channel": channel, "number": sent.number, "status": sent.status.value})
        return
    screen.write(
        Text.assemble("sent to run ", (safe(run_id), "bold"), f", as row {sent.number} of its history")
    )


def _message(text: str) -> str:
    try:
        return compact(parse(text))
    except ValueError as error:
        message = f"MESSAGE is not JSON: {error}; a string needs its own quotes: '\"yes\"'"
        raise CliError(Exit.USAGE, "usage", message) from None
