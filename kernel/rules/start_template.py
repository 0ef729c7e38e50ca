"""How runs of a plan begin: what is the same for all of them is found out once, by letting one begin that is none."""

from functools import lru_cache
from typing import Final

from holdfast.kernel.pipelines.interpreter import begin
from holdfast.kernel.pipelines.plan import Plan, stage_of
from holdfast.kernel.rules.admissions import INPUT_ROW
from holdfast.kernel.runs.builder import RunDraft
from holdfast.ports.changes import AddJob, CreateRun
from holdfast.ports.json import canonical
from holdfast.ports.records import Job, Run, RunStatus, rank_of
from holdfast.ports.structs import frozen


@frozen(kw_only=True)
class Opening:
    """What every run of a plan begins with: its place in the plan, what its first row says, rows, and jobs.

    The jobs are those of a run without a key, a queue or a priority, each with the priority that its stage has.
    """

    progress: str
    facts: str
    rows: int
    jobs: tuple[tuple[Job, int | None], ...]

    def jobs_of(self, run: Run) -> tuple[Job, ...]:
        """Return the jobs of a run of this plan that begins."""
        return tuple(_of(run, job, priority) for job, priority in self.jobs)


@lru_cache(maxsize=256)
def opening_of(plan: Plan) -> Opening | None:
    """Return what runs of a plan begin with; None if that is not the same for all, as where a stage has a limit."""
    run = Run(
        key="",
        namespace="",
        id="",
        generation=1,
        workflow=plan.workflow,
        version=plan.version,
        plan="",
        status=RunStatus.RUNNING,
        queue="",
        priority=0,
        created_at=0,
        updated_at=0,
    )
    draft = RunDraft(run, 0, is_new=True)
    draft.append("run.created")
    begin(draft, plan, INPUT_ROW)
    created, _, *added = draft.changes()
    jobs = [change.job for change in added if isinstance(change, AddJob)]
    if draft.admits_jobs or not isinstance(created, CreateRun) or len(jobs) < len(added):
        return None
    with_priorities = ((job, stage_of(plan.node(job.node)).priority) for job in jobs)
    opening = Opening(
        progress=created.run.progress,
        facts=canonical({"definition": plan.definition}),
        rows=created.run.last_row,
        jobs=tuple(with_priorities),
    )
    return opening if opening.jobs_of(run) == tuple(jobs) else None


NOT_BEGUN: Final = Opening(progress="{}", facts="{}", rows=0, jobs=())
"""What a run has that is yet to begin."""


def _of(run: Run, job: Job, priority: int | None) -> Job:
    return Job(
        run=run.key,
        number=job.number,
        namespace=run.namespace,
        queue=job.queue or run.queue,
        definition=job.definition,
        kind=job.kind,
        node=job.node,
        priority=run.priority if priority is None else priority,
        queue_position=run.queue_position
        if priority is None
        else rank_of(run.queue_position, priority - run.priority),
        max_attempts=job.max_attempts,
        input=job.input,
        timeout_total=job.timeout_total,
        heartbeat_timeout=job.heartbeat_timeout,
    )
