"""All bugs of the second list, with the explained survivors."""

from collections.abc import Mapping
from typing import Final

from tests.mutants.by_tests.adapters import ADAPTERS
from tests.mutants.by_tests.intervals import INTERVALS
from tests.mutants.by_tests.limits import LIMITS
from tests.mutants.by_tests.processes import PROCESSES
from tests.mutants.by_tests.rechecks import RECHECKS
from tests.mutants.by_tests.schedules import SCHEDULES
from tests.mutants.by_tests.unreadable_rows import UNREADABLE_ROWS
from tests.mutants.by_tests.values import VALUES
from tests.mutants.mutant import Mutant

MUTANTS: Final[tuple[Mutant, ...]] = (
    *INTERVALS,
    *LIMITS,
    *RECHECKS,
    *ADAPTERS,
    *VALUES,
    *PROCESSES,
    *UNREADABLE_ROWS,
    *SCHEDULES,
)
BY_NAME: Final = {mutant.name: mutant for mutant in MUTANTS}
SURVIVORS: Final[Mapping[str, str]] = {
    "session-reaped-within-grace": (
        "the search for expired sessions adds the grace period too, and a session renewed since has a later expiry"
    ),
}
"""The mutants that no fast test can catch, with the reason."""
