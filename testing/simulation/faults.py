"""The kinds of faults, their probabilities in one seed, and the decision at each point whether one fires."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from random import Random
from typing import Final

import attrs


class FaultKind(StrEnum):
    """A kind of fault that can fire at a point between two effects."""

    CRASH = "crash"
    """The process crashes and restarts later."""
    PAUSE = "pause"
    """The process stops, mostly for longer than its lease, and resumes without noticing."""
    FREEZE = "freeze"
    """A pause in which the monotonic clock stops too, as in a suspended machine or a frozen serverless function."""
    SLOW = "slow"
    """The call takes seconds to return."""
    FAILS_BEFORE = "fails_before"
    """The call fails without an effect."""
    LOST_ANSWER = "lost_answer"
    """The call takes effect, but its response is lost."""
    RUNS_AGAIN = "runs_again"
    """The transaction runs, is rolled back and runs again, as after a deadlock."""
    REFUSED = "refused"
    """The store refuses a value, as a database does that cannot represent it."""
    HINT_LOST = "hint_lost"
    HINT_REPEATED = "hint_repeated"
    HINT_LATE = "hint_late"
    """A late hint, so that hints arrive out of order."""
    CLOCK_JUMP = "clock_jump"
    """The wall clock of the process is set forward or back."""
    BLOB_MISSING = "blob_missing"
    """A blob is temporarily not found."""
    BLOB_CORRUPT = "blob_corrupt"
    """A blob's bytes are temporarily truncated or wrong."""
    SINK_FAILS = "sink_fails"
    SINK_REFUSES = "sink_refuses"
    """A sink refuses an event until it is repaired."""
    DEPLOY = "deploy"
    """The process is drained and restarts with other code."""
    BLOB_FAILS = "blob_fails"
    """The blob store fails to store a blob."""
    CLOCK_DRIFT = "clock_drift"
    """The clocks of the process run too fast or too slowly for its whole life."""
    POISON = "poison"
    """A poison step kills its worker, in the healing phase too."""


_STOPS: Final = frozenset({FaultKind.CRASH, FaultKind.PAUSE, FaultKind.FREEZE})
WRITE: Final = (
    FaultKind.FAILS_BEFORE,
    FaultKind.RUNS_AGAIN,
    FaultKind.REFUSED,
    FaultKind.SLOW,
    FaultKind.PAUSE,
    FaultKind.FREEZE,
    FaultKind.CRASH,
)
READ: Final = (FaultKind.FAILS_BEFORE, FaultKind.SLOW, FaultKind.PAUSE, FaultKind.FREEZE, FaultKind.CRASH)
WRITTEN: Final = (FaultKind.LOST_ANSWER, FaultKind.SLOW, FaultKind.PAUSE, FaultKind.FREEZE, FaultKind.CRASH)
RETURNED: Final = (FaultKind.SLOW, FaultKind.PAUSE, FaultKind.FREEZE, FaultKind.CRASH, FaultKind.CLOCK_JUMP)
HINT: Final = (FaultKind.HINT_LOST, FaultKind.HINT_REPEATED, FaultKind.HINT_LATE)
BLOB_WRITE: Final = (FaultKind.BLOB_FAILS, *READ)
BLOB_READ: Final = (FaultKind.BLOB_MISSING, FaultKind.BLOB_CORRUPT, *READ)
SINK: Final = (FaultKind.SINK_FAILS, FaultKind.SINK_REFUSES, FaultKind.SLOW, FaultKind.CRASH)
BODY: Final = (FaultKind.CRASH, FaultKind.PAUSE)
IDLE: Final = (FaultKind.DEPLOY, FaultKind.CLOCK_JUMP, FaultKind.CRASH)
"""The kinds that can fire at each sort of point: before a write, after a write, before a read, and so on."""

_LIKELY: Final[Mapping[FaultKind, float]] = {
    FaultKind.CRASH: 0.012,
    FaultKind.PAUSE: 0.012,
    FaultKind.FREEZE: 0.006,
    FaultKind.SLOW: 0.02,
    FaultKind.FAILS_BEFORE: 0.03,
    FaultKind.LOST_ANSWER: 0.03,
    FaultKind.RUNS_AGAIN: 0.05,
    FaultKind.REFUSED: 0.012,
    FaultKind.HINT_LOST: 0.2,
    FaultKind.HINT_REPEATED: 0.2,
    FaultKind.HINT_LATE: 0.2,
    FaultKind.CLOCK_JUMP: 0.01,
    FaultKind.BLOB_MISSING: 0.25,
    FaultKind.BLOB_CORRUPT: 0.25,
    FaultKind.SINK_FAILS: 0.1,
    FaultKind.SINK_REFUSES: 0.03,
    FaultKind.DEPLOY: 0.02,
    FaultKind.BLOB_FAILS: 0.35,
    FaultKind.CLOCK_DRIFT: 0.5,
    FaultKind.POISON: 1.0,
}
"""The base probability of each kind at a point where it can fire; of `CLOCK_DRIFT`, in each process."""

