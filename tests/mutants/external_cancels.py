"""Planted bugs in the cancelling of external work that no run waits for any more."""

from typing import Final

from tests.mutants.mutant import Edit, Mutant

EXTERNAL_CANCELS: Final = (
    Mutant(
        name="deadline-leaves-work",
        breaks="a run whose deadline has passed leaves its external work to go on",
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
        name="map-leaves-work",
        breaks="a map that is done without some of its items leaves their external work to go on",
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
        name="cancel-begins-with-epochs-anew",
        breaks="a check that is made what cancels gets the epochs again that it has had",
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
        name="lost-cancel-forgotten",
        breaks="what cancels work of an ended run, and is lost with its worker, is given to nobody else",
        caught_by=("L1",),
        edits=(
            Edit(
                "kernel/rules/sessions.py",
                "        if run is None:\n            continue\n        jobs = ",
                "        if run is None or run.status in TERMINAL:\n            continue\n        jobs = ",
            ),
        ),
    ),
    Mutant(
        name="failed-work-and-work-given-up",
        breaks="external work that has failed is cancelled, and that which was given up goes on",
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
        name="cancelled-by-failing",
        breaks="an attempt to cancel external work that fails counts as if it had cancelled it",
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
