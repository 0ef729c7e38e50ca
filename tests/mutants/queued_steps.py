"""Planted bugs in queued steps: queueing, running, delivering the result."""

from typing import Final

from tests.mutants.mutant import Edit, Mutant

QUEUED_STEPS: Final = (
    Mutant(
        name="queued-step-wakes-no-function",
        breaks="A queued step ends, but does not wake the function that waits for it.",
        caught_by=("L1",),
        edits=(
            Edit(
                "kernel/rules/queued_steps.py",
                "    draft.close_job(job)\n    wake_driver(state, draft, run, now)\n",
                "    draft.close_job(job)\n",
            ),
        ),
    ),
    Mutant(
        name="lost-queued-step-not-counted",
        breaks="A queued step that is lost with its worker is retried under the same attempt number.",
        caught_by=("S8",),
        edits=(
            Edit(
                "kernel/rules/queued_steps.py",
                "lost = evolve(job, lost_attempts=job.lost_attempts + 1)",
                "lost = evolve(job, lost_attempts=job.lost_attempts + 1, attempts=job.attempts - 1)",
            ),
        ),
    ),
    Mutant(
        name="abandoned-step-keeps-its-job",
        breaks="A queued step that its function abandons keeps its job in the queue.",
        caught_by=("S7",),
        edits=(
            Edit(
                "kernel/rules/queued_steps.py",
                "epoch=driver.epoch)\n    draft.close_job(job)\n",
                "epoch=driver.epoch)\n",
            ),
        ),
    ),
    Mutant(
        name="replay-queues-step-again",
        breaks="A replay queues a step that is already in its queue.",
        caught_by=("S7",),
        edits=(
            Edit(
                "hosts/functions/pending_calls.py",
                "        self._new.pop(queued.call, None)\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="cancelled-run-keeps-steps-held",
        breaks="A cancel of a paused run leaves its queued steps held.",
        caught_by=("L1", "S7"),
        edits=(
            Edit(
                "kernel/rules/signals.py",
                "if job.kind is JobKind.STEP and job.state is JobState.PAUSED:",
                "if job.kind is JobKind.POLL and job.state is JobState.PAUSED:",
            ),
        ),
    ),
)
