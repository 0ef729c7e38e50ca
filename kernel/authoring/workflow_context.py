"""`workflow_context()`: what a durable function itself can report, without a step.

The function has no I/O. It only passes on what it reports (`FunctionLoop.report`), and its driver stores it with the
rows that it records anyway (docs/decisions/0075). Arguments are checked in every replay, so that an error is raised in
each of them or in none.
"""

from collections.abc import Mapping
from typing import Final, NoReturn, Unpack, cast

import attrs

from holdfast.kernel.authoring.ai import AiCallOptions, call_output, check_call
from holdfast.kernel.authoring.attempt_context import Level, OutputContext
from holdfast.kernel.commands import AiCallOutput, AnnotationOutput, PublishedEvent
from holdfast.kernel.functions.loop import FunctionLoop, loop_for
from holdfast.kernel.values import encode
from holdfast.kernel.values.annotation_values import encode_annotation
from holdfast.ports.actors import Actor
from holdfast.ports.attempt_output import AnnotationScope
from holdfast.ports.errors import NotDurableError
from holdfast.ports.json import parse
from holdfast.ports.records.values import Payload
from holdfast.ports.structs import frozen
from holdfast.ports.validation import refused

CALL_MAX: Final = 16_384
"""Maximum length of the JSON text of a prompt, a response or metadata that a function logs, in characters."""
_PLAIN: Final = ("prompt", "response", "metadata")


@frozen(kw_only=True)
class LogOutput:
    """Content of an output of the kind `log`."""

    message: str
    fields: Mapping[str, str | float | bool]
    level: Level


@frozen(kw_only=True)
class ProgressOutput:
    """Content of an output of the kind `progress`."""

    done: float
    of: float
    message: str


@frozen(kw_only=True)
class AiOutput:
    """Content of an output of the kind `ai_call`: a call that is not redacted and not priced yet."""

    call: AiCallOutput
    options: AiCallOptions


@attrs.frozen
class FunctionOutputTarget:
    """See `OutputTarget`. Passes on what the function of a loop reports."""

    _loop: FunctionLoop

    def progress(self, done: float, of: float, message: str, /) -> None:
        """See `OutputTarget.progress`."""
        self._loop.report("progress", ProgressOutput(done=done, of=of, message=message))

    def log(self, message: str, fields: Mapping[str, str | float | bool], /, level: Level = "info") -> None:
        """See `OutputTarget.log`."""
        self._loop.report("log", LogOutput(message=message, fields=fields, level=level))

    def annotate(
        self,
        name: str,
        value: object,
        /,
        *,
        scope: AnnotationScope | None,
        actor: Actor | None,
        reason: str,
        key: str | None,
    ) -> None:
        """See `OutputTarget.annotate`. InvalidArgumentError for another scope than the run."""
        if scope not in {None, AnnotationScope.RUN}:
            raise refused("annotate", "scope", scope, "'run': a workflow annotates its run")
        annotation = AnnotationOutput(
            name=name,
            value=encode_annotation(value),
            scope=AnnotationScope.RUN,
            actor=actor or Actor(),
            reason=reason,
            key=key,
        )
        self._loop.report("annotation", annotation)

    def publish(self, type: str, data: str, /) -> None:
        """See `OutputTarget.publish`."""
        self._loop.report("event", PublishedEvent(type=type, payload=Payload(inline=data)))


@attrs.frozen
class FunctionAi:
    """The log of model calls of a durable function, as `workflow_context().ai`. Steps make the calls."""

    _loop: FunctionLoop

    def record(self, *, topic: str, model: str, **options: Unpack[AiCallOptions]) -> None:
        """Log one model call that a step made, as `step_context().ai.record` does in the step.

        A prompt, a response and metadata have up to 16,384 characters as JSON: log a longer one in the step.

        Raises:
            InvalidArgumentError: An option is unknown or of the wrong type, such as a cost that is a float.
            InvalidCommandError: A number is negative, or a text is too long.
            UnstorableValueError: A prompt, a response or metadata are not plain JSON, or too long.
        """
        check_call("record", topic, model, options)
        call = call_output(topic, model, options)
        plain = {
            name: parse(
                encode(options.get(name), object, max_bytes=CALL_MAX)
            )  # a copy: the function may go on
            for name in _PLAIN
            if options.get(name) is not None
        }
        self._loop.report("ai_call", AiOutput(call=call, options=cast("AiCallOptions", {**options, **plain})))


@attrs.frozen(kw_only=True, eq=False)
class WorkflowContext(OutputContext):
    """What a durable function itself can report, as `workflow_context()` returns it.

    Each call takes effect once, however often the function is replayed: what it reports is stored with the next history
    row, or within two seconds if there is none (events: a quarter of a second), and with the end of the function at the
    latest. Nothing is stored for code that a replay only repeats. Calls are not numbered, so a deploy may add and
    remove them anywhere. They never block, and nothing is awaited.

    Attributes:
        run_id: Id of the run.
        workflow: Name of the durable function.
    """

    _loop: FunctionLoop = attrs.field(alias="loop", repr=False)

    @property
    def ai(self) -> FunctionAi:
        """The log of model calls."""
        return FunctionAi(self._loop)

    @property
    def artifacts(self) -> NoReturn:
        """Raise NotDurableError: a function stores no bytes. A step does, with `step_context().artifacts`."""
        raise NotDurableError(
            "workflow_context().artifacts",
            "would write to the blob store",
            "Store the artifact in a step: step_context().artifacts.put(name, data)",
        )


def workflow_context() -> WorkflowContext:
    """Return the context of the durable function that calls this: `workflow_context().log("paid", cents=1999)`.

    RuntimeError outside of a workflow, and in a step: a step has `step_context()`.
    """
    loop = loop_for("holdfast.workflow_context()")
    return WorkflowContext(
        run_id=loop.run.id, workflow=loop.run.workflow, runtime=FunctionOutputTarget(loop), loop=loop
    )
