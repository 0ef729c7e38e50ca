"""A cache of parsed plans. Plans never change, but each run with overrides has its own, so the cache is bounded."""

from collections.abc import Iterable
from typing import Final

from holdfast.kernel.pipelines.plan import Plan

PLANS_KEPT: Final = 256


class PlanCache:
    """Caches the plans used last: at least `limit` of them and at most twice as many.

    Safe to use from several threads without a lock: at worst a plan is read once more.
    """

    def __init__(self, limit: int = PLANS_KEPT) -> None:
        self._limit = limit
        self._young: dict[str, Plan] = {}
        self._old: dict[str, Plan] = {}

    def __len__(self) -> int:
        """Return the number of cached plans."""
        return len(self._young.keys() | self._old.keys())

    def found(self, fingerprints: Iterable[str]) -> dict[str, Plan]:
        """Return the cached ones of these plans, by fingerprint."""
        young, old = self._young, self._old
        known: dict[str, Plan] = {}
        for fingerprint in set(fingerprints):
            plan = young.get(fingerprint)
            if plan is None and (plan := old.get(fingerprint)) is not None:
                self.add(plan)
            if plan is not None:
                known[fingerprint] = plan
        return known

    def add(self, plan: Plan) -> None:
        """Add a plan."""
        if len(self._young) >= self._limit:
            self._old, self._young = self._young, {}
        self._young[plan.fingerprint] = plan
