"""What a durable function knows about its run from the start."""

from sys import intern

from holdfast.ports.records.run import Run
from holdfast.ports.structs import frozen


@frozen(kw_only=True)
class RunFacts:
    """Facts about a run that do not change while its function runs, so that a replay finds the same."""

    id: str
    generation: int = 1
    workflow: str
    version: str
    parent: str | None = None
    """The id of the run that started it as a child run; None if none did."""
    attributes: str | None = None
    """JSON text: an object of texts; None without attributes."""
    headers: str | None = None
    """JSON text: an object of texts; None without headers."""
    scheduled: str | None = None
    """Which schedule started the run, as JSON text; None if none did."""


def facts_of(run: Run) -> RunFacts:
    """Return what the function of a run knows about it."""
    return RunFacts(
        id=run.id,
        generation=run.generation,
        workflow=intern(run.workflow),  # one text for all runs in memory
        version=intern(run.version),
        parent=run.parent_run,
        attributes=run.attributes,
        headers=run.headers,
        scheduled=run.scheduled,
    )
