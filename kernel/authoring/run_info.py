"""`run_info()`: what a durable function knows about its own run."""

from collections.abc import Mapping
from datetime import datetime

import attrs

from holdfast.kernel.functions.loop import loop_for
from holdfast.kernel.history.limits import ROWS_LONG
from holdfast.kernel.pipelines.headers import headers_of
from holdfast.ports.clock import instant
from holdfast.ports.json import parse


@attrs.frozen(kw_only=True)
class CurrentRun:
    """What a durable function knows about its own run. A replay finds the same."""

    id: str
    """The id of the run."""
    generation: int
    """The number of its generation: 1 for the first. A rerun and `continue_as_new` add one."""
    workflow: str
    """The name of its workflow."""
    version: str
    """The version of its workflow."""
    parent: str | None
    """The id of the run that started it as a child run; None if none did."""
    attributes: Mapping[str, str]
    """Its attributes, by which runs are found."""
    headers: Mapping[str, str]
    """Its headers, which it has from its start and from its parent."""
    started_at: datetime
    """When the clock of the function started. Aware, in UTC."""
    history_rows: int
    """The number of the history row that the function received last: about how many rows a replay reads."""

    @property
    def should_continue_as_new(self) -> bool:
        """Whether the history has at least 10,000 rows, so that each wake-up of the function takes long.

        A function can't have more than 50,000 rows: continue it with `continue_as_new` before.
        """
        return self.history_rows >= ROWS_LONG


def run_info() -> CurrentRun:
    """Return what this durable function knows about its run: `run_info().id`.

    RuntimeError outside of a workflow. A step has `step_context()`.
    """
    loop = loop_for("holdfast.workflows.run_info()")
    run = loop.run
    return CurrentRun(
        id=run.id,
        generation=run.generation,
        workflow=run.workflow,
        version=run.version,
        parent=run.parent,
        attributes={} if run.attributes is None else parse(run.attributes),
        headers=headers_of(run.headers),
        started_at=instant(loop.began_at),
        history_rows=loop.row,
    )
