"""What runs say about themselves, as frozen values: annotations, artifacts, and calls of models.

Like notes they hang on a run's key, are not numbered, and belong to an attempt where one said them. Those of a run are
in the order of their `at` and, of one instant, of their ids.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import attrs

from holdfast.ports.json import parse
from holdfast.ports.pagination import ListPlace
from holdfast.ports.records import Micros, Payload
from holdfast.ports.validation import TEXT, check

COST_DIGITS: Final = 12
"""Costs are integers: so many digits of them are behind the decimal point."""


class Scope(StrEnum):
    """What an annotation is about."""

    RUN = "run"
    STAGE = "stage"
    ITEM = "item"
    ATTEMPT = "attempt"


class AiCallKind(StrEnum):
    """What a model was asked for."""

    TEXT = "text"
    OBJECT = "object"
    EMBED = "embed"
    STREAM = "stream"
    BATCH = "batch"


def _text(_: object, field: "attrs.Attribute[str]", value: object) -> None:
    check("Actor", TEXT, **{field.name: value})


@attrs.frozen
class Actor:
    """Who says something.

    Attributes:
        kind: Such as `person`, `service` or `stage`.
        id: Which one of that kind.
        version: Of which version it is, if that matters.

    Raises:
        InvalidArgumentError: One of these is no string.
    """

    kind: str = attrs.field(default="", validator=_text)
    id: str = attrs.field(default="", validator=_text)
    version: str = attrs.field(default="", validator=_text)


@attrs.frozen(kw_only=True)
class Annotation:
    """Something that was said of a run: who, what, why and when. Never changed.

    `value` is JSON text. `node` and `item` say what it is about, as far as `scope` goes; `job` and `epoch` which
    attempt said it, if one did. `key` is what it was said under, so as to be said once.
    """

    run: str
    at: Micros
    id: str
    namespace: str
    name: str
    value: str
    scope: Scope = Scope.RUN
    node: str | None = None
    item: int | None = None
    job: int | None = None
    epoch: int | None = None
    actor_kind: str = ""
    actor_id: str = ""
    actor_version: str = ""
    reason: str = ""
    key: str | None = None

    @property
    def place(self) -> ListPlace:
        """Where it is in the order of what its run says."""
        return ListPlace(self.at, self.id)


@attrs.frozen(kw_only=True)
class Artifact:
    """A named blob that an attempt gave beside its output. `blob` is its key in the blob store."""

    run: str
    job: int
    epoch: int
    name: str
    node: str
    item: int | None = None
    at: Micros
    content_type: str
    size: int
    sha256: str
    blob: str


@attrs.frozen(kw_only=True)
class AiCall:
    """One call of a model that an attempt made.

    `cost` is in units of 10**-12 of whatever costs are counted in; None if it is not known. `duration` is in
    microseconds. `batch` and `batch_index` name the result of a batch: each is stored once in a run. `error` is why the
    call failed, None if it did not; `metadata` is JSON text.
    """

    run: str
    at: Micros
    id: str
    job: int
    epoch: int
    node: str
    item: int | None = None
    topic: str
    model: str
    kind: AiCallKind
    input_tokens: int = 0
    output_tokens: int = 0
    cost: int | None = None
    duration: Micros | None = None
    batch: str | None = None
    batch_index: int | None = None
    prompt: Payload | None = None
    response: Payload | None = None
    error: str | None = None
    metadata: str | None = None

    @property
    def place(self) -> ListPlace:
        """Where it is in the order of what its run says."""
        return ListPlace(self.at, self.id)


@attrs.frozen(kw_only=True)
class AiTotal:
    """What calls of one model, or of one topic, come to: `name` says which. `unpriced` are those of no known cost."""

    name: str
    calls: int
    failed: int
    unpriced: int
    input_tokens: int
    output_tokens: int
    cost: int
    duration: Micros


def is_of_topic(topic: str, wanted: str | None) -> bool:
    """Whether a topic is the one asked for, or below it, as `report.page` is below `report`; all are below None."""
    return wanted is None or topic == wanted or topic.startswith(f"{wanted}.")


def annotation_text(annotation: Annotation) -> str | None:
    """Return the text that an annotation's value is; None if it is no text. Runs are found by texts only."""
    if not annotation.value.startswith('"'):
        return None
    value: object = parse(annotation.value)
    return value if isinstance(value, str) else None


def annotation_texts(annotations: Iterable[Annotation]) -> set[tuple[str, str]]:
    """Return the names and texts by which a run of these annotations is found."""
    found = ((annotation.name, annotation_text(annotation)) for annotation in annotations)
    return {(name, text) for name, text in found if text is not None}