_STRENGTHS: Final = (0.0, 0.0, 0.3, 1.0, 2.0)


@attrs.frozen
class FiredFault:
    """A fault that fired at a point of a process."""

    process: str
    point: int
    kind: FaultKind

    @property
    def location(self) -> tuple[str, int]:
        """The process and the point at which the fault fired."""
        return self.process, self.point


@attrs.frozen(kw_only=True)
class FaultSchedule:
    """The restrictions on a seed's faults. Without any, all fire; shrinking adds more and more.

    Attributes:
        without: Kinds that do not fire.
        until: No fault fires later than this many microseconds after the start. None: no limit.
        skipped: Points at which no fault fires.
        only: The only points at which a fault may fire. None: all points.
    """

    without: frozenset[FaultKind] = frozenset()
    until: int | None = None
    skipped: frozenset[tuple[str, int]] = frozenset()
    only: frozenset[tuple[str, int]] | None = None


class Faults:
    """Decides at each point whether a fault fires. `strengths` maps each kind to its probability, 0 to 1."""

    def __init__(self, strengths: Mapping[FaultKind, float], schedule: FaultSchedule, began: int) -> None:
        self.strengths = strengths
        self.fired: list[FiredFault] = []
        self.points = 0
        self.in_bodies = 0
        """The number of points that lie in a body."""
        self.is_on = True
        self._schedule = schedule
        self._until = None if schedule.until is None else began + schedule.until
        self._bounds: dict[Sequence[FaultKind], list[tuple[float, FaultKind]]] = {}

    @property
    def counts(self) -> Counter[FaultKind]:
        """The number of fired faults of each kind."""
        return Counter(one.kind for one in self.fired)

    def next(
        self, process: str, point: int, random: Random, among: Sequence[FaultKind], now: int
    ) -> FaultKind | None:
        """Return the fault that fires at a point, one of `among`; None if none does. Draws exactly one number."""
        drawn = random.random()
        if not self.is_on:
            return None
        self.points += 1
        self.in_bodies += among is BODY
        bounds = self._bounds.get(among)
        if bounds is None:
            bounds = self._bounds[among] = self._bounds_of(among)
        if drawn >= bounds[-1][0]:
            return None
        kind = next(kind for bound, kind in bounds if drawn < bound)
        if self._is_left_out(kind, (process, point), now):
            return None
        self.fired.append(FiredFault(process, point, kind))
        return kind

    def draw_for_life(self, process: str, kind: FaultKind, random: Random, now: int) -> bool:
        """Draw whether a process has a fault of this kind from its start, which counts as point 0."""
        fires = random.random() < self.strengths.get(kind, 0.0)
        if not fires or not self.is_on or self._is_left_out(kind, (process, 0), now):
            return False
        self.fired.append(FiredFault(process, 0, kind))
        return True

    def has_stopped(self, process: str) -> bool:
        """Return whether a fault has crashed or paused a process."""
        return any(one.process == process and one.kind in _STOPS for one in self.fired)

    def kills(self, process: str, point: int, now: int) -> bool:
        """Return whether a poison step kills its worker here. In a seed with `POISON`, every one does."""
        fires = self.strengths.get(FaultKind.POISON, 0.0) > 0 and not self._is_left_out(
            FaultKind.POISON, (process, point), now
        )
        if fires:
            self.fired.append(FiredFault(process, point, FaultKind.POISON))
        return fires

    def _bounds_of(self, among: Sequence[FaultKind]) -> list[tuple[float, FaultKind]]:
        bounds: list[tuple[float, FaultKind]] = []
        total = 0.0
        for kind in among:
            total += self.strengths.get(kind, 0.0)
            bounds.append((total, kind))
        return bounds

    def _is_left_out(self, kind: FaultKind, place: tuple[str, int], now: int) -> bool:
        schedule = self._schedule
        return (
            kind in schedule.without
            or (self._until is not None and now > self._until)
            or place in schedule.skipped
            or (schedule.only is not None and place not in schedule.only)
        )


def draw_strengths(random: Random, kinds: Collection[FaultKind] = tuple(FaultKind)) -> dict[FaultKind, float]:
    """Draw the probability of each kind of fault in one seed. Two of five kinds get 0."""
    return {kind: _LIKELY[kind] * random.choice(_STRENGTHS) for kind in FaultKind if kind in kinds}
