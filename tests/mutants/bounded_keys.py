"""Planted bugs in bounded concurrency keys."""

from typing import Final

from tests.mutants.mutant import Edit, Mutant

RULE: Final = "kernel/rules/start_bounds.py"

BOUNDED_KEYS: Final = (
    Mutant(
        name="one-run-too-many",
        breaks="A start under a bound is stored although its key is full.",
        caught_by=("F2",),
        edits=(
            Edit(
                RULE,
                "while line.total >= bound.open_max(line.slots) and",
                "while line.total > bound.open_max(line.slots) and",
            ),
        ),
    ),
    Mutant(
        name="waiting-runs-uncounted",
        breaks="Runs that wait do not count against the bound of their key.",
        caught_by=("F2",),
        edits=(
            Edit(
                RULE,
                "return self._beside.total + self._kept + len(self.under_way) + len(self.waiting)",
                "return self._beside.under_way + len(self.under_way)",
            ),
        ),
    ),
)
