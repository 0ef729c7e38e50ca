"""Remote stages in the kernel: which code and queue their jobs need, and who takes them."""

import attrs
import pytest

from holdfast.kernel.limits.fairness import fair_place
from holdfast.kernel.pipelines.plan import MapPlan, RemotePlan, StagePlan
from holdfast.ports.records.job import JobKind, remote_stage_of, step_of
from tests.unit.kernel.world import World, pipeline, stage, when

FAR: StagePlan = attrs.evolve(stage("far", queue="tools"), remote=RemotePlan())
NEAR: StagePlan = stage("near", queue="tools")


def needs(world: World) -> dict[JobKind, tuple[str, str]]:
    """Return the code and the queue of the open jobs, by kind."""
    return {job.kind: (job.definition, job.queue) for job in world.jobs()}


def test_only_the_body_is_for_remote_workers() -> None:
    """The list of a map and a condition need the code of the pipeline, in the queue of the run."""
    for plan, kind in ((MapPlan(stage=FAR), JobKind.EXPAND_MAP), (when(FAR), JobKind.CONDITION)):
        world = World(pipeline(plan))
        world.create()
        assert needs(world) == {kind: ("w@1", "default")}
    world = World(pipeline(FAR))
    world.create()
    assert needs(world) == {JobKind.STAGE: ("stage:far", "tools")}


@pytest.mark.parametrize(
    ("first", "part"), [(FAR, ("tools", "stage:far")), (MapPlan(stage=FAR), ("default", "w@1"))]
)
def test_keys_take_turns_where_the_first_job_waits(first: StagePlan | MapPlan, part: tuple[str, str]) -> None:
    plan = attrs.evolve(pipeline(first), fair="user")
    place = fair_place("n", plan, "default", None)
    assert place is not None
    assert (place.part.queue, place.part.definition) == part


def test_a_definition_is_of_a_step_a_stage_or_a_workflow() -> None:
    assert [remote_stage_of(one) for one in ("stage:a", "stage:a@1", "step:a", "a@1")] == [
        "a",
        None,
        None,
        None,
    ]
    assert step_of("stage:a") is None
