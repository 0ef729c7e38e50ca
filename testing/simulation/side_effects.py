"""What simulated functions do outside and take back again: it outlives every process, and forgets nothing."""

from datetime import timedelta
from typing import Final, cast

from greenlet import getcurrent

from holdfast.hosts.functions.replay import BEHIND_MAX
from holdfast.hosts.wiring.services import CLOCK_BEHIND_MAX
from holdfast.ports.json import parse
from holdfast.ports.records import HistoryRow, Micros, Run, RunStatus
from holdfast.ports.working_set import Tables
from holdfast.testing.simulation.fibers import START, Fiber
from holdfast.testing.simulation.process_life import DRIFT_MAX

_BEHIND_MAX: Final = BEHIND_MAX + round(1_000_000 * CLOCK_BEHIND_MAX)


class Tally:
    """A bank that honours keys: what was charged under one, and what was given back. What is given back stays so."""

    def __init__(self) -> None:
        self._charged: dict[str, set[str]] = {}
        self._refunded: dict[str, set[str]] = {}
        self._booked: set[str] = set()
        self._repeated: list[str] = []
        self.naps: list[Naps] = []

    def book(self, run: str, key: str) -> None:
        """Book something for a run, for a call of a step: in the transaction of its row, and so once."""
        call = f"{run}/{key.rpartition('/')[2]}"
        if call in self._booked:
            self._repeated.append(f"step {call} was committed twice")
        self._booked.add(call)

    def charge(self, run: str, key: str) -> None:
        """Charge for a run; again under the same key is once."""
        self._charged.setdefault(run, set()).add(key)

    def refund(self, run: str, key: str) -> None:
        """Give back what was charged under a key, now and should somebody come late and charge it again."""
        self._refunded.setdefault(run, set()).add(key)

    def wrong(self, tables: Tables) -> list[str]:
        """Return what is wrong when all has ended: runs that came to nothing and charged, and the other way round."""
        found = [*self._repeated, *self._unknown(tables), *(one for naps in self.naps for one in naps.short)]
        for run in tables.runs.values():
            charged = self._charged.get(run.key, set[str]())
            stands = charged - self._refunded.get(run.key, set())
            if run.status is RunStatus.COMPLETED and stands != charged:
                found.append(
                    f"run {run.id}.{run.generation} was completed, and {len(charged - stands)} taken back"
                )
            elif stands and _must_compensate(run, tables):
                found.append(
                    f"run {run.id}.{run.generation} is {run.status}, and {len(stands)} were not taken back"
                )
        return found

    def _unknown(self, tables: Tables) -> list[str]:
        """Return what was booked by steps that have no row."""
        rows = (row for run in tables.runs for row in tables.history.get(run, ()))
        known = {_key(row) for row in rows if row.type == "step.completed"}
        booked = sorted(key for key in self._booked if key.partition("/")[0] in tables.runs)
        return [f"step {key} has booked, and has no row" for key in booked if key not in known]


class Naps:
    """How long functions sleep in one place, by the true time: of all the clocks that there are it needs none."""

    def __init__(self, wait: timedelta) -> None:
        self.short: list[str] = []
        self._wait = wait
        self._began: dict[int, Micros] = {}

    def begins(self, number: int, *, shown: Micros) -> None:
        """A function that was given this number lies down; or it is replayed, and has lain down before.

        If what it has waited for was stored by somebody who was lost, nobody knows whether it lay down then, or is told
        of it now: it counts from then.
        """
        fiber = getcurrent()
        if isinstance(fiber, Fiber):
            hub = fiber.process.hub
            self._began.setdefault(number, min(hub.now, hub.stored_at.get(shown, hub.now)))

    def ends(self, number: int, *, shown: timedelta) -> None:
        """It goes on: at least that much later, as what is recorded shows, too."""
        at = _true_time()
        if at is None:
            return
        slept = (
            at - self._began[number] + _BEHIND_MAX + DRIFT_MAX * (at - START)
        )  # or a clock is as fast as that
        if slept < self._wait / timedelta(microseconds=1) or shown < self._wait:
            self.short.append(
                f"sleep of {self._wait}: {slept / 1_000_000:.3f} s went by, and {shown} are shown"
            )


def _true_time() -> Micros | None:
    """Return what no process knows; None where no process is: where a history is replayed to see that it can be."""
    fiber = getcurrent()
    return fiber.process.hub.now if isinstance(fiber, Fiber) else None


def _key(row: HistoryRow) -> str:
    call = cast("dict[str, object]", parse(row.data or "{}"))["call"]
    return f"{row.run}/{call}"


def _must_compensate(run: Run, tables: Tables) -> bool:
    """Whether a run has failed by itself, or was told to end: it has taken back what it did."""
    ends = {row.type for row in tables.history.get(run.key, ())}
    if '"terminated"' in (run.error or "") or "run.terminated" in ends:
        return False
    return run.status in (RunStatus.FAILED, RunStatus.CANCELLED)
