"""Searches for the runs that wait for rates of starts, and names the rates that starts are refused by."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress

from holdfast.kernel.composed_searches import FiringSchedules, NamedSchedules, WaitingRuns, line_places
from holdfast.kernel.dispatch.changed_limits import in_force
from holdfast.kernel.limits.rates import starts_from
from holdfast.kernel.limits.run_rates import rate_key
from holdfast.kernel.schedules.row_data import start_of
from holdfast.kernel.search_results import NewRun
from holdfast.kernel.state import Reads, State
from holdfast.ports.errors import HoldfastError
from holdfast.ports.persistence import Transaction
from holdfast.ports.records.limits import OverRate, RateName, RateWindow
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import (
    AllKeysWaitedFor,
    DueRunRates,
    FirstPendingRuns,
    KeysWaitedFor,
    SlotPlace,
    WaitedFor,
    Waiting,
)
from holdfast.ports.structs import evolve, frozen
from holdfast.ports.tables import RATES
from holdfast.ports.unreadable import PARSE_ERRORS


@frozen
class RatedRuns:
    """What a search has found in lines of rates."""

    runs: Sequence[str] = ()
    rates: tuple[RateName, ...] = ()
    """The lines that were looked at, with those that are due although nothing waits."""
    left_out: tuple[str, ...] = ()
    """The names of those that are to be looked at next: there were more runs than the search may return."""
    next_at: Micros | None = None
    """When the first of the lines that were not looked at is due."""
    next: SlotPlace | None = None
    """Where the search of all lines continues; None at the end."""


def rated_runs(tx: Transaction, state: State, search: WaitingRuns, now: Micros) -> RatedRuns:
    """Find the first runs that may begin, in these lines, in those that are due, or in all."""
    if search.keys and not search.rates:
        return RatedRuns()
    if search.rates:
        return _first_runs(tx, state, {SlotPlace(search.namespace, key) for key in search.rates}, search, now)
    only = search.namespace if search.due else None
    due = {SlotPlace(*name) for name in tx.find(DueRunRates(search.limit, only), now)}
    _, after = line_places(search.after)
    following = None
    places = due
    if after is not None and not search.due:
        page = tx.find(AllKeysWaitedFor(Waiting.RATED_RUNS, after, search.limit))
        following = page[-1].place if page and len(page) >= search.limit else None
        places = due | {one.place for one in page}
    found = _first_runs(tx, state, places, search, now)
    return evolve(found, next=following)


def _first_runs(
    tx: Transaction, state: State, places: Collection[SlotPlace], search: WaitingRuns, now: Micros
) -> RatedRuns:
    if not places:
        return RatedRuns()
    found = in_force(tx, state, Waiting.RATED_RUNS, tx.find(KeysWaitedFor(Waiting.RATED_RUNS, places)))
    windows = tx.get(RATES, [RateName(*one.place) for one in found]) if found else ()
    by_name = {window.rate_name: window for window in windows}
    wanted, left_out = _wanted(by_name, found, search.limit, now)
    runs = tx.find(FirstPendingRuns(wanted, Waiting.RATED_RUNS)) if wanted else ()
    if len(runs) >= search.limit:  # more of the last line may begin, too
        left_out = (wanted[-1][0].key, *left_out)
    empty = set(places) - {one.place for one in found}
    rates = tuple(RateName(*place) for place in sorted({*empty, *(one for one, _ in wanted)}))
    later = (one.admits_at for one in windows if one.admits_at is not None and one.admits_at > now)
    return RatedRuns(runs, rates, left_out, min(later, default=None))


def _wanted(
    windows: Mapping[RateName, RateWindow], found: Sequence[WaitedFor], limit: int, now: Micros
) -> tuple[list[tuple[SlotPlace, int]], tuple[str, ...]]:
    """Return for each line how many runs to look at: as many as there are units, and the one that is refused.

    Of a line whose next start is known to be later, at most the first: it may be another one than was refused, and cost
    less. It can't begin before the first unit is free. Return also the keys of the lines that are left out because the
    limit is reached.
    """
    wanted: list[tuple[SlotPlace, int]] = []
    left_out: list[str] = []
    left = limit
    for one in found:
        window = windows.get(RateName(*one.place))
        starts, units, period = starts_from(window), one.rate_limit or 0, one.rate_period or 0
        next_at = None if window is None else window.admits_at
        if next_at is not None and next_at > now:
            unit_at = starts.free_for_at(units, period, now, 1)
            most = int(unit_at is None or unit_at < next_at)
        else:
            most = max(starts.capacity(units, period, now), 0) + 1
        if most and not left:
            left_out.append(one.place.key)
        elif most:
            wanted.append((one.place, min(most, left)))
            left -= min(most, left)
    return wanted, tuple(left_out)


def refusing_rates(state: State, needs: Sequence[Reads]) -> Iterator[RateName]:
    """Yield the rates that may refuse starts of the batch. That of a start that is not made is only read too much."""
    for reads in needs:
        for one in reads.new_runs:
            if (name := _of_new(state, one)) is not None:
                yield name
    for search, found in state.found.items():
        if isinstance(search, FiringSchedules | NamedSchedules):
            for key in found.schedules:
                with suppress(HoldfastError, *PARSE_ERRORS):  # the rule meets the same error
                    row = state.tables.schedules[key]
                    start = start_of(row)
                    one = NewRun(
                        namespace=row.namespace,
                        workflow=start.workflow,
                        version=start.version,
                        concurrency=None,
                        rate=start.rate,
                        attributes=start.attributes,
                    )
                    if (name := _of_new(state, one)) is not None:
                        yield name


def _of_new(state: State, new: NewRun) -> RateName | None:
    rate = new.rate
    if rate is None:
        plan = state.workflows.get((new.workflow, new.version))
        rate = None if plan is None else plan.rate
    if rate is None or rate.over is not OverRate.REFUSE:
        return None
    attributes = new.attributes
    if attributes is None and new.parent is not None:
        parent = state.tables.runs.get(new.parent)
        attributes = None if parent is None else parent.attributes
    return RateName(new.namespace, rate_key(rate, new.workflow, attributes))
