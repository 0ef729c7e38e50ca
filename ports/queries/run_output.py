"""Questions to a store about what runs say of themselves."""

from typing import Literal

import attrs

from holdfast.ports.attempt_output import AiCall, AiTotal, Annotation, Artifact, Scope
from holdfast.ports.pagination import ListPlace
from holdfast.ports.persistence import Query
from holdfast.ports.records import Micros, OutputRow


@attrs.frozen
class NotesInOrder(Query[tuple[OutputRow, ...]]):
    """What attempts of a run have said, in the order of `at` and id, after a place. Of these kinds; of all if none."""

    run: str
    after: ListPlace | None = attrs.field(default=None, kw_only=True)
    kinds: tuple[str, ...] = attrs.field(default=(), kw_only=True)
    limit: int = attrs.field(default=1_000, kw_only=True)


@attrs.frozen
class NewestProgress(Query[tuple[OutputRow, ...]]):
    """The newest note of kind `progress` of each job of a run that has one, by job, after that number."""

    run: str
    after: int = attrs.field(default=0, kw_only=True)
    limit: int = attrs.field(default=1_000, kw_only=True)


@attrs.frozen(kw_only=True)
class AnnotationFilter:
    """Which annotations are asked for: those of which all that is said here is true.

    `since` is the first instant that counts, `until` the first that does not any more.
    """

    name: str | None = None
    prefix: str | None = None
    actor_kind: str | None = None
    actor_id: str | None = None
    scope: Scope | None = None
    node: str | None = None
    item: int | None = None
    since: Micros | None = None
    until: Micros | None = None


@attrs.frozen
class AnnotationsOf(Query[tuple[Annotation, ...]]):
    """What was said of a run, oldest first. For the next page give the place of the last one as `after`."""

    run: str
    which: AnnotationFilter = attrs.field(factory=AnnotationFilter)
    after: ListPlace | None = attrs.field(default=None, kw_only=True)
    limit: int = attrs.field(default=100, kw_only=True)


@attrs.frozen
class ArtifactsOf(Query[tuple[Artifact, ...]]):
    """The artifacts of a run, by job, epoch and name; those of one name if it is given.

    For the next page give job, epoch and name of the last one as `after`.
    """

    run: str
    name: str | None = attrs.field(default=None, kw_only=True)
    after: tuple[int, int, str] | None = attrs.field(default=None, kw_only=True)
    limit: int = attrs.field(default=1_000, kw_only=True)


@attrs.frozen
class AiCallsOf(Query[tuple[AiCall, ...]]):
    """The calls of models of a run, oldest first: of a topic and those below it, and of a model, if these are given.

    For the next page give the place of the last one as `after`.
    """

    run: str
    topic: str | None = attrs.field(default=None, kw_only=True)
    model: str | None = attrs.field(default=None, kw_only=True)
    after: ListPlace | None = attrs.field(default=None, kw_only=True)
    limit: int = attrs.field(default=100, kw_only=True)


@attrs.frozen
class AiTotalsOf(Query[tuple[AiTotal, ...]]):
    """What the calls of models of a run come to, by model or by topic, in that order; of a topic if it is given."""

    run: str
    topic: str | None = attrs.field(default=None, kw_only=True)
    by: Literal["model", "topic"] = attrs.field(default="model", kw_only=True)
