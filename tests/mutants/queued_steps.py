"""Planted bugs in queued steps: queueing, running, delivering the result."""

from typing import Final

from tests.mutants.mutant import Edit, Mutant

QUEUED_STEPS: Final = (
    Mutant(
        name="queued-step-wakes-nobody",
        breaks="a step of a queue ends, and the function that waits for it is not woken",
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
        breaks="a step of a queue that was lost with its worker is tried again as the same attempt",
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
        name="dropped-step-stays-in-its-queue",
        breaks="a step that its function does not wait for any more is taken out of its queue, and its job stays",
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
        name="replay-queues-again",
        breaks="whoever replays a function puts what is in a queue there once more",
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
        name="cancelled-while-held-stays-held",
        breaks="a run that was paused is cancelled, and its steps in queues stay held",
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
