"""One life of a simulated process: its clocks, and the points at which a fault can fire."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from holdfast.hosts.wiring.store_clock import GAIN_MAX
from holdfast.testing.simulation.faults import IDLE, FaultKind, Faults
from holdfast.testing.simulation.fibers import Hub, Process
from holdfast.testing.simulation.trace import Trace

SKEW_MAX: Final = 600_000_000
JUMP_MAX: Final = 3_600_000_000
DRIFT_MAX: Final = 0.03
"""The largest drift of a process's clocks, in seconds per second: more than that of real clocks."""

_SECOND: Final = 1_000_000


class FaultyProcess(Process):
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
        crashed: Callable[["FaultyProcess"], None],
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
    def drift_seconds(self) -> float:
        """Seconds that the clocks have gained by drift so far; negative if they run too slowly."""
        return self.drift * (self.hub.now - self._born - self.frozen) / _SECOND

    def draw_drift(self, random: Random) -> None:
        """Draw the drift of the clocks, if the fault fires for this process."""
        if self._faults.draw_for_life(self.name, FaultKind.CLOCK_DRIFT, random, self.hub.now):
            self.drift = random.choice((GAIN_MAX, DRIFT_MAX)) * random.uniform(-1, 1)

    @property
    def early_tolerance(self) -> float:
        """Microseconds by which it may be early: the part of the drift for which Holdfast promises nothing."""
        return max(0.0, self.drift - GAIN_MAX) * (self.hub.now - self._born)

    def true_seconds(self, seconds: float) -> float:
        """Return the true seconds that pass while the clocks advance by `seconds`."""
        return seconds / (1 + self.drift)

    def log(self, what: str) -> None:
        """Add a line to the trace."""
        self._trace.add(self.hub.now, self.name, what)

    def draw_fault(self, among: Sequence[FaultKind]) -> FaultKind | None:
        """Return the fault that fires at this point, without letting time pass."""
        self.check()
        self._points += 1
        kind = self._faults.next(self.name, self._points, self.random, among, self.hub.now)
        if kind is not None:
            self.log(f"FAULT {kind} at point {self._points}")
        return kind

    def reach_point(self, among: Sequence[FaultKind]) -> FaultKind | None:
        """Let some time pass and apply faults of the whole process; return the fault that fires at this point."""
        kind = self.draw_fault(among)
        drawn = self.random.random()
        if kind is FaultKind.CRASH:
            self.crash()
        micros = int(drawn * drawn * 30_000) + 50
        if kind is FaultKind.SLOW:
            micros = int((0.5 + 8 * drawn) * _SECOND)
        elif kind is FaultKind.CLOCK_JUMP:
            self.jump(drawn)
        elif kind is FaultKind.PAUSE or kind is FaultKind.FREEZE:
            pause = int(self._lease * (0.2 + 2.5 * drawn) * _SECOND)
            self.paused_until = self.hub.now + pause
            if kind is FaultKind.FREEZE:
                self.frozen += pause
        self.hub.sleep(micros)
        return kind

    def reach_idle_point(self) -> None:
        """Apply faults of an idle process: a deploy, a clock jump or a crash."""
        kind = self.draw_fault(IDLE)
        if kind is FaultKind.DEPLOY:
            self.wants_to_end = True
        elif kind is FaultKind.CLOCK_JUMP:
            self.jump(self.random.random())
        elif kind is FaultKind.CRASH:
            self.crash()

    def reach_poison_step(self) -> None:
        """Crash if a poison step kills its worker here."""
        self.check()
        self._points += 1
        if self._faults.kills(self.name, self._points, self.hub.now):
            self.log(f"FAULT {FaultKind.POISON} at point {self._points}")
            self.crash()

    def jump(self, drawn: float) -> None:
        """Set the wall clock forward or back."""
        self.skew += int((2 * drawn - 1) * JUMP_MAX)

    def crash(self) -> None:
        """Crash the process. Raises Crashed if the calling fiber belongs to it."""
        self.log("CRASHED")
        self._crashed(self)
        self.hub.crash(self)
