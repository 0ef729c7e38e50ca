"""All bugs of the second list, and why some of them are not caught."""

from collections.abc import Mapping
from typing import Final

from tests.mutants.by_tests.of_adapters import OF_ADAPTERS
from tests.mutants.by_tests.of_ages import OF_AGES
from tests.mutants.by_tests.of_limits import OF_LIMITS
from tests.mutants.by_tests.of_looks import OF_LOOKS
from tests.mutants.by_tests.of_processes import OF_PROCESSES
from tests.mutants.by_tests.of_rows import OF_ROWS
from tests.mutants.by_tests.of_values import OF_VALUES
from tests.mutants.mutant import Mutant

MUTANTS: Final[tuple[Mutant, ...]] = (
    *OF_AGES,
    *OF_LIMITS,
    *OF_LOOKS,
    *OF_ADAPTERS,
    *OF_VALUES,
    *OF_PROCESSES,
    *OF_ROWS,
)
BY_NAME: Final = {mutant.name: mutant for mutant in MUTANTS}
SURVIVORS: Final[Mapping[str, str]] = {
    "reaped-within-its-grace": (
        "the search for sessions has the grace, too, and one that was renewed since ends later than now"
    ),
}
"""Those that no fast test can catch, and why not."""
