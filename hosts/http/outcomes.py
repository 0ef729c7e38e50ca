"""How runs and updates ended, as answers show it."""

import attrs

from holdfast.hosts.client.client import Client
from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.hosts.inspection.run_info import RunError, error_of
from holdfast.hosts.inspection.values import result_text
from holdfast.hosts.wiring.services import Core
from holdfast.ports.json import parse
from holdfast.ports.records.run import Run, RunStatus


@attrs.frozen(kw_only=True)
class RunOutcome:
    """Whether a run has ended, and how."""

    run_id: str
    """The run id."""
    generation: int
    """The number of its generation, from 1."""
    status: RunStatus
    """Its status. The others are only meaningful once this is `completed`, `failed` or `cancelled`."""
    result: object = None
    """Its result, if it completed; null also if it has none."""
    error: RunError | None = None
    """Why it failed or was cancelled; null if neither."""


@attrs.frozen(kw_only=True)
class StartedRun(RunOutcome):
    """The run of a start."""

    created: bool
    """Whether this request created it; false if it existed before."""
    joined: bool = False
    """Whether the start joined a run that gathers starts."""
    first_item: int | None = None
    """Of a start whose list was joined with others: the index of its first item in the joined list."""
    items: int | None = None
    """How many items it has there."""
    ended: tuple[str, ...] = ()
    """The ids of the runs of its concurrency key that were ended to make way for it."""


@attrs.frozen(kw_only=True)
class UpdateState:
    """An update that is stored, and its reply once it has been carried out."""

    run_id: str
    """The run id."""
    run: str
    """The key of the generation that has it."""
    update: str
    """The name of the update."""
    number: int
    """The number of its history row."""
    is_done: bool = False
    """Whether it has been carried out."""
    reply: object = None
    """Its reply, once it has been carried out."""


def outcome_of(core: Core, run: Run) -> RunOutcome:
    """Return the outcome of a run as it is in its row."""
    result = parse(result_text(core, run)) if run.status is RunStatus.COMPLETED else None
    return RunOutcome(
        run_id=run.id, generation=run.generation, status=run.status, result=result, error=error_of(run)
    )


def with_outcome(client: Client, started: StartedRun, *, is_split: bool) -> StartedRun:
    """Return a start with the present outcome of its run; of a result that is split, with its part of that."""
    part = None
    if is_split and started.first_item is not None:
        part = (started.first_item, started.items or 0)
    handle: SyncRunHandle[object] = SyncRunHandle(client, started.run_id, object, part=part)
    run = handle.row()
    return attrs.evolve(
        started,
        generation=run.generation,
        status=run.status,
        result=handle.output(run) if run.status is RunStatus.COMPLETED else None,
        error=error_of(run),
    )
