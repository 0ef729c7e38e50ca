"""Rows of a new run: the run itself and its `run.created` event."""

from holdfast.kernel.commands import RunCreate
from holdfast.kernel.history import events
from holdfast.kernel.pipelines.plan import DEFAULT_QUEUE, Plan
from holdfast.kernel.runs.builder import INPUT_ROW
from holdfast.ports.clock import Ids
from holdfast.ports.records.job import rank_of
from holdfast.ports.records.run import ClosePolicy, Run, RunStatus
from holdfast.ports.records.values import Micros


def new_run(
    command: RunCreate,
    plan: Plan,
    known: Run | None,
    now: Micros,
    ids: Ids,
    *,
    progress: str = "{}",
    rows: int = 0,
    jobs: int = 0,
    parent: str | None = None,
    close_policy: ClosePolicy = ClosePolicy.CANCEL,
) -> Run:
    """Return a new run, or the next generation of `known`, with its progress and the numbers of its rows and jobs."""
    key = ids.new()
    start_at = command.start_at if command.start_at is not None and command.start_at > now else None
    waits = start_at is not None or command.concurrency_key is not None
    priority = next((one for one in (command.priority, plan.priority) if one is not None), 0)
    deadline = plan.deadline_us if command.deadline is None else command.deadline
    return Run(
        key=key,
        namespace=command.namespace,
        id=key if command.id is None else command.id,
        generation=1 if known is None else known.generation + 1,
        workflow=plan.workflow,
        version=plan.version,
        plan=plan.fingerprint,
        status=RunStatus.PENDING if waits else RunStatus.RUNNING,
        queue=command.queue or plan.queue or DEFAULT_QUEUE,
        priority=priority,
        queue_position=rank_of(start_at or now, priority),
        created_at=now,
        updated_at=now,
        last_row=rows,
        last_job=jobs,
        open_jobs=jobs,
        progress=progress,
        attributes=command.attributes,
        start_at=start_at,
        deadline=None if deadline is None else (start_at or now) + deadline,
        concurrency_key=command.concurrency_key,
        concurrency_limit=None if command.concurrency_key is None else command.concurrency_limit,
        parent=parent,
        close_policy=close_policy,
    )


def created_event(
    command: RunCreate, plan: Plan, run: Run, *, messages: int = 0, parent: str | None = None
) -> events.RunCreated:
    """Return the `run.created` event of a run that `messages` rows with messages and starts follow."""
    return events.RunCreated(
        definition=plan.definition,
        parent=parent,
        start_at=command.start_at,
        deadline=run.deadline,
        concurrency_key=run.concurrency_key,
        concurrency_limit=run.concurrency_limit,
        inbox=INPUT_ROW + messages if messages else None,
    )
