"""One life of a simulated process: its clocks, and the points at which a fault can fire."""

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
"""The largest drift of a process's clocks, in seconds per second: more than that of real clocks."""

_SECOND: Final = 1_000_000


class Life(Process):
    """A process in which faults fire. `lease` is in seconds; a pause mostly lasts longer.

    `skew` is the error of the wall clock in microseconds. Both clocks gain `drift` seconds per second, or lose them if
    it is negative.
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
        """Seconds that the clocks have gained by drift so far; negative if they run too slowly."""
        return self.drift * (self.hub.now - self._born - self.frozen) / _SECOND

    def draw_drift(self, random: Random) -> None:
        """Draw the drift of the clocks, if the fault fires for this process."""
        if self._faults.from_birth(self.name, Kind.CLOCK_DRIFT, random, self.hub.now):
            self.drift = random.choice((GAIN_MAX, DRIFT_MAX)) * random.uniform(-1, 1)

    @property
    def may_be_early(self) -> float:
        """Microseconds by which it may be early: the part of the drift for which Holdfast promises nothing."""
        return max(0.0, self.drift - GAIN_MAX) * (self.hub.now - self._born)

    def passing(self, seconds: float) -> float:
        """Return the true seconds that pass while the clocks advance by `seconds`."""
        return seconds / (1 + self.drift)

    def log(self, what: str) -> None:
        """Add a line to the trace."""
        self._trace.add(self.hub.now, self.name, what)

    def chance(self, among: Sequence[Kind]) -> Kind | None:
        """Return the fault that fires at this point, without letting time pass."""
        self.check()
        self._points += 1
        kind = self._faults.next(self.name, self._points, self.random, among, self.hub.now)
        if kind is not None:
            self.log(f"FAULT {kind} at point {self._points}")
        return kind

    def meet(self, among: Sequence[Kind]) -> Kind | None:
        """Let some time pass and apply faults of the whole process; return the fault that fires at this point."""
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
        """Apply faults of an idle process: a deploy, a clock jump or a crash."""
        kind = self.chance(IDLE)
        if kind is Kind.DEPLOY:
            self.wants_to_end = True
        elif kind is Kind.CLOCK_JUMP:
            self.jump(self.random.random())
        elif kind is Kind.CRASH:
            self.crash()

    def meet_poison(self) -> None:
        """Crash if a poison step kills its worker here."""
        self.check()
        self._points += 1
        if self._faults.kills(self.name, self._points, self.hub.now):
            self.log(f"FAULT {Kind.POISON} at point {self._points}")
            self.crash()

    def jump(self, drawn: float) -> None:
        """Set the wall clock forward or back."""
        self.skew += int((2 * drawn - 1) * JUMP_MAX)

    def crash(self) -> None:
        """Crash the process. Raises Crashed if the calling fiber belongs to it."""
        self.log("CRASHED")
        self._crashed(self)
        self.hub.crash(self)
