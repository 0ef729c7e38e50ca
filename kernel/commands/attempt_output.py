"""What is said of runs: the command that annotates one, and what attempts say in heartbeats and settles."""

from typing import Any, ClassVar, Final, Literal

import attrs

from holdfast.kernel.commands.command import Command
from holdfast.ports.attempt_output import Actor, AiCallKind, Scope
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.json import parse
from holdfast.ports.records import Micros, Payload
from holdfast.ports.structs import frozen

ANNOTATIONS_MAX: Final = 100
"""How many annotations one command may hold."""
VALUE_MAX: Final = 16_384
"""How many characters the JSON text of an annotation's value may have."""
NAME_MAX: Final = 200
REASON_MAX: Final = 2_000
NUMBER_MAX: Final = 10**18
"""What tokens, costs and durations are below, so that every store can keep and add them."""


def _fault(text: str, most: int, least: int) -> str | None:
    if not least <= len(text) <= most:
        return f"it has {len(text)} characters; {least} to {most} are possible"
    if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
        return "no database can keep a NUL or half a surrogate pair"
    return None


def _text(most: int, least: int = 0) -> Any:
    def check(_: object, field: "attrs.Attribute[Any]", value: str | None) -> None:
        fault = None if value is None else _fault(value, most, least)
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
        parse(value)
    except (ValueError, RecursionError):
        raise InvalidCommandError(f"{field.name} is {value!r:.50}, which is no JSON text") from None
    if not value.isascii():
        raise InvalidCommandError(f"{field.name} is no canonical JSON text: that is ASCII only")


def _actor(_: object, field: "attrs.Attribute[Any]", value: Actor) -> None:
    for part, text in (("kind", value.kind), ("id", value.id), ("version", value.version)):
        if fault := _fault(text, NAME_MAX, 0):
            raise InvalidCommandError(f"{field.name}.{part} is {text!r:.50}: {fault}")


@frozen(kw_only=True)
class NamedValue:
    """What is said: a name, and a value as canonical JSON text."""

    name: str = attrs.field(validator=_text(NAME_MAX, 1))
    value: str = attrs.field(validator=_json)


def _several(_: object, field: "attrs.Attribute[Any]", value: tuple[NamedValue, ...]) -> None:
    if not value:
        return
    if len(value) > ANNOTATIONS_MAX:
        raise InvalidCommandError(f"{field.name}: {len(value)} at once; {ANNOTATIONS_MAX} are possible")
    names = [one.name for one in value]
    if len(set(names)) < len(names):
        raise InvalidCommandError(f"{field.name}: a name is there twice; a name has one value at a time")


named_values: Final = _several
"""Refuses too many named values, or two of one name."""


@frozen(kw_only=True)
class RunAnnotated:
    """How many annotations were stored: all, or none if something was said of the run under this key before."""

    run: str
    generation: int
    stored: int


@frozen(kw_only=True)
class RunAnnotate(Command[RunAnnotated]):
    """Say something of a run, or of a stage or an item of it, whatever its status. RunNotFoundError.

    What was said is never changed. With a `key`, only the first command with this key says anything of the run.
    """

    type: ClassVar[Literal["run.annotate"]] = "run.annotate"
    run_id: str
    annotations: tuple[NamedValue, ...] = attrs.field(validator=_several)
    actor: Actor = attrs.field(default=Actor(), validator=_actor)
    reason: str = attrs.field(default="", validator=_text(REASON_MAX))
    key: str | None = attrs.field(default=None, validator=_text(255, 1))
    stage: str | None = None
    item: int | None = None


# The data of `AttemptOutput` ------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class AnnotationOutput:
    """The data of an `AttemptOutput` of the kind `annotation`."""

    name: str = attrs.field(validator=_text(NAME_MAX, 1))
    value: str = attrs.field(validator=_json)
    scope: Scope = Scope.ATTEMPT
    actor: Actor = attrs.field(default=Actor(), validator=_actor)
    reason: str = attrs.field(default="", validator=_text(REASON_MAX))
    key: str | None = attrs.field(default=None, validator=_text(255, 1))


@frozen(kw_only=True)
class ArtifactOutput:
    """The data of an `AttemptOutput` of the kind `artifact`. Stored with a settle only, and not if the body failed."""

    name: str = attrs.field(validator=_text(NAME_MAX, 1))
    content_type: str = attrs.field(validator=_text(NAME_MAX, 1))
    size: int = attrs.field(validator=_count)
    sha256: str
    blob: str


@frozen(kw_only=True)
class AiCallOutput:
    """The data of an `AttemptOutput` of the kind `ai_call`. See `AiCall`."""

    id: str | None = attrs.field(default=None, validator=_text(64, 1))
    """What names it, so that it counts once, however often it is told."""
    topic: str = attrs.field(validator=_text(NAME_MAX, 1))
    model: str = attrs.field(validator=_text(NAME_MAX, 1))
    kind: AiCallKind = AiCallKind.TEXT
    input_tokens: int = attrs.field(default=0, validator=_count)
    output_tokens: int = attrs.field(default=0, validator=_count)
    cost: int | None = attrs.field(default=None, validator=_count)
    duration: Micros | None = attrs.field(default=None, validator=_count)
    batch: str | None = attrs.field(default=None, validator=_text(255, 1))
    batch_index: int | None = attrs.field(default=None, validator=_count)
    prompt: Payload | None = None
    response: Payload | None = None
    error: str | None = None
    metadata: str | None = None

    def __attrs_post_init__(self) -> None:
        if (self.batch is None) != (self.batch_index is None):
            raise InvalidCommandError("batch and batch_index go together")
