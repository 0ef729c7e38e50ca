"""Cache of the rows that every new run of a plan starts with.

The template is built by starting a dummy run. Filling it in is several times faster than interpreting the plan for each
start (docs/decisions/0039).
"""

from functools import lru_cache
from typing import Final

from holdfast.kernel.history import events
from holdfast.kernel.pipelines.plan import Plan, stage_of
from holdfast.kernel.runs.builder import INPUT_ROW, RunDraft
from holdfast.kernel.runs.plan_interpreter import begin
from holdfast.ports.changes import Insert, inserted
from holdfast.ports.records.job import Job, rank_of
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.structs import changer, evolve, frozen

_changed_job: Final = changer(Job, "run", "namespace", "queue", "priority", "queue_position")


@frozen(kw_only=True)
class StartTemplate:
    """Template of a new run of a plan."""

    run: Run
    """A run after the start, without key, name, times and what its start may choose."""
    created: events.RunCreated
    """The first event of a run without a deadline and a parent."""
    data: str | None
    """The data of its row: as JSON text, made once."""
    jobs: tuple[tuple[Job, int | None], ...]
    """First jobs, of a dummy run without key, queue and priority, each with the priority of its stage."""

    def jobs_of(self, run: Run) -> tuple[Job, ...]:
        """Return the first jobs of a run of this plan."""
        return tuple([_of(run, job, priority) for job, priority in self.jobs])


@lru_cache(maxsize=256)
def start_template_of(plan: Plan) -> StartTemplate | None:
    """Return the template of a plan; None if its runs do not all start alike, as when a first stage has a limit."""
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
    opening = events.RunCreated(definition=plan.definition)
    draft.append(opening)
    begin(draft, plan, INPUT_ROW)
    created, _, *added = draft.changes()
    jobs = list(inserted(added, Job))
    if (
        draft.follow_up
        or not (isinstance(created, Insert) and isinstance(created.record, Run))
        or len(jobs) < len(added)
    ):
        return None
    with_priorities = ((job, stage_of(plan.node(job.node)).priority) for job in jobs)
    template = StartTemplate(
        run=evolve(created.record, plan=plan.fingerprint),
        created=opening,
        data=opening.data,
        jobs=tuple(with_priorities),
    )
    return template if template.jobs_of(run) == tuple(jobs) else None


def _of(run: Run, job: Job, priority: int | None) -> Job:
    return _changed_job(
        job,
        run=run.key,
        namespace=run.namespace,
        queue=job.queue or run.queue,
        priority=run.priority if priority is None else priority,
        queue_position=run.queue_position
        if priority is None
        else rank_of(run.queue_position, priority - run.priority),
    )
