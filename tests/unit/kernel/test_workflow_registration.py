"""Registration of workflows: what is stored, when it is stored again, and what is forgotten."""

import pytest

from holdfast.kernel.commands import NamespaceDelete, WorkflowRegister, WorkflowSchemas
from holdfast.kernel.rules.workflows import FRESH, VERSIONS_KEPT
from holdfast.ports.errors import InvalidCommandError, UnknownWorkflowError
from holdfast.ports.queries.workflows import ListWorkflows, StoredWorkflow
from tests.unit.kernel.world import World, pipeline, stage

VERSIONS = [f"{number:02}" for number in range(VERSIONS_KEPT + 3)]
PLANS = [pipeline(stage("a"), workflow="w", version=version) for version in VERSIONS]


def register(*versions: str, schemas: str = "{}", namespace: str = "default") -> WorkflowRegister:
    rows = tuple(WorkflowSchemas(workflow="w", version=version, schemas=schemas) for version in versions)
    return WorkflowRegister(namespace=namespace, workflows=rows)


def listed(world: World, namespace: str = "default") -> tuple[StoredWorkflow, ...]:
    return world.store.read(ListWorkflows(namespace=namespace))


def test_a_workflow_is_stored_with_its_plan_and_its_schemas() -> None:
    world = World(*PLANS)
    assert world.do(register("00", schemas='{"input":{}}')).registered == 1
    (found,) = listed(world)

    assert (found.row.name, found.row.version, found.row.schemas) == ("w", "00", '{"input":{}}')
    assert (found.row.registered_at, found.plan) == (world.now, PLANS[0].to_json())
    assert listed(world, "other") == ()


def test_workers_that_start_together_write_once() -> None:
    world = World(*PLANS)
    world.do(register("00", "01"))
    with world.unchanged():
        assert world.do(register("00", "01")).registered == 0
    assert world.do(register("00", schemas='{"input":{}}')).registered == 1
    world.wait(FRESH // 1_000_000 + 1)
    assert world.do(register("01")).registered == 1
    newest = max(listed(world), key=lambda one: one.row.registered_at)

    assert newest.row.version == "01"


def test_the_versions_that_were_registered_first_are_forgotten() -> None:
    world = World(*PLANS)
    for version in reversed(VERSIONS):
        world.do(register(version))
        world.wait(1)

    assert [one.row.version for one in listed(world)] == VERSIONS[:VERSIONS_KEPT]


def test_only_a_process_with_the_code_registers_a_workflow() -> None:
    world = World(*PLANS)
    with pytest.raises(UnknownWorkflowError), world.unchanged():
        world.do(register("00", "none"))


@pytest.mark.parametrize("schemas", ["", "{", "[]", "null", '"input"', "[" * 60_000])
def test_schemas_that_are_no_object_are_refused(schemas: str) -> None:
    """No process could read them, and each would show the workflow without its schemas, or not at all."""
    world = World(*PLANS)
    with pytest.raises(InvalidCommandError, match="w@01 are not a JSON object"), world.unchanged():
        world.do(
            WorkflowRegister(
                namespace="default",
                workflows=(*register("00").workflows, *register("01", schemas=schemas).workflows),
            )
        )


def test_the_workflows_of_a_deleted_namespace_are_forgotten() -> None:
    world = World(*PLANS)
    for namespace in ("team", "other"):
        world.do(register("00", namespace=namespace))
    world.do(NamespaceDelete(namespace="team"))

    assert (len(listed(world, "team")), len(listed(world, "other"))) == (0, 1)


def newest(world: World) -> str:
    return max(listed(world), key=lambda one: one.row.registered_at).row.version


def test_the_last_version_of_a_process_stays_the_newest_when_only_an_older_one_is_new() -> None:
    world = World(*PLANS)
    world.do(register("02"))
    world.wait(30)
    assert world.do(register("01", "02")).registered == 2
    assert newest(world) == "02"


def test_a_process_with_more_versions_than_are_kept_writes_once_and_keeps_the_last() -> None:
    world = World(*PLANS)
    assert world.do(register(*VERSIONS)).registered == VERSIONS_KEPT
    with world.unchanged():
        assert world.do(register(*VERSIONS)).registered == 0
    assert newest(world) == VERSIONS[-1]


def test_a_version_that_is_given_twice_is_refused() -> None:
    world = World(*PLANS)
    with pytest.raises(InvalidCommandError, match="twice"), world.unchanged():
        world.do(register("00", "00"))
