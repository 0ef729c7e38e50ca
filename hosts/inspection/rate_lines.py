"""The place of a pending run in the line for its rate of starts, and when it fits."""

from typing import Final

from holdfast.hosts.wiring.services import Core
from holdfast.kernel.limits.overrides import names_of
from holdfast.kernel.limits.rates import Rates
from holdfast.kernel.limits.run_rates import Fit, fit_of
from holdfast.ports.clock import micros
from holdfast.ports.persistence import Transaction
from holdfast.ports.records.limits import RateName
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import FirstPendingRuns, SlotPlace, Waiting
from holdfast.ports.structs import frozen
from holdfast.ports.tables import LIMITS, RATES, RUNS
from holdfast.ports.working_set import Tables

LOOKED_AT: Final = 1_000
"""How many runs of a line are looked at for the place of one."""


@frozen(kw_only=True)
class RateLine:
    """The line for one rate of starts, as a run in it finds it."""

    fit: Fit
    """What counts now, and when the run fits if nothing else starts until then."""
    before: int | None
    """How many runs are before it; None if more than `LOOKED_AT`."""


def rate_line(core: Core, run: Run) -> RateLine | None:
    """Return the line that a run waits in; None if it does not wait for its rate. Takes no locks."""
    if not run.in_rate_line or run.rate is None or run.status is not RunStatus.PENDING:
        return None
    now = micros(core.clock.now())
    return core.stores.persistence.transact(lambda tx: _line(tx, run, SlotPlace(*run.rate or ("", "")), now))


def _line(tx: Transaction, run: Run, place: SlotPlace, now: Micros) -> RateLine:
    first = list(tx.find(FirstPendingRuns([(place, LOOKED_AT)], Waiting.RATED_RUNS)))
    ranks = {one.key: (one.queue_position, one.key) for one in tx.get(RUNS, sorted(first))}
    before = sum(rank < (run.queue_position, run.key) for rank in ranks.values())
    tables = Tables()
    tables.rates.update((window.rate_name, window) for window in tx.get(RATES, [RateName(*place)]))
    rows = {row.limit_name: row for row in tx.get(LIMITS, sorted(names_of(run)))}
    return RateLine(
        fit=fit_of(Rates(tables, now), rows, run),
        before=before if run.key in ranks or len(first) < LOOKED_AT else None,
    )
