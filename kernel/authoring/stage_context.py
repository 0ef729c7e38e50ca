"""`StageContext`: what a stage can read and write while it runs, and the protocol that hosts implement for it."""

from functools import partial
from typing import Any, Final, Generic, Protocol, cast, overload

import attrs
from typing_extensions import TypeVar, override

from holdfast.kernel.authoring.attempt_context import AsyncAccess, AttemptContext, AttemptServices
from holdfast.kernel.authoring.nodes import AnyNode, PlanNode
from holdfast.kernel.authoring.scheduled_runs import Scheduled
from holdfast.kernel.values.stored_values import decode_recorded
from holdfast.ports.errors import OutputMissingError, StageCancelledError
from holdfast.ports.validation import an, check

R = TypeVar("R")
T = TypeVar("T")
ConfigOut = TypeVar("ConfigOut", covariant=True, default=None)

_STAGE: Final = an("a stage of the pipeline, and not its name", PlanNode)
_NOTHING: Final = object()


@attrs.frozen
class StageOutputs:
    """The output of a stage as canonical JSON: one text, or for a mapped stage one for each item."""

    texts: tuple[str, ...]
    mapped: bool = False


class StageRuntime(AttemptServices, Protocol):
    """What a host provides for a stage's context. Its methods may be called from any thread."""

    def outputs(self, stage: str, /) -> StageOutputs | None:
        """Return the output of a stage; None if the run has no such stage, or it has not completed."""
        ...


@attrs.frozen(kw_only=True, eq=False)
class StageContext(AttemptContext, Generic[ConfigOut]):
    """The context of a stage, passed to a body whose first parameter is annotated `StageContext`.

    Of its own methods, `output_of` and `outputs_of` block; see `AttemptContext`.

    Attributes:
        run_id: Id of the run.
        workflow: Name of the pipeline.
        stage: Name of the stage.
        item: Index of the map item, from 0; None if the stage is not mapped.
        attempt: Number of this attempt, from 1.
        epoch: Number of the job's claim. It rises with every claim, including those that were given back.
        idempotency_key: The same text for every attempt of this stage or map item. Pass it to services that accept
            idempotency keys.
        deadline: When the attempt times out, or the run's deadline if that is earlier; None if neither is set.
        headers: The headers of the run.
        scheduled: Which schedule started the run, and for which time; None if none did.
        config: The config set with `configure`, or the defaults of the config class.
    """

    stage: str
    item: int | None = None
    epoch: int
    config: ConfigOut
    scheduled: Scheduled | None = None
    _runtime: StageRuntime = attrs.field(alias="runtime", repr=False)

    @overload
    def output_of(self, stage: AnyNode[R], /) -> R: ...
    @overload
    def output_of(self, stage: AnyNode[R], /, default: T) -> R | T: ...
    def output_of(self, stage: AnyNode[object], /, default: object = _NOTHING) -> object:
        """Return the output of an earlier stage: `ctx.output_of(extract)`.

        Raises:
            OutputMissingError: The run has no such stage or it has not completed, and no default is given; or the stage
                was mapped.
        """
        check("output_of", _STAGE, stage=stage)
        outputs = self._runtime.outputs(stage.name)
        if outputs is None and default is not _NOTHING:
            return default
        if outputs is None:
            raise _missing(stage.name)
        if outputs.mapped:
            raise OutputMissingError(stage.name, "it was mapped; use outputs_of for the list of its outputs")
        return decode_recorded(
            outputs.texts[0], stage.output_type, f"the output of stage {stage.name!r} gave"
        )

    def outputs_of(self, stage: AnyNode[R], /) -> list[R]:
        """Return the outputs of an earlier mapped stage as a list, in the order of the items.

        Raises:
            OutputMissingError: The run has no such stage, it has not completed, or it was not mapped.
        """
        check("outputs_of", _STAGE, stage=stage)
        outputs = self._runtime.outputs(stage.name)
        if outputs is None:
            raise _missing(stage.name)
        if not outputs.mapped:
            raise OutputMissingError(stage.name, "it was not mapped; use output_of for its output")
        what = f"the output of stage {stage.name!r} for an item"
        return [cast("R", decode_recorded(text, stage.output_type, what)) for text in outputs.texts]

    @property
    @override
    def aio(self) -> "StageAsyncAccess":
        """Async versions of the methods that block: `await ctx.aio.output_of(extract)`."""
        return StageAsyncAccess(self, self._runtime)

    def check_cancelled(self) -> None:
        """Raise StageCancelledError if the body should stop. For loops in sync bodies: async bodies are cancelled."""
        if self._runtime.cancelled:
            raise StageCancelledError(self.run_id, self.stage)


@attrs.frozen
class StageAsyncAccess(AsyncAccess):
    """The blocking methods of `StageContext` as async ones, as `ctx.aio`. They run in threads."""

    _context: StageContext[Any]
    _runtime: AttemptServices

    @overload
    async def output_of(self, stage: AnyNode[R], /) -> R: ...
    @overload
    async def output_of(self, stage: AnyNode[R], /, default: T) -> R | T: ...
    async def output_of(self, stage: AnyNode[object], /, default: object = _NOTHING) -> object:
        """See `StageContext.output_of`."""
        return await self._runtime.in_thread(partial(self._context.output_of, stage, default))

    async def outputs_of(self, stage: AnyNode[R], /) -> list[R]:
        """See `StageContext.outputs_of`."""
        return await self._runtime.in_thread(partial(self._context.outputs_of, stage))


def _missing(stage: str) -> OutputMissingError:
    return OutputMissingError(stage, "it is not an earlier stage of this pipeline, or it has not completed")
