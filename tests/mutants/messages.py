"""Planted bugs in the treatment of unread messages."""

from typing import Final

from tests.mutants.mutant import Edit, Mutant

MESSAGES: Final = (
    Mutant(
        name="restart-loses-unread-messages",
        breaks="A run that is started again does not get the unread messages of the generation before it.",
        caught_by=("M1",),
        edits=(
            Edit(
                "kernel/rules/starts.py",
                "    if known is not None:\n        forward_unread(",
                "    if known is not None and known.key == run.key:\n        forward_unread(",
            ),
        ),
    ),
    Mutant(
        name="start-not-kept-with-messages",
        breaks=(
            "A start with messages delivers them to the active run, but is not kept for a later generation."
        ),
        caught_by=("M1",),
        edits=(
            Edit(
                "kernel/rules/starts.py",
                "if is_kept(command) else None",
                "if False else None",
            ),
            Edit(
                "kernel/rules/signals.py",
                "    if start is None and (refused",
                "    if False and (refused",
            ),
        ),
    ),
    Mutant(
        name="kept-start-never-used",
        breaks="A run that ends with unread messages of a start does not begin a new generation.",
        caught_by=("M1",),
        edits=(
            Edit(
                "kernel/rules/function_settlement.py",
                "    if run.mailbox is None:\n        return settled\n",
                "    if run.mailbox is None or settlement.now:\n        return settled\n",
            ),
        ),
    ),
    Mutant(
        name="kept-start-ignored-after-failure",
        breaks="A run that fails with unread messages of a start does not begin a new generation.",
        caught_by=("M1",),
        edits=(
            Edit(
                "kernel/runs/stored_starts.py",
                'return self.command.if_ended == "rerun" or status is not RunStatus.COMPLETED',
                "return status is RunStatus.COMPLETED",
            ),
        ),
    ),
    Mutant(
        name="cancelled-run-restarted",
        breaks="A cancelled run begins a new generation for messages that arrived before the cancel.",
        caught_by=("M1",),
        edits=(
            Edit(
                "kernel/rules/signals.py",
                "    draft.keep_mailbox(draft.mailbox.without_starts())\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="received-message-forwarded",
        breaks="The next generation gets messages that the last turn of the generation before it received.",
        caught_by=("M1",),
        edits=(
            Edit(
                "hosts/execution/bodies.py",
                "            received=self.runtime.received,\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="delivered-counts-as-received",
        breaks=(
            "A message counts as received once it is delivered to the function, even if the function never "
            "takes it."
        ),
        caught_by=("M1", "L1"),
        edits=(
            Edit(
                "kernel/functions/inboxes.py",
                "            self._wake(channel)\n        return",
                "            self._wake(channel)\n            self.taken.append(message.number)\n        return",
            ),
        ),
    ),
    Mutant(
        name="channel-closed-over-message",
        breaks="A function closes a channel for which a message has arrived that it has not seen.",
        caught_by=("M1",),
        edits=(
            Edit(
                "kernel/rules/function_history.py",
                "            and events.SignalReceived.from_row(row).channel == record.channel\n",
                "            and events.SignalReceived.from_row(row).channel is None\n",
            ),
        ),
    ),
    Mutant(
        name="closed-channel-accepts-messages",
        breaks="A closed channel accepts a message that nothing will receive.",
        caught_by=("M1",),
        edits=(
            Edit(
                "kernel/rules/signals.py",
                "    if start is None and (refused",
                "    if False and (refused",
            ),
        ),
    ),
    Mutant(
        name="continue-as-new-loses-messages",
        breaks="A continue-as-new loses the unread messages.",
        caught_by=("M1",),
        edits=(
            Edit(
                "kernel/rules/continue_as_new.py",
                "    forward_unread(state, draft, run, unread)\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="first-messages-not-recorded",
        breaks=(
            "Which messages were there when a function began is not recorded: a replay begins without them."
        ),
        caught_by=("S4", "D2", "M1", "L1"),
        edits=(
            Edit(
                "hosts/functions/replay.py",
                "            last = self._todo.began = came\n",
                "            last = came\n",
            ),
        ),
    ),
    Mutant(
        name="kept-start-used-twice",
        breaks=(
            "A kept start that has begun a generation stays with its unread messages and begins the next one "
            "too."
        ),
        caught_by=("M1", "L1"),
        edits=(
            Edit(
                "kernel/rules/successors.py",
                "    forward_unread(state, draft, run, mailbox, row)\n",
                "    forward_unread(state, draft, run, mailbox)\n",
            ),
        ),
    ),
)
