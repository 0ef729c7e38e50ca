"""The commands `holdfast topic list`, `publish` and `remove`."""

from collections.abc import Sequence
from typing import Final

import click
from rich.text import Text

from holdfast.hosts.cli.console import Screen, safe, table
from holdfast.hosts.cli.engine_options import Target, engine_command, engine_options
from holdfast.hosts.cli.exit_codes import Exit
from holdfast.hosts.cli.filter_options import named_texts
from holdfast.hosts.cli.run_messages import message_argument
from holdfast.hosts.inspection.topics import TopicInfo
from holdfast.kernel.authoring.topics import TopicMessage
from holdfast.kernel.commands.topics import KEEP_DEFAULT, KEEP_LAST_MAX, KEEP_MAX
from holdfast.ports.queries.topics import COUNTED_MAX

_SECOND: Final = 1_000_000  # in microseconds


@engine_command("list", "[ENGINE]")
@click.option("--after", metavar="NAME", help="Only the topics after this name.")
@click.option(
    "--limit", type=click.IntRange(1), default=100, show_default=True, help="At most so many topics."
)
@engine_options
def list_command(*, screen: Screen, target: Target, after: str | None, limit: int) -> None:
    """List the topics that have messages or subscriptions, or had messages, and how far each was delivered.

    Groups are listed below, each with how many numbered messages it has not handed out. At most 1,000 messages and
    subscriptions of a topic are counted.
    """
    with target.backend() as (backend, _):
        found = list(backend.api.topics(after=after, limit=limit))
    if screen.as_json:
        screen.data(found)
        return
    if not found:
        screen.note("No topic has messages or subscriptions.")
        return
    numbers = ("last", "messages", "undelivered", "subscriptions")
    rows = table("name", *numbers, "undelivered since", right=numbers)
    for one in found:
        rows.add_row(
            safe(one.name),
            f"{one.last:,}",
            *map(_count, (one.messages, one.undelivered, one.subscriptions)),
            "" if one.undelivered_since is None else screen.instant(one.undelivered_since),
        )
    screen.write(rows)
    _write_groups(screen, found)
    if len(found) == limit:
        screen.note(f"There may be more: --after {safe(found[-1].name)}")


def _write_groups(screen: Screen, topics: Sequence[TopicInfo]) -> None:
    if not any(one.groups for one in topics):
        return
    numbers = ("behind", "went back", "waiting members")
    rows = table("group", "of topic", "selects", *numbers, "last used", right=numbers)
    for topic in topics:
        for one in topic.groups:
            rows.add_row(
                safe(one.name),
                safe(topic.name),
                safe(", ".join(f"{name}={text}" for name, text in one.selected.items())),
                f"{one.behind:,}",
                *map(_count, (one.returned, one.waiting)),
                screen.instant(one.used_at),
            )
    screen.write(rows)


def _count(number: int) -> str:
    return f"{number:,}{'+' if number >= COUNTED_MAX else ''}"


@engine_command("publish", "[ENGINE] NAME MESSAGE")
@click.option(
    "--attribute",
    "attributes",
    multiple=True,
    metavar="NAME=TEXT",
    help="A text by which subscriptions select the message. May be repeated, up to four times.",
)
@click.option(
    "--id",
    "message_id",
    metavar="ID",
    help="The id of the message in its topic: repeating the command with it publishes nothing more.",
)
@click.option(
    "--keep",
    type=click.FloatRange(0, KEEP_MAX / _SECOND, min_open=True),
    metavar="SECONDS",
    help="How long the message is kept for later subscriptions; 7 days if omitted.",
)
@click.option(
    "--keep-last",
    type=click.IntRange(1, KEEP_LAST_MAX),
    metavar="N",
    help="How many messages of the topic are kept for later subscriptions at most.",
)
@engine_options
def publish_command(
    *,
    screen: Screen,
    target: Target,
    attributes: tuple[str, ...],
    message_id: str | None,
    keep: float | None,
    keep_last: int | None,
) -> None:
    """Publish a message to a topic: every run that has subscribed to it gets it.

    MESSAGE is JSON of the topic's type. It is not validated before it is published: a function that can't read it skips
    it when it receives it, and the run's history records that.
    """
    spec, (name, text) = target.split("NAME", "MESSAGE")
    message = TopicMessage(
        name,
        message_argument(text),
        attributes=named_texts(attributes),
        keep=KEEP_DEFAULT if keep is None else max(1, round(keep * _SECOND)),
        keep_last=keep_last,
    )
    with target.backend_at(spec) as backend:
        sent = backend.api.publish(message, id=message_id)
    if sent.published:
        outcome = Text.assemble("published to topic ", (safe(name), "bold"), f", as message {safe(sent.id)}")
    else:
        outcome = Text.assemble("topic ", (safe(name), "bold"), f" already has a message {safe(sent.id)}")
    screen.answer({"topic": name, "id": sent.id, "published": sent.published}, outcome)


@engine_command("remove", "[ENGINE] NAME", Exit.REFUSED)
@engine_options
def remove_command(*, screen: Screen, target: Target) -> None:
    """Delete a topic with its messages and groups, if no run has subscribed and it has no triggers.

    What runs have received stays in their histories.
    """
    with target.backend("NAME") as (backend, (name,)):
        rows = backend.api.remove_topic(name)
    screen.answer(
        {"name": name, "rows": rows}, f"{safe(name)} was removed, with {rows:,} messages and groups"
    )
