"""A bound on the number of time series of a metric."""

from typing import Final

VALUES_MAX: Final = 200
"""How many different values, or combinations of values, a metric has."""
OTHER: Final = "other"
"""Stands for all values beyond that."""


class LabelLimit:
    """Passes the first so many combinations of label values, and replaces all others. Safe from any thread."""

    def __init__(self, values_max: int = VALUES_MAX) -> None:
        self._values_max = values_max
        self._known: set[tuple[str, ...]] = set()

    def __call__(self, *values: str) -> tuple[str, ...]:
        """Return the values, or `other` in place of each."""
        if values in self._known:
            return values
        if len(self._known) >= self._values_max:
            return (OTHER,) * len(values)
        self._known.add(values)
        return values
