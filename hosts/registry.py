"""Which code a process has: the workflows that it was given, by name and version."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from holdfast.kernel.authoring.calls import Definition
from holdfast.kernel.authoring.children import ChildStage
from holdfast.kernel.authoring.design import Test
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.stages import Stage
from holdfast.kernel.plan import Plan
from holdfast.ports.errors import DefinitionError


class Registry:
    """The workflows of one process."""

    def __init__(self, workflows: Iterable[Definition[object]]) -> None:
        self._pipelines: dict[str, Pipeline[Any, object]] = {}
        self._newest: dict[str, Pipeline[Any, object]] = {}
        self._bodies: dict[str, Mapping[str, Stage[Any, Any]]] = {}
        self._plans: list[Plan] = []
        for workflow in workflows:
            self._add(workflow)

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plans of all workflows, in the order in which they were given."""
        return tuple(self._plans)

    @property
    def definitions(self) -> tuple[str, ...]:
        """What code there is, as `<workflow>@<version>`."""
        return tuple(self._pipelines)

    def queues(self, default: str) -> tuple[str, ...]:
        """Return the queues that the stages name, and the default one."""
        named = {
            stage.queue
            for pipeline in self._pipelines.values()
            for stage in pipeline.bodies.values()
            if stage.queue
        }
        return (default, *sorted(named - {default}))

    def stage(self, definition: str, name: str) -> Stage[Any, object] | None:
        """Return a stage; None if this process lacks it."""
        bodies = self._bodies.get(definition)
        return None if bodies is None else bodies.get(name)

    def test(self, definition: str, name: str) -> Test | None:
        """Return what decides whether a node is done; None if nothing does, or this process lacks it."""
        pipeline = self._pipelines.get(definition)
        return None if pipeline is None else pipeline.tests.get(name)

    def pipeline(self, workflow: str, version: str | None = None) -> Pipeline[Any, object] | None:
        """Return a pipeline, of this version or the last that was given; None if there is none."""
        if version is None:
            return self._newest.get(workflow)
        return self._pipelines.get(f"{workflow}@{version}")

    def _add(self, workflow: Definition[object]) -> None:
        if not isinstance(workflow, Pipeline):
            raise DefinitionError(f"{workflow!r} is not a workflow; give the engine pipelines")
        pipeline = cast("Pipeline[Any, object]", workflow)
        plan = pipeline.plan()
        known = self._pipelines.get(plan.definition)
        if known is not None and known is not pipeline:
            raise DefinitionError(
                f"two workflows are called {plan.definition!r}; rename one, or give it another version"
            )
        if known is None:
            self._pipelines[plan.definition] = pipeline
            self._bodies[plan.definition] = pipeline.bodies
            self._plans.append(plan)
            for stage in pipeline.bodies.values():
                if isinstance(stage, ChildStage):
                    self._add(stage.workflow)
        self._newest[plan.workflow] = pipeline
