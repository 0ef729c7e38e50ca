"""Planted bugs in forks of durable functions: rows kept, messages repeated, calls taken over."""

from typing import Final

from tests.mutants.mutant import Edit, Mutant

FORKS: Final = (
    Mutant(
        name="fork-queues-no-step-again",
        breaks="a step that was in a queue at the point gets into none in the new generation",
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
        name="fork-forgets-messages",
        breaks="messages that came after the point are not told to the new generation",
        caught_by=("I1",),
        edits=(
            Edit(
                "kernel/runs/forks.py",
                "case events.SignalReceived.type:\n                yield row\n",
                "case events.SignalReceived.type:\n                pass\n",
            ),
        ),
    ),
    Mutant(
        name="fork-leaves-children-to-the-dead",
        breaks="runs that were started before the point stay those of the generation that has ended",
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
