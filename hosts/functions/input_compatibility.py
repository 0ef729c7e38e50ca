"""Check whether new code can read the stored input of a run's next work. Reads only."""

from collections.abc import Iterator

from holdfast.hosts.execution.bodies import Bodies
from holdfast.hosts.wiring.registry import Authored
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.history.reader import rows_of
from holdfast.kernel.pipelines.plan import Plan, stage_of
from holdfast.kernel.pipelines.progress import progress_from
from holdfast.kernel.rules.leases import attempt_of
from holdfast.kernel.values.stored_values import decode_recorded
from holdfast.ports.errors import UnreadableValueError
from holdfast.ports.queries.runs import JobsOfRun
from holdfast.ports.records.history import STAGE_COMPLETED
from holdfast.ports.records.job import JobKind
from holdfast.ports.records.run import Run

_ELSEWHERE = (JobKind.WORKFLOW, JobKind.CANCEL, JobKind.DELIVER)
"""Kinds of jobs whose input is checked elsewhere, or never blocks a run."""


def unreadable_input(core: Core, run: Run) -> UnreadableValueError | None:
    """Return the error of a job, or queued step, whose input the code cannot read; None if all are readable.

    Jobs whose code this process lacks are skipped. Raises the errors of values that cannot be loaded.
    """
    jobs = core.stores.persistence.read(JobsOfRun(run.key))
    attempts = [attempt_of(job) for job in jobs if job.kind not in _ELSEWHERE and not job.outlives_run]
    # Without the engine's substitute: a stub reads the input of what it replaces, and would count this as its call.
    bodies, _ = Bodies(core).prepare(attempts)
    for body in bodies:
        try:
            body.check_input()
        except UnreadableValueError as error:
            return error
    return None


def unreadable_later(core: Core, run: Run, code: Authored) -> UnreadableValueError | None:
    """Return the error of a later pipeline stage whose input the code cannot read; None if all are readable.

    Checks the values that exist already: configs, and the outputs of stages that ran or were kept.
    """
    if isinstance(code, Workflow):
        return None
    plan, progress = core.inputs.plan(run.plan), progress_from(run.progress)
    try:
        for name in _left(plan, progress.group):
            stage = code.bodies[name]
            stage.read_config(stage_of(plan.node(name)).config)
        current = {*progress.nodes, *progress.kept}
        for row in rows_of(core.stores.persistence, run, upto=run.last_row):
            if row.type == STAGE_COMPLETED and row.node in current and row.payload is not None:
                text = core.payloads.get(row.payload)
                decode_recorded(
                    text,
                    code.bodies[row.node].output_type,
                    f"the output of stage {row.node!r} gave",
                    row.number,
                )
    except UnreadableValueError as error:
        return error
    return None


def _left(plan: Plan, group: int) -> Iterator[str]:
    for one in plan.groups[group:]:
        yield from (node.name for node in one.nodes)
