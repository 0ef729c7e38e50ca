"""Pipelines that are blocked by one of their stages, while others go on."""

import attrs

from holdfast.kernel.commands import Attempt, Blocked, Failure, JobAdmit, RunResume
from holdfast.kernel.pipelines.plan import Enough
from holdfast.ports.records.job import JobState
from holdfast.ports.records.run import RunStatus
from tests.unit.kernel.world import World, each, failed, pipeline, stage

MISSING = Blocked(failure=Failure(code="blob_missing", message="its input is gone"))


def _two_items(enough: Enough) -> tuple[World, Attempt, Attempt]:
    world = World(pipeline(each("m", enough=enough)))
    world.create()
    session = world.open()
    world.expand(world.claim_one(session), range(2))
    one, other = world.claim(session)
    return world, one, other


def test_a_blocked_run_completes_if_its_map_has_enough_without_the_item_that_blocked_it() -> None:
    world, one, other = _two_items(Enough(at_least=1))
    world.settle(one, MISSING)

    assert world.complete(other).run_status is RunStatus.COMPLETED
    assert world.jobs() == []


def test_a_blocked_run_fails_if_its_map_can_not_complete_any_more() -> None:
    world, one, other = _two_items(Enough(at_least=2))
    world.settle(one, MISSING)

    assert world.settle(other, failed(retryable=False)).run_status is RunStatus.FAILED


def test_a_blocked_run_holds_the_jobs_that_wait_for_a_slot() -> None:
    world = World(pipeline((stage("a"), attrs.evolve(stage("b"), max_concurrency=1))))
    world.create()
    world.settle(world.claim_one(world.open()), MISSING)
    assert [job.state for job in world.jobs()] == [JobState.PAUSED, JobState.PAUSED]
    assert world.do(JobAdmit()).admitted == 0

    world.do(RunResume(run_id="x"))
    assert [job.state for job in world.jobs()] == [JobState.QUEUED, JobState.LIMITED]
