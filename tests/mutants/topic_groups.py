"""Planted bugs in groups of topics. The simulator finds them with its workload of topics."""

from typing import Final

from tests.mutants.mutant import Edit, Mutant


def _mutant(name: str, breaks: str, caught_by: tuple[str, ...], *edits: Edit) -> Mutant:
    return Mutant(name=name, breaks=breaks, caught_by=caught_by, edits=edits, workload="topics")


DELIVERY: Final = "kernel/rules/topic_delivery.py"
SUBSCRIPTIONS: Final = "kernel/runs/subscriptions.py"
MAILBOXES: Final = "ports/mailboxes.py"
FORKS: Final = "kernel/runs/forks.py"
MEMORY: Final = "adapters/memory/searches.py"

GROUPS: Final = (
    _mutant(
        "group-loses-what-a-member-left-unread",
        "A message that a member has not read when it ends does not go back to its group.",
        ("X4", "X9"),
        Edit(
            SUBSCRIPTIONS,
            ", *return_changes(run, known, known.groups))\n",
            ", *return_changes(run, known, ()))\n",
        ),
    ),
    _mutant(
        "group-gets-back-what-was-read",
        "A message that a member has read goes back to its group when the member ends.",
        ("M1", "X4", "X9"),
        Edit(
            MAILBOXES,
            "groups={number: one for number, one in self.groups.items() if number not in taken},",
            "groups=self.groups,",
        ),
    ),
    _mutant(
        "group-hands-out-what-went-back-twice",
        "A message that went back to its group and was handed out again still counts as one that went back.",
        ("X9",),
        Edit(
            DELIVERY,
            "    back = messages[: min(len(deliveries), turn.returned)]\n",
            "    back = messages[:0]\n",
        ),
    ),
    _mutant(
        "group-passes-over-messages-for-which-no-member-waits",
        "A group goes on after the messages that it found, also after those for which it has no member.",
        ("X9", "L1"),
        Edit(
            DELIVERY,
            "next_number=(left[0].number or 0) if left else turn.end,",
            "next_number=turn.end,",
        ),
    ),
    _mutant(
        "member-takes-a-message-to-its-next-generation",
        "A run that continues as new gives a message back to its group, and keeps it.",
        ("M1", "X9"),
        Edit(
            "kernel/rules/continue_as_new.py",
            "unread = mailbox_from(run.mailbox).without_groups()",
            "unread = mailbox_from(run.mailbox)",
        ),
    ),
    _mutant(
        "rerun-gets-what-went-back",
        "A rerun of a member gets the messages again that went back to the group.",
        ("X9",),
        Edit(
            FORKS,
            "            case events.SignalReceived.type if row.number not in returned:\n",
            "            case events.SignalReceived.type:\n",
        ),
    ),
    _mutant(
        "member-waits-on-after-its-message",
        "A member that was handed a message still waits for another one.",
        ("X4", "X9"),
        Edit(
            DELIVERY,
            "        Update(evolve(state.tables.subscriptions[member], holds=numbers[message]))\n",
            "        Update(state.tables.subscriptions[member])\n",
        ),
    ),
    _mutant(
        "member-that-timed-out-keeps-its-message",
        "A message that is handed to a member as it stops to wait does not go back.",
        ("X9", "M1"),
        Edit(
            "kernel/rules/topics.py",
            "*return_changes(run, mailbox, back)),\n",
            "*return_changes(run, mailbox, ())),\n",
        ),
    ),
    _mutant(
        "topic-deletes-what-a-member-has-unread",
        "A message whose time is over, or of which a topic has too many, is deleted while a member has it unread.",
        ("X9",),
        Edit(
            MEMORY,
            "return not (is_held or went_back)",
            "return not went_back",
        ),
    ),
    _mutant(
        "topic-deletes-what-went-back",
        "A message that went back to its group is deleted before the group hands it out again.",
        ("X9",),
        Edit(
            MEMORY,
            "return not (is_held or went_back)",
            "return not is_held",
        ),
    ),
    _mutant(
        "member-holds-what-it-has-read",
        "A topic keeps a message that a member has read, as if it had not.",
        ("X4",),
        Edit(
            "kernel/rules/function_history.py",
            "    changes = (*changes, *read_changes(before, command.received))\n",
            "",
        ),
    ),
)
