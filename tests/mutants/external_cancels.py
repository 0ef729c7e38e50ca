"""Planted bugs in the cancelling of external work that no run waits for any more."""

from typing import Final

from tests.mutants.mutant import Edit, Mutant

EXTERNAL_CANCELS: Final = (
    Mutant(
        name="deadline-abandons-external-work",
        breaks="A run that exceeds its deadline does not cancel its external work.",
        caught_by=("C2",),
        edits=(
            Edit(
                "kernel/rules/deadlines.py",
                "draft.end(RunStatus.FAILED, cancels=state.cancels_of(run), error=error)",
                "draft.end(RunStatus.FAILED, cancels={}, error=error)",
            ),
        ),
    ),
    Mutant(
        name="map-abandons-external-work",
        breaks="A map that ends before all of its items have ended does not cancel their external work.",
        caught_by=("C2",),
        edits=(
            Edit(
                "kernel/runs/builder.py",
                "if stage.cancel is not None:\n                self._changes",
                "if stage.cancel is not None and jobs > 9:\n                self._changes",
            ),
        ),
    ),
    Mutant(
        name="cancel-job-resets-epoch",
        breaks=(
            "The job that cancels external work starts again at epoch 0 and repeats the epochs of the poll."
        ),
        caught_by=("S1", "S2", "S3"),
        edits=(
            Edit(
                "ports/records/job.py",
                "        wake_at=None,\n        attempts=0,\n        max_attempts=attempts,\n",
                "        wake_at=None,\n        epoch=0,\n        attempts=0,\n        max_attempts=attempts,\n",
            ),
        ),
    ),
    Mutant(
        name="lost-cancel-job-stays-leased",
        breaks=(
            "The reaper ignores a lost job that cancels external work of an ended run: it is never claimed "
            "again."
        ),
        caught_by=("L1",),
        edits=(
            Edit(
                "kernel/rules/sessions.py",
                "            if run is None:\n                continue\n            jobs = ",
                "            if run is None or run.status in TERMINAL:\n                continue\n            jobs = ",
            ),
        ),
    ),
    Mutant(
        name="wrong-external-work-cancelled",
        breaks="External work that has failed is cancelled; work that exceeded its time limit is not.",
        caught_by=("C2", "L1"),
        edits=(
            Edit(
                "kernel/rules/retries.py",
                "    if job.kind is JobKind.POLL and not goes_on and",
                "    if job.kind is JobKind.POLL and goes_on and",
            ),
        ),
    ),
    Mutant(
        name="failed-cancel-counts-as-done",
        breaks="A failed attempt to cancel external work counts as a cancellation.",
        caught_by=("L1",),
        edits=(
            Edit(
                "hosts/execution/bodies.py",
                "        return Failed(failure=failure)\n\n    def timed_out",
                "        is_cancel = self.attempt.kind is JobKind.CANCEL\n"
                "        return Cancelled() if is_cancel else Failed(failure=failure)\n\n    def timed_out",
            ),
        ),
    ),
)
