"""Planted bugs in schedules that the simulator can't see, because they make a firing late by an instant."""

from typing import Final

from tests.mutants.by_tests.edits import one_edit
from tests.mutants.mutant import Mutant

SCHEDULES: Final[tuple[Mutant, ...]] = (
    one_edit(
        "schedule-late-by-a-microsecond",
        "A nominal time that is exactly now is not due yet.",
        "kernel/rules/schedule_starts.py",
        "        if row.next_at is None or row.next_at > now:\n",
        "        if row.next_at is None or row.next_at >= now:\n",
        "tests/unit/kernel/test_schedules.py -k nothing_starts_before",
    ),
)
