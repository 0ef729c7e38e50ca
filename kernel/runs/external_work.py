"""External work that its stage does not wait for any more: when it is over all the same, and when it goes on."""

from typing import Final

GAVE_UP: Final = "gave_up"
"""The code of the failure of a stage whose external work was not done in time."""

LOST_WORKER: Final = "worker_lost"
"""The code of the failure that a lost worker's attempts end with."""

_INCONCLUSIVE: Final = frozenset(
    {
        GAVE_UP,
        LOST_WORKER,
        "blob_corrupt",
        "blob_missing",
        "invalid_value",
        "storage_refused",
        "timeout",
        "unstorable_value",
    }
)
"""The codes of failures of a check that say nothing of the work: it was not asked, or its answer can't be taken."""


def is_over(code: str) -> bool:
    """Return whether external work has ended whose check failed for good with this code.

    If a check itself raises what is final, that is how it says that the work has failed. There is nothing to cancel.
    """
    return code not in _INCONCLUSIVE
