"""The commands `holdfast run query` and `holdfast run update`."""

import inspect
from typing import Final, cast

import click

from holdfast.hosts.cli.console import Screen, screen_options
from holdfast.hosts.cli.engine_options import Target, engine_options
from holdfast.hosts.cli.exit_codes import CliError, Exit, exits
from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.kernel.authoring.call_types import CallForm
from holdfast.kernel.authoring.queries import QueryCall, UpdateCall
from holdfast.ports.json import compact, parse

_EXITS = (Exit.OK, Exit.USAGE, Exit.NOT_FOUND, Exit.REFUSED, Exit.UNAVAILABLE, Exit.SCHEMA, Exit.DIVERGED)
_PLAIN: Final = CallForm(signature=inspect.Signature(), hints={}, arguments=object, output=object)
"""A call form that takes and returns any JSON."""

_arguments = click.option(
    "--arguments", metavar="JSON", default="{}", help='The arguments, by name: \'{"address": "Oslo"}\'.'
)


@click.command("query", epilog=exits(*_EXITS))
@click.argument("words", nargs=-1, metavar="[ENGINE] ID QUERY")
@_arguments
@engine_options
@screen_options
def query_command(*, screen: Screen, target: Target, words: tuple[str, ...], arguments: str) -> None:
    """Query a durable function, and print the answer as JSON.

    QUERY is the name of a method that is marked with @query, with its class: OrderState.destination. The command itself
    replays the function, so it needs the workflow's code; nothing is stored.
    """
    spec, (run_id, name) = target.split(words, "ID", "QUERY")
    call = QueryCall[object](query=name, arguments=_arguments_text(arguments), form=_PLAIN)
    with target.opened(spec) as engine:
        handle: SyncRunHandle[object] = SyncRunHandle(engine.client, run_id, object)
        screen.value(compact(handle.query(call)))


@click.command("update", epilog=exits(*_EXITS, Exit.TIMED_OUT))
@click.argument("words", nargs=-1, metavar="[ENGINE] ID UPDATE")
@_arguments
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="The maximum wait for the reply. The update stays stored.",
)
@click.option(
    "--idempotency-key",
    metavar="KEY",
    help="Repeating the command with this key waits for the reply of the first update.",
)
@engine_options
@screen_options
def update_command(
    *,
    screen: Screen,
    target: Target,
    words: tuple[str, ...],
    arguments: str,
    timeout: float | None,
    idempotency_key: str | None,
) -> None:
    """Send a durable function an update, and print the reply as JSON.

    UPDATE is the name of a method that is marked with @update, with its class: OrderState.move_to. The worker that
    drives the run carries it out: without a worker there is no reply.
    """
    spec, (run_id, name) = target.split(words, "ID", "UPDATE")
    call = UpdateCall[object](update=name, arguments=_arguments_text(arguments), form=_PLAIN, checked=False)
    with target.opened(spec) as engine:
        handle: SyncRunHandle[object] = SyncRunHandle(engine.client, run_id, object)
        try:
            reply = handle.update(call, timeout=timeout, idempotency_key=idempotency_key)
        except TimeoutError as error:
            raise CliError(Exit.TIMED_OUT, "timeout", str(error)) from None
        screen.value(compact(reply))


def _arguments_text(text: str) -> str:
    try:
        parsed = parse(text)
    except ValueError as error:
        raise CliError(Exit.USAGE, "usage", f"--arguments is not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise CliError(Exit.USAGE, "usage", "--arguments must be an object: each argument by its name")
    return compact(cast("dict[str, object]", parsed))
