"""Subscriptions of a run to topics: they end with it."""

from holdfast.ports.changes import Change, Delete
from holdfast.ports.mailboxes import mailbox_from
from holdfast.ports.records.run import Run
from holdfast.ports.records.topic import SubscriptionName
from holdfast.ports.structs import evolve
from holdfast.ports.tables import SUBSCRIPTIONS


def without_subscriptions(run: Run, mailbox: str | None) -> tuple[str | None, tuple[Change, ...]]:
    """Return the mailbox of a run that ends, and the changes that end its subscriptions."""
    known = mailbox_from(mailbox)
    if not known.subscribed:
        return mailbox, ()
    names = (SubscriptionName(run.namespace, run.id, channel) for channel in known.subscribed)
    return evolve(known, subscribed=()).to_text(), tuple(Delete(SUBSCRIPTIONS, name) for name in names)
