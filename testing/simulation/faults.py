"""Which faults there are, how likely each is in one seed, and which of them fire."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from random import Random
from typing import Final

import attrs


class Kind(StrEnum):
    """What can go wrong at a point between two effects."""

    CRASH = "crash"
    """The process ends here, and starts again later."""
    PAUSE = "pause"
    """The process stands still, for longer than its lease, and goes on as if nothing had been."""
    FREEZE = "freeze"
    """So does its monotonic clock: a machine is suspended, or a function frozen."""
    SLOW = "slow"
    """The call takes seconds."""
    FAILS_BEFORE = "fails_before"
    """The call fails, and nothing was done."""
    LOST_ANSWER = "lost_answer"
    """The call fails, and it was done."""
    RUNS_AGAIN = "runs_again"
    """The transaction's work is run, rolled back and run again, as after a deadlock."""
    REFUSED = "refused"
    """The store refuses what is to be written, as a database refuses a value."""
    HINT_LOST = "hint_lost"
    HINT_REPEATED = "hint_repeated"
    HINT_LATE = "hint_late"
    """And so hints overtake each other."""
    CLOCK_JUMP = "clock_jump"
    """The wall clock of the process is set, forward or back."""
    BLOB_MISSING = "blob_missing"
    """A blob is not found, for a while."""
    BLOB_CORRUPT = "blob_corrupt"
    """A blob's bytes are torn, or others, for a while."""
    SINK_FAILS = "sink_fails"
    SINK_REFUSES = "sink_refuses"
    """A sink refuses an event, until somebody has mended it."""
    DEPLOY = "deploy"
    """The process is told to end gently, and starts again with other code."""
    BLOB_FAILS = "blob_fails"
    """The blob store does not take a blob."""
    CLOCK_DRIFT = "clock_drift"
    """The clocks of the process run too fast, or too slowly, from its beginning to its end."""
    POISON = "poison"
    """A step that kills its worker does, also when nothing else goes wrong any more."""


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
"""The kinds that can fire at a point: before and after a write or a read, and so on."""

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
"""How likely each kind is at a point where it can fire, in a seed that has much of it. Of drift: in each process."""

_STRENGTHS: Final = (0.0, 0.0, 0.3, 1.0, 2.0)


@attrs.frozen
class Fired:
    """A fault that has fired: at which point of which process, of which kind."""

    process: str
    point: int
    kind: Kind

    @property
    def place(self) -> tuple[str, int]:
        """Where it fired."""
        return self.process, self.point


@attrs.frozen(kw_only=True)
class Schedule:
    """Which of a seed's faults are to fire: all, but for what is left out here. Shrinking leaves out more and more.

    Attributes:
        without: Kinds that do not fire.
        until: No fault fires after so many microseconds; None: as long as the fault phase lasts.
        skipped: Points at which none fires.
        only: If not None, the only points at which one may fire.
    """

    without: frozenset[Kind] = frozenset()
    until: int | None = None
    skipped: frozenset[tuple[str, int]] = frozenset()
    only: frozenset[tuple[str, int]] | None = None


class Faults:
    """Decides at each point what goes wrong there. `strengths` says how likely each kind is, 0 to 1."""

    def __init__(self, strengths: Mapping[Kind, float], schedule: Schedule, began: int) -> None:
        self.strengths = strengths
        self.fired: list[Fired] = []
        self.points = 0
        self.in_bodies = 0
        """At how many of the points a body does something."""
        self.is_on = True
        self._schedule = schedule
        self._until = None if schedule.until is None else began + schedule.until
        self._bounds: dict[Sequence[Kind], list[tuple[float, Kind]]] = {}

    @property
    def counts(self) -> Counter[Kind]:
        """How often each kind has fired."""
        return Counter(one.kind for one in self.fired)

    def next(self, process: str, point: int, random: Random, among: Sequence[Kind], now: int) -> Kind | None:
        """Return what goes wrong at a point, if it is one of these kinds. One number is drawn, whatever comes of it."""
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
        """Whether a process has this fault from its beginning: that is its point 0."""
        fires = random.random() < self.strengths.get(kind, 0.0)
        if not fires or not self.is_on or self._is_left_out(kind, (process, 0), now):
            return False
        self.fired.append(Fired(process, 0, kind))
        return True

    def kills(self, process: str, point: int, now: int) -> bool:
        """Whether a step that kills its worker does so here. In a seed in which they do, all do."""
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
    """Draw how likely each kind of fault is in one seed. Two of five kinds do not happen at all."""
    return {kind: _LIKELY[kind] * random.choice(_STRENGTHS) for kind in Kind if kind in kinds}
