"""What a rerun would do, told from a snapshot and without a lock: by the same function that decides it."""

from collections.abc import Mapping

import attrs

from holdfast.kernel.commands import RunRerunFrom
from holdfast.kernel.plan import Plan, plan_from_json
from holdfast.kernel.reruns import Past, followed_plan, planned_rerun
from holdfast.ports.errors import RerunRefusedError, RunNotFoundError, UnknownPlanError
from holdfast.ports.persistence import FindRun, NodeRowsOf, Persistence, PlansByFingerprint, RunsByKey
from holdfast.ports.records import TERMINAL, Run, RunName
from holdfast.ports.references import Reference, leaves, located


@attrs.frozen(kw_only=True)
class RerunPreview:
    """What a rerun would do if nothing happens before it.

    Attributes:
        run_id: The run.
        generation: The number of the generation that there would be.
        workflow: What it would run.
        version: In which version of the code.
        stage: The stage with which it would begin; None: from the start.
        runs: The stages whose bodies would run, in the order of the plan. A map runs whole.
        again: Those of them that were completed before: whatever they do outside is done a second time.
        keeps: The stages whose outputs would be kept, each with the number of the generation that gave it.
        terminates: Whether the newest generation is still active, and would be terminated.
    """

    run_id: str
    generation: int
    workflow: str
    version: str
    stage: str | None
    runs: tuple[str, ...]
    again: tuple[str, ...]
    keeps: dict[str, int]
    terminates: bool


def preview_rerun(
    persistence: Persistence, workflows: Mapping[tuple[str, str | None], Plan], command: RunRerunFrom
) -> RerunPreview:
    """Return what a command would come to. Raises what it would be refused with."""
    run = persistence.read(FindRun(RunName(command.namespace, command.run_id)))
    if run is None:
        raise RunNotFoundError(command.run_id)
    if command.generation not in {None, run.generation}:
        raise RerunRefusedError(
            run.id, f"generation {run.generation} is the newest, not {command.generation}"
        )
    before = _plan(persistence, run)
    past = Past()
    # After the run's row: what is done by that is in these.
    for rows in persistence.read(NodeRowsOf(run.key)):
        past.add(rows)
    plan = followed_plan(workflows, run, before, command.version)
    rerun = planned_rerun(run, past, before, plan, command.stage)
    return RerunPreview(
        run_id=run.id,
        generation=run.generation + 1,
        workflow=plan.workflow,
        version=plan.version,
        stage=rerun.stage,
        runs=rerun.runs,
        again=rerun.again,
        keeps=_generations(persistence, run, rerun.keeps),
        terminates=run.status not in TERMINAL,
    )


def _plan(persistence: Persistence, run: Run) -> Plan:
    rows = persistence.read(PlansByFingerprint((run.plan,)))
    if not rows:
        raise UnknownPlanError(run.plan)
    return plan_from_json(rows[0].body)


def _generations(persistence: Persistence, run: Run, keeps: Mapping[str, Reference]) -> dict[str, int]:
    """Return by stage which generation gave its output; for a map without items, the one that has it last."""
    keys = {
        name: next((located(run.key, leaf)[0] for leaf in leaves(reference)), run.key)
        for name, reference in keeps.items()
    }
    numbers = {run.key: run.generation}
    if others := tuple(sorted(set(keys.values()) - numbers.keys())):
        numbers |= {other.key: other.generation for other in persistence.read(RunsByKey(others))}
    return {name: numbers[key] for name, key in keys.items()}
