"""The rule for rates of starts: which runs of a line may begin, and what a start does that its rate refuses.

A pending run waits in one line at a time. It first waits for its start time and for a slot of its concurrency key. Once
a slot is free, it joins the line of its rate, without taking the slot. It begins when its rate allows it and a slot is
free; without one, it goes back. So nothing holds a slot or units while it waits for the other (docs/decisions/0089).
"""

from collections.abc import Callable, Sequence

from holdfast.kernel.commands import FollowUp, RunCreate
from holdfast.kernel.limits.rates import Rates
from holdfast.kernel.limits.run_rates import counted, fit_of, rate_of
from holdfast.kernel.state import State
from holdfast.ports.changes import Change
from holdfast.ports.errors import RateExceededError
from holdfast.ports.records.limits import OverRate, RateName
from holdfast.ports.records.run import Run
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import evolve


class RateLines:
    """The lines of rates in one decision: once a run is refused, those behind it in its line are too."""

    def __init__(self, state: State, names: Sequence[RateName], now: Micros) -> None:
        """`names` are the rates whose lines were looked at."""
        self._state = state
        self._names = names
        self._now = now
        self._rates = Rates(state.tables, now)
        self._next_at: dict[RateName, Micros] = {}
        self._again: dict[RateName, None] = {}
        self._decided: set[RateName] = set()
        """The lines of which a run was decided."""

    def take(self, run: Run, take_slot: Callable[[Run], bool]) -> Run | None:
        """Return a run of a line as it is to be stored; None if nothing changes.

        It may begin if its start is counted. Otherwise it found no slot: it waits in the line for that again.
        """
        name = run.rate
        if name is None or name in self._next_at or name not in self._names:
            return None
        self._decided.add(name)
        fit = fit_of(self._rates, self._state.tables.limits, run)
        if not fit.is_now:
            self._next_at[name] = fit.at
            return None
        if not take_slot(run):
            self._again[name] = None
            return evolve(run, in_rate_line=0)
        if self._is_later(name):
            self._again[name] = None
        return counted(self._rates, run, fit)

    @property
    def follow_up(self) -> FollowUp:
        """The lines of which more is to be looked at.

        Runs have left them for want of a slot, or only the first was looked at, as it was known to wait for longer.
        """
        return FollowUp(rates=tuple(name.name for name in self._again if name not in self._next_at))

    @property
    def wakes_at(self) -> tuple[Micros, ...]:
        """When the first run of each line that was refused may begin."""
        return tuple(sorted(self._next_at.values()))

    def changes(self) -> Sequence[Change]:
        """Return the changed rows, each with the instant at which the first of its line may begin.

        The runs that the search found may have begun before the line was locked. Then a later instant in the row stays:
        it is that of a run that was not found.
        """
        for name in self._names:
            if name in self._decided or not self._is_later(name):
                self._rates.admit_at(name, self._next_at.get(name))
        return self._rates.changes()

    def _is_later(self, name: RateName) -> bool:
        window = self._state.tables.rates.get(name)
        return window is not None and window.admits_at is not None and window.admits_at > self._now


def count_start(
    state: State, command: RunCreate, run: Run, now: Micros, earlier: Sequence[Change]
) -> tuple[Run, Sequence[Change]]:
    """Count a start whose rate refuses what it does not allow now. Return the run as counted, and the changed row.

    Other starts are left as they are: they wait. `earlier` are changes of the same command.

    Raises:
        RateExceededError: The rate does not allow it now.
    """
    rate = rate_of(command)
    if rate is None or rate.over is OverRate.WAIT:
        return run, ()
    rates = Rates(state.tables, now)
    rates.note(earlier)
    fit = fit_of(rates, state.tables.limits, run)
    if not fit.is_now:
        raise RateExceededError.of(
            rate.key, used=fit.used, limit=fit.limit, period=fit.period, units=rate.units, fits_at=fit.at
        )
    return counted(rates, run, fit), rates.changes()
