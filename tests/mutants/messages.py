"""Planted bugs in the treatment of unread messages."""

from typing import Final

from tests.mutants.mutant import Edit, Mutant

MESSAGES: Final = (
    Mutant(
        name="unread-left-behind",
        breaks="a run that is started again gets nothing of what the generation before it has not received",
        caught_by=("M1",),
        edits=(
            Edit(
                "kernel/rules/runs.py",
                "    if known is not None:\n        forward_unread(",
                "    if known is not None and known.key == run.key:\n        forward_unread(",
            ),
        ),
    ),
    Mutant(
        name="starts-not-kept",
        breaks="a start that finds its run active sends it the messages, and is forgotten itself",
        caught_by=("M1",),
        edits=(
            Edit(
                "kernel/rules/runs.py",
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
        name="starts-begin-nothing",
        breaks="a run that ends without a message which came with its start begins no generation",
        caught_by=("M1",),
        edits=(
            Edit(
                "kernel/rules/settlement.py",
                "    if run.mailbox is None:\n        return settled\n",
                "    if run.mailbox is None or now:\n        return settled\n",
            ),
        ),
    ),
    Mutant(
        name="failed-runs-begin-nothing",
        breaks="a run that fails without a message which came with its start begins no generation",
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
        name="cancelled-runs-come-back",
        breaks="a run that somebody has cancelled begins again for messages that came before",
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
        name="received-is-handed-on-too",
        breaks="the next generation gets messages that the one before has received and only told at its end",
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
        name="told-is-taken-for-received",
        breaks="what a function was told counts as received, whether it has taken it or not",
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
        name="closed-over-a-message",
        breaks="a channel is closed though a message has come for it that the function was not told",
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
        name="closed-channels-take-messages",
        breaks="a message for a channel that its function has closed is taken, and nobody will receive it",
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
        name="continued-without-its-mail",
        breaks="a function that goes on as a new generation leaves behind what it has not received",
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
        name="begins-with-what-came-later",
        breaks="which messages were there when a function began is not recorded: a replay begins without them",
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
        name="a-start-begins-many",
        breaks="the start that has begun a generation is kept with what that has not received, and begins the next too",
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
