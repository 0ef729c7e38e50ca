"""Records that attempts and operators attach to a run: annotations, artifacts, and calls of AI models.

They belong to a run's key, are not numbered, and name the attempt that wrote them, if one did. Those of a run are
ordered by `at`, then by id.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import attrs

from holdfast.ports.json import parse
from holdfast.ports.pagination import ListPlace
from holdfast.ports.records.values import Micros, Payload
from holdfast.ports.search_values import codes_of

COST_DIGITS: Final = 12
"""Costs are stored as integers with this many decimal places."""


class AnnotationScope(StrEnum):
    """The part of a run that an annotation is about."""

    RUN = "run"
    STAGE = "stage"
    ITEM = "item"
    ATTEMPT = "attempt"


class AiCallKind(StrEnum):
    """The kind of response requested from a model."""

    TEXT = "text"
    OBJECT = "object"
    EMBED = "embed"
    STREAM = "stream"
    BATCH = "batch"


@attrs.frozen(kw_only=True)
class Annotation:
    """A value attached to a run, with its author, reason and time. Immutable."""

    run: str
    """The key of the run."""
    at: Micros
    """When it was made."""
    id: str
    namespace: str
    name: str
    value: str
    """JSON text."""
    scope: AnnotationScope = AnnotationScope.RUN
    """What it is about, which decides which of the next four fields are set."""
    node: str | None = None
    """The stage or step that it is about, unless `scope` is `run`."""
    item: int | None = None
    """The index of the map item that it is about, if any."""
    job: int | None = None
    """The number of the job whose attempt made it; None if no attempt did."""
    epoch: int | None = None
    """The epoch of that attempt."""
    actor_kind: str = ""
    actor_id: str = ""
    actor_version: str = ""
    reason: str = ""
    key: str | None = None
    """An idempotency key: per run, key and name an annotation is stored once."""

    @property
    def place(self) -> ListPlace:
        """The position in the order of a run's annotations."""
        return ListPlace(self.at, self.id)


@attrs.frozen(kw_only=True)
class Artifact:
    """A named blob that an attempt stored beside its output."""

    run: str
    job: int
    """The number of the job whose attempt stored it."""
    epoch: int
    call: str = ""
    """The call of the step that stored it; "" of a stage."""
    name: str
    node: str
    """The stage or step."""
    item: int | None = None
    at: Micros
    content_type: str
    size: int
    """In bytes."""
    sha256: str
    blob: str
    """The key in the blob store."""

    @property
    def key(self) -> tuple[str, int, int, str, str]:
        """Its name among all artifacts: run, job, epoch, call and name."""
        return self.run, self.job, self.epoch, self.call, self.name


@attrs.frozen(kw_only=True)
class AiCall:
    """One call of an AI model, made by an attempt."""

    run: str
    at: Micros
    id: str
    job: int
    """The number of the job whose attempt made the call."""
    epoch: int
    node: str
    item: int | None = None
    topic: str
    """A dotted path that groups calls, such as `report.page`."""
    model: str
    kind: AiCallKind
    input_tokens: int = 0
    output_tokens: int = 0
    cost: int | None = None
    """In units of 10**-12 of the currency; None if unknown."""
    duration: Micros | None = None
    """In microseconds."""
    batch: str | None = None
    """The id of the provider's batch that this result is from. Each result of a batch is stored once per run."""
    batch_index: int | None = None
    """The position in that batch."""
    prompt: Payload | None = None
    response: Payload | None = None
    error: str | None = None
    """Why the call failed; None if it succeeded."""
    metadata: str | None = None
    """JSON text."""

    @property
    def place(self) -> ListPlace:
        """The position in the order of a run's calls."""
        return ListPlace(self.at, self.id)


@attrs.frozen(kw_only=True)
class AiTotal:
    """The totals of the calls of one model or one topic."""

    name: str
    """The model or topic."""
    calls: int
    failed: int
    unpriced: int
    """How many calls have no known cost."""
    input_tokens: int
    output_tokens: int
    cost: int
    """In units of 10**-12 of the currency."""
    duration: Micros
    """In microseconds."""


def is_of_topic(topic: str, wanted: str | None) -> bool:
    """Whether a topic equals another one or is below it, as `report.page` is below `report`. All are below None."""
    return wanted is None or topic == wanted or topic.startswith(f"{wanted}.")


def annotation_codes(annotations: Iterable[Annotation]) -> set[tuple[str, str]]:
    """Return the names and codes by which a run with these annotations is found."""
    return {
        (annotation.name, code)
        for annotation in annotations
        if not annotation.value.startswith("{")
        for code in codes_of(parse(annotation.value))
    }
