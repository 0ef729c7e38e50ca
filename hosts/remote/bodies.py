"""The bodies of a remote worker: steps and stages as functions of a task."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeAlias, cast

import anyio
import anyio.to_thread
import attrs
from anyio import CapacityLimiter

from holdfast.hosts.remote.services import RemoteServices
from holdfast.kernel.authoring.child_stages import ChildStage
from holdfast.kernel.authoring.external import ExternalStage
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipeline_builder import rule_name
from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.kernel.authoring.stages import Stage
from holdfast.kernel.authoring.step_context import StepContext, enter_step
from holdfast.kernel.authoring.steps import Step
from holdfast.kernel.values import decode, encode
from holdfast.kernel.values.type_forms import Form
from holdfast.ports.errors import DefinitionError, InvalidValueError, StepResultError, UnstorableValueError
from holdfast.ports.json import compact

AnyStep: TypeAlias = Step[..., Any]
AnyStage: TypeAlias = Stage[Any, Any]
Task: TypeAlias = Mapping[str, Any]


@attrs.frozen
class RetryNames:
    """The error classes that a retry policy knows, by name."""

    rules: frozenset[str]
    give_up_on: frozenset[str]


def names_of(retry: Retry | None) -> RetryNames:
    """Return the classes of a policy."""
    if retry is None:
        return RetryNames(frozenset(), frozenset())
    return RetryNames(frozenset(map(rule_name, retry.by_error)), frozenset(map(rule_name, retry.give_up_on)))


@attrs.frozen(kw_only=True)
class RemoteBody:
    """A step or stage that a worker runs."""

    name: str
    is_stage: bool
    is_async: bool
    retry: Retry | None
    """Its policy in the worker's code, for a server that knows none."""
    timeout: timedelta | None
    """Its timeout in the worker's code."""
    output: Form
    """The type of its result."""
    called: Callable[[Task, str, RemoteServices, datetime | None], Callable[[], object]]
    """Returns the call for a task, given the JSON text of its input, its services and its deadline."""

    def names(self, task: Task) -> RetryNames:
        """Return the error classes that the policy of a task knows: the server's, or else those of this code."""
        found = task.get("retry")
        if found is None:
            return names_of(self.retry)
        return RetryNames(frozenset(found["rules"]), frozenset(found["give_up_on"]))

    async def result(self, task: Task, text: str, services: RemoteServices, threads: CapacityLimiter) -> str:
        """Run the body, and return the JSON text of its result. Raises its errors, and TimeoutError."""
        seconds = self._seconds(task)
        deadline = None if seconds is None else datetime.now(UTC) + timedelta(seconds=seconds)
        call = self.called(task, text, services, deadline)
        try:
            with anyio.fail_after(seconds):
                if self.is_async:
                    value = await cast("Awaitable[object]", call())
                else:
                    value = await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=threads)
                    if inspect.isawaitable(value):
                        value = await cast("Awaitable[object]", value)
        except BaseException:
            # A sync body that was abandoned goes on in its thread, and can see this.
            services.cancelled = True
            raise
        try:
            return encode(value, self.output)
        except (InvalidValueError, UnstorableValueError) as error:
            raise StepResultError(str(error)) from error

    def _seconds(self, task: Task) -> float | None:
        own = None if self.timeout is None else self.timeout.total_seconds()
        return min((one for one in (own, task.get("timeout_seconds")) if one is not None), default=None)


def bodies_of(steps: Sequence[AnyStep], stages: Sequence[AnyStage]) -> Sequence[RemoteBody]:
    """Return the bodies of steps and stages. DefinitionError for one that a remote worker can't run."""
    bodies = (*map(_of_step, steps), *map(_of_stage, stages))
    seen: set[tuple[bool, str]] = set()
    for one in bodies:
        what = "stages" if one.is_stage else "steps"
        if (one.is_stage, one.name) in seen:
            raise DefinitionError(f"two {what} are called {one.name!r}; rename one with name=...")
        seen.add((one.is_stage, one.name))
    return bodies


def queues_of(steps: Iterable[AnyStep], stages: Iterable[AnyStage]) -> set[str]:
    """Return the queues of steps and stages; that of a stage without one is "default"."""
    return {*(step.queue or "" for step in steps), *(stage.queue or "default" for stage in stages)}


def _of_step(step: AnyStep) -> RemoteBody:
    if not isinstance(step, Step):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DefinitionError(f"{step!r:.200} is not a step: pass functions with @step(queue=...)")
    if step.queue is None:
        raise DefinitionError(f"step {step.name!r} has no queue: it runs with its durable function")

    def called(
        task: Task, text: str, services: RemoteServices, deadline: datetime | None
    ) -> Callable[[], object]:
        args, kwargs = step.form.arguments_from(text)
        context = StepContext(
            run_id=task["run_id"],
            workflow=task["workflow"],
            step=step.name,
            attempt=task["attempt"],
            idempotency_key=task["idempotency_key"],
            deadline=deadline,
            headers=task["headers"],
            runtime=services,
        )
        enter_step(lambda: context)
        return partial(step.body, *args, **kwargs)

    return RemoteBody(
        name=step.name,
        is_stage=False,
        is_async=step.is_async,
        retry=step.retry,
        timeout=step.timeout,
        output=step.form.output,
        called=called,
    )


def _of_stage(stage: AnyStage) -> RemoteBody:
    if not isinstance(stage, Stage):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DefinitionError(f"{stage!r:.200} is not a stage: pass functions with @stage")
    if isinstance(stage, ChildStage | ExternalStage):
        raise DefinitionError(f"stage {stage.name!r} is a workflow or external: a remote worker can't run it")
    if stage.remote:
        raise DefinitionError(
            f"stage {stage.name!r} is declared with remote=True, so its function is not called; pass the stage with the"
            " body, which has the same name and no remote=True"
        )

    def called(
        task: Task, text: str, services: RemoteServices, deadline: datetime | None
    ) -> Callable[[], object]:
        value = decode(text, stage.input_type) if stage.shape.values else None
        context = StageContext[Any](
            run_id=task["run_id"],
            workflow=task["workflow"],
            stage=stage.name,
            item=task["item"],
            attempt=task["attempt"],
            epoch=task["epoch"],
            idempotency_key=task["idempotency_key"],
            deadline=deadline,
            headers=task["headers"],
            config=stage.read_config(None if task["config"] is None else compact(task["config"])),
            scheduled=None,
            runtime=services,
        )
        return partial(stage.body, *stage.arguments(value, context))

    return RemoteBody(
        name=stage.name,
        is_stage=True,
        is_async=stage.is_async,
        retry=stage.retry,
        timeout=stage.timeout,
        output=stage.output_type,
        called=called,
    )
