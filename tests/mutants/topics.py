"""Planted bugs in topics. The simulator finds them with its workload of topics."""

from typing import Final

from tests.mutants.mutant import Edit, Mutant


def _mutant(name: str, breaks: str, caught_by: tuple[str, ...], *edits: Edit) -> Mutant:
    return Mutant(name=name, breaks=breaks, caught_by=caught_by, edits=edits, workload="topics")


RULE: Final = "kernel/rules/topics.py"
DELIVERY: Final = "kernel/rules/topic_delivery.py"
SEARCHES: Final = "kernel/dispatch/topic_searches.py"
SELECTIONS: Final = "kernel/topics/selections.py"

TOPICS: Final = (
    _mutant(
        "message-numbered-by-its-publisher",
        "A message gets a number when it is published.",
        ("X3",),
        Edit(RULE, "        at=at,\n", "        number=1,\n        at=at,\n"),
    ),
    _mutant(
        "message-counts-as-delivered-to-all",
        "A message that some subscribers have counts as delivered to all of them.",
        ("X5", "L1"),
        Edit(
            SEARCHES,
            "            finished=len(found) - (last is not None),\n",
            "            finished=len(found),\n",
        ),
        Edit(
            SEARCHES,
            "            after=None if last is None else (last.run_id, last.channel),\n",
            "            after=None,\n",
        ),
    ),
    _mutant(
        "partial-delivery-starts-over",
        "The delivery of a message that some subscribers have begins with the first subscriber again.",
        ("X1", "X5", "L1"),
        Edit(
            SEARCHES,
            "self._subscribers(messages[0], _place(self.topic), self.limit)",
            'self._subscribers(messages[0], ("", ""), self.limit)',
        ),
    ),
    _mutant(
        "new-subscription-has-caught-up",
        "A new subscription does not get the messages that are stored already.",
        ("X5", "L1"),
        Edit(RULE, "        next_number=0 if group is None else None,\n", "        next_number=None,\n"),
    ),
    _mutant(
        "catching-up-skips-a-message",
        "A subscription that has caught up with a part of the stored messages goes on after the next one.",
        ("X5",),
        Edit(SEARCHES, "(stored[-1].number or 0) + 1)", "(stored[-1].number or 0) + 2)"),
    ),
    _mutant(
        "catching-up-repeats-a-message",
        "A subscription that has caught up with a part of the stored messages gets the last of them again.",
        ("X1",),
        Edit(SEARCHES, "(stored[-1].number or 0) + 1)", "(stored[-1].number or 0))"),
    ),
    _mutant(
        "continued-run-forgets-subscriptions",
        "A run that continues as new does not know its subscriptions any more.",
        ("X4",),
        Edit(
            "kernel/rules/continue_as_new.py",
            "    draft.keep_mailbox(evolve(draft.mailbox, subscribed=unread.subscribed))\n",
            "",
        ),
    ),
    _mutant(
        "subscription-outlives-its-run",
        "A run that ends leaves its subscriptions.",
        ("X4",),
        Edit(
            "kernel/runs/subscriptions.py",
            "(Delete(SUBSCRIPTIONS, name) for name in names)",
            "(Delete(SUBSCRIPTIONS, name) for name in names if name.run_id != run.id)",
        ),
    ),
    _mutant(
        "selection-by-all-texts-only",
        "Only subscriptions to all texts of a message, and those without a selection, get new messages.",
        ("X5", "L1"),
        Edit(
            SELECTIONS,
            "        for size in range(len(names) + 1)\n",
            "        for size in {0, len(names)}\n",
        ),
    ),
    _mutant(
        "subscription-gets-what-it-does-not-select",
        "A subscription that catches up gets all stored messages.",
        ("X2", "X5"),
        Edit(SELECTIONS, "    return selected.items() <= attributes.items()\n", "    return True\n"),
    ),
    _mutant(
        "since-is-ignored",
        "A subscription gets messages that were published before the instant from which it counts.",
        ("X5",),
        Edit(SEARCHES, "        return fits and message.at >= subscription.since\n", "        return fits\n"),
        Edit(
            SEARCHES,
            "        return topic.last + 1 if first is None else first\n",
            "        return topic.last + 1 if first is None else 1\n",
        ),
    ),
    _mutant(
        "expired-messages-deleted-too-early",
        "Messages that have expired are deleted although a subscription has not caught up with them.",
        ("X6", "X5"),
        Edit(
            SEARCHES,
            "        if not behind and topic.after_subscription is None:\n",
            "        if topic:\n",
        ),
    ),
    _mutant(
        "number-given-twice",
        "A message that is delivered after one that some subscribers had gets the same number.",
        ("X3",),
        Edit(
            DELIVERY,
            "        last=topic.last + found.finished,\n",
            "        last=topic.last + min(found.finished, 1),\n",
        ),
    ),
    _mutant(
        "rerun-loses-undelivered-messages",
        "A rerun of an active run loses the messages that were to be delivered to it.",
        ("X1", "X5"),
        Edit(
            "kernel/rules/reruns.py",
            "        if before.status in TERMINAL\n        else tuple(",
            "        if before.status\n        else tuple(",
        ),
        Edit(
            "kernel/rules/reruns.py",
            "mailbox_of_replaced(draft.mailbox, kept), updates={}",
            "draft.mailbox, updates={} if kept else {}",
        ),
        Edit(
            "kernel/rules/reruns.py",
            "mailbox_of_replaced(ended.mailbox), updates={}",
            "ended.mailbox, updates={}",
        ),
    ),
)
