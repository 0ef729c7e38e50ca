"""The commands `holdfast run signal`, `messages`, `query` and `update`: what durable functions receive and answer."""

import inspect
from typing import Final, cast

import click
from rich.text import Text

from holdfast.hosts.cli.console import Screen, safe, table
from holdfast.hosts.cli.engine_options import Target, engine_command, engine_options
from holdfast.hosts.cli.exit_codes import CliError, Exit
from holdfast.hosts.inspection.messages import MessageInfo
from holdfast.kernel.authoring.call_types import CallForm
from holdfast.kernel.authoring.queries import QueryCall, UpdateCall
from holdfast.kernel.authoring.signals import Signal
from holdfast.ports.json import compact, parse_input

_READ: Final = ("received", "refused")
_PLAIN: Final = CallForm(
    what="a call", signature=inspect.Signature(), hints={}, arguments=object, output=object
)
"""A call form that takes and returns any JSON."""
_arguments = click.option(
    "--arguments", metavar="JSON", default="{}", help='The arguments, by name: \'{"address": "Oslo"}\'.'
)


@engine_command("signal", "[ENGINE] ID CHANNEL MESSAGE", Exit.NOT_FOUND, Exit.REFUSED)
@click.option(
    "--idempotency-key", metavar="KEY", help="Repeating the command with this key sends nothing more."
)
@engine_options
def signal_command(*, screen: Screen, target: Target, idempotency_key: str | None) -> None:
    """Send a message to a durable function.

    MESSAGE is JSON of the channel's type. It is validated before it is sent: by the code of the workflow if ENGINE has
    it, or else by what a worker has registered. Without either, it is validated when the function receives it: the
    function skips an invalid message, and the run's history records that.
    """
    spec, (run_id, channel, text) = target.split("ID", "CHANNEL", "MESSAGE")
    signal = Signal(channel, message_argument(text))
    with target.backend_at(spec) as backend:
        backend.check_message(run_id, channel, signal.text)
        sent = backend.run(run_id).signal(signal, idempotency_key=idempotency_key)
    screen.answer(
        {"id": run_id, "channel": channel, "number": sent.number, "status": sent.status.value},
        Text.assemble("sent to run ", (safe(run_id), "bold"), f", as row {sent.number} of its history"),
    )


def message_argument(text: str) -> str:
    """Return the JSON text of the argument MESSAGE. Raises CliError."""
    try:
        return compact(parse_input(text))
    except ValueError as error:
        message = f"MESSAGE is not JSON: {error}; a string needs its own quotes: '\"yes\"'"
        raise CliError(Exit.USAGE, "usage", message) from None


@engine_command("messages", "[ENGINE] ID", Exit.NOT_FOUND, Exit.REFUSED)
@click.option(
    "--generation", type=click.IntRange(min=1), metavar="N", help="The messages of an older generation."
)
@click.option("--unread", is_flag=True, help="Only messages that the function has not received.")
@engine_options
def messages_command(*, screen: Screen, target: Target, generation: int | None, unread: bool) -> None:
    """List the messages sent to a durable function, and their states.

    A message is unread, received, refused (with the reason), handed on to the next generation, or was never received
    by a run that has ended.
    """
    with target.backend("ID") as (backend, (run_id,)):
        messages = backend.run(run_id).messages(generation=generation)
        found = [one for one in messages if not unread or one.state not in _READ]
    if screen.as_json:
        screen.data(found)
        return
    if not found:
        screen.note(f"{safe(run_id)} has no such messages.")
        return
    rows = table("Row", "Channel", "Sender", "Sent", "State", "Key")
    for one in found:
        sent = screen.instant(one.sent_at)
        rows.add_row(
            *(str(one.number), safe(one.channel), safe(one.sender or ""), sent),
            *(_state(one), safe(one.key or "")),
        )
    screen.write(rows)


def _state(message: MessageInfo) -> str:
    if message.state == "handed_on":
        return f"handed on to generation {message.generation + 1}"
    if message.why is not None:
        return f"refused: {safe(message.why)}"
    state = message.state.replace("_", " ")
    return f"{state}, with a start" if message.has_start else state


@engine_command("query", "[ENGINE] ID QUERY", Exit.NOT_FOUND, Exit.REFUSED, Exit.DIVERGED)
@_arguments
@engine_options
def query_command(*, screen: Screen, target: Target, arguments: str) -> None:
    """Query a durable function, and print the answer as JSON.

    QUERY is the name of a method that is marked with @query, with its class: OrderState.destination. The command itself
    replays the function, so it needs the workflow's code; nothing is stored.
    """
    spec, (run_id, name) = target.split("ID", "QUERY")
    call = QueryCall[object](query=name, arguments=_arguments_text(arguments), form=_PLAIN)
    with target.backend_at(spec) as backend:
        screen.value(compact(backend.run(run_id).query(call)))


@engine_command("update", "[ENGINE] ID UPDATE", Exit.NOT_FOUND, Exit.REFUSED, Exit.DIVERGED, Exit.TIMED_OUT)
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
def update_command(
    *, screen: Screen, target: Target, arguments: str, timeout: float | None, idempotency_key: str | None
) -> None:
    """Send a durable function an update, and print the reply as JSON.

    UPDATE is the name of a method that is marked with @update, with its class: OrderState.move_to. The worker that
    drives the run carries it out: without a worker there is no reply.
    """
    spec, (run_id, name) = target.split("ID", "UPDATE")
    call = UpdateCall[object](update=name, arguments=_arguments_text(arguments), form=_PLAIN, checked=False)
    with target.backend_at(spec) as backend:
        try:
            reply = backend.run(run_id).update(call, timeout=timeout, idempotency_key=idempotency_key)
        except TimeoutError as error:
            raise CliError(Exit.TIMED_OUT, "timeout", str(error)) from None
        screen.value(compact(reply))


def _arguments_text(text: str) -> str:
    try:
        parsed = parse_input(text)
    except ValueError as error:
        raise CliError(Exit.USAGE, "usage", f"--arguments is not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise CliError(Exit.USAGE, "usage", "--arguments must be an object: each argument by its name")
    return compact(cast("dict[str, object]", parsed))
