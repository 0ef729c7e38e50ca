"""Subscriptions of a run to topics end with it, and what it has of groups and did not read goes back to them."""

from collections.abc import Iterable, Iterator

from holdfast.ports.changes import Change, Delete, Insert
from holdfast.ports.mailboxes import Mailbox, mailbox_from
from holdfast.ports.records.run import Run
from holdfast.ports.records.topic import GROUP_CHANNEL, ReturnedRow, SubscriptionName
from holdfast.ports.structs import evolve
from holdfast.ports.tables import SUBSCRIPTIONS


def without_subscriptions(run: Run, mailbox: str | None) -> tuple[str | None, tuple[Change, ...]]:
    """Return the mailbox of a run that ends, and the changes that end its subscriptions and return messages."""
    known = mailbox_from(mailbox)
    if not known.subscribed and not known.groups:
        return mailbox, ()
    names = (SubscriptionName(run.namespace, run.id, channel) for channel in known.subscribed)
    ended = evolve(known, subscribed=()).return_to_groups(known.groups)
    changes = (*(Delete(SUBSCRIPTIONS, name) for name in names), *return_changes(run, known, known.groups))
    return ended.to_text(), changes


def return_changes(run: Run, mailbox: Mailbox, numbers: Iterable[int]) -> tuple[Change, ...]:
    """Return the changes that give the messages of these rows back to their groups."""
    back = sorted(numbers)
    messages = (mailbox.groups[number] for number in back)
    return (
        *(
            Insert(
                ReturnedRow(
                    namespace=run.namespace, topic=one.topic, group_key=one.group_key, number=one.number
                )
            )
            for one in messages
        ),
        *_holds_end(run, mailbox, back),
    )


def read_changes(run: Run, numbers: Iterable[int]) -> tuple[Change, ...]:
    """Return the changes that record that a run has read the messages of these rows: it holds none of them any more.

    `run` is the run before it has read them.
    """
    if run.mailbox is None or not numbers:
        return ()
    mailbox = mailbox_from(run.mailbox)
    return tuple(_holds_end(run, mailbox, sorted(mailbox.groups.keys() & set(numbers))))


def _holds_end(run: Run, mailbox: Mailbox, numbers: Iterable[int]) -> Iterator[Change]:
    """Yield the changes after which a run holds the messages of these rows no more."""
    for number in numbers:
        name = SubscriptionName(run.namespace, run.id, mailbox.groups[number].channel)
        yield Delete(SUBSCRIPTIONS, name)


def mailbox_of_replaced(mailbox: Mailbox, kept: Iterable[str] = ()) -> Mailbox:
    """Return what ends with a generation whose subscriptions, waits and messages the next one has.

    These are the waits of members of groups for which the next generation has no row.
    """
    waits = (one for one in mailbox.subscribed if one.startswith(GROUP_CHANNEL))
    return evolve(mailbox, subscribed=tuple(one for one in waits if one not in set(kept)), groups={})
