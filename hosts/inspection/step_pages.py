"""Pages of the steps of a durable function: each is read from a few history rows, wherever in the history they are."""

from collections.abc import Sequence
from typing import Final

import attrs

from holdfast.hosts.inspection import steps
from holdfast.hosts.inspection.children import ChildInfo, children_in
from holdfast.hosts.inspection.run_details import add_open_steps, generations_of
from holdfast.hosts.inspection.steps import StepDetails
from holdfast.hosts.inspection.why import sessions_of
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.history.reader import rows_of
from holdfast.ports.clock import micros
from holdfast.ports.queries.runs import JobsOfRun
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import TERMINAL, Run

ROWS: Final = 200
"""How many history rows a page has."""
AROUND: Final = 200
"""How many rows before and after a page are read, for steps that began before it, or went on after it."""
REPLAYED_MAX: Final = 2_000
"""The longest history that is replayed for the steps that run now, in rows: it takes less than a tenth of a second."""


@attrs.frozen(kw_only=True)
class StepsPage:
    """The steps whose last history rows are on a page of the history, and the child runs that were started there."""

    steps: tuple[StepDetails, ...]
    """The steps, the latest change last."""
    children: tuple[ChildInfo, ...]
    """The child runs, in the order of their starts."""
    first: int
    """The number of the first history row of the page."""
    last: int
    """The number of its last row."""
    has_running: bool
    """Whether steps that run now, and have no history row yet, are among the steps."""


def steps_page(core: Core, run: Run, newest: int | None = None) -> StepsPage:
    """Return the steps on the page of a history that ends with row `newest`, by default with its last row.

    The pages beside each other have every step once, but for a step that is quiet over more than `AROUND` rows: it is
    also on the page of the row before them, as it was then.
    """
    last = min(newest or run.last_row, run.last_row)
    before = max(0, last - ROWS)
    found = steps_around(core, run, before, last)
    return StepsPage(
        steps=tuple(one for one in found.steps if before < one.row <= last or one.row == 0),
        children=tuple(children_in(core, [row for row in found.rows if before < row.number <= last])),
        first=before + 1,
        last=last,
        has_running=found.has_running,
    )


@attrs.frozen(kw_only=True)
class StepsAround:
    """The steps with history rows in a part of a history, or shortly before or after it."""

    steps: Sequence[StepDetails]
    """The steps, the latest change last."""
    rows: Sequence[HistoryRow]
    """The rows that were read."""
    has_running: bool
    """Whether steps that run now, and have no history row yet, are among the steps."""


def steps_around(core: Core, run: Run, before: int, last: int) -> StepsAround:
    """Return the steps with rows after row `before` and up to row `last`, or within `AROUND` rows of these."""
    core.connect()
    now = core.clock.now()
    upto = min(last + AROUND, run.last_row)
    kept = generations_of(core, [part.run for part in run.kept_rows])
    rows = list(rows_of(core.stores.persistence, run, max(0, before - AROUND), upto))
    found: dict[str, StepDetails] = {}
    for row in rows:
        steps.add_step(found, row, kept.get(row.run))
    has_running = last >= run.last_row <= REPLAYED_MAX and run.status not in TERMINAL
    if has_running:
        jobs = core.stores.persistence.read(JobsOfRun(run.key))
        add_open_steps(core, found, run, jobs, sessions_of(core, jobs), micros(now))
    return StepsAround(
        steps=[steps.timed(one, now) for one in found.values()], rows=rows, has_running=has_running
    )
