"""External work whose stage has stopped waiting for it: whether the work itself has ended."""

from typing import Final

POLLING_EXPIRED: Final = "gave_up"
"""Failure code of a stage whose external work did not end in time."""

LOST_WORKER: Final = "worker_lost"
"""Failure code of a job that failed because its attempts were lost with their workers."""

_INCONCLUSIVE: Final = frozenset(
    {
        POLLING_EXPIRED,
        LOST_WORKER,
        "blob_corrupt",
        "blob_missing",
        "invalid_value",
        "storage_refused",
        "timeout",
        "unstorable_value",
    }
)
"""Failure codes of a check with no information about the work: it did not run, or its answer was not storable."""


def has_external_work_ended(code: str) -> bool:
    """Return whether external work has ended, given the failure code of its last check.

    A check that raises a final error reports in this way that the work has failed: there is nothing to cancel.
    """
    return code not in _INCONCLUSIVE
