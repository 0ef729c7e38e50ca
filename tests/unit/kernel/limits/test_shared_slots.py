"""Slots with a name, and slots of each tenant: stages and steps of several workflows share them."""

import attrs
import pytest

import holdfast
from holdfast import Pipeline, Rate, Slots, stage, step
from holdfast.kernel.commands import JobAdmit, QueuedStepJob, RunCreate
from holdfast.kernel.limits.concurrency import shared_slots, step_limit_key
from holdfast.kernel.pipelines.plan import Plan, SlotsPlan, StagePlan, plan_from_json, stage_of
from holdfast.ports.errors import DefinitionError, HoldfastError
from holdfast.ports.json import canonical
from holdfast.ports.records.job import JobState
from tests.unit.kernel.test_limited_steps import world_with_queued_steps
from tests.unit.kernel.world import World, payload, pipeline
from tests.unit.kernel.world import stage as a_stage

GPU = SlotsPlan(name="gpu")


def limited(name: str, limit: int, slots: SlotsPlan) -> StagePlan:
    return attrs.evolve(a_stage(name), max_concurrency=limit, slots=slots)


def states(world: World) -> dict[str, JobState]:
    return {world.tables().runs[job.run].id: job.state for job in world.tables().all_jobs()}


def start(world: World, id: str, workflow: str, **attributes: str) -> None:
    texts = canonical(attributes) if attributes else None
    world.do(RunCreate(workflow=workflow, id=id, input=payload(0), attributes=texts))


def test_stages_of_two_workflows_share_slots_by_name() -> None:
    world = World(
        pipeline(limited("a", 2, GPU), workflow="v"),
        pipeline(limited("b", 2, GPU), workflow="w"),
        pipeline(limited("b", 2, SlotsPlan(name="cpu")), workflow="x"),
    )
    session = world.open()
    for name, workflow in (("1", "v"), ("2", "w"), ("3", "v"), ("4", "x")):
        start(world, name, workflow)

    assert world.do(JobAdmit()).admitted == 3
    assert states(world)["3"] is JobState.LIMITED

    first = world.claim(session)[0]
    assert world.complete(first).follow_up.jobs == ("/gpu",)
    assert world.do(JobAdmit(keys=("/gpu",))).admitted == 1


def test_each_text_of_an_attribute_has_its_own_slots() -> None:
    world = World(pipeline(limited("a", 1, SlotsPlan(name="gpu", by="tenant"))))
    for name, tenant in (("1", "acme"), ("2", "acme"), ("3", "umbrella")):
        start(world, name, "w", tenant=tenant)
    start(world, "4", "w")

    assert world.do(JobAdmit()).admitted == 3
    assert states(world)["2"] is JobState.LIMITED
    assert sorted(str(job.concurrency_key) for job in world.tables().all_jobs()) == [
        "/gpu/",
        "/gpu/acme",
        "/gpu/acme",
        "/gpu/umbrella",
    ]


def test_slots_by_attribute_without_a_name_are_of_one_stage() -> None:
    world = World(pipeline(limited("a", 1, SlotsPlan(by="tenant"))))
    start(world, "1", "w", tenant="acme")

    assert [job.concurrency_key for job in world.tables().all_jobs()] == ["w/a/acme"]


def test_a_queued_step_shares_them_and_a_repair_keeps_them() -> None:
    one = QueuedStepJob(queue="gpu", input=payload({"text": "a"}), attempts=3, max_concurrency=1, slots=GPU)
    world = world_with_queued_steps(one, one)

    assert [job.concurrency_key for job in world.jobs() if job.concurrency_limit] == ["/gpu", "/gpu"]
    assert world.do(JobAdmit()).admitted == 1


def test_a_run_that_ends_frees_the_slots_it_had() -> None:
    world = World(pipeline(limited("a", 1, GPU)))
    start(world, "1", "w")
    start(world, "2", "w")
    world.do(JobAdmit())
    session = world.open()
    attempt = world.claim_one(session)

    assert world.fail(attempt, retryable=False).follow_up.jobs == ("/gpu",)


def test_keys_of_slots_and_of_rates_differ() -> None:
    run = world_with_queued_steps().run()

    assert step_limit_key(run, "step:s", None, GPU) == "/gpu"
    assert step_limit_key(run, "step:s", None, None) == "step:s"
    assert shared_slots("/gpu") == ("gpu", None)
    assert shared_slots("/gpu/acme") == ("gpu", "acme")
    assert shared_slots("/gpu~60") is shared_slots("w/a") is shared_slots("w/a/acme") is None


def test_slots_are_part_of_the_plan_and_a_plain_number_leaves_it_as_it_was() -> None:
    @stage(max_concurrency=Slots(10, name="gpu", by="tenant"))
    def shared(text: str) -> str:
        return text

    @stage(max_concurrency=Slots(3))
    def alone(text: str) -> str:
        return text

    plan = Pipeline("p", input=str).pipe(shared).pipe(alone).plan()
    one, other = (stage_of(plan.nodes[name]) for name in ("shared", "alone"))

    assert (one.max_concurrency, one.slots) == (10, SlotsPlan(name="gpu", by="tenant"))
    assert (other.max_concurrency, other.slots) == (3, None)
    assert plan_from_json(plan.to_json()) == plan
    assert "slots" not in Plan(workflow="w", version="1", groups=()).to_json()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: Slots(0), "limit is 0; it must be"),
        (lambda: Slots(1, name="a b"), "name is 'a b'; it must be"),
        (lambda: Slots(1, by=""), "by is ''; it must be"),
        (lambda: stage(max_concurrency="two"), "or a Slots"),  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    ],
)
def test_slots_that_cannot_be_are_refused(wrong: object, words: str) -> None:
    assert callable(wrong)
    with pytest.raises(HoldfastError, match=words):
        wrong()


@pytest.mark.parametrize("rate", [Rate(1, per=1), Rate(1, per=1, name="model")])
def test_shared_slots_and_a_rate_are_refused(rate: Rate) -> None:
    @stage(max_concurrency=Slots(2, name="gpu"), rate_limit=rate)
    def both(text: str) -> str:
        return text

    with pytest.raises(DefinitionError, match=r"which can't be combined; write max_concurrency=2"):
        Pipeline("p", input=str).pipe(both)
    with pytest.raises(DefinitionError, match="can't be combined"):

        @step(queue="q", max_concurrency=Slots(2, name="gpu"), rate_limit=rate)
        def also(text: str) -> str:
            return text


def test_slots_are_public() -> None:
    assert holdfast.Slots is Slots
