"""Shrinking of a failing seed: removes the faults that the failure does not need, so that the cause can be read."""

from collections.abc import Callable, Sequence

import attrs

from holdfast.testing.simulation.faults import FaultSchedule, FiredFault
from holdfast.testing.simulation.seeds import SeedOutcome

TRIES_MAX = 200


@attrs.frozen
class Shrunk:
    """The smallest schedule found with which a seed fails in the same way, and its outcome."""

    schedule: FaultSchedule
    outcome: SeedOutcome
    tries: int


class _Shrinker:
    def __init__(
        self, play: Callable[[FaultSchedule], SeedOutcome], outcome: SeedOutcome, tries_max: int
    ) -> None:
        self.schedule = FaultSchedule()
        self.outcome = outcome
        self.tries = 0
        self._play = play
        self._way = _way(outcome)
        self._tries_max = tries_max

    def try_with(self, schedule: FaultSchedule) -> bool:
        """Simulate with a schedule; keep it if the seed fails in the same way."""
        if self.tries >= self._tries_max:
            return False
        self.tries += 1
        outcome = self._play(schedule)
        if _way(outcome) != self._way:
            return False
        self.schedule, self.outcome = schedule, outcome
        return True

    def drop_kinds(self) -> None:
        for kind in sorted({one.kind for one in self.outcome.fired}):
            self.try_with(attrs.evolve(self.schedule, without=self.schedule.without | {kind}))

    def drop_places(self) -> None:
        """Drop single faults: halves first, then quarters, and so on to one by one."""
        kept = list(self.outcome.fired)
        size = max(1, len(kept) // 2)
        while kept:
            at = 0
            while at < len(kept):
                fewer = kept[:at] + kept[at + size :]
                if self.try_with(attrs.evolve(self.schedule, only=_places(fewer))):
                    kept = [one for one in fewer if one in self.outcome.fired]
                else:
                    at += size
            if size == 1:
                return
            size = max(1, size // 2)


def shrink(
    play: Callable[[FaultSchedule], SeedOutcome], outcome: SeedOutcome, *, tries_max: int = TRIES_MAX
) -> Shrunk:
    """Remove faults from a failing seed as long as it fails in the same way: whole kinds, then single faults.

    Args:
        play: Simulates the seed with a schedule.
        outcome: The outcome with all faults.
        tries_max: The most simulations.
    """
    shrinker = _Shrinker(play, outcome, tries_max)
    shrinker.drop_kinds()
    shrinker.drop_places()
    return Shrunk(shrinker.schedule, shrinker.outcome, shrinker.tries)


def _places(fired: Sequence[FiredFault]) -> frozenset[tuple[str, int]]:
    return frozenset(one.location for one in fired)


def _way(outcome: SeedOutcome) -> tuple[object, str]:
    """Return how a seed fails: the exit code and the first violated invariant."""
    return outcome.exit, outcome.found[0].split(" ", 1)[0] if outcome.found else ""
