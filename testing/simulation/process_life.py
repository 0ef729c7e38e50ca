"""One life of a simulated process: its clocks, and the points at which something may go wrong in it."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from holdfast.hosts.wiring.store_clock import GAIN_MAX
from holdfast.testing.simulation.faults import IDLE, Faults, Kind
from holdfast.testing.simulation.fibers import Hub, Process
from holdfast.testing.simulation.trace import Trace

SKEW_MAX: Final = 600_000_000
JUMP_MAX: Final = 3_600_000_000
DRIFT_MAX: Final = 0.03
"""Seconds in each by which the clocks of a process run too fast or too slowly at most: more than any real ones do."""

_SECOND: Final = 1_000_000


class Life(Process):
    """A process that meets faults. `lease` is in seconds: a pause lasts longer than that, mostly.

    `skew` is by how much its wall clock is wrong, in microseconds. Both of its clocks gain `drift` seconds in each, or
    lose it where that is negative.
    """

    def __init__(
        self,
        hub: Hub,
        name: str,
        random: Random,
        *,
        faults: Faults,
        trace: Trace,
        lease: float,
        crashed: Callable[["Life"], None],
    ) -> None:
        super().__init__(hub, name, random)
        self.skew = 0
        self.drift = 0.0
        self._born = hub.now
        self.wants_to_end = False
        self.has_all_code = True
        self._faults = faults
        self._trace = trace
        self._lease = lease
        self._crashed = crashed
        self._points = 0

    @property
    def gained(self) -> float:
        """By how many seconds its clocks are ahead by now, for they run too fast; negative if they run too slowly."""
        return self.drift * (self.hub.now - self._born - self.frozen) / _SECOND

    def draw_drift(self, random: Random) -> None:
        """Have the clocks run too fast or too slowly, if that is to be."""
        if self._faults.from_birth(self.name, Kind.CLOCK_DRIFT, random, self.hub.now):
            self.drift = random.choice((GAIN_MAX, DRIFT_MAX)) * random.uniform(-1, 1)

    @property
    def may_be_early(self) -> float:
        """How many microseconds before its time it may do something: nothing is promised for clocks as fast as that."""
        return max(0.0, self.drift - GAIN_MAX) * (self.hub.now - self._born)

    def passing(self, seconds: float) -> float:
        """Return how many seconds pass while its clocks show that so many do."""
        return seconds / (1 + self.drift)

    def log(self, what: str) -> None:
        """Add a line to the trace."""
        self._trace.add(self.hub.now, self.name, what)

    def chance(self, among: Sequence[Kind]) -> Kind | None:
        """Return what goes wrong at this point, without letting time pass."""
        self.check()
        self._points += 1
        kind = self._faults.next(self.name, self._points, self.random, among, self.hub.now)
        if kind is not None:
            self.log(f"FAULT {kind} at point {self._points}")
        return kind

    def meet(self, among: Sequence[Kind]) -> Kind | None:
        """Let some time pass, and whatever happens to the process as a whole; return what goes wrong at this point."""
        kind = self.chance(among)
        drawn = self.random.random()
        if kind is Kind.CRASH:
            self.crash()
        micros = int(drawn * drawn * 30_000) + 50
        if kind is Kind.SLOW:
            micros = int((0.5 + 8 * drawn) * _SECOND)
        elif kind is Kind.CLOCK_JUMP:
            self.jump(drawn)
        elif kind is Kind.PAUSE or kind is Kind.FREEZE:
            pause = int(self._lease * (0.2 + 2.5 * drawn) * _SECOND)
            self.paused_until = self.hub.now + pause
            if kind is Kind.FREEZE:
                self.frozen += pause
        self.hub.sleep(micros)
        return kind

    def meet_idle(self) -> None:
        """Meet what may happen to a process that has nothing to do: it is deployed anew, or ends, say."""
        kind = self.chance(IDLE)
        if kind is Kind.DEPLOY:
            self.wants_to_end = True
        elif kind is Kind.CLOCK_JUMP:
            self.jump(self.random.random())
        elif kind is Kind.CRASH:
            self.crash()

    def meet_poison(self) -> None:
        """Die of what a step does, if it does."""
        self.check()
        self._points += 1
        if self._faults.kills(self.name, self._points, self.hub.now):
            self.log(f"FAULT {Kind.POISON} at point {self._points}")
            self.crash()

    def jump(self, drawn: float) -> None:
        """Set the wall clock forward or back."""
        self.skew += int((2 * drawn - 1) * JUMP_MAX)

    def crash(self) -> None:
        """End here and now: what this raises if it is this process that calls."""
        self.log("CRASHED")
        self._crashed(self)
        self.hub.crash(self)
