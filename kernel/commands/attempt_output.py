"""The command that annotates a run, and the data of annotations, artifacts and AI calls that attempts send."""

from typing import Any, ClassVar, Final, Literal

import attrs

from holdfast.kernel.commands.command import OperatorCommand, check_actor
from holdfast.kernel.commands.names import NAME_MAX, text_fault
from holdfast.ports.actors import Actor
from holdfast.ports.attempt_output import AiCallKind, AnnotationScope
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.json import parse_input
from holdfast.ports.records.values import Micros, Payload
from holdfast.ports.structs import frozen

ANNOTATIONS_MAX: Final = 100
"""Most annotations in one command."""
VALUE_MAX: Final = 16_384
"""Longest JSON text of an annotation's value, in characters."""
REASON_MAX: Final = 2_000
"""Longest reason of an annotation, in characters."""
NUMBER_MAX: Final = 10**18
"""Exclusive upper bound of tokens, costs and durations: every store can hold them and add them up."""


def _text(most: int, least: int = 0) -> Any:
    def check(_: object, field: "attrs.Attribute[Any]", value: str | None) -> None:
        fault = None if value is None else text_fault(value, most, least)
        if fault:
            raise InvalidCommandError(f"{field.name} is {value!r:.50}: {fault}")

    return check


def _count(_: object, field: "attrs.Attribute[Any]", value: int | None) -> None:
    if value is not None and not 0 <= value < NUMBER_MAX:
        raise InvalidCommandError(f"{field.name} is {value}; it must be at least 0 and less than 10**18")


def _json(_: object, field: "attrs.Attribute[Any]", value: str) -> None:
    if len(value) > VALUE_MAX:
        raise InvalidCommandError(
            f"{field.name} has {len(value)} characters; at most {VALUE_MAX} are possible"
        )
    try:
        parse_input(value)
    except (ValueError, RecursionError) as error:
        raise InvalidCommandError(f"{field.name} is {value!r:.50}, which is not JSON: {error}") from None
    if not value.isascii():
        raise InvalidCommandError(f"{field.name} is not canonical JSON, which is ASCII only")


@frozen(kw_only=True)
class NewAnnotation:
    """One annotation to store."""

    name: str = attrs.field(validator=_text(NAME_MAX, 1))
    value: str = attrs.field(validator=_json)
    """The value as canonical JSON text."""


def _several(_: object, field: "attrs.Attribute[Any]", value: tuple[NewAnnotation, ...]) -> None:
    if not value:
        return
    if len(value) > ANNOTATIONS_MAX:
        raise InvalidCommandError(f"{field.name}: {len(value)} at once; {ANNOTATIONS_MAX} are possible")
    names = [one.name for one in value]
    if len(set(names)) < len(names):
        raise InvalidCommandError(f"{field.name}: a name is repeated; a name has one value at a time")


check_annotations: Final = _several
"""attrs validator: raises InvalidCommandError for more than `ANNOTATIONS_MAX` values or a repeated name."""


@frozen(kw_only=True)
class RunAnnotated:
    """Reply to `RunAnnotate`."""

    run: str
    """Key of the annotated generation."""
    generation: int
    """Number of the annotated generation, the newest one."""
    stored: int
    """How many annotations were stored. Names that the run already has under the same key are not stored again."""


@frozen(kw_only=True)
class RunAnnotate(OperatorCommand[RunAnnotated]):
    """Command to annotate a run, a stage or a map item, whatever the run's status. Annotations never change.

    `actor` is their author.

    Errors: RunNotFoundError; InvalidCommandError if the run has no such stage.
    """

    type: ClassVar[Literal["run.annotate"]] = "run.annotate"
    run_id: str
    annotations: tuple[NewAnnotation, ...] = attrs.field(validator=_several)
    """At most `ANNOTATIONS_MAX`, each name once."""
    reason: str = attrs.field(default="", validator=_text(REASON_MAX))
    key: str | None = attrs.field(default=None, validator=_text(255, 1))
    """Deduplication key: under one key, each name is stored once in a run."""
    stage: str | None = None
    """Name of the annotated stage; None: the run."""
    item: int | None = None
    """Index of the annotated map item of `stage`, from 0."""


# Data of `AttemptOutput` ----------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class AnnotationOutput:
    """Data of an `AttemptOutput` of the kind `annotation`."""

    name: str = attrs.field(validator=_text(NAME_MAX, 1))
    value: str = attrs.field(validator=_json)
    """The value as canonical JSON text."""
    scope: AnnotationScope = AnnotationScope.ATTEMPT
    """Whether it annotates the run, the stage, the map item or the attempt."""
    actor: Actor = attrs.field(default=Actor(), validator=check_actor)
    """The annotation's author."""
    reason: str = attrs.field(default="", validator=_text(REASON_MAX))
    key: str | None = attrs.field(default=None, validator=_text(255, 1))
    """Deduplication key: under one key, each name is stored once in a run."""


@frozen(kw_only=True)
class ArtifactOutput:
    """Data of an `AttemptOutput` of the kind `artifact`. Stored by `JobSettle` only, unless the body failed."""

    name: str = attrs.field(validator=_text(NAME_MAX, 1))
    content_type: str = attrs.field(validator=_text(NAME_MAX, 1))
    """MIME type."""
    size: int = attrs.field(validator=_count)
    """Length in bytes."""
    sha256: str
    """SHA-256 of the content, in hexadecimal."""
    blob: str
    """Key of the content in the blob store."""


@frozen(kw_only=True)
class AiCallOutput:
    """Data of an `AttemptOutput` of the kind `ai_call`. See `AiCall`."""

    id: str | None = attrs.field(default=None, validator=_text(64, 1))
    """Id that makes reporting the same call twice harmless."""
    topic: str = attrs.field(validator=_text(NAME_MAX, 1))
    """Dotted name of what the call is for. Totals of a topic include the topics below it."""
    model: str = attrs.field(validator=_text(NAME_MAX, 1))
    kind: AiCallKind = AiCallKind.TEXT
    input_tokens: int = attrs.field(default=0, validator=_count)
    output_tokens: int = attrs.field(default=0, validator=_count)
    cost: int | None = attrs.field(default=None, validator=_count)
    """Cost in units of 10**-12 of the currency; None: not known."""
    duration: Micros | None = attrs.field(default=None, validator=_count)
    batch: str | None = attrs.field(default=None, validator=_text(255, 1))
    """Name of the batch that the call belongs to. Each result of a batch is stored once in a run."""
    batch_index: int | None = attrs.field(default=None, validator=_count)
    """Position in the batch, from 0. Given if and only if `batch` is."""
    prompt: Payload | None = None
    response: Payload | None = None
    error: str | None = None
    """Why the call failed; None: it succeeded."""
    metadata: str | None = None
    """JSON text."""

    def __attrs_post_init__(self) -> None:
        if (self.batch is None) != (self.batch_index is None):
            raise InvalidCommandError("batch and batch_index must be set together")
