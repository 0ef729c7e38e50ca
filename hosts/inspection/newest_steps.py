"""The newest steps of a durable function, from the end of its history: a run may have 50,000 rows."""

from collections.abc import Sequence
from typing import Final

from holdfast.hosts.inspection import steps
from holdfast.hosts.inspection.run_details import read_run, read_steps
from holdfast.hosts.inspection.steps import StepDetails
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.history.reader import rows_of
from holdfast.ports.records.run import TERMINAL, Run

ROWS_MAX: Final = 600
"""From how many of its last rows the steps of a long history are read."""


def newest_steps(core: Core, run: Run, *, with_open: bool = False) -> Sequence[StepDetails]:
    """Return the newest steps of a run, the latest change last.

    Args:
        core: The core of the engine.
        run: The run.
        with_open: Whether steps that run now, and have no row yet, are found by a replay of a short history.
    """
    if run.last_row <= ROWS_MAX:
        is_replayed = with_open and run.status not in TERMINAL
        return read_run(core, run).steps or () if is_replayed else read_steps(core, run)
    core.connect()
    now = core.clock.now()
    found: dict[str, StepDetails] = {}
    for row in rows_of(core.stores.persistence, run, run.last_row - ROWS_MAX, run.last_row):
        steps.add_step(found, row)
    return [steps.timed(one, now) for one in found.values()]
