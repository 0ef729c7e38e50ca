"""`holdfast workflow list`."""

from holdfast.hosts.cli.exit_codes import Exit
from holdfast.hosts.wiring.registered_workflows import register_workflows
from tests.unit.hosts.cli.conftest import CommandLine

ENGINE = "shop:engine"


def test_workflows_are_listed_with_what_they_take(holdfast: CommandLine) -> None:
    engine = holdfast.engine()
    before = holdfast("workflow", "list", ENGINE, "--json").json
    register_workflows(engine.core)
    found = holdfast("workflow", "list", ENGINE, "--json").json
    first = holdfast("workflow", "list", ENGINE, "--limit", "1")
    names = [one["name"] for one in found]

    assert names == sorted(plan.workflow for plan in engine.core.registry.plans)
    assert [one["name"] for one in before] == names
    assert {one["registered_at"] for one in before} == {None}
    assert all(one["has_code"] and one["registered_at"] and one["input"] for one in found)
    assert names[0] in first.out
    last = f"{names[0]}@{found[0]['version']}"
    assert f"--after {last}" in first.err
    assert holdfast("workflow", "list", ENGINE, "--after", last, "--json").json == found[1:]
    nothing = holdfast("workflow", "list", ENGINE, "--name", "none")
    assert (nothing.code, "no workflow" in nothing.err) == (Exit.OK, True)
