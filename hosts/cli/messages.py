"""The command `holdfast run messages`."""

from typing import Final

import click

from holdfast.hosts.cli.console import Screen, safe, screen_options, table
from holdfast.hosts.cli.engine_options import Target, engine_options
from holdfast.hosts.cli.exit_codes import Exit, exits
from holdfast.hosts.cli.json_times import iso
from holdfast.hosts.cli.run_facts import find_run
from holdfast.hosts.inspection.messages import MessageInfo, messages_of
from holdfast.ports.clock import micros
from holdfast.ports.records.run import Run

_READ: Final = ("received", "refused")


@click.command(
    "messages",
    epilog=exits(Exit.OK, Exit.USAGE, Exit.NOT_FOUND, Exit.REFUSED, Exit.UNAVAILABLE, Exit.SCHEMA),
)
@click.argument("words", nargs=-1, metavar="[ENGINE] ID")
@click.option(
    "--generation", type=click.IntRange(min=1), metavar="N", help="The messages of an older generation."
)
@click.option("--unread", is_flag=True, help="Only messages that the function has not received.")
@engine_options
@screen_options
def messages_command(
    *, screen: Screen, target: Target, words: tuple[str, ...], generation: int | None, unread: bool
) -> None:
    """List the messages sent to a durable function, and their states.

    A message is unread, received, refused (with the reason), handed on to the next generation, or was never received
    by a run that has ended.
    """
    spec, (run_id,) = target.split(words, "ID")
    with target.opened(spec) as engine:
        run = find_run(engine.core, run_id, generation)
        found = [one for one in messages_of(engine.core, run) if not unread or one.state not in _READ]
    if screen.as_json:
        screen.data([_document(one) for one in found])
        return
    if not found:
        screen.note(f"{safe(run.id)} has no such messages.")
        return
    rows = table("Row", "Channel", "Sent", "State", "Key")
    for one in found:
        sent = screen.instant(micros(one.sent_at))
        rows.add_row(str(one.number), safe(one.channel), sent, _state(run, one), safe(one.key or ""))
    screen.write(rows)


def _state(run: Run, message: MessageInfo) -> str:
    if message.state == "handed_on":
        return f"handed on to generation {run.generation + 1}"
    if message.why is not None:
        return f"refused: {safe(message.why)}"
    state = message.state.replace("_", " ")
    return f"{state}, with a start" if message.has_start else state


def _document(message: MessageInfo) -> dict[str, object]:
    return {
        "number": message.number,
        "generation": message.generation,
        "channel": message.channel,
        "sent_at": iso(micros(message.sent_at)),
        "state": message.state,
        "why": message.why,
        "key": message.key,
        "has_start": message.has_start,
    }
