"""Makes the schedule of a seed that fails as small as can be, so that a person can read why it does."""

from collections.abc import Callable, Sequence

import attrs

from holdfast.testing.simulation.faults import Fired, Schedule
from holdfast.testing.simulation.seeds import Outcome

TRIES_MAX = 200


@attrs.frozen
class Shrunk:
    """The smallest schedule that was found with which a seed fails in the same way, and what it comes to then."""

    schedule: Schedule
    outcome: Outcome
    tries: int


class _Shrinker:
    def __init__(self, play: Callable[[Schedule], Outcome], outcome: Outcome, tries_max: int) -> None:
        self.schedule = Schedule()
        self.outcome = outcome
        self.tries = 0
        self._play = play
        self._way = _way(outcome)
        self._tries_max = tries_max

    def try_with(self, schedule: Schedule) -> bool:
        """Play with this schedule; keep it if that fails in the same way."""
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
        """Keep only some of the places, by halves, quarters, and so on, and in the end one by one."""
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


def shrink(play: Callable[[Schedule], Outcome], outcome: Outcome, *, tries_max: int = TRIES_MAX) -> Shrunk:
    """Leave out faults of a seed that fails, as long as it fails in the same way: whole kinds, then single ones.

    Args:
        play: Simulates the seed with some of its faults left out.
        outcome: What it came to with all of them.
        tries_max: How often it is simulated at most.
    """
    shrinker = _Shrinker(play, outcome, tries_max)
    shrinker.drop_kinds()
    shrinker.drop_places()
    return Shrunk(shrinker.schedule, shrinker.outcome, shrinker.tries)


def _places(fired: Sequence[Fired]) -> frozenset[tuple[str, int]]:
    return frozenset(one.place for one in fired)


def _way(outcome: Outcome) -> tuple[object, str]:
    """Return how a seed fails: the exit code, and the first invariant that does not hold."""
    return outcome.exit, outcome.found[0].split(" ", 1)[0] if outcome.found else ""
