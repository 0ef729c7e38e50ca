"""The kinds of faults, their probabilities in one seed, and the decision at each point whether one fires."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from random import Random
from typing import Final

import attrs


class Kind(StrEnum):
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


WRITE: Final = (
    Kind.FAILS_BEFORE,
    Kind.RUNS_AGAIN,
    Kind.REFUSED,
    Kind.SLOW,
    Kind.PAUSE,
    Kind.FREEZE,
    Kind.CRASH,
)
READ: Final = (Kind.FAILS_BEFORE, Kind.SLOW, Kind.PAUSE, Kind.FREEZE, Kind.CRASH)
WRITTEN: Final = (Kind.LOST_ANSWER, Kind.SLOW, Kind.PAUSE, Kind.FREEZE, Kind.CRASH)
RETURNED: Final = (Kind.SLOW, Kind.PAUSE, Kind.FREEZE, Kind.CRASH, Kind.CLOCK_JUMP)
HINT: Final = (Kind.HINT_LOST, Kind.HINT_REPEATED, Kind.HINT_LATE)
BLOB_WRITE: Final = (Kind.BLOB_FAILS, *READ)
BLOB_READ: Final = (Kind.BLOB_MISSING, Kind.BLOB_CORRUPT, *READ)
SINK: Final = (Kind.SINK_FAILS, Kind.SINK_REFUSES, Kind.SLOW, Kind.CRASH)
BODY: Final = (Kind.CRASH, Kind.PAUSE)
IDLE: Final = (Kind.DEPLOY, Kind.CLOCK_JUMP, Kind.CRASH)
"""The kinds that can fire at each sort of point: before a write, after a write, before a read, and so on."""

_LIKELY: Final[Mapping[Kind, float]] = {
    Kind.CRASH: 0.012,
    Kind.PAUSE: 0.012,
    Kind.FREEZE: 0.006,
    Kind.SLOW: 0.02,
    Kind.FAILS_BEFORE: 0.03,
    Kind.LOST_ANSWER: 0.03,
    Kind.RUNS_AGAIN: 0.05,
    Kind.REFUSED: 0.012,
    Kind.HINT_LOST: 0.2,
    Kind.HINT_REPEATED: 0.2,
    Kind.HINT_LATE: 0.2,
    Kind.CLOCK_JUMP: 0.01,
    Kind.BLOB_MISSING: 0.25,
    Kind.BLOB_CORRUPT: 0.25,
    Kind.SINK_FAILS: 0.1,
    Kind.SINK_REFUSES: 0.03,
    Kind.DEPLOY: 0.02,
    Kind.BLOB_FAILS: 0.35,
    Kind.CLOCK_DRIFT: 0.5,
    Kind.POISON: 1.0,
}
"""The base probability of each kind at a point where it can fire; of `CLOCK_DRIFT`, in each process."""

_STRENGTHS: Final = (0.0, 0.0, 0.3, 1.0, 2.0)


@attrs.frozen
class Fired:
    """A fault that fired at a point of a process."""

    process: str
    point: int
    kind: Kind

    @property
    def place(self) -> tuple[str, int]:
        """The process and the point at which the fault fired."""
        return self.process, self.point


@attrs.frozen(kw_only=True)
class Schedule:
    """The restrictions on a seed's faults. Without any, all fire; shrinking adds more and more.

    Attributes:
        without: Kinds that do not fire.
        until: No fault fires later than this many microseconds after the start. None: no limit.
        skipped: Points at which no fault fires.
        only: The only points at which a fault may fire. None: all points.
    """

    without: frozenset[Kind] = frozenset()
    until: int | None = None
    skipped: frozenset[tuple[str, int]] = frozenset()
    only: frozenset[tuple[str, int]] | None = None


class Faults:
    """Decides at each point whether a fault fires. `strengths` maps each kind to its probability, 0 to 1."""

    def __init__(self, strengths: Mapping[Kind, float], schedule: Schedule, began: int) -> None:
        self.strengths = strengths
        self.fired: list[Fired] = []
        self.points = 0
        self.in_bodies = 0
        """The number of points that lie in a body."""
        self.is_on = True
        self._schedule = schedule
        self._until = None if schedule.until is None else began + schedule.until
        self._bounds: dict[Sequence[Kind], list[tuple[float, Kind]]] = {}

    @property
    def counts(self) -> Counter[Kind]:
        """The number of fired faults of each kind."""
        return Counter(one.kind for one in self.fired)

    def next(self, process: str, point: int, random: Random, among: Sequence[Kind], now: int) -> Kind | None:
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
        self.fired.append(Fired(process, point, kind))
        return kind

    def from_birth(self, process: str, kind: Kind, random: Random, now: int) -> bool:
        """Draw whether a process has a fault of this kind from its start, which counts as point 0."""
        fires = random.random() < self.strengths.get(kind, 0.0)
        if not fires or not self.is_on or self._is_left_out(kind, (process, 0), now):
            return False
        self.fired.append(Fired(process, 0, kind))
        return True

    def kills(self, process: str, point: int, now: int) -> bool:
        """Return whether a poison step kills its worker here. In a seed with `POISON`, every one does."""
        fires = self.strengths.get(Kind.POISON, 0.0) > 0 and not self._is_left_out(
            Kind.POISON, (process, point), now
        )
        if fires:
            self.fired.append(Fired(process, point, Kind.POISON))
        return fires

    def _bounds_of(self, among: Sequence[Kind]) -> list[tuple[float, Kind]]:
        bounds: list[tuple[float, Kind]] = []
        total = 0.0
        for kind in among:
            total += self.strengths.get(kind, 0.0)
            bounds.append((total, kind))
        return bounds

    def _is_left_out(self, kind: Kind, place: tuple[str, int], now: int) -> bool:
        schedule = self._schedule
        return (
            kind in schedule.without
            or (self._until is not None and now > self._until)
            or place in schedule.skipped
            or (schedule.only is not None and place not in schedule.only)
        )


def draw_strengths(random: Random, kinds: Collection[Kind] = tuple(Kind)) -> dict[Kind, float]:
    """Draw the probability of each kind of fault in one seed. Two of five kinds get 0."""
    return {kind: _LIKELY[kind] * random.choice(_STRENGTHS) for kind in Kind if kind in kinds}
