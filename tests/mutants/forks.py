"""Planted bugs in forks of durable functions: rows kept, messages repeated, calls taken over."""

from typing import Final

from tests.mutants.mutant import Edit, Mutant

FORKS: Final = (
    Mutant(
        name="fork-loses-queued-steps",
        breaks="A fork does not queue the steps that were queued at its point.",
        caught_by=("L1", "S6", "S7"),
        edits=(
            Edit(
                "hosts/functions/pending_calls.py",
                "request.queue is not None:\n                self.enqueue(request)\n",
                "request.queue is not None:\n                del request\n",
            ),
        ),
    ),
    Mutant(
        name="fork-loses-messages",
        breaks="A fork loses the messages that arrived after its point.",
        caught_by=("I1",),
        edits=(
            Edit(
                "kernel/runs/forks.py",
                "case events.SignalReceived.type if row.number not in returned:\n                yield row\n",
                "case events.SignalReceived.type if row.number not in returned:\n                pass\n",
            ),
        ),
    ),
    Mutant(
        name="fork-loses-children",
        breaks="A fork does not adopt child runs: they stay with the ended generation.",
        caught_by=("L1", "S7"),
        edits=(
            Edit(
                "kernel/rules/reruns.py",
                "        changes += adopt_child(child, JobKey(run.key, 1)).changes\n",
                "        del child\n",
            ),
        ),
    ),
)
