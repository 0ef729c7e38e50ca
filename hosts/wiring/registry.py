"""The registry of the code that a process has: workflows by name and version, and steps with a queue."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, cast

from holdfast.hosts.wiring.step_discovery import shared_primitives, steps_within, workflows_within
from holdfast.kernel.authoring.calls import WorkflowDefinition
from holdfast.kernel.authoring.child_stages import ChildStage
from holdfast.kernel.authoring.functions import FunctionStage, Workflow
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipeline_builder import Condition
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.stages import Stage
from holdfast.kernel.authoring.steps import Step, StepStage, stage_of_step
from holdfast.kernel.pipelines.plan import Plan
from holdfast.ports.errors import DefinitionError, UnknownWorkflowError
from holdfast.ports.records.job import remote_stage_definition, step_definition
from holdfast.ports.validation import several

Authored: TypeAlias = Pipeline[Any, object] | Workflow[..., object]


class Registry:
    """The workflows and queued steps of one process."""

    def __init__(
        self,
        workflows: Iterable[WorkflowDefinition[object]],
        steps: Iterable[Step[..., Any]] = (),
        *,
        retry: Retry | None = None,
    ) -> None:
        self.retry = retry
        """The policy of stages and steps that have none."""
        self._pipelines: dict[str, Authored] = {}
        self._newest: dict[str, Authored] = {}
        self._bodies: dict[str, Mapping[str, Stage[Any, Any]]] = {}
        self._plans: list[Plan] = []
        self._steps: dict[str, StepStage[Any, object]] = {}
        self._remote_stages: dict[str, Stage[Any, object]] = {}
        for workflow in several(
            "Engine", "workflows", workflows, "a list of workflows, such as [my_pipeline]"
        ):
            self._add(workflow)
        for step in several("Engine", "steps", steps, "a list of queued steps, such as [my_step]"):
            self._add_step(step)

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plans of all workflows, in the order of registration."""
        return tuple(self._plans)

    @property
    def definitions(self) -> tuple[str, ...]:
        """The definitions that this process can run: `<workflow>@<version>`, and `step:<name>` for queued steps."""
        return (*self._pipelines, *self._steps)

    @property
    def remote_stages(self) -> "Mapping[str, Stage[Any, object]]":
        """The stages that only remote workers run, by their definitions, `stage:<name>`."""
        return self._remote_stages

    @property
    def workflows(self) -> "tuple[Authored, ...]":
        """The workflows, in the order of registration."""
        return tuple(self._pipelines.values())

    @property
    def missing_children(self) -> tuple[tuple[str, str], ...]:
        """Workflows that durable functions mention and this process lacks: pairs of the function and the workflow."""
        found = {
            (function.plan().definition, f"{child.name}@{child.version}"): None
            for function in self.workflows
            if isinstance(function, Workflow)
            for child in workflows_within(function.function)
        }
        return tuple(pair for pair in found if pair[1] not in self._pipelines)

    def queues(self, default: str) -> tuple[str, ...]:
        """Return the queues of all workflows, stages and steps, the default one first."""
        named = {
            stage.queue
            for pipeline in self._pipelines.values()
            for stage in pipeline.bodies.values()
            if stage.queue and not stage.remote
        }
        named |= {plan.queue for plan in self._plans if plan.queue}
        named |= {stage.step.queue for stage in self._steps.values() if stage.step.queue}
        return (default, *sorted(named - {default}))

    def stage(self, definition: str, name: str) -> Stage[Any, object] | None:
        """Return a stage; None if this process lacks it."""
        bodies = self._bodies.get(definition)
        return None if bodies is None else bodies.get(name)

    def step(self, definition: str) -> Stage[Any, object] | None:
        """Return the stage that runs a queued step; None if this process lacks it."""
        return self._steps.get(definition)

    def condition(self, definition: str, name: str) -> Condition | None:
        """Return the condition of a node; None if it has none, or this process lacks it."""
        pipeline = self._pipelines.get(definition)
        return None if pipeline is None else pipeline.conditions.get(name)

    def unknown_workflow(self, workflow: str, version: str | None = None) -> UnknownWorkflowError:
        """Return the error for a workflow that this process lacks. It names a similar one, if there is one."""
        return UnknownWorkflowError(workflow, version, tuple(self._pipelines))

    def find_workflow(self, workflow: str, version: str | None = None) -> Authored | None:
        """Return a workflow in this version, or in the version registered last; None if this process lacks it."""
        if version is None:
            return self._newest.get(workflow)
        return self._pipelines.get(f"{workflow}@{version}")

    def _add(self, workflow: WorkflowDefinition[object]) -> None:
        if not isinstance(workflow, Pipeline | Workflow):
            hint = (
                f"; to run this stage on its own, use Pipeline(...).pipe({workflow.name})"
                if isinstance(workflow, Stage)
                else ""
            )
            raise DefinitionError(
                f"{_named(workflow)} is not a workflow: pass functions with @workflow, and pipelines. Their steps"
                f" and stages are found automatically{hint}"
            )
        pipeline = cast("Authored", workflow)
        configured = pipeline if self.retry is None else pipeline.with_default_retry(self.retry)
        plan = configured.plan()
        known = self._pipelines.get(plan.definition)
        if known is not None and known is not pipeline:
            raise DefinitionError(
                f"two workflows are called {plan.definition!r}; rename one, or give it another version"
            )
        if known is None:
            self._pipelines[plan.definition] = pipeline
            self._bodies[plan.definition] = configured.bodies
            self._plans.append(plan)
            for stage in pipeline.bodies.values():
                if isinstance(stage, ChildStage):
                    self._add(stage.workflow)
                if stage.remote:
                    self._add_remote_stage(configured.bodies[stage.name])
                if isinstance(stage, FunctionStage):
                    _check_shared(stage.workflow)
                    for step in steps_within(stage.workflow.function):
                        self._add_step(step)
        self._newest[plan.workflow] = pipeline

    def _add_remote_stage(self, stage: Stage[Any, object]) -> None:
        known = self._remote_stages.setdefault(remote_stage_definition(stage.name), stage)
        if known.body is not stage.body:
            raise DefinitionError(
                f"two remote stages are called {stage.name!r}; rename one with @stage(name=..., remote=True): remote"
                " workers find a stage by its name"
            )

    def _add_step(self, step: Step[..., Any]) -> None:
        if not isinstance(step, Step):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DefinitionError(
                f"{step!r} is not a step; pass functions with @step(queue=...) to the engine"
            )
        if step.queue is None:
            raise DefinitionError(
                f"step {step.name!r} has no queue: it runs with its durable function, and is not registered"
            )
        definition = step_definition(step.name)
        known = self._steps.get(definition)
        if known is not None and known.step is not step:
            raise DefinitionError(
                f"two queued steps are called {step.name!r}; rename one with @step(name=...): workers find a queued"
                " step by its name"
            )
        self._steps[definition] = stage_of_step(step)


def _named(value: object) -> str:
    """Return a value as an error names it: a step or a stage by its name."""
    match value:
        case Step(name=name):
            return f"step {name!r}"
        case Stage(name=name):
            return f"stage {name!r}"
        case _:
            return repr(value)


def _check_shared(workflow: Workflow[..., object]) -> None:
    """Raise DefinitionError if a function uses an asyncio primitive from outside.

    Each run has an event loop of its own, so runs can't share such objects.
    """
    for name, found in shared_primitives(workflow.function):
        raise DefinitionError(
            f"workflow {workflow.name!r} uses {name!r}, an asyncio.{type(found).__name__} that was created outside of"
            " it: all runs in a process would share it, and no replay could repeat what others did with it; create it"
            " in the function, and between runs use messages, max_concurrency or a concurrency_key"
        )
