"""The side effects of simulated functions: charges, refunds, bookings and sleeps. They survive all crashes."""

from datetime import timedelta
from typing import Final

from greenlet import getcurrent

from holdfast.hosts.functions.replay import BEHIND_MAX
from holdfast.hosts.wiring.services import CLOCK_BEHIND_MAX
from holdfast.kernel.history import events
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.records.values import Micros
from holdfast.ports.working_set import Tables
from holdfast.testing.simulation.fibers import START, Fiber
from holdfast.testing.simulation.process_life import DRIFT_MAX

_BEHIND_MAX: Final = BEHIND_MAX + round(1_000_000 * CLOCK_BEHIND_MAX)


class SideEffects:
    """A bank with idempotency keys. A refund of a key also covers a charge that arrives later."""

    def __init__(self) -> None:
        self._charged: dict[str, set[str]] = {}
        self._refunded: dict[str, set[str]] = {}
        self._booked: set[str] = set()
        self._repeated: list[str] = []
        self.naps: list[SleepRecorder] = []

    def book(self, run: str, key: str) -> None:
        """Record the booking of a transactional step, which must be committed once for a call."""
        call = f"{run}/{key.rpartition('/')[2]}"
        if call in self._booked:
            self._repeated.append(f"step {call} was committed twice")
        self._booked.add(call)

    def charge(self, run: str, key: str) -> None:
        """Charge for a run. Repeating it with the same key has no effect."""
        self._charged.setdefault(run, set()).add(key)

    def refund(self, run: str, key: str) -> None:
        """Refund the charges of a key, including later ones."""
        self._refunded.setdefault(run, set()).add(key)

    def wrong(self, tables: Tables) -> list[str]:
        """Return the violations once all runs have ended, such as failed runs with charges that were not refunded."""
        found = [*self._repeated, *self._unknown(tables), *(one for naps in self.naps for one in naps.short)]
        for run in tables.runs.values():
            charged = self._charged.get(run.key, set[str]())
            stands = charged - self._refunded.get(run.key, set())
            if run.status is RunStatus.COMPLETED and stands != charged:
                found.append(
                    f"run {run.id}.{run.generation} is completed, but {len(charged - stands)} charges"
                    " were refunded"
                )
            elif stands and _must_compensate(run, tables):
                found.append(
                    f"run {run.id}.{run.generation} is {run.status}, but {len(stands)} charges were not"
                    " refunded"
                )
        return found

    def _unknown(self, tables: Tables) -> list[str]:
        """Return bookings of steps that have no history row."""
        rows = (row for run in tables.runs for row in tables.history.get(run, ()))
        known = {_key(row) for row in rows if row.type == events.StepCompleted.type}
        booked = sorted(key for key in self._booked if key.partition("/")[0] in tables.runs)
        return [
            f"step {key} has committed a booking, but no history row" for key in booked if key not in known
        ]


class SleepRecorder:
    """Measures the sleeps of one call site in true virtual time, whatever the clocks of the processes show."""

    def __init__(self, wait: timedelta) -> None:
        self.short: list[str] = []
        self._wait = wait
        self._began: dict[int, Micros] = {}

    def begins(self, number: int, *, shown: Micros) -> None:
        """Record the start of the sleep of the function with this number, unless it is a replay.

        If a lost attempt stored the row before the sleep, the sleep counts from that commit: the lost attempt may have
        started it.
        """
        fiber = getcurrent()
        if isinstance(fiber, Fiber):
            hub = fiber.process.hub
            self._began.setdefault(number, min(hub.now, hub.stored_at.get(shown, hub.now)))

    def ends(self, number: int, *, shown: timedelta) -> None:
        """Check that the sleep lasted long enough, in true time and in the recorded time `shown`."""
        at = _true_time()
        if at is None:
            return
        slept = (
            at - self._began[number] + _BEHIND_MAX + DRIFT_MAX * (at - START)
        )  # plus the most that a fast clock may have gained
        if slept < self._wait / timedelta(microseconds=1) or shown < self._wait:
            self.short.append(
                f"a sleep of {self._wait} took {slept / 1_000_000:.3f} s, and {shown} in recorded time"
            )


def _true_time() -> Micros | None:
    """Return the true time; None outside a process, as in the replay check."""
    fiber = getcurrent()
    return fiber.process.hub.now if isinstance(fiber, Fiber) else None


def _key(row: HistoryRow) -> str:
    return f"{row.run}/{events.StepCompleted.from_row(row).call}"


def _must_compensate(run: Run, tables: Tables) -> bool:
    """Return whether a run must have run its compensations: it failed or was cancelled, but not terminated."""
    ends = {row.type for row in tables.history.get(run.key, ())}
    if '"terminated"' in (run.error or "") or events.RunTerminated.type in ends:
        return False
    return run.status in (RunStatus.FAILED, RunStatus.CANCELLED)
